//! The server: a node in another process, in the second namespace. It is this test program, started again.

use core::time::Duration;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use pronto::{Event, Events, Node, Rdma, WaitPolicy};

use crate::ledger::{self, Log};
use crate::network::Space;
use crate::rig::TIMEOUT;
use crate::{lanes, transfers};

const ARGUMENTS: &str = "PRONTO_NETWORK_SERVER";

/// Numbers of a node's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occurred {
    pub(crate) ups: u64,
    pub(crate) downs: u64,
    pub(crate) lost: u64,
    pub(crate) resumed: u64,
}

impl Occurred {
    /// Returns the numbers of the events after `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            ups: self.ups - earlier.ups,
            downs: self.downs - earlier.downs,
            lost: self.lost - earlier.lost,
            resumed: self.resumed - earlier.resumed,
        }
    }

    /// Counts the events that were not read yet.
    pub(crate) fn count(&mut self, events: &Events) {
        while let Some(event) = events.try_next() {
            let event = event.expect("few events happen");
            eprintln!("network: {event:?}");
            match event {
                Event::PeerUp(_) => self.ups += 1,
                Event::PeerDown { .. } => self.downs += 1,
                Event::LinkLost { .. } => self.lost += 1,
                Event::LinkResumed { .. } => self.resumed += 1,
                Event::LinkPaused { .. } | Event::PauseEnded { .. } => {}
            }
        }
    }
}

/// The server's process. Dropping it kills and reaps it.
pub(crate) struct Server {
    process: Child,
    lines: Receiver<String>,
    pub(crate) address: String,
}

impl Server {
    /// Starts the server; `logs` are of the ledger and of the lanes.
    pub(crate) fn start(space: &Space, liveness: Duration, logs: [&Log; 2]) -> Self {
        let listen = format!("tcp:{}:0", space.address);
        let [ledger, lanes] = logs.map(Log::path);
        let arguments = format!("{listen} {} {ledger} {lanes}", liveness.as_millis());
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        command
            .args(["--exact", "server::run", "--nocapture", "--test-threads=1"])
            .env(ARGUMENTS, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = space.spawn(&mut command).unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            for line in lines.filter_map(|line| line.strip_prefix('@').map(str::to_owned)) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let address = lines.recv_timeout(TIMEOUT).expect("the server listens");
        Self { process, lines, address }
    }

    /// Returns the events of the server's node so far.
    pub(crate) fn occurred(&mut self) -> Occurred {
        self.process.stdin.as_mut().unwrap().write_all(b"events\n").unwrap();
        let line = self.lines.recv_timeout(TIMEOUT).expect("the server has failed");
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        Occurred { ups: numbers[0], downs: numbers[1], lost: numbers[2], resumed: numbers[3] }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _dead = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Sends a line to the test. It begins with a line break, because the test harness may have left a line unfinished.
fn report(line: &str) {
    println!("\n@{line}");
}

/// Not a test: the program of [`Server`].
#[test]
fn run() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let liveness = Duration::from_millis(arguments[1].parse().unwrap());
    let node = Node::builder(1).plaintext_i_understand().rdma(Rdma::Off).wait(WaitPolicy::Block);
    let node = node.listen(arguments[0]);
    let node = lanes::handled(ledger::handled(node, arguments[2]), arguments[3]);
    let node = Arc::new(node.liveness(liveness).start().unwrap());
    let events = node.events();
    report(&node.listening()[0].to_string());
    let echoing = Arc::clone(&node);
    std::thread::spawn(move || transfers::echo(&echoing, 2));
    let mut occurred = Occurred::default();
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).unwrap() > 0 {
        occurred.count(&events);
        let Occurred { ups, downs, lost, resumed } = occurred;
        report(&format!("{ups} {downs} {lost} {resumed}"));
    }
    // Threads still use the node.
    std::process::exit(0);
}
