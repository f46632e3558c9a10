//! A thread panics in code that runs within an engine's turn: the session ends on both sides, and both link again.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;
use std::sync::{Mutex, Once, mpsc};

use pronto::rpc::codec::{Full, Malformed, Reader, Writer};
use pronto::{CallError, Executed, Message, Node, NodeId, Payload, Peer, WaitPolicy};
use pronto_sync::atomic::{AtomicBool, Ordering};
use pronto_wire::LayoutHash;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};

use crate::handlers::quiet;
use crate::rig::{
    SOON, Sum, TRANSPORTS, add, address, alone, assert_all_back, client, counter, lasts, server, until,
};

/// Whether it panics to report to a subscriber that [`SERVER`] has lost [`LEAVES`].
static ARMED: AtomicBool = AtomicBool::new(false);
/// Whether another thread than the serving one was to report it.
static MISSED: AtomicBool = AtomicBool::new(false);
/// Peers that leave, at most, until the serving thread itself takes a farewell in.
const ATTEMPTS: u32 = 100;

const SERVER: u16 = 1;
const LEAVES: u16 = 2;

/// A subscriber with a defect. Other events are none of its business: they come from the serving threads of all nodes of this
/// process, also outside of a turn, where a panic ends the process.
struct Fragile;

/// Which node reports an event of a peer, and which event.
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
    fn is_meant(&self) -> bool {
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
        if !reported.is_meant() || !ARMED.swap(false, Ordering::Relaxed) {
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

/// A peer links and leaves, until the serving thread has panicked in the turn that took its farewell in. Returns a handle that keeps
/// the peer's counters, or none if another thread held the engine then.
fn panics_when_a_peer_leaves(node: &Node, listening: &str) -> Option<Peer> {
    let (leaves, peer) = client(LEAVES, listening);
    add(&peer);
    node.wait_for_peer(LEAVES, SOON).unwrap();
    let held = node.peer(LEAVES).unwrap();
    ARMED.store(true, Ordering::Relaxed);
    quiet(|| {
        drop((peer, leaves));
        until("the farewell is reported, and a panic recovered from", || {
            MISSED.load(Ordering::Relaxed) || counter(node, LEAVES, "failures") == 1
        });
    });
    assert!(!ARMED.load(Ordering::Relaxed));
    (!MISSED.swap(false, Ordering::Relaxed)).then_some(held)
}

#[test]
fn a_panic_of_the_serving_thread_in_a_turn_ends_that_session_alone() {
    let _alone = alone();
    Fragile::install();
    for transport in TRANSPORTS {
        let node = server(SERVER, &address(transport, "panic-serve")).start().unwrap();
        let listening = node.listening()[0].to_string();
        let (_other, to_node) = client(3, &listening);
        let panicked = (0..ATTEMPTS).find_map(|_| panics_when_a_peer_leaves(&node, &listening));
        let held = panicked.expect("the serving thread takes in a farewell");
        add(&to_node);
        assert_eq!(counter(&node, 3, "links_lost"), 0, "{transport}: the other peer is not disturbed");
        let (again, peer) = client(LEAVES, &listening);
        (0..50).for_each(|_| add(&peer));
        assert_eq!(counter(&node, LEAVES, "failures"), 1);
        assert_all_back(&again, &peer);
        drop(held);
    }
}

/// Whether the next attempt to decode [`Words`] panics.
static DECODING: AtomicBool = AtomicBool::new(false);

/// A payload that does not fit a line, and whose decoder has a defect.
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

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
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

/// A short reply is decoded where it lies, by the caller's thread, which holds the engine then.
#[test]
fn a_panic_of_a_caller_in_a_turn_ends_that_session_alone() {
    let _alone = alone();
    // Elsewhere no reply is decoded before it was copied out of the engine.
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
    let peer = caller.wait_for_peer(1, SOON).unwrap();
    let open = peer.start(&Hangs { number: 1 }).unwrap();
    quiet(|| {
        until("the caller has panicked in a turn", || {
            let pending = peer.start(&Find { number: 7 }).unwrap();
            // The reply arrives, and nobody takes it in: its caller finds it with the first look.
            lasts(Duration::from_millis(2));
            DECODING.store(true, Ordering::Relaxed);
            let called = || pending.wait();
            assert!(catch_unwind(AssertUnwindSafe(called)).is_err(), "{transport}: it was to panic");
            DECODING.store(false, Ordering::Relaxed);
            // Where the reply was decoded without the engine, its session goes on.
            peer.call_within(&Find { number: 8 }, SOON).is_err() || counter(&caller, 1, "failures") == 1
        });
    });
    let ended = open.wait();
    assert!(
        matches!(ended, Err(CallError::PeerDown { executed: Executed::Maybe })),
        "{transport}: {ended:?}"
    );
    until("the session is recovered, and its peer has seen the link closed", || {
        counter(&caller, 1, "failures") == 1 && counter(&node, 2, "links_lost") >= 1
    });
    drop(release);
    let peer = caller.wait_for_peer(1, SOON).unwrap();
    for number in 0..50 {
        let found = peer.call_within(&Find { number }, SOON).unwrap();
        assert_eq!(found.words.0, [number; 12]);
    }
    add(&to_node);
    assert_eq!(counter(&node, 3, "links_lost"), 0, "{transport}: the other peer is not disturbed");
    assert_eq!(counter(&caller, 1, "failures"), 1);
    assert_all_back(&caller, &peer);
}
