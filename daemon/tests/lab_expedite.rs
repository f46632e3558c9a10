//! `pronto expedite` with the module, on programs that know nothing of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use core::time::Duration;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Instant;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use pronto_expedite::process::descendants;
use pronto_expedite::{Counts, Device};
use pronto_lab_module as lab_module;
use pronto_sync::atomic::{AtomicBool, Ordering};

const LIMIT: Duration = Duration::from_secs(60);

/// The module; it is loaded while this exists.
struct Module(#[expect(dead_code, reason = "held until the end")] lab_module::Module);

impl Module {
    fn load() -> Self {
        Self(lab_module::Module::load(&[]))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Commands of a failed test have the device open.
            for pid in descendants(std::process::id()) {
                let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
        }
    }
}

fn counts() -> Counts {
    Device::open().unwrap().totals().unwrap().counts
}

/// Waits until no file is flagged.
fn until_no_flag_is_left() {
    let start = now();
    while Device::open().unwrap().totals().unwrap().flags > 0 {
        assert!(start.elapsed() < LIMIT, "a flag is left");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn pronto(words: &[&str]) -> Command {
    pronto_under(&[], words)
}

/// Returns `pronto expedite` with these words, started by another command, which becomes `pronto`.
fn pronto_under(starter: &[&str], words: &[&str]) -> Command {
    let mut all = starter.iter().copied().chain([env!("CARGO_BIN_EXE_pronto"), "expedite"]);
    let mut pronto = Command::new(all.next().unwrap());
    pronto.args(all).args(words).stdin(Stdio::null());
    pronto
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

/// A program that is ended when this is dropped.
struct Ended(Child);

impl Ended {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns what a command that must fail reports.
fn failure(command: &mut Command) -> String {
    let (code, lines, text) = output(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert!(code.is_some_and(|code| code > 0), "{code:?}: {lines}{text}");
    text
}

/// Words of a server that replies to each connection with what it receives: a static program.
fn server(port: &str) -> [&str; 7] {
    ["busybox", "nc", "-ll", "-p", port, "-e", "cat"]
}

#[expect(clippy::disallowed_methods, reason = "time limits of tests use real time")]
fn now() -> Instant {
    Instant::now()
}

/// Connects to a server as soon as it listens.
fn connect(port: &str) -> TcpStream {
    let start = now();
    loop {
        match TcpStream::connect(format!("127.0.0.1:{port}")) {
            Ok(stream) => {
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                return stream;
            }
            Err(error) => assert!(start.elapsed() < LIMIT, "{error}"),
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Sends messages and receives the replies, until the module has boosted `count` more threads.
fn until_boosted(stream: &mut TcpStream, count: u64) {
    let (start, before) = (now(), counts().boosts());
    while counts().boosts() < before + count {
        assert!(start.elapsed() < LIMIT, "not boosted: {:?}", counts());
        std::thread::park_timeout(Duration::from_millis(20));
        stream.write_all(b"message").unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
    }
}

/// Returns the result of a command that ends within the time limit.
fn output(mut child: Child) -> (Option<i32>, String, String) {
    let start = now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_command_and_its_children_are_boosted() {
    let _module = Module::load();
    let mut run = pronto(&["run", "--"]);
    let run = run.args(server("7101")).stderr(Stdio::piped()).spawn().unwrap();
    let mut stream = connect("7101");
    until_boosted(&mut stream, 5);
    drop(stream);
    // Passed on to the command, which ends; so does the program that replied, at the end of its connection.
    signal(&run, Signal::SIGTERM);
    let (code, _, text) = output(run);
    println!("{text}");
    // 128 and the signal, as from a shell.
    assert_eq!(code, Some(128 + libc::SIGTERM), "{text}");
    let flagged = text.split("flagged ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    // The listener and the connection.
    assert!(flagged.parse::<u32>().unwrap() >= 2, "{text}");
    assert!(text.contains("ms after it was opened") && text.contains("boosts "), "{text}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_counters_are_shown_by_thread_and_by_what_it_belongs_to() {
    const GROUP: &str = "/sys/fs/cgroup/pronto-top";
    let _module = Module::load();
    let run = Ended::start(pronto(&["run", "--"]).args(server("7109")));
    let mut stream = connect("7109");
    std::fs::create_dir_all(GROUP).unwrap();
    let family = descendants(run.0.id());
    for pid in &family {
        std::fs::write(format!("{GROUP}/cgroup.procs"), pid.to_string()).unwrap();
    }
    until_boosted(&mut stream, 5);
    // The module forgets threads without arrivals, so messages go on.
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stream = &mut stream;
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_millis(20));
                stream.write_all(b"message").unwrap();
                stream.read_exact(&mut [0; 7]).unwrap();
            }
        });
        let top = |words: &[&str]| {
            let output = pronto(&["top"]).args(words).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let table = top(&["--count", "1"]);
        // Two lines of an interval each.
        let [thread, process, user, group] =
            ["thread", "process", "user", "cgroup"].map(|by| top(&["--by", by, "--count", "2", "--json"]));
        ends.store(true, Ordering::Relaxed);
        println!("{table}{group}");
        assert!(table.contains("ARRIVALS/s") && table.contains("  cat\n"), "{table}");
        for (lines, key, value) in [
            (thread, "name", serde_json::json!("cat")),
            (process, "name", serde_json::json!("cat")),
            (user, "uid", serde_json::json!(0)),
            (group, "cgroup", serde_json::json!("/pronto-top")),
        ] {
            let read = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
            let objects: Vec<_> = lines.lines().map(read).collect();
            assert_eq!(objects.len(), 2, "{lines}");
            for object in &objects {
                let row = &object["rows"][0];
                assert!(
                    row[key] == value && row["counts"]["calls"].as_u64().is_some_and(|calls| calls > 0),
                    "{lines}"
                );
            }
        }
    });
    for pid in family {
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    }
    let start = now();
    while std::fs::remove_dir(GROUP).is_err() {
        assert!(start.elapsed() < LIMIT, "the group is still in use");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_program_in_the_background_is_boosted_and_gets_signals() {
    let _module = Module::load();
    let server = format!("{} & exit 3", server("7103").join(" "));
    let run = pronto(&["run", "--", "sh", "-c", &server]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stream = connect("7103");
    until_boosted(&mut stream, 3);
    drop(stream);
    // The command has ended, so its children get the signal.
    signal(&run, Signal::SIGTERM);
    let (code, _, text) = output(run);
    assert_eq!(code, Some(3), "{text}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn terms_that_cannot_work_are_refused() {
    let _module = Module::load();
    let refused = pronto(&["run", "--percent", "1", "--", "true"]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("too small for a single slice"), "{text}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_exit_code_is_that_of_the_command() {
    let _module = Module::load();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let status = pronto(&["run", "--", "sh", "-c", script]).status().unwrap();
        assert_eq!(status.code(), Some(code), "{script}");
    }
    // As a shell's.
    for (program, code, why) in [
        ("/no/such/program", 127, "No such file or directory"),
        ("no-such-program", 127, "No such file or directory"),
        ("/proc/version", 126, "Permission denied"),
    ] {
        let failed = pronto(&["run", "--", program]).output().unwrap();
        let text = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(failed.status.code(), Some(code), "{program}: {text}");
        assert!(text.contains(&format!("cannot start {program}: {why}")), "{text}");
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_process_without_sockets_is_named_while_it_is_scanned() {
    let _module = Module::load();
    let sleep = Ended::start(Command::new("sleep").arg("1000"));
    let mut flag = pronto(&["flag", &sleep.pid()]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(flag.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let found = format!(
        "looking for sockets, eventfds and RDMA channels of process {}: none was found yet",
        sleep.pid()
    );
    assert!(line.contains(&found), "{line}");
    signal(&flag, Signal::SIGTERM);
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("flagged 0 files"), "said once: {line}");
    assert!(flag.wait().unwrap().success());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_running_process_is_boosted_until_it_ends() {
    let _module = Module::load();
    let words = server("7102");
    let mut server = Command::new(words[0]).args(&words[1..]).spawn().unwrap();
    let mut stream = connect("7102");
    let mut flag = pronto(&["flag", "--children", &server.id().to_string()]);
    let mut flag = flag.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(flag.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(line.starts_with("flagged descriptor ") && line.contains("(socket) of process "), "{line}");
    until_boosted(&mut stream, 5);
    server.kill().unwrap();
    server.wait().unwrap();
    drop(stream);
    let (code, _, text) = output(flag);
    assert!(code == Some(0) && text.contains("flagged "), "{text}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn one_descriptor_may_be_a_pipe() {
    let _module = Module::load();
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut flag = pronto(&["flag", &cat.id().to_string(), "0"]);
    let mut flag = flag.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(flag.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), format!("flagged descriptor 0 of process {}", cat.id()));
    let mut input = cat.stdin.take().unwrap();
    let mut replies = cat.stdout.take().unwrap();
    let (start, before) = (now(), counts().boosts());
    while counts().boosts() < before + 3 {
        assert!(start.elapsed() < LIMIT, "not boosted: {:?}", counts());
        std::thread::park_timeout(Duration::from_millis(20));
        input.write_all(b"x").unwrap();
        replies.read_exact(&mut [0; 1]).unwrap();
    }
    // The command ends with the process, and the process at the end of its input, although the module holds flagged pipes.
    drop(input);
    assert!(cat.wait().unwrap().success());
    let (code, _, text) = output(flag);
    assert_eq!(code, Some(0), "{text}");
    let none = pronto(&["flag", &std::process::id().to_string(), "1000"]).output().unwrap();
    let text = String::from_utf8_lossy(&none.stderr);
    assert!(!none.status.success() && text.contains("has no descriptor 1000"), "{text}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_hangup_ends_the_commands() {
    let _module = Module::load();
    let words = server("7104");
    let server_7104 = Ended::start(Command::new(words[0]).args(&words[1..]));
    let mut stream = connect("7104");
    let flag = pronto(&["flag", "--children", &server_7104.pid()])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until_boosted(&mut stream, 2);
    signal(&flag, Signal::SIGHUP);
    let (code, _, text) = output(flag);
    assert!(code == Some(0) && text.contains("flagged "), "{text}");
    until_no_flag_is_left();
    // The process is not affected.
    stream.write_all(b"message").unwrap();
    stream.read_exact(&mut [0; 7]).unwrap();
    // The signal is passed on to a command, which it ends.
    let run = pronto(&["run", "--"]).args(server("7105")).stderr(Stdio::piped()).spawn().unwrap();
    let mut stream = connect("7105");
    until_boosted(&mut stream, 2);
    drop(stream);
    signal(&run, Signal::SIGHUP);
    let (code, _, text) = output(run);
    assert_eq!(code, Some(128 + libc::SIGHUP), "{text}");
    until_no_flag_is_left();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn commands_under_nohup_ignore_a_hangup() {
    let _module = Module::load();
    let words = server("7106");
    let server_7106 = Ended::start(Command::new(words[0]).args(&words[1..]));
    let flag = pronto_under(&["nohup"], &["flag", "--children", &server_7106.pid()])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let run =
        pronto_under(&["nohup"], &["run", "--"]).args(server("7107")).stderr(Stdio::piped()).spawn().unwrap();
    for (port, command) in [("7106", flag), ("7107", run)] {
        let mut stream = connect(port);
        until_boosted(&mut stream, 2);
        // The kernel drops the signal immediately. A blocked one it would keep for the command.
        signal(&command, Signal::SIGHUP);
        until_boosted(&mut stream, 5);
        drop(stream);
        signal(&command, Signal::SIGTERM);
        let (code, _, text) = output(command);
        let expected = if port == "7106" { 0 } else { 128 + libc::SIGTERM };
        assert_eq!(code, Some(expected), "{text}");
    }
    until_no_flag_is_left();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_command_starts_with_its_own_signals_and_limits() {
    let _module = Module::load();
    let script = "ulimit -n; grep SigIgn: /proc/self/status";
    let mut run = pronto_under(&["prlimit", "--nofile=64:4096"], &["run", "--", "sh", "-c", script]);
    let output = run.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "64\nSigIgn:\t0000000000000000\n", "{output:?}");
}

/// Processes of a shell, each with a socket of its own.
const MANY: usize = 100;

/// Flags the sockets of [`MANY`] processes, by a command with this limit of descriptors, until `enough` of them are flagged. Returns what
/// the command reports.
fn flagged_under(limit: &str, enough: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("for i in $(seq {MANY}); do sleep 1000 3<>/dev/tcp/127.0.0.1/{port} & done; wait");
    let shell = Ended::start(Command::new("bash").args(["-c", &script]).process_group(0));
    let start = now();
    let runs = |pid: &u32| std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"sleep\n");
    while descendants(shell.0.id()).iter().filter(|pid| runs(pid)).count() < MANY {
        assert!(start.elapsed() < LIMIT, "the processes have not started");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let limit = format!("--nofile={limit}");
    let mut flag = pronto_under(&["prlimit", &limit], &["flag", "--children", &shell.pid()]);
    let mut flag = flag.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (sender, lines) = channel();
    let output_of_flag = BufReader::new(flag.stdout.take().unwrap());
    // Ends with the command.
    std::thread::spawn(move || output_of_flag.lines().try_for_each(|line| sender.send(line.unwrap())));
    let mut flagged = BTreeSet::new();
    while flagged.len() < enough {
        let Ok(line) = lines.recv_timeout(LIMIT) else { break };
        if line.contains("descriptor 3 ") {
            flagged.insert(line);
        }
    }
    signal(&flag, Signal::SIGTERM);
    killpg(Pid::from_raw(shell.0.id().cast_signed()), Signal::SIGKILL).unwrap();
    let (code, _, text) = output(flag);
    assert_eq!((code, flagged.len()), (Some(0), enough), "{text}");
    text
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_limit_of_descriptors_is_raised_or_reported() {
    let _module = Module::load();
    let text = flagged_under("64:4096", MANY);
    assert!(!text.contains("RLIMIT_NOFILE"), "{text}");
    let text = flagged_under("64:64", 20);
    assert!(
        text.contains(" processes are left out until others end: ")
            && text.contains("have only 64 open files"),
        "{text}"
    );
    assert!(
        text.contains("raise the hard limit") && text.contains(" processes at a time were left out"),
        "{text}"
    );
}

/// Words that run a command as an ordinary user.
const AS_USER: [&str; 6] = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"];

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn processes_of_other_users_are_refused_with_the_reason() {
    let _module = Module::load();
    assert!(Command::new("chmod").args(["666", "/dev/expedite"]).status().unwrap().success());
    let other = Ended::start(Command::new("sleep").arg("1000"));
    let text = failure(&mut pronto_under(&AS_USER, &["flag", &other.pid()]));
    assert!(text.contains("does not permit access to the files of process"), "{text}");
    assert!(text.contains("it belongs to user id 0, and only that user and root have access"), "{text}");
    let text = failure(&mut pronto(&["flag", "2147483647"]));
    assert!(text.contains("process 2147483647 does not exist"), "{text}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn processes_that_protect_themselves_are_refused_with_the_reason() {
    let _module = Module::load();
    assert!(Command::new("chmod").args(["666", "/dev/expedite"]).status().unwrap().success());
    // Only root can read this program.
    assert!(Command::new("cp").args(["/usr/bin/sleep", "/tmp/secret-sleep"]).status().unwrap().success());
    assert!(Command::new("chmod").args(["711", "/tmp/secret-sleep"]).status().unwrap().success());
    // The shell, unlike `setpriv`, has no right to read all files when it executes the program.
    let words = ["sh", "-c", "exec /tmp/secret-sleep 1000"];
    let protected = Ended::start(Command::new(AS_USER[0]).args(&AS_USER[1..]).args(words));
    until_it_runs(&protected, "secret-sleep");
    let text = failure(&mut pronto_under(&AS_USER, &["flag", &protected.pid()]));
    assert!(text.contains("it protects itself"), "{text}");
    assert!(pronto_ends(&["flag", &protected.pid()]), "root has access");
}

/// Waits until a process runs a program.
fn until_it_runs(process: &Ended, program: &str) {
    let start = now();
    let name = || std::fs::read_to_string(format!("/proc/{}/comm", process.pid())).unwrap();
    while name().trim() != program {
        assert!(start.elapsed() < LIMIT, "{}", name());
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Returns whether a command runs until SIGTERM, which it gets after it has flagged what it can.
fn pronto_ends(words: &[&str]) -> bool {
    let mut command = pronto(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let start = now();
    // It blocks its signals when it has begun.
    while !blocks_signals(command.id()) && start.elapsed() < LIMIT && command.try_wait().unwrap().is_none() {
        std::thread::park_timeout(Duration::from_millis(10));
    }
    signal(&command, Signal::SIGTERM);
    let (code, _, text) = output(command);
    println!("{text}");
    code == Some(0)
}

fn blocks_signals(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("SigBlk:") && !line.ends_with("0000000000000000"))
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn rules_of_yama_are_reported() {
    const SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";
    let Ok(before) = std::fs::read_to_string(SCOPE) else {
        return pronto_skip::because("this kernel was built without Yama");
    };
    let _module = Module::load();
    assert!(Command::new("chmod").args(["666", "/dev/expedite"]).status().unwrap().success());
    let other = Ended::start(Command::new(AS_USER[0]).args(&AS_USER[1..]).args(["sleep", "1000"]));
    until_it_runs(&other, "sleep");
    // The process has no socket, but may open one later.
    for (scope, advice) in [("1", "start the program with pronto expedite run"), ("2", "CAP_SYS_PTRACE")] {
        std::fs::write(SCOPE, scope).unwrap();
        let text = failure(&mut pronto_under(&AS_USER, &["flag", &other.pid()]));
        assert!(
            text.contains(&format!("kernel.yama.ptrace_scope={scope}")) && text.contains(advice),
            "{text}"
        );
    }
    // Processes that a command has started can be reached.
    std::fs::write(SCOPE, "1").unwrap();
    let mut run = pronto_under(&AS_USER, &["run", "--"]);
    let run = run.args(server("7108")).stderr(Stdio::piped()).spawn().unwrap();
    let mut stream = connect("7108");
    until_boosted(&mut stream, 2);
    drop(stream);
    signal(&run, Signal::SIGTERM);
    let (code, _, text) = output(run);
    std::fs::write(SCOPE, before).unwrap();
    assert!(code == Some(128 + libc::SIGTERM) && !text.contains("ptrace_scope"), "{text}");
}

/// Returns a filter of system calls that lets one of them fail, as the kernel's `struct sock_filter`.
fn filter(call: i64, errno: i32) -> Vec<u8> {
    // Load the number of the call. If it is not this one, skip an instruction. Fail; permit.
    let program = [
        (0x20, 0, 0),
        (0x15, 1, u32::try_from(call).unwrap()),
        (0x06, 0, libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()),
        (0x06, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let bytes = |(code, skipped, value): (u16, u8, u32)| {
        let mut bytes = code.to_ne_bytes().to_vec();
        bytes.extend([0, skipped]);
        bytes.extend(value.to_ne_bytes());
        bytes
    };
    program.into_iter().flat_map(bytes).collect()
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn filters_of_system_calls_are_reported() {
    const FILTER: &str = "/tmp/filter";
    let _module = Module::load();
    let own = std::process::id().to_string();
    for (call, errno, name) in [
        (libc::SYS_pidfd_getfd, libc::EPERM, "EPERM"),
        (libc::SYS_pidfd_getfd, libc::ENOSYS, "ENOSYS"),
        (libc::SYS_pidfd_open, libc::ENOSYS, "ENOSYS"),
    ] {
        std::fs::write(FILTER, filter(call, errno)).unwrap();
        let starter = ["setpriv", "--no-new-privs", "--seccomp-filter", FILTER];
        for words in [&["flag", &own][..], &["run", "--", "true"]] {
            let text = failure(&mut pronto_under(&starter, words));
            assert!(text.contains(&format!("fails with {name}")) && text.contains("seccomp"), "{text}");
            assert!(text.contains("in the container's profile"), "{text}");
        }
    }
}
