//! `prontod` and `pronto` (`ping`, `status`, `waiting`) as an operator uses them.

use core::time::Duration;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const TIMEOUT: Duration = Duration::from_secs(20);

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // The node may have ended already, as most tests expect.
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
    let mut daemon = Daemon(child.expect("the program starts"));
    let mut lines = BufReader::new(daemon.0.stderr.take().expect("piped")).lines();
    let first = lines.next().expect("the first line names the addresses").expect("as text");
    assert!(first.contains("listens at"), "{first}");
    std::thread::spawn(move || lines.for_each(drop));
    daemon
}

fn pronto(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pronto")).args(arguments).output().expect("the program runs")
}

fn config(dir: &Path, node: u16, extra: &str) -> std::path::PathBuf {
    let file = dir.join(format!("{node}.toml"));
    let text = format!(
        "node = {node}\nname = \"n{node}\"\nlisten = [\"shm:{}/{node}.sock\"]\n{extra}",
        dir.display()
    );
    std::fs::write(&file, text).expect("the directory is writable");
    file
}

fn directory(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("pronto-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the temporary folder is writable");
    dir
}

/// Evaluates `holds` until it is true.
fn eventually(condition: &str, mut holds: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a wait is limited by time, not by a number of attempts")]
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "never: {condition}");
    }
}

/// Shows: operations.signal, operations.any-order, operations.override, operations.asked, operations.longest, operations.json
#[test]
fn a_node_replies_to_ping_and_status_and_stops() {
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
    assert!(ping["first_ns"].as_u64() > Some(0), "reported separately: {ping}");

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
    kill(pid, Signal::SIGTERM).expect("the process exists");
    assert!(first.0.wait().expect("the process ends").success(), "SIGTERM drains and stops");
    assert!(!dir.join("1.sock").exists(), "its socket is gone");
    std::fs::remove_dir_all(&dir).expect("the directory belongs to this test");
}

/// Changes how node 2, which knows node 1, waits.
fn waits_are_changed(config: &str) {
    let status = || {
        let status = pronto(&["status", "--config", config, "--json"]);
        serde_json::from_slice::<serde_json::Value>(&status.stdout).expect("one object")
    };
    let waits = || {
        let status = status();
        let peers = status["peers"].as_array().expect("a list").clone();
        let peer = peers.into_iter().find(|peer| peer["node"] == 1).expect("peer 1 is configured");
        peer["waits"].as_str().expect("text").to_owned()
    };
    assert!(waits().starts_with("adaptive, as configured; "), "{}", waits());
    let changed = pronto(&["waiting", "block", "--peer", "1", "--config", config]);
    let stdout = String::from_utf8_lossy(&changed.stdout);
    assert!(changed.status.success() && stdout == "node 2 waits for 1: block, set at run time\n", "{stdout}");
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
    assert!(pronto(&["waiting", "reset", "--peer", "1", "--config", config]).status.success());
    assert!(waits().starts_with("adaptive, as configured; "), "{}", waits());
    for (wrong, why) in [
        (["waiting", "block", "--peer", "9"].as_slice(), "has no peer 9"),
        (&["waiting", "spin", "--peer", "1", "--bound", "7us"], "a bound needs the policy adaptive"),
        (&["waiting", "adaptive", "--peer", "1", "--bound", "7"], "needs a unit"),
    ] {
        let refused = pronto(&[wrong, &["--config", config]].concat());
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && stderr.contains(why), "{stderr}");
    }
}

/// Shows: operations.one-dials, operations.goodbye, operations.json-down
#[test]
fn a_stop_is_reported_as_goodbye() {
    let dir = directory("stop");
    let peer = format!("[[peer]]\nnode = 1\naddress = [\"shm:{}/1.sock\"]\n", dir.display());
    let (one, two) = (config(&dir, 1, ""), config(&dir, 2, &peer));
    let log = dir.join("1.log");
    let file = std::fs::File::create(&log).expect("the directory is writable");
    let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
    let mut first =
        Daemon(prontod.arg("--config").arg(&one).stderr(file).spawn().expect("the program starts"));
    let _second = start(&two);
    let asked = |config: &Path, of: u16| {
        let status = pronto(&["status", "--config", config.to_str().expect("text"), "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        let peers = status["peers"].as_array().cloned().unwrap_or_default();
        peers.into_iter().find(|peer| peer["node"] == of).unwrap_or_default()
    };
    eventually("the nodes are linked", || asked(&one, 2)["state"] == "up" && asked(&two, 1)["state"] == "up");
    kill(Pid::from_raw(i32::try_from(first.0.id()).expect("a process id")), Signal::SIGTERM)
        .expect("the process exists");
    assert!(first.0.wait().expect("the process ends").success());
    eventually("the peer is reported as down", || asked(&two, 1)["state"] == "down");
    let down = asked(&two, 1);
    assert_eq!((&down["down"]["cause"], &down["counters"]["links_lost"]), (&"Goodbye".into(), &0.into()));
    let stderr = std::fs::read_to_string(&log).expect("the log exists");
    assert!(stderr.ends_with("prontod: node 1 has stopped\n") && !stderr.contains("is down"), "{stderr}");
    std::fs::remove_dir_all(&dir).expect("the directory belongs to this test");
}

/// Shows: operations.alarms
#[test]
fn logged_recorder_entries_have_their_own_lines() {
    let dir = directory("notes");
    let peer = format!("[[peer]]\nnode = 1\naddress = [\"shm:{}/1.sock\"]\n", dir.display());
    let (one, two) = (config(&dir, 1, ""), config(&dir, 2, &peer));
    let mut first = start(&one);
    let path = dir.join("2.log");
    let file = std::fs::File::create(&path).expect("the directory is writable");
    let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
    let _second = Daemon(prontod.arg("--config").arg(&two).stderr(file).spawn().expect("the program starts"));
    let log = || std::fs::read_to_string(&path).expect("the log exists");
    eventually("the nodes are linked", || log().contains("node 1 is up"));
    first.0.kill().expect("the process exists");
    let notes = || {
        log()
            .split_once("node 2: a peer went away; recent events of all threads:")
            .map(|(_, rest)| rest.to_owned())
    };
    eventually("the last entries are logged", || {
        notes().is_some_and(|notes| notes.contains("peer down, peer 1: Died\n"))
    });
    assert!(!notes().is_some_and(|notes| notes.contains("node=2")), "{}", log());
    std::fs::remove_dir_all(&dir).expect("the directory belongs to this test");
}

/// Copies a block of `docs/operations.md` to the file that it names, with its addresses in `dir`.
fn documented(file: &str, dir: &Path) -> std::path::PathBuf {
    let document = include_str!("../../docs/operations.md");
    let begin = format!("```toml\n# {file}\n");
    let (_, rest) = document.split_once(&begin).expect("the file is in the document");
    let (block, _) = rest.split_once("```").expect("the block ends");
    let path = dir.join(file);
    std::fs::write(&path, block.replace("/tmp", &dir.to_string_lossy())).expect("the directory is writable");
    path
}

/// Shows: operations.two-nodes
#[test]
fn the_two_documented_nodes_connect_and_log_no_error() {
    let dir = directory("documented");
    let files = ["1.toml", "2.toml"].map(|file| documented(file, &dir));
    let _daemons = files.each_ref().map(|file| {
        let log = std::fs::File::create(file.with_extension("log")).expect("the directory is writable");
        let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
        Daemon(prontod.arg("--config").arg(file).stderr(log).spawn().expect("the program starts"))
    });
    for (file, other) in files.iter().zip([2, 1]) {
        eventually("the nodes are linked", || {
            let status = pronto(&["status", "--config", file.to_str().expect("text"), "--json"]);
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            let mut peers = status["peers"].as_array().into_iter().flatten();
            peers.any(|peer| peer["node"] == other && peer["linked"] == true)
        });
    }
    let ping = pronto(&["ping", "2", "--config", files[0].to_str().expect("text")]);
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr));
    for file in &files {
        let log = || std::fs::read_to_string(file.with_extension("log")).expect("the log exists");
        eventually("the log reports the peer", || log().contains("is up (shm)"));
        let (log, known) = (log(), "nobody listens at this address");
        assert_eq!(log.matches("error=").count(), log.matches(known).count(), "{log}");
    }
    std::fs::remove_dir_all(&dir).expect("the directory belongs to this test");
}

/// khugepaged would delay threads that touch the memory it collects: see `keep_small_pages`.
///
/// Shows: operations.huge-pages
#[test]
fn transparent_huge_pages_are_disabled() {
    let dir = directory("pages");
    let daemon = start(&config(&dir, 1, ""));
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).expect("the process exists");
    // Kernels without huge pages have no such line.
    let line = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
    assert!(line.is_none_or(|enabled| enabled.trim() == "0"), "{line:?}");
    std::fs::remove_dir_all(&dir).expect("the directory belongs to this test");
}

/// Shows: operations.real-time-limit
#[test]
fn real_time_threads_have_a_limit() {
    let dir = directory("real-time");
    let daemon = start(&config(&dir, 1, ""));
    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", daemon.0.id())).expect("the process exists");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout")).expect("the limit");
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers.len() == 2 && numbers.iter().all(|us| *us <= 2_000_000), "{line}");
    std::fs::remove_dir_all(&dir).expect("the directory belongs to this test");
}

/// Shows: operations.other-hosts, operations.unknown-keys
#[test]
fn errors_suggest_an_action() {
    let dir = directory("mistakes");
    let wrong = config(&dir, 1, "wokers = 3\n");
    let daemon = Command::new(env!("CARGO_BIN_EXE_prontod"))
        .arg("--config")
        .arg(&wrong)
        .output()
        .expect("the program runs");
    let stderr = String::from_utf8_lossy(&daemon.stderr).into_owned();
    assert!(!daemon.status.success() && stderr.contains("wokers"), "{stderr}");

    let absent = format!("shm:{}/nobody.sock", dir.display());
    let ping = pronto(&["ping", "9", "--at", &absent, "--timeout", "1"]);
    let stderr = String::from_utf8_lossy(&ping.stderr).into_owned();
    let expected =
        format!("pronto: cannot connect to node 9 within 1 s: {absent}: nobody listens at this address\n");
    assert!(!ping.status.success() && stderr == expected, "{stderr}");

    for (arguments, why) in [
        (["ping", "1", "--at", "udp:1"].as_slice(), "'udp:1' for '--at <ADDRESS>'"),
        (&["ping", "1", "--at", "udp:1"], "write shm:PATH, shm:@NAME or tcp:HOST:PORT"),
        (&["ping", "1", "--at", "shm:one"], "neither an absolute path nor an abstract name"),
        (&["ping", "1", "--at", "tcp:10.0.0.1:7001"], "allow it with --plaintext"),
        (&["ping", "64000", "--at", "shm:@one"], "1..=63999"),
        (&["ping", "1"], "pronto ping [OPTIONS] <NODE> --at <ADDRESS>\n"),
        (&["ping", "1"], "pronto ping [OPTIONS] [NODE] --config <FILE>\n"),
        (&["status"], "--config <FILE>"),
        (&["waiting", "block"], "--peer <PEER>"),
    ] {
        let refused = pronto(arguments);
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && stderr.contains(why), "{stderr}");
    }

    let check = config(&dir, 2, "");
    let good =
        Command::new(env!("CARGO_BIN_EXE_prontod")).arg("--check").arg("--config").arg(&check).output();
    assert!(good.expect("the program runs").status.success());
    std::fs::remove_dir_all(&dir).expect("the directory belongs to this test");
}

/// Shows: operations.check
#[test]
fn a_check_finds_the_errors_of_a_start_and_names_the_file_once() {
    let dir = directory("checks");
    let peers = "[[peer]]\nnode = 2\naddress = [\"shm:@two\"]\n[[peer]]\nnode = 3\naddress = [\"shm:@two\"]";
    for (text, why) in [
        ("listen = [\"shm:/tmp/pronto-no-such-folder/1.sock\"]", "/tmp/pronto-no-such-folder does not exist"),
        ("listen = [\"shm:@one\", \"shm:@one\"]", "listen names shm:@one twice"),
        ("listen = [\"tcp:0.0.0.0:7001\"]", "listen names 0.0.0.0:7001, which is not a loopback address"),
        ("listen = \"shm:@one\"", "must be a list"),
        ("listen = [\"shm:/tmp\"]", "listen names shm:/tmp, which is a folder"),
        ("plaintext = true", "plaintext = true: write \"i understand\""),
        ("workers = -1", "workers = -1: must be from 1 to 1024"),
        (peers, "peers 2 and 3 have the same address"),
        ("[[peer]]\nnode = 1\naddress = [\"shm:@two\"]", "its own peer"),
        ("[placement]\nserving = \"8191\"", "placement.serving = \"8191\": this process may not use"),
    ] {
        let file = dir.join("wrong.toml");
        std::fs::write(&file, format!("node = 1\n{text}\n")).expect("the directory is writable");
        for options in [["--check"].as_slice(), &[]] {
            let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
            let ended = prontod.args(options).arg("--config").arg(&file).output().expect("the program runs");
            let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(!ended.status.success() && stderr.contains(why), "{stderr}");
            assert_eq!(
                (stderr.matches(why).count(), stderr.matches("wrong.toml").count()),
                (1, 1),
                "{stderr}"
            );
        }
    }
    let absent = dir.join("absent.toml");
    let ping = pronto(&["ping", "--config", absent.to_str().expect("text")]);
    let stderr = String::from_utf8_lossy(&ping.stderr).into_owned();
    assert_eq!(stderr.matches("absent.toml").count(), 1, "{stderr}");
    std::fs::remove_dir_all(&dir).expect("the directory belongs to this test");
}

/// Shows: calls.log, operations.not-listening
#[test]
fn an_absent_peer_is_reported_once_per_address() {
    let dir = directory("absent");
    let folder = dir.display();
    let peer = format!("[[peer]]\nnode = 2\naddress = [\"shm:{folder}/a.sock\", \"shm:{folder}/b.sock\"]\n");
    let file = config(&dir, 1, &peer);
    let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
    let child = prontod.arg("--config").arg(&file).stderr(Stdio::piped()).spawn();
    let mut daemon = Daemon(child.expect("the program starts"));
    eventually("each address is tried four times", || {
        let status = pronto(&["status", "--config", file.to_str().expect("text"), "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        let dials = status["failed_dials"].as_object().into_iter().flatten();
        dials.filter_map(|(_, count)| count.as_u64()).sum::<u64>() >= 8
    });
    daemon.0.kill().expect("the process exists");
    let stderr = BufReader::new(daemon.0.stderr.take().expect("piped")).lines();
    let reports: Vec<_> =
        stderr.map_while(Result::ok).filter(|line| line.contains("cannot reach peer")).collect();
    assert_eq!(reports.len(), 2, "{reports:#?}");
    assert!(reports.iter().all(|line| line.contains(" INFO pronto_node::links")), "{reports:#?}");
    std::fs::remove_dir_all(&dir).expect("the directory belongs to this test");
}

/// Shows: calls.log
#[test]
fn a_rejected_connection_is_logged() {
    let dir = directory("rejected");
    let path = dir.join("1.log");
    let file = dir.join("1.toml");
    std::fs::write(&file, "node = 1\nlisten = [\"tcp:127.0.0.1:0\"]\n").expect("the directory is writable");
    let log = std::fs::File::create(&path).expect("the directory is writable");
    let mut prontod = Command::new(env!("CARGO_BIN_EXE_prontod"));
    let _daemon = Daemon(prontod.arg("--config").arg(&file).stderr(log).spawn().expect("the program starts"));
    let log = || std::fs::read_to_string(&path).expect("the log exists");
    eventually("the node listens", || log().contains("listens at tcp:") && log().contains('\n'));
    let address = log()
        .lines()
        .next()
        .and_then(|line| line.split("tcp:").nth(1).map(str::to_owned))
        .expect("an address");
    let mut stranger = std::net::TcpStream::connect(address.trim()).expect("the node listens");
    std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n\r\n").expect("the connection is open");
    eventually("the rejection is logged", || {
        log().lines().any(|line| {
            line.contains(" INFO pronto_node::links") && line.contains("incoming connection rejected")
        })
    });
    let reason = "not a pronto link, or another version: the connection began with \"GET / HT\"";
    assert!(log().contains(&format!("error={reason} transport=\"tcp\"")), "{}", log());
    std::fs::remove_dir_all(&dir).expect("the directory belongs to this test");
}
