//! Messages, nodes and bounded waits, shared by all scenarios.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use pronto::{Event, Events, Message, Node, NodeId, Peer, WaitPolicy};
use pronto_sync::atomic::{AtomicU8, Ordering};

#[derive(Message, Debug, PartialEq)]
#[message(name = "faults.sum")]
pub(crate) struct Sum {
    pub(crate) total: u64,
}

#[derive(Message, Debug)]
#[message(name = "faults.add", reply = Sum)]
pub(crate) struct Add {
    pub(crate) values: Vec<u64>,
}

/// A request whose reply is the number of executions with this key, including this one.
#[derive(Message, Debug)]
#[message(name = "faults.work", reply = Sum)]
pub(crate) struct Work {
    pub(crate) key: u64,
}

/// A long message for an inline handler, which reports its number.
#[derive(Message, Debug)]
#[message(name = "faults.mark", reply = Sum)]
pub(crate) struct Mark {
    pub(crate) number: u64,
    pub(crate) padding: Vec<u8>,
}

/// A [`Mark`] for a handler on the pool.
#[derive(Message, Debug)]
#[message(name = "faults.pooled_mark", reply = Sum)]
pub(crate) struct PooledMark {
    pub(crate) number: u64,
    pub(crate) padding: Vec<u8>,
}

#[derive(Message, Debug, PartialEq)]
#[message(name = "faults.page", class = bulk)]
pub(crate) struct Page {
    pub(crate) bytes: Vec<u8>,
}

#[derive(Message, Debug)]
#[message(name = "faults.fetch", reply = Page)]
pub(crate) struct Fetch {
    pub(crate) len: u32,
}

/// Time limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);
pub(crate) const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

static QUIET: RwLock<()> = RwLock::new(());

/// Returns the guard of a scenario that may run concurrently with others.
pub(crate) fn shared_run() -> RwLockReadGuard<'static, ()> {
    QUIET.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the guard of a scenario that measures time, and therefore runs alone.
pub(crate) fn exclusive_run() -> RwLockWriteGuard<'static, ()> {
    QUIET.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an address to listen at, a different one for each `name`.
pub(crate) fn address(transport: &str, name: &str) -> String {
    match transport {
        "shm" => format!("shm:@pronto-faults-{name}-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    }
}

/// Returns a TCP address at which no node listens, now or later. Other tests and processes use ports of 127.0.0.1, where the system may
/// assign a port that was free a moment ago.
pub(crate) fn free_address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    // SYNC: yields distinct numbers; orders nothing.
    let own = NEXT.fetch_add(1, Ordering::Relaxed);
    let free = TcpListener::bind((Ipv4Addr::new(127, own, high, low), 0)).unwrap();
    format!("tcp:{}", free.local_addr().unwrap())
}

/// Returns the builder of a node that handles [`Add`], [`Work`] and [`Fetch`].
pub(crate) fn server(id: u16, listen: &str) -> pronto::Builder {
    let executed: Mutex<HashMap<u64, u64>> = Mutex::default();
    Node::builder(id)
        .wait(WaitPolicy::Block)
        .listen(listen)
        .handle_inline(|_, add: Add| Sum { total: add.values.iter().sum() })
        .handle(|_, fetch: Fetch| Page { bytes: vec![7; fetch.len as usize] })
        .handle(move |_, work: Work| {
            let mut executed = executed.lock().unwrap();
            let times = executed.entry(work.key).or_default();
            *times += 1;
            Sum { total: *times }
        })
}

/// Starts a server; returns it and its address.
pub(crate) fn started(id: u16, transport: &str, name: &str) -> (Node, String) {
    let node = server(id, &address(transport, name)).start().unwrap();
    let address = node.listening()[0].to_string();
    (node, address)
}

/// Starts a node that calls node 1; returns it and its handle of node 1.
pub(crate) fn client(id: u16, address: &str) -> (Node, Peer) {
    let node = Node::builder(id).wait(WaitPolicy::Block).peer(1, address).start().unwrap();
    let peer = node.wait_for_peer(1, TIMEOUT).unwrap();
    (node, peer)
}

/// Makes one call that must succeed.
pub(crate) fn add(peer: &Peer) {
    assert_eq!(peer.call(&Add { values: vec![1, 2] }).unwrap().total, 3);
}

/// Returns a counter of a node's session with a peer.
pub(crate) fn counter(node: &Node, peer: u16, name: &str) -> u64 {
    let status = node.status();
    let peer = status.peers.iter().find(|known| known.node == NodeId(peer)).unwrap();
    peer.counters.iter().find(|(counter, _)| *counter == name).unwrap().1
}

/// Returns the number of connections that a node has refused for a reason.
pub(crate) fn refused(node: &Node, reason: &str) -> u64 {
    let status = node.status();
    status.refused.iter().find(|(name, _)| *name == reason).map_or(0, |(_, count)| *count)
}

/// Asserts that all buffers and call slots of this node are released.
pub(crate) fn assert_all_released(node: &Node, peer: &Peer) {
    until("all buffers and call slots are released", || {
        let _progress = peer.call(&Add { values: vec![] });
        node.status().peers.iter().all(|known| known.open_calls == 0 && known.work_in_flight == 0)
    });
}

/// A stopwatch.
pub(crate) struct Watch(Instant);

impl Watch {
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "these tests measure real time")]
        let now = Instant::now();
        Self(now)
    }

    pub(crate) fn passed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Waits for `span`, for example while a fault lasts.
pub(crate) fn pause(span: Duration) {
    let watch = Watch::start();
    while let Some(left) = span.checked_sub(watch.passed()) {
        std::thread::park_timeout(left);
    }
}

/// Waits until `is_so` returns true, and fails after [`TIMEOUT`]. `condition` describes it.
pub(crate) fn until(condition: &str, mut is_so: impl FnMut() -> bool) {
    let watch = Watch::start();
    while !is_so() {
        assert!(watch.passed() < TIMEOUT, "timed out: {condition}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Waits for the next event for which `fits` returns true, within `limit`. Earlier events are ignored.
pub(crate) fn event(events: &Events, limit: Duration, fits: impl Fn(&Event) -> bool) -> Event {
    let watch = Watch::start();
    let mut seen = Vec::new();
    while let Some(left) = limit.checked_sub(watch.passed()) {
        match events.next_within(left) {
            Some(Ok(event)) if fits(&event) => return event,
            other => seen.extend(other),
        }
    }
    panic!("no matching event within {limit:?}; received {seen:?}")
}

/// Returns all events so far.
pub(crate) fn all(events: &Events) -> Vec<Event> {
    core::iter::from_fn(|| events.try_next())
        .map(|event| event.expect("few events happen in a test"))
        .collect()
}
