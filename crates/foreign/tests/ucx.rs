//! Active messages of UCX from another process: with the worker as a source of a node they progress while the program computes.

use core::hint::black_box;
use core::time::Duration;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::ThreadId;
use std::time::Instant;

use pronto::progress::{Registration, Source as _};
use pronto::{Node, WaitPolicy};
use pronto_foreign::ucx::{Protocol, Worker};

/// Length of a message that UCX sends with its announcement, bytes.
const SHORT: usize = 32;
/// Length of a message that the receiver fetches, bytes.
const LONG: usize = 4 << 20;
/// Time after which something that must happen has not happened.
const PATIENCE: Duration = Duration::from_secs(60);
/// Steps of a computation that nothing ends early. With the source, a message takes a small fraction of it.
const STEPS: u64 = 200_000_000;
/// Steps between two checks of a computation.
const STEPS_PER_CHECK: u64 = 100_000;

/// A message, as the handler got it.
#[derive(Debug, PartialEq)]
struct Message {
    length: usize,
    protocol: Protocol,
    thread: ThreadId,
}

/// The worker of this process, and the sender's process.
struct Pair {
    worker: Arc<Worker>,
    messages: Receiver<Message>,
    sender: Child,
    commands: ChildStdin,
    /// Lines of the sender.
    reports: Receiver<String>,
}

impl Pair {
    /// Connects both workers, in both directions. The calling thread progresses this process's worker for it.
    fn connect() -> Self {
        let mut sender = Command::new(env!("CARGO_BIN_EXE_ucx-sender"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the sender starts");
        let mut commands = sender.stdin.take().expect("piped");
        let lines = BufReader::new(sender.stdout.take().expect("piped")).lines();
        let (report, reports) = channel();
        std::thread::spawn(move || {
            for line in lines {
                // At the end of a test nothing receives.
                let _gone = report.send(line.expect("text"));
            }
        });
        let (arrived, messages) = channel();
        let mut worker = Worker::open(move |message| {
            assert!(message.bytes.iter().all(|byte| *byte == message.bytes[0]), "the content is whole");
            let (length, protocol) = (message.bytes.len(), message.protocol);
            let message = Message { length, protocol, thread: std::thread::current().id() };
            arrived.send(message).expect("the test receives");
        })
        .expect("a worker");
        let theirs = reports.recv_timeout(PATIENCE).expect("the sender's address");
        let theirs = theirs.strip_prefix("address ").expect("an address");
        let digits = |at| u8::from_str_radix(&theirs[at..at + 2], 16).expect("hexadecimal digits");
        let theirs: Vec<u8> = (0..theirs.len()).step_by(2).map(digits).collect();
        worker.connect(&theirs).expect("a connection");
        let ours: String = worker.address().iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(commands, "address {ours}").expect("the sender reads");
        worker.send(&[0]).expect("a message");
        let mut pair = Self { worker: Arc::new(worker), messages, sender, commands, reports };
        pair.progress_until("ready");
        pair
    }

    /// Progresses the worker on the calling thread until its greeting has left, the sender's has arrived, and it has reported `line`.
    fn progress_until(&mut self, line: &str) {
        let (mut reported, mut greeted) = (false, false);
        eventually(|| {
            self.worker.progress();
            reported |= self.reports.try_recv().is_ok_and(|report| report == line);
            greeted |= self.messages.try_recv().is_ok();
            reported && greeted && self.worker.unsent() == 0
        });
    }

    fn registered_with(&self, node: &Node) -> Registration {
        let (spec, source) = self.worker.source().expect("a descriptor");
        node.manager().register(spec, source).expect("room for a source")
    }

    /// Has the sender send a message, and waits until it is announced.
    fn send(&mut self, length: usize) {
        writeln!(self.commands, "send {length}").expect("the sender reads");
        let report = self.reports.recv_timeout(PATIENCE);
        assert_eq!(report.as_deref(), Ok(format!("posted {length}").as_str()));
    }

    fn completed(&self, length: usize) {
        let report = self.reports.recv_timeout(PATIENCE);
        assert_eq!(report.as_deref(), Ok(format!("completed {length}").as_str()));
    }
}

/// Computes until another thread or process has something for this thread, which makes no call to UCX meanwhile.
fn during_computation<T>(from: &Receiver<T>) -> T {
    let mut found = None;
    eventually(|| {
        compute(STEPS_PER_CHECK);
        found = from.try_recv().ok();
        found.is_some()
    });
    found.expect("the wait has ended")
}

impl Drop for Pair {
    fn drop(&mut self) {
        // If the process has ended, it cannot be killed.
        let _ended = self.sender.kill();
        let _status = self.sender.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the wait is bounded")]
fn eventually(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn compute(steps: u64) {
    let mut value = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..steps {
        value = black_box(value ^ value << 13);
    }
}

/// Shows: sources.other-libraries
#[test]
fn active_messages_progress_while_the_program_computes() {
    let mut pair = Pair::connect();
    let node = Node::builder(1).start().expect("a node");
    let _registration = pair.registered_with(&node);
    for (length, protocol) in [(SHORT, Protocol::Eager), (LONG, Protocol::Rendezvous)] {
        pair.send(length);
        let message = during_computation(&pair.messages);
        assert_eq!((message.length, message.protocol), (length, protocol));
        assert_ne!(message.thread, std::thread::current().id());
        // The sender learns that its message was fetched.
        assert_eq!(during_computation(&pair.reports), format!("completed {length}"));
    }
    assert_eq!(node.manager().failures(), []);
}

/// Shows: sources.other-libraries
#[test]
fn without_the_source_they_wait_for_the_program() {
    let mut pair = Pair::connect();
    // A node without the source makes no difference.
    let _node = Node::builder(1).start().expect("a node");
    pair.send(SHORT);
    pair.completed(SHORT);
    pair.send(LONG);
    compute(STEPS);
    assert!(pair.messages.try_recv().is_err(), "no message has arrived");
    assert!(pair.reports.try_recv().is_err(), "the long message has not left");
    let mut messages = Vec::new();
    let mut reports = Vec::new();
    eventually(|| {
        pair.worker.progress();
        messages.extend(pair.messages.try_recv());
        reports.extend(pair.reports.try_recv());
        (messages.len(), reports.len()) == (2, 1)
    });
    let thread = std::thread::current().id();
    let expected = [(SHORT, Protocol::Eager), (LONG, Protocol::Rendezvous)]
        .map(|(length, protocol)| Message { length, protocol, thread });
    assert_eq!(messages, expected);
    assert_eq!(reports, [format!("completed {LONG}")]);
}

/// Shows: sources.asked
#[test]
fn a_message_wakes_a_sleeping_node() {
    let mut pair = Pair::connect();
    let node = Node::builder(1).wait(WaitPolicy::Block).start().expect("a node");
    let _registration = pair.registered_with(&node);
    let counters = || node.manager().counters();
    let mut slept = 0;
    for _ in 0..20 {
        eventually(|| counters().sleeps > slept);
        slept = counters().sleeps;
        pair.send(SHORT);
        let message = pair.messages.recv_timeout(PATIENCE).expect("it arrives");
        assert_eq!(message.length, SHORT);
        pair.completed(SHORT);
    }
    // A message that only the time limit of a sleep found would count as a lost wake-up.
    assert_eq!((counters().lost_wake_ups, counters().muted), (0, 0));
}

/// Shows: sources.asked, sources.busy
#[test]
fn a_worker_that_cannot_be_armed_prevents_the_sleep() {
    let worker = Arc::new(Worker::open(|_| ()).expect("a worker"));
    let (_, mut source) = worker.source().expect("a descriptor");
    // UCX refuses to arm a worker with a signal, although it has no other event.
    worker.signal().expect("a signal");
    source.arm();
    assert_ne!(source.poll(), 0);
    source.arm();
    assert_eq!(source.poll(), 0);
}
