//! Nodes in processes of their own: this test program, started again in a role.
//!
//! A child hears commands on its standard input and answers with lines that begin with `@`; it ends with its input.

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

use crate::rig::{Add, Mark, PooledMark, SOON, Sum, Watch, Work, server, until};

const ROLE: &str = "PRONTO_FAULTS_ROLE";
const ARGUMENTS: &str = "PRONTO_FAULTS_ARGUMENTS";

/// A child process; killed and reaped when dropped.
pub(crate) struct Child {
    process: std::process::Child,
    said: Receiver<String>,
}

impl Child {
    /// Starts a child in a role.
    pub(crate) fn start(role: &str, arguments: &[&str]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::in_its_role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(ARGUMENTS, arguments.join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (say, said) = channel();
        std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            for line in lines.filter_map(|line| line.strip_prefix('@').map(str::to_owned)) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, said }
    }

    /// A node that adds and works.
    pub(crate) fn node(id: u16, listen: &str) -> (Self, String) {
        let child = Self::start("node", &[&id.to_string(), listen]);
        let address = child.hears("listening ");
        (child, address)
    }

    /// The rest of the next line that begins like this.
    pub(crate) fn hears(&self, beginning: &str) -> String {
        let watch = Watch::start();
        loop {
            let left = (2 * SOON).checked_sub(watch.passed()).unwrap_or_default();
            let line = self.said.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("no {beginning:?} from the child: {error}"));
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().try_into().unwrap()), signal).unwrap();
    }

    /// Stops it, and waits until each of its threads stands still: the signal alone lets some go on for a while.
    pub(crate) fn stands_still(&self) {
        self.signal(Signal::SIGSTOP);
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            // The state follows the name, which is in brackets.
            stat.rsplit(") ").next().unwrap().starts_with('T')
        };
        let tasks = format!("/proc/{}/task", self.id());
        until("every thread has stopped", || std::fs::read_dir(&tasks).unwrap().all(is_stopped));
    }

    /// Kills it as `kill -9` does, and reaps it.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Fails if the test has killed and reaped it already.
        let _dead = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Tells the parent. The line begins anew: the test harness may have left one unfinished.
pub(crate) fn say(line: &str) {
    println!("\n@{line}");
}

/// What a child runs; in the parent there is no role, and nothing to do.
#[test]
fn in_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let arguments = std::env::var(ARGUMENTS).unwrap();
    let arguments: Vec<&str> = arguments.split(' ').collect();
    match role.as_str() {
        "node" => node(&arguments),
        "fork" => crate::forked::forks(arguments[0]),
        "scribble" => crate::scribbler::scribbles(&arguments),
        "squat" => crate::other_user::squats(arguments[0]),
        "visit" => crate::other_user::visits(arguments[0]),
        "transfers" => crate::killed_transfers::serves(&arguments),
        "ledger" => crate::ledger::serves(&arguments),
        "real-time" => crate::real_time::waits(arguments[0]),
        "hog" => hog(),
        other => panic!("unknown role {other}"),
    }
}

/// The next command; the process ends with its input.
pub(crate) fn command() -> Vec<String> {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
    line.split_whitespace().map(str::to_owned).collect()
}

/// `ID LISTEN [PEER=ADDRESS]...`
fn node(arguments: &[&str]) {
    let mut builder = server(arguments[0].parse().unwrap(), arguments[1]);
    for peer in &arguments[2..] {
        let (id, address) = peer.split_once('=').unwrap();
        builder = builder.peer(id.parse::<u16>().unwrap(), address);
    }
    let executes = |number: u64| {
        say(&format!("executed {number}"));
        Sum { total: number }
    };
    let builder = builder
        .handle_inline(move |_, mark: Mark| executes(mark.number))
        .handle(move |_, mark: PooledMark| executes(mark.number));
    let node = Arc::new(builder.wait(WaitPolicy::Block).start().unwrap());
    let events = node.events();
    std::thread::spawn(move || {
        loop {
            match events.next_within(SOON) {
                Some(Ok(Event::PeerUp(info))) => say(&format!("up {} {:?}", info.peer, info.epoch)),
                Some(Ok(Event::PeerDown { peer, cause, .. })) => {
                    say(&format!("down {peer} {}", name_of(cause)))
                }
                Some(Ok(other)) => say(&format!("link {other:?}")),
                Some(Err(missed)) => panic!("{missed}"),
                None => {}
            }
        }
    });
    say(&format!("listening {}", node.listening()[0]));
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

/// Calls and says how the calls ended.
fn calls(node: &Node, peer: u16, times: u32) {
    let peer = node.wait_for_peer(peer, SOON).unwrap();
    let mut failures = Vec::new();
    for _ in 0..times {
        if let Err(error) = peer.call(&Add { values: vec![1] }) {
            failures.push(error);
        }
    }
    say(&format!("called {} {failures:?}", times as usize - failures.len()));
}

/// Registers sources of its own: half of them in memory, half of them behind descriptors, of which one is always readable and
/// has nothing. Says how often the manager has left it out by then.
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
        assert!(watch.passed() < SOON, "the readable one is never left out");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    say(&format!("registered {}", manager.sources()));
}

/// Calls a handler of the pool, and says how the calls ended.
fn works(node: &Node, peer: u16, times: u32) {
    let peer = node.wait_for_peer(peer, SOON).unwrap();
    let ends = (0..times).map(|key| peer.call(&Work { key: key.into() }));
    let failures: Vec<_> = ends.filter_map(Result::err).collect();
    say(&format!("worked {} {failures:?}", times as usize - failures.len()));
}

/// Begins calls and gives each up at once.
fn gives_up(node: &Node, peer: u16, times: u32) {
    let peer = node.wait_for_peer(peer, SOON).unwrap();
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
    say("gave up");
}

/// Computes and does nothing else.
fn hog() {
    std::thread::spawn(|| while !command().is_empty() {});
    let mut x = 1_u64;
    loop {
        x = core::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
