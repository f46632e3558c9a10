//! `prontod`, `pronto ping` and `pronto status` as an operator uses them.

use core::time::Duration;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(20);

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself, which is what most tests want of it.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn start(config: &Path) -> Daemon {
    let child = Command::new(env!("CARGO_BIN_EXE_prontod"))
        .arg("--config")
        .arg(config)
        .stderr(Stdio::piped())
        .spawn();
    let mut daemon = Daemon(child.expect("it starts"));
    let mut lines = BufReader::new(daemon.0.stderr.take().expect("piped")).lines();
    let first = lines.next().expect("it says where it listens").expect("as text");
    assert!(first.contains("listens at"), "{first}");
    std::thread::spawn(move || lines.for_each(drop));
    daemon
}

fn pronto(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pronto")).args(arguments).output().expect("it runs")
}

fn config(dir: &Path, node: u16, extra: &str) -> std::path::PathBuf {
    let file = dir.join(format!("{node}.toml"));
    let text = format!(
        "node = {node}\nname = \"n{node}\"\nlisten = [\"shm:{}/{node}.sock\"]\n{extra}",
        dir.display()
    );
    std::fs::write(&file, text).expect("a temporary directory takes files");
    file
}

fn directory(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("pronto-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    dir
}

/// Asks a node until it says what it must say in the end.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    #[expect(
        clippy::disallowed_methods,
        reason = "a wait is bounded by time, not by how quickly a node answers"
    )]
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
    }
}

#[test]
fn a_node_is_pinged_asked_and_stopped() {
    let dir = directory("daemon");
    let one = config(&dir, 1, "");
    let peer = format!("[[peer]]\nnode = 1\naddress = [\"shm:{}/1.sock\"]\n", dir.display());
    let two = config(&dir, 2, &peer);
    let _two = start(&two);
    let mut first = start(&one);

    let ping = pronto(&["ping", "--config", one.to_str().expect("text"), "--count", "3", "--json"]);
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr));
    let ping: serde_json::Value = serde_json::from_slice(&ping.stdout).expect("one object");
    assert_eq!((ping["node"].as_u64(), ping["calls"].as_u64()), (Some(1), Some(3)));
    assert!(ping["first_ns"].as_u64() > Some(0), "told by itself: {ping}");

    eventually("node 2 dials node 1 although it started first", || {
        let status = pronto(&["status", "--config", two.to_str().expect("text"), "--json"]);
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("one object");
        assert_eq!(status["name"], "n2");
        status["peers"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|peer| peer["node"] == 1 && peer["linked"] == true)
    });
    waits_are_changed(two.to_str().expect("text"));

    let pid = Pid::from_raw(i32::try_from(first.0.id()).expect("a process id"));
    kill(pid, Signal::SIGTERM).expect("it lives");
    assert!(first.0.wait().expect("it ends").success(), "SIGTERM drains and stops");
    assert!(!dir.join("1.sock").exists(), "its socket is gone");
    std::fs::remove_dir_all(&dir).expect("ours");
}

/// Of node 2, which knows node 1.
fn waits_are_changed(config: &str) {
    let status = || {
        let status = pronto(&["status", "--config", config, "--json"]);
        serde_json::from_slice::<serde_json::Value>(&status.stdout).expect("one object")
    };
    let waits = || {
        let status = status();
        let peers = status["peers"].as_array().expect("a list").clone();
        let peer = peers.into_iter().find(|peer| peer["node"] == 1).expect("it is known");
        peer["waits"].as_str().expect("text").to_owned()
    };
    assert!(waits().starts_with("adaptive, as configured; "), "{}", waits());
    let changed = pronto(&["waiting", "block", "--peer", "1", "--config", config]);
    let said = String::from_utf8_lossy(&changed.stdout);
    assert!(changed.status.success() && said == "node 2 waits for 1: block, set at run time\n", "{said}");
    assert_eq!(waits(), "block, set at run time");
    assert!(pronto(&["waiting", "2", "spin", "--peer", "1", "--config", config]).status.success());
    assert_eq!(status()["serves"], "spin, set at run time for peer 1");
    assert!(
        pronto(&["waiting", "adaptive", "--peer", "1", "--bound", "7us", "--config", config])
            .status
            .success()
    );
    let now = waits();
    assert!(now.starts_with("adaptive, set at run time; "), "{now}");
    assert!(now.ends_with("polls for 7 us, the bound that was set"), "{now}");
    assert!(pronto(&["waiting", "asked", "--peer", "1", "--config", config]).status.success());
    assert!(waits().starts_with("adaptive, as configured; "), "{}", waits());
    for (wrong, why) in [
        (["waiting", "block", "--peer", "9"].as_slice(), "has no peer 9"),
        (&["waiting", "spin", "--peer", "1", "--bound", "7us"], "a bound needs the policy adaptive"),
        (&["waiting", "adaptive", "--peer", "1", "--bound", "7"], "needs a unit"),
    ] {
        let refused = pronto(&[wrong, &["--config", config]].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
}

#[test]
fn a_stop_is_told_as_what_it_is() {
    let dir = directory("stop");
    let peer = format!("[[peer]]\nnode = 1\naddress = [\"shm:{}/1.sock\"]\n", dir.display());
    let (one, two) = (config(&dir, 1, ""), config(&dir, 2, &peer));
    let log = dir.join("1.log");
    let file = std::fs::File::create(&log).expect("a directory takes files");
    let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
    let mut first = Daemon(prontod.arg("--config").arg(&one).stderr(file).spawn().expect("it starts"));
    let _second = start(&two);
    let asked = |config: &Path, of: u16| {
        let status = pronto(&["status", "--config", config.to_str().expect("text"), "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        let peers = status["peers"].as_array().cloned().unwrap_or_default();
        peers.into_iter().find(|peer| peer["node"] == of).unwrap_or_default()
    };
    eventually("they meet", || asked(&one, 2)["state"] == "up" && asked(&two, 1)["state"] == "up");
    kill(Pid::from_raw(i32::try_from(first.0.id()).expect("a process id")), Signal::SIGTERM)
        .expect("it lives");
    assert!(first.0.wait().expect("it ends").success());
    eventually("it is told as down", || asked(&two, 1)["state"] == "down");
    let down = asked(&two, 1);
    assert_eq!((&down["down"]["cause"], &down["counters"]["links_lost"]), (&"Goodbye".into(), &0.into()));
    let said = std::fs::read_to_string(&log).expect("it was written to");
    assert!(said.ends_with("prontod: node 1 has stopped\n") && !said.contains("is down"), "{said}");
    std::fs::remove_dir_all(&dir).expect("ours");
}

#[test]
fn notes_in_the_log_stand_alone_on_their_lines() {
    let dir = directory("notes");
    let peer = format!("[[peer]]\nnode = 1\naddress = [\"shm:{}/1.sock\"]\n", dir.display());
    let (one, two) = (config(&dir, 1, ""), config(&dir, 2, &peer));
    let mut first = start(&one);
    let path = dir.join("2.log");
    let file = std::fs::File::create(&path).expect("a directory takes files");
    let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
    let _second = Daemon(prontod.arg("--config").arg(&two).stderr(file).spawn().expect("it starts"));
    let log = || std::fs::read_to_string(&path).expect("it is written to");
    eventually("they meet", || log().contains("node 1 is up"));
    first.0.kill().expect("it lives");
    let told = || {
        log()
            .split_once("node 2: a peer went away; recent events of all threads:")
            .map(|(_, notes)| notes.to_owned())
    };
    eventually("the last notes are told", || {
        told().is_some_and(|notes| notes.contains("peer down, peer 1\n"))
    });
    assert!(!told().is_some_and(|notes| notes.contains("node=2")), "{}", log());
    std::fs::remove_dir_all(&dir).expect("ours");
}

/// A block of `docs/operations.md` that is to be copied into this file, with its addresses in `dir`.
fn documented(file: &str, dir: &Path) -> std::path::PathBuf {
    let document = include_str!("../../docs/operations.md");
    let begin = format!("```toml\n# {file}\n");
    let (_, rest) = document.split_once(&begin).expect("the file is in the document");
    let (block, _) = rest.split_once("```").expect("the block ends");
    let path = dir.join(file);
    std::fs::write(&path, block.replace("/tmp", &dir.to_string_lossy())).expect("a directory takes files");
    path
}

#[test]
fn the_two_nodes_of_the_document_find_each_other_and_log_no_fault() {
    let dir = directory("documented");
    let files = ["1.toml", "2.toml"].map(|file| documented(file, &dir));
    let _daemons = files.each_ref().map(|file| {
        let log = std::fs::File::create(file.with_extension("log")).expect("a directory takes files");
        let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
        Daemon(prontod.arg("--config").arg(file).stderr(log).spawn().expect("it starts"))
    });
    for (file, other) in files.iter().zip([2, 1]) {
        eventually("each has the other as its peer", || {
            let status = pronto(&["status", "--config", file.to_str().expect("text"), "--json"]);
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            let mut peers = status["peers"].as_array().into_iter().flatten();
            peers.any(|peer| peer["node"] == other && peer["linked"] == true)
        });
    }
    let ping = pronto(&["ping", "2", "--config", files[0].to_str().expect("text")]);
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr));
    for file in &files {
        let log = || std::fs::read_to_string(file.with_extension("log")).expect("it is written to");
        eventually("it says that the other is there", || log().contains("is up (shm)"));
        let (log, known) = (log(), "nobody listens at this address");
        assert_eq!(log.matches("error=").count(), log.matches(known).count(), "{log}");
    }
    std::fs::remove_dir_all(&dir).expect("ours");
}

/// khugepaged would hold up whoever touches what it gathers: see `keep_small_pages`.
#[test]
fn no_huge_pages_are_made_of_its_memory() {
    let dir = directory("pages");
    let daemon = start(&config(&dir, 1, ""));
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).expect("it lives");
    // Kernels without huge pages have no such line.
    let line = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
    assert!(line.is_none_or(|enabled| enabled.trim() == "0"), "{line:?}");
    std::fs::remove_dir_all(&dir).expect("ours");
}

#[test]
fn mistakes_are_said_with_what_to_do() {
    let dir = directory("mistakes");
    let wrong = config(&dir, 1, "wokers = 3\n");
    let daemon =
        Command::new(env!("CARGO_BIN_EXE_prontod")).arg("--config").arg(&wrong).output().expect("it runs");
    let said = String::from_utf8_lossy(&daemon.stderr).into_owned();
    assert!(!daemon.status.success() && said.contains("wokers"), "{said}");

    let absent = format!("shm:{}/nobody.sock", dir.display());
    let ping = pronto(&["ping", "9", "--at", &absent, "--timeout", "1"]);
    let said = String::from_utf8_lossy(&ping.stderr).into_owned();
    assert!(!ping.status.success() && said.contains("node 9 does not answer"), "{said}");

    for (arguments, why) in [
        (["ping", "1", "--at", "udp:1"].as_slice(), "'udp:1' for '--at <ADDRESS>'"),
        (&["ping", "1", "--at", "tcp:10.0.0.1:7001"], "allow it by --plaintext"),
        (&["ping", "64000", "--at", "shm:@one"], "1..=63999"),
        (&["ping", "1"], "--config <FILE>"),
        (&["status"], "--config <FILE>"),
        (&["waiting", "block"], "--peer <PEER>"),
    ] {
        let refused = pronto(arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }

    let check = config(&dir, 2, "");
    let good =
        Command::new(env!("CARGO_BIN_EXE_prontod")).arg("--check").arg("--config").arg(&check).output();
    assert!(good.expect("it runs").status.success());
    std::fs::remove_dir_all(&dir).expect("ours");
}

#[test]
fn a_check_finds_what_a_start_would_and_names_the_file_once() {
    let dir = directory("checks");
    let peers = "[[peer]]\nnode = 2\naddress = [\"shm:@two\"]\n[[peer]]\nnode = 3\naddress = [\"shm:@two\"]";
    for (text, why) in [
        ("listen = [\"shm:/tmp/pronto-no-such-folder/1.sock\"]", "/tmp/pronto-no-such-folder does not exist"),
        ("listen = [\"shm:@one\", \"shm:@one\"]", "listen names shm:@one twice"),
        ("listen = [\"tcp:0.0.0.0:7001\"]", "listen names 0.0.0.0:7001, which is not on this host"),
        ("listen = \"shm:@one\"", "must be a list"),
        ("workers = -1", "workers = -1: must be from 1 to 1024"),
        (peers, "peers 2 and 3 have the same address"),
        ("[[peer]]\nnode = 1\naddress = [\"shm:@two\"]", "its own peer"),
        ("[placement]\nserving = \"8191\"", "placement.serving = \"8191\": this process may not use"),
    ] {
        let file = dir.join("wrong.toml");
        std::fs::write(&file, format!("node = 1\n{text}\n")).expect("a directory takes files");
        for options in [["--check"].as_slice(), &[]] {
            let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
            let ended = prontod.args(options).arg("--config").arg(&file).output().expect("it runs");
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(!ended.status.success() && said.contains(why), "{said}");
            assert_eq!((said.matches(why).count(), said.matches("wrong.toml").count()), (1, 1), "{said}");
        }
    }
    let absent = dir.join("absent.toml");
    let ping = pronto(&["ping", "--config", absent.to_str().expect("text")]);
    let said = String::from_utf8_lossy(&ping.stderr).into_owned();
    assert_eq!(said.matches("absent.toml").count(), 1, "{said}");
    std::fs::remove_dir_all(&dir).expect("ours");
}

#[test]
fn a_peer_that_is_absent_is_reported_once_for_each_address() {
    let dir = directory("absent");
    let folder = dir.display();
    let peer = format!("[[peer]]\nnode = 2\naddress = [\"shm:{folder}/a.sock\", \"shm:{folder}/b.sock\"]\n");
    let file = config(&dir, 1, &peer);
    let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
    let child = prontod.arg("--config").arg(&file).stderr(Stdio::piped()).spawn();
    let mut daemon = Daemon(child.expect("it starts"));
    eventually("each address is tried four times", || {
        let status = pronto(&["status", "--config", file.to_str().expect("text"), "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        let dials = status["failed_dials"].as_object().into_iter().flatten();
        dials.filter_map(|(_, count)| count.as_u64()).sum::<u64>() >= 8
    });
    daemon.0.kill().expect("it lives");
    let said = BufReader::new(daemon.0.stderr.take().expect("piped")).lines();
    let told: Vec<_> = said.map_while(Result::ok).filter(|line| line.contains("not reached")).collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    std::fs::remove_dir_all(&dir).expect("ours");
}
