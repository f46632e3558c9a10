//! What all stories share: messages, nodes, and waits that are bounded.

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

/// Says how often work of this key was executed, this time included.
#[derive(Message, Debug)]
#[message(name = "faults.work", reply = Sum)]
pub(crate) struct Work {
    pub(crate) key: u64,
}

/// A long message for a handler that runs where the message is taken in, and reports its number.
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

/// Longest time that anything here takes.
pub(crate) const SOON: Duration = Duration::from_secs(15);
pub(crate) const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

static QUIET: RwLock<()> = RwLock::new(());

/// Held by a story that others may run beside.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    QUIET.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a story that measures time.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    QUIET.write().unwrap_or_else(PoisonError::into_inner)
}

/// An address to listen at, of its own for each `name`.
pub(crate) fn address(transport: &str, name: &str) -> String {
    match transport {
        "shm" => format!("shm:@pronto-faults-{name}-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    }
}

/// A TCP address at which nobody listens, nor will: others, also in other processes, listen at and dial from 127.0.0.1, where a port
/// that was free a moment ago may be taken by the next who asks for any.
pub(crate) fn free_address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    // SYNC: a number for each; orders nothing.
    let own = NEXT.fetch_add(1, Ordering::Relaxed);
    let free = TcpListener::bind((Ipv4Addr::new(127, own, high, low), 0)).unwrap();
    format!("tcp:{}", free.local_addr().unwrap())
}

/// A node that adds, works and serves pages.
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

/// A server that has started, and where it listens.
pub(crate) fn started(id: u16, transport: &str, name: &str) -> (Node, String) {
    let node = server(id, &address(transport, name)).start().unwrap();
    let address = node.listening()[0].to_string();
    (node, address)
}

/// A node that calls node 1, and node 1 as its peer.
pub(crate) fn client(id: u16, address: &str) -> (Node, Peer) {
    let node = Node::builder(id).wait(WaitPolicy::Block).peer(1, address).start().unwrap();
    let peer = node.wait_for_peer(1, SOON).unwrap();
    (node, peer)
}

/// One call that must be answered.
pub(crate) fn add(peer: &Peer) {
    assert_eq!(peer.call(&Add { values: vec![1, 2] }).unwrap().total, 3);
}

/// A counter of a node's session with a peer.
pub(crate) fn counter(node: &Node, peer: u16, name: &str) -> u64 {
    let status = node.status();
    let peer = status.peers.iter().find(|known| known.node == NodeId(peer)).unwrap();
    peer.counters.iter().find(|(counter, _)| *counter == name).unwrap().1
}

/// How many connections a node has refused for a reason.
pub(crate) fn refused(node: &Node, reason: &str) -> u64 {
    let status = node.status();
    status.refused.iter().find(|(name, _)| *name == reason).map_or(0, |(_, count)| *count)
}

/// Nothing of this node's calls to a peer is left over.
pub(crate) fn assert_all_back(node: &Node, peer: &Peer) {
    until("all buffers and call slots are back", || {
        let _progress = peer.call(&Add { values: vec![] });
        node.status().peers.iter().all(|known| known.open_calls == 0 && known.work_in_flight == 0)
    });
}

/// Time since this was made.
pub(crate) struct Watch(Instant);

impl Watch {
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "these tests are about time that really passes")]
        let now = Instant::now();
        Self(now)
    }

    pub(crate) fn passed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Lets time pass: the fault lasts this long.
pub(crate) fn lasts(span: Duration) {
    let watch = Watch::start();
    while let Some(left) = span.checked_sub(watch.passed()) {
        std::thread::park_timeout(left);
    }
}

/// Waits until something is so, and fails if that takes too long.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let watch = Watch::start();
    while !so() {
        assert!(watch.passed() < SOON, "not in time: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// The next event that fits, within the time given; what comes before it does not matter.
pub(crate) fn event(events: &Events, limit: Duration, fits: impl Fn(&Event) -> bool) -> Event {
    let watch = Watch::start();
    let mut seen = Vec::new();
    while let Some(left) = limit.checked_sub(watch.passed()) {
        match events.next_within(left) {
            Some(Ok(event)) if fits(&event) => return event,
            other => seen.extend(other),
        }
    }
    panic!("not within {limit:?}; seen {seen:?}")
}

/// Everything that happened until now.
pub(crate) fn all(events: &Events) -> Vec<Event> {
    core::iter::from_fn(|| events.try_next())
        .map(|event| event.expect("few events happen in a test"))
        .collect()
}
