//! Nodes in child processes: this test program, started again in a role.
//!
//! A child reads commands from its standard input and responds with lines that begin with `@`. It ends when its input ends.

use core::time::Duration;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use nix::sys::eventfd::EventFd;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pronto::progress::{Registration, Sleep, Source, Spec};
use pronto::{CallError, Event, Executed, Node, WaitPolicy};
use pronto_core::session::DownCause;

use crate::rig::{Add, Mark, PooledMark, Sum, TIMEOUT, Watch, Work, server, until};

const ROLE: &str = "PRONTO_FAULTS_ROLE";
const ARGUMENTS: &str = "PRONTO_FAULTS_ARGUMENTS";

/// A child process. Dropping it kills and reaps it.
pub(crate) struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
}

impl Child {
    /// Starts a child in a role.
    pub(crate) fn start(role: &str, arguments: &[&str]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::run_role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(ARGUMENTS, arguments.join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let output = output.lines().map_while(Result::ok);
            for line in output.filter_map(|line| line.strip_prefix('@').map(str::to_owned)) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, lines }
    }

    /// Starts a node with the handlers of [`server`]; returns the child and the node's address.
    pub(crate) fn node(id: u16, listen: &str) -> (Self, String) {
        let child = Self::start("node", &[&id.to_string(), listen]);
        let address = child.expect_line("listening ");
        (child, address)
    }

    /// Waits for the next line that begins with `beginning`, and returns the rest of it.
    pub(crate) fn expect_line(&self, beginning: &str) -> String {
        let watch = Watch::start();
        loop {
            let left = (2 * TIMEOUT).checked_sub(watch.passed()).unwrap_or_default();
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("no {beginning:?} from the child: {error}"));
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    pub(crate) fn send_command(&mut self, command: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().try_into().unwrap()), signal).unwrap();
    }

    /// Stops the child and waits until all of its threads have stopped: some keep running for a while after the signal.
    pub(crate) fn stop_all_threads(&self) {
        self.signal(Signal::SIGSTOP);
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            // The state follows the name, which is in parentheses.
            stat.rsplit(") ").next().unwrap().starts_with('T')
        };
        let tasks = format!("/proc/{}/task", self.id());
        until("every thread has stopped", || std::fs::read_dir(&tasks).unwrap().all(is_stopped));
    }

    /// Kills the child as `kill -9` does, and reaps it.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Fails if the test has already killed and reaped the child.
        let _dead = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Sends a line to the parent. It begins with a line break, because the test harness may have left a line unfinished.
pub(crate) fn report(line: &str) {
    println!("\n@{line}");
}

/// Runs the role of a child. The parent has no role, so this does nothing there.
#[test]
fn run_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let arguments = std::env::var(ARGUMENTS).unwrap();
    let arguments: Vec<&str> = arguments.split(' ').collect();
    match role.as_str() {
        "node" => node(&arguments),
        "fork" => crate::forked::run(arguments[0]),
        "scribble" => crate::scribbler::attack(&arguments),
        "squat" => crate::other_user::squat(arguments[0]),
        "visit" => crate::other_user::visit(arguments[0]),
        "call-as-stranger" => crate::other_user::call_as_stranger(arguments[0], arguments[1]),
        "transfers" => crate::killed_transfers::serve(&arguments),
        "ledger" => crate::ledger::serve(&arguments),
        "real-time" => crate::real_time::run(arguments[0]),
        "hog" => hog(),
        other => panic!("unknown role {other}"),
    }
}

/// Reads the next command. The process ends with its input.
pub(crate) fn command() -> Vec<String> {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
    line.split_whitespace().map(str::to_owned).collect()
}

/// Runs a node: `ID LISTEN [PEER=ADDRESS]...`
fn node(arguments: &[&str]) {
    let mut builder = server(arguments[0].parse().unwrap(), arguments[1]);
    for peer in &arguments[2..] {
        let (id, address) = peer.split_once('=').unwrap();
        builder = builder.peer(id.parse::<u16>().unwrap(), address);
    }
    let executes = |number: u64| {
        report(&format!("executed {number}"));
        Sum { total: number }
    };
    let builder = builder
        .handle_inline(move |_, mark: Mark| executes(mark.number))
        .handle(move |_, mark: PooledMark| executes(mark.number));
    let node = Arc::new(builder.wait(WaitPolicy::Block).start().unwrap());
    let events = node.events();
    std::thread::spawn(move || {
        loop {
            match events.next_within(TIMEOUT) {
                Some(Ok(Event::PeerUp(info))) => report(&format!("up {} {:?}", info.peer, info.epoch)),
                Some(Ok(Event::PeerDown { peer, cause, .. })) => {
                    report(&format!("down {peer} {}", name_of(cause)))
                }
                Some(Ok(other)) => report(&format!("link {other:?}")),
                Some(Err(missed)) => panic!("{missed}"),
                None => {}
            }
        }
    });
    report(&format!("listening {}", node.listening()[0]));
    let mut registered = Vec::new();
    loop {
        let words = command();
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["call", peer, times] => calls(&node, peer.parse().unwrap(), times.parse().unwrap()),
            ["give-up", peer, times] => gives_up(&node, peer.parse().unwrap(), times.parse().unwrap()),
            ["work", peer, times] => works(&node, peer.parse().unwrap(), times.parse().unwrap()),
            ["register", count] => registers(&node, count.parse().unwrap(), &mut registered),
            ref other => panic!("unknown command {other:?}"),
        }
    }
}

fn name_of(cause: DownCause) -> String {
    format!("{cause:?}").split('(').next().unwrap().to_owned()
}

/// Makes calls and reports how they ended.
fn calls(node: &Node, peer: u16, times: u32) {
    let peer = node.wait_for_peer(peer, TIMEOUT).unwrap();
    let mut failures = Vec::new();
    for _ in 0..times {
        if let Err(error) = peer.call(&Add { values: vec![1] }) {
            failures.push(error);
        }
    }
    report(&format!("called {} {failures:?}", times as usize - failures.len()));
}

/// Registers `count` sources, half in memory and half behind descriptors. One descriptor is always readable without data. Reports
/// the number of sources when the manager has muted that one.
fn registers(node: &Node, count: usize, registered: &mut Vec<Registration>) {
    struct Silent;
    impl Source for Silent {
        fn poll(&mut self) -> usize {
            0
        }
    }
    let manager = node.manager();
    let event = |value| OwnedFd::from(EventFd::from_value(value).unwrap());
    for number in 0..count / 2 {
        let in_memory = Spec::memory("in memory", Sleep::Notified);
        registered.push(manager.register(in_memory, Silent).unwrap());
        let behind = Spec::readable("descriptor", event(u32::from(number == 0)));
        registered.push(manager.register(behind, Silent).unwrap());
    }
    let watch = Watch::start();
    while manager.counters().muted < 8 {
        assert!(watch.passed() < TIMEOUT, "the readable source is never muted");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    report(&format!("registered {}", manager.sources()));
}

/// Calls a handler on the pool and reports how the calls ended.
fn works(node: &Node, peer: u16, times: u32) {
    let peer = node.wait_for_peer(peer, TIMEOUT).unwrap();
    let ends = (0..times).map(|key| peer.call(&Work { key: key.into() }));
    let failures: Vec<_> = ends.filter_map(Result::err).collect();
    report(&format!("worked {} {failures:?}", times as usize - failures.len()));
}

/// Starts calls and cancels each immediately.
fn gives_up(node: &Node, peer: u16, times: u32) {
    let peer = node.wait_for_peer(peer, TIMEOUT).unwrap();
    for key in 0..times {
        let given_up = loop {
            match peer.start(&Work { key: u64::from(key) + 1_000_000 }) {
                Ok(pending) => break pending.cancel(),
                Err(refused) if refused.is_retryable() => std::thread::park_timeout(Duration::from_millis(1)),
                Err(other) => break other,
            }
        };
        assert_eq!(given_up, CallError::Cancelled { executed: Executed::Maybe });
    }
    report("gave up");
}

/// Computes without end.
fn hog() {
    std::thread::spawn(|| while !command().is_empty() {});
    let mut x = 1_u64;
    loop {
        x = core::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
