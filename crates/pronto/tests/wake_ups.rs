//! A reply wakes only the caller that sleeps for it: the node's serving thread keeps sleeping.

use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::Instant;

use pronto::{Message, Node, WaitPolicy};

#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "wake_ups.echo")]
struct Echo {
    number: u64,
}

#[derive(Message, Clone, Debug)]
#[message(name = "wake_ups.ask", reply = Echo)]
struct Ask {
    number: u64,
}

const SERVER: u16 = 1;
const CLIENT: u16 = 2;
const TIMEOUT: Duration = Duration::from_secs(20);
const CALLS: u64 = 500;
const HANDLED: Duration = Duration::from_micros(500);
/// Interval of the serving thread's ticks while a call is open.
const TICK: Duration = Duration::from_millis(4);

/// Returns how often each serving thread of this process has gone to sleep, by thread.
fn sleeps() -> HashMap<String, u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("procfs is mounted");
    let sleeps_of = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let count = line.trim().parse().ok()?;
        (name.trim() == "pronto-serve").then(|| (task.path().display().to_string(), count))
    };
    tasks.filter_map(|task| sleeps_of(task.ok()?)).collect()
}

/// Returns all threads of this process. A thread that has just started has no name yet.
fn threads() -> HashSet<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("procfs is mounted");
    tasks.filter_map(|task| Some(task.ok()?.path().display().to_string())).collect()
}

#[expect(clippy::disallowed_methods, reason = "the number of ticks depends on the elapsed time")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_blocking_call_does_not_wake_the_serving_thread() {
    let server = Node::builder(SERVER).wait(WaitPolicy::Block).listen("tcp:127.0.0.1:0");
    // A reply that arrives before its caller sleeps would wake the serving thread.
    let server = server.handle_inline(|_, ask: Ask| {
        std::thread::park_timeout(HANDLED);
        Echo { number: ask.number }
    });
    let server = server.start().expect("a node");
    let address = server.listening()[0].to_string();
    let others = threads();
    let client =
        Node::builder(CLIENT).wait(WaitPolicy::Block).peer(SERVER, &address).start().expect("a node");
    let peer = client.wait_for_peer(SERVER, TIMEOUT).expect("the peer connects");
    let call = |number| assert_eq!(peer.call(&Ask { number }).expect("a reply"), Echo { number });
    (0..100).for_each(call);
    let own: Vec<_> = sleeps().into_keys().filter(|thread| !others.contains(thread)).collect();
    assert_eq!(own.len(), 1, "the client has one serving thread: {own:?}");
    let (before, start) = (sleeps()[&own[0]], now());
    (0..CALLS).for_each(call);
    let (slept, took) = (sleeps()[&own[0]] - before, start.elapsed());
    // A tick may find the engine locked, and sleep a second time for that.
    let ticks = 3 * u64::try_from(took.as_nanos() / TICK.as_nanos()).expect("minutes at most");
    assert!(
        slept <= ticks + CALLS / 10,
        "the serving thread slept {slept} times during {CALLS} calls in {took:?}"
    );
}
