//! A thread panics in code that runs within an engine turn: the session ends on both sides, and both sides reconnect.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;
use std::sync::{Mutex, Once, mpsc};

use pronto::rpc::codec::{Full, Malformed, Reader, Source, Writer};
use pronto::{CallError, DownCause, Executed, Message, Node, NodeId, Payload, Peer, WaitPolicy};
use pronto_sync::atomic::{AtomicBool, Ordering};
use pronto_wire::LayoutHash;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};

use crate::handlers::quiet;
use crate::rig::{
    Sum, TIMEOUT, TRANSPORTS, add, address, assert_all_released, client, counter, exclusive_run, pause,
    server, until,
};

/// Whether the subscriber panics at the report that [`SERVER`] has lost [`LEAVES`].
static ARMED: AtomicBool = AtomicBool::new(false);
/// Whether another thread than the serving thread made the report.
static MISSED: AtomicBool = AtomicBool::new(false);
/// Maximum number of peers that leave until the serving thread itself processes a goodbye.
const ATTEMPTS: u32 = 100;

const SERVER: u16 = 1;
const LEAVES: u16 = 2;

/// A subscriber that panics at one event. It ignores all others: they come from the serving threads of all nodes of this process, also
/// outside of a turn, where a panic ends the process.
struct Fragile;

/// The reporting node, and the event.
#[derive(Default)]
struct Reported {
    node: String,
    event: String,
}

impl Visit for Reported {
    fn record_debug(&mut self, field: &Field, value: &dyn core::fmt::Debug) {
        match field.name() {
            "node" => self.node = format!("{value:?}"),
            "event" => self.event = format!("{value:?}"),
            _ => {}
        }
    }
}

impl Reported {
    fn is_expected(&self) -> bool {
        self.node == format!("{}", NodeId(SERVER))
            && self.event.starts_with("PeerDown")
            && self.event.contains(&format!("{:?}", NodeId(LEAVES)))
    }
}

impl Fragile {
    fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::subscriber::set_global_default(Self).unwrap());
    }
}

impl Subscriber for Fragile {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        ARMED.load(Ordering::Relaxed)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut reported = Reported::default();
        event.record(&mut reported);
        if !reported.is_expected() || !ARMED.swap(false, Ordering::Relaxed) {
            return;
        }
        if std::thread::current().name() == Some("pronto-serve") {
            panic!("meant");
        }
        MISSED.store(true, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Connects a peer that leaves, and lets the serving thread panic in the turn that processes its goodbye. Returns a handle that keeps the
/// peer's counters, or `None` if another thread processed the goodbye.
fn panic_when_a_peer_leaves(node: &Node, listening: &str) -> Option<Peer> {
    let (leaves, peer) = client(LEAVES, listening);
    add(&peer);
    node.wait_for_peer(LEAVES, TIMEOUT).unwrap();
    let held = node.peer(LEAVES).unwrap();
    ARMED.store(true, Ordering::Relaxed);
    quiet(|| {
        drop((peer, leaves));
        until("the goodbye is reported, and the node has recovered from the panic", || {
            MISSED.load(Ordering::Relaxed) || counter(node, LEAVES, "failures") == 1
        });
    });
    assert!(!ARMED.load(Ordering::Relaxed));
    (!MISSED.swap(false, Ordering::Relaxed)).then_some(held)
}

/// Shows: operations.panicked
#[test]
fn a_panic_of_the_serving_thread_in_a_turn_ends_only_that_session() {
    let _exclusive = exclusive_run();
    Fragile::install();
    for transport in TRANSPORTS {
        let node = server(SERVER, &address(transport, "panic-serve")).start().unwrap();
        let listening = node.listening()[0].to_string();
        let (_other, to_node) = client(3, &listening);
        let panicked = (0..ATTEMPTS).find_map(|_| panic_when_a_peer_leaves(&node, &listening));
        let held = panicked.expect("the serving thread processes a goodbye");
        add(&to_node);
        assert_eq!(counter(&node, 3, "links_lost"), 0, "{transport}: the other peer must not be affected");
        let (again, peer) = client(LEAVES, &listening);
        (0..50).for_each(|_| add(&peer));
        assert_eq!(counter(&node, LEAVES, "failures"), 1);
        assert_all_released(&again, &peer);
        drop(held);
    }
}

/// Whether the next attempt to decode [`Words`] panics.
static DECODING: AtomicBool = AtomicBool::new(false);

/// A payload that is too long for an inline message, with a decoder that panics.
#[derive(Clone, Copy, Debug)]
struct Words([u64; 12]);

impl Payload for Words {
    const LAYOUT: LayoutHash = <[u64; 12]>::LAYOUT;
    const MIN_LEN: usize = 96;
    const MAX_LEN: Option<usize> = Some(96);

    fn encoded_len(&self) -> usize {
        96
    }

    fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        self.0.encode(out)
    }

    fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
        if DECODING.swap(false, Ordering::Relaxed) {
            panic!("meant");
        }
        <[u64; 12]>::decode(input).map(Self)
    }
}

#[derive(Message, Debug)]
#[message(name = "faults.panic-words")]
struct Found {
    words: Words,
}

#[derive(Message, Debug)]
#[message(name = "faults.panic-find", reply = Found)]
struct Find {
    number: u64,
}

#[derive(Message, Debug)]
#[message(name = "faults.panic-hangs", reply = Sum)]
struct Hangs {
    number: u64,
}

/// A short reply is decoded in place by the caller's thread, which holds the engine at that time.
///
/// Shows: operations.panicked, operations.failures
#[test]
fn a_panic_of_a_caller_in_a_turn_ends_only_that_session() {
    let _exclusive = exclusive_run();
    // Other transports copy a reply out of the engine before it is decoded.
    let transport = "shm";
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let node = server(1, &address(transport, "panic-call"))
        .handle_inline(|_, find: Find| Found { words: Words([find.number; 12]) })
        .handle(move |_, hangs: Hangs| {
            let _released = released.lock().unwrap().recv();
            Sum { total: hangs.number }
        })
        .start()
        .unwrap();
    let listening = node.listening()[0].to_string();
    let (_other, to_node) = client(3, &listening);
    let caller = Node::builder(2).wait(WaitPolicy::Block).peer(1, &listening).start().unwrap();
    let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
    let open = peer.start(&Hangs { number: 1 }).unwrap();
    quiet(|| {
        until("the caller has panicked in a turn", || {
            let pending = peer.start(&Find { number: 7 }).unwrap();
            // The reply arrives without being processed, so that its caller finds it with the first poll.
            pause(Duration::from_millis(2));
            DECODING.store(true, Ordering::Relaxed);
            let called = || pending.wait();
            assert!(catch_unwind(AssertUnwindSafe(called)).is_err(), "{transport}: the decoder must panic");
            DECODING.store(false, Ordering::Relaxed);
            // If the reply was decoded outside of the engine, its session continues.
            peer.call_within(&Find { number: 8 }, TIMEOUT).is_err() || counter(&caller, 1, "failures") == 1
        });
    });
    let ended = open.wait();
    assert!(
        matches!(
            ended,
            Err(CallError::PeerDown { executed: Executed::Maybe, cause: Some(DownCause::Panicked), .. })
        ),
        "{transport}: {ended:?}"
    );
    until("the session has recovered, and the peer has lost the link", || {
        counter(&caller, 1, "failures") == 1 && counter(&node, 2, "links_lost") >= 1
    });
    drop(release);
    let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
    for number in 0..50 {
        let found = peer.call_within(&Find { number }, TIMEOUT).unwrap();
        assert_eq!(found.words.0, [number; 12]);
    }
    add(&to_node);
    assert_eq!(counter(&node, 3, "links_lost"), 0, "{transport}: the other peer must not be affected");
    assert_eq!(counter(&caller, 1, "failures"), 1);
    assert_all_released(&caller, &peer);
}
