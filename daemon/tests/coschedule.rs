//! Coscheduling of processes that know nothing of it, by `pronto coschedule run` and by two daemons that exchange what they find.

use core::time::Duration;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use pronto_expedite::schedule;
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(30);

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("pronto-coschedule-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the temporary folder is writable");
    dir
}

/// Returns whether this user may lower nice values.
fn may_lower_nice() -> bool {
    let lowered = std::thread::spawn(|| schedule::set_nice(schedule::CALLER, -1).is_ok()).join();
    let may = lowered.expect("no panic");
    if !may {
        pronto_skip::because("this user may not lower nice values");
    }
    may
}

fn nice(process: &Killed) -> i32 {
    schedule::nice(process.0.id().cast_signed()).expect("the process runs")
}

/// Starts a process that is named `name` and never uses `socket`, which it has as standard output.
fn idle(dir: &Path, name: &str, socket: TcpStream) -> Killed {
    // Names are compared, so each program is a file of its own.
    let program = dir.join(name);
    std::fs::copy("/bin/cat", &program).expect("the folder is writable");
    let started = Command::new(&program).stdin(Stdio::piped()).stdout(OwnedFd::from(socket)).spawn();
    Killed(started.expect("the program starts"))
}

fn prontod(dir: &Path, node: u16, peer: u16, command: &str) -> Killed {
    let file = dir.join(format!("{node}.toml"));
    let folder = dir.display();
    let text = format!(
        "node = {node}\nlisten = [\"shm:{folder}/{node}.sock\"]\n[[peer]]\nnode = {peer}\naddress = [\"shm:{folder}/{peer}.sock\"]\n\
         [coschedule]\npolicy = \"carried\"\nactuator = \"nice\"\npast = 0.5\nstate = \"{folder}/state-{node}\"\n\
         groups = [{{ name = \"job\", command = \"{command}\" }}]\n"
    );
    std::fs::write(&file, text).expect("the folder is writable");
    let daemon =
        Command::new(env!("CARGO_BIN_EXE_prontod")).arg("--config").arg(&file).stderr(Stdio::piped()).spawn();
    let mut daemon = Killed(daemon.expect("the program starts"));
    let mut lines = BufReader::new(daemon.0.stderr.take().expect("piped")).lines();
    let found = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("policy carried, by nice")));
    assert!(found.is_some(), "the daemon coschedules");
    std::thread::spawn(move || lines.for_each(drop));
    daemon
}

/// Returns the row of the only process of the coscheduler with this state; `None` while there is none.
fn row(state: &Path) -> Option<Value> {
    let top = Command::new(env!("CARGO_BIN_EXE_pronto"))
        .args(["coschedule", "top", "--count", "1", "--json", "--state"])
        .arg(state)
        .output()
        .expect("the program runs");
    let services: Value = serde_json::from_slice(&top.stdout).ok()?;
    services[0]["processes"].get(0).cloned()
}

/// Evaluates `holds` until it is true.
fn eventually(condition: &str, mut holds: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a wait is limited by time, not by a number of attempts")]
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "never: {condition}");
    }
}

/// Shows: operations.coschedule-carried, operations.coschedule-restored
#[test]
fn a_daemon_raises_a_process_because_its_correspondent_has_data_and_restores_it() {
    if !may_lower_nice() {
        return;
    }
    let dir = directory("carried");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut sends = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (receives, _) = listener.accept().expect("it was connected");
    // 15 bytes, as long as names are.
    let id = std::process::id() % 100_000;
    let (near, far) = (format!("near-{id}"), format!("far-{id}"));
    let sender = idle(&dir, &near, sends.try_clone().expect("a duplicate"));
    let _receiver = idle(&dir, &far, receives);
    let mut one = prontod(&dir, 1, 2, &near);
    let _two = prontod(&dir, 2, 1, &far);
    assert_eq!(nice(&sender), 0);
    // Unread data at node 2. The queues of the process at node 1 are empty: the loopback device acknowledges immediately.
    sends.write_all(&[1; 64 << 10]).expect("the connection lasts");
    eventually("node 2 reports its process to node 1", || nice(&sender) < 0);
    eventually("the status shows it", || {
        row(&dir.join("state-1")).is_some_and(|row| {
            row["carried"].as_f64() > Some(1.0)
                && row["frequency"] == 0.0
                && row["weight"].as_u64() > Some(100)
        })
    });
    // Killed while the weight is raised, so that it restores nothing; the command does. On a busy machine reports may be late, so that
    // the weight is lowered for a moment.
    let pid = Pid::from_raw(one.0.id().cast_signed());
    eventually("the weight is raised while the daemon stands still", || {
        kill(pid, Signal::SIGSTOP).expect("it runs");
        waitid(Id::Pid(pid), WaitPidFlag::WSTOPPED).expect("it stops");
        let is_raised = nice(&sender) < 0;
        if !is_raised {
            kill(pid, Signal::SIGCONT).expect("it runs");
        }
        is_raised
    });
    one.0.kill().expect("it runs");
    one.0.wait().expect("it ends");
    assert!(nice(&sender) < 0);
    let restore = Command::new(env!("CARGO_BIN_EXE_pronto"))
        .args(["coschedule", "restore", "--state"])
        .arg(dir.join("state-1"))
        .output()
        .expect("the program runs");
    assert!(restore.status.success(), "{}", String::from_utf8_lossy(&restore.stdout));
    assert_eq!(nice(&sender), 0);
    std::fs::remove_dir_all(&dir).expect("the folder belongs to this test");
}

/// Shows: operations.coschedule-run
#[test]
fn a_command_is_coscheduled_and_its_exit_code_kept() {
    let dir = directory("run");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pronto"));
        command.args(["coschedule", "run", "--actuator", "slice", "--json", "--state"]).arg(&dir);
        command.args(arguments).output().expect("the program runs")
    };
    let output = run(&["--period-ms", "1", "--", "sh", "-c", "cat /proc/self/stat; exit 3"]);
    let report = String::from_utf8_lossy(&output.stderr);
    if report.contains("no time slices") {
        return pronto_skip::because("this kernel has no time slices of single threads");
    }
    assert_eq!(output.status.code(), Some(3), "{report}");
    let report: Value = serde_json::from_str(report.trim()).expect("one object");
    assert!(report["ticks"].as_u64() > Some(0) && report["actuator"] == "slice", "{report}");
    let missing = run(&["--", "/nonexistent/program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nonexistent/program"));
    std::fs::remove_dir_all(&dir).expect("the folder belongs to this test");
}
