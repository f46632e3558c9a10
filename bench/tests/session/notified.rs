//! Streams of notifications: a fast sender shares doorbells without a hint, and nothing stays behind.
//!
//! The tests use TCP, where a message reaches the peer only after a doorbell, and a clock that they set.

use core::cell::Cell;
use std::sync::Arc;

use pronto_bench::pair::{Callee, Ends, Nobody, tcp_link};
use pronto_core::executor::{ASLEEP, Circumstances};
use pronto_core::fabric::{Gather, InlineMessage};
use pronto_core::session::{CallSpec, FastOutcome, OutgoingPayload, ReplySlots, Session};
use pronto_core::{Channels, Clock, Executor, Nanos, WaitPolicy};
use pronto_fabric_tcp::TcpQueuePair;
use pronto_rpc::{Message, Route};
use pronto_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use pronto_wire::{Class, InlinePayload, NodeId};

#[derive(Message)]
#[message(name = "streams.news")]
struct News {}

#[derive(Message)]
#[message(name = "streams.ask", reply = Answer, class = bulk)]
struct Ask {}

#[derive(Message)]
#[message(name = "streams.answer", class = bulk)]
struct Answer {}

/// Number of notifications of a run that leave immediately.
const FIRST: u32 = 8;
/// Number of turns within which a message that the kernel has would arrive.
const A_FEW: u32 = 100;
/// A pause that ends a stream.
const PAUSE: Nanos = Nanos::from_micros(2);

/// Executor of a sender, whose clock stands until the test advances it.
struct Sender {
    now: AtomicU64,
    /// False for an engine without a serving thread.
    has_server: AtomicBool,
    /// Number of times that the serving thread was to ring soon.
    left: AtomicU32,
}

impl Clock for Sender {
    fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }
}

impl Executor for Sender {
    fn circumstances(&self, _: WaitPolicy) -> Circumstances {
        ASLEEP
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {
        unreachable!("no thread waits")
    }

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {}

    fn back_off(&self, _: Nanos) {}

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        unreachable!("no thread waits")
    }

    fn ring_soon(&self, _: NodeId) -> bool {
        self.left.fetch_add(1, Ordering::Relaxed);
        self.has_server.load(Ordering::Relaxed)
    }
}

struct Pair {
    sender: Arc<Session<TcpQueuePair>>,
    callee: Callee<TcpQueuePair>,
    thread: Sender,
    /// Doorbells of the sender at the last query.
    rung: Cell<u64>,
}

impl Pair {
    fn new() -> Self {
        let routes = vec![Route::inline_notification(|_, _: News| {}), Route::inline(|_, _: Ask| Answer {})];
        let Ends { caller: sender, callee } = Ends::new(routes, tcp_link).expect("two nodes over TCP");
        let has_server = AtomicBool::new(true);
        let thread = Sender { now: AtomicU64::new(1_000_000), has_server, left: AtomicU32::new(0) };
        let pair = Self { sender, callee, thread, rung: Cell::new(0) };
        assert!(pair.rung() <= 2, "at most two doorbells during set-up");
        pair
    }

    /// Returns the number of doorbells since the last query.
    fn rung(&self) -> u64 {
        let rung = self.sender.stats().doorbells.count();
        rung - self.rung.replace(rung)
    }

    fn left(&self) -> u32 {
        self.thread.left.load(Ordering::Relaxed)
    }

    /// Sends notifications, each `pause` after the previous one: in turns by the short path and by the one that finds reasons.
    fn send(&self, count: u32, pause: Nanos) {
        let key = self.callee.routes[0].key;
        for number in 0..count {
            self.thread.now.fetch_add(pause.0, Ordering::Relaxed);
            if number % 2 == 0 {
                let payload = InlinePayload::EMPTY;
                let payload = Gather::Inline(&payload);
                assert_eq!(self.sender.notify_fast(&key, Class::Control, payload, &self.thread), Ok(true));
            } else {
                let sent = self.sender.notify(&key, Class::Control, OutgoingPayload::EMPTY, &self.thread);
                sent.expect("there is room for a notification");
            }
        }
    }

    /// Makes a turn of the sender's serving thread.
    fn turn(&self) {
        let turned = self.sender.turn(1, || false, &mut Nobody, &self.thread);
        assert!(turned.is_some(), "no other thread holds the engine");
    }

    /// Asserts that exactly `expected` notifications have left since the last query.
    fn assert_arrived(&self, expected: u32) {
        let mut arrived = 0;
        loop {
            match self.callee.serve(A_FEW) {
                0 => break,
                more => arrived += more,
            }
        }
        assert_eq!(arrived, expected);
    }
}

/// Shows: calls.stream, calls.stream-rest
#[test]
fn a_stream_shares_doorbells_and_the_serving_thread_sends_the_rest() {
    let pair = Pair::new();
    pair.send(FIRST + 10, Nanos::ZERO);
    assert_eq!((pair.rung(), pair.left()), (FIRST.into(), 1), "the serving thread is woken once");
    pair.assert_arrived(FIRST);
    // The sender computes.
    pair.turn();
    assert_eq!(pair.rung(), 1);
    pair.assert_arrived(10);
    pair.turn();
    assert_eq!(pair.rung(), 0, "nothing is left");
}

#[test]
fn half_a_window_leaves_immediately() {
    let pair = Pair::new();
    let half = u32::from(pair.sender.limits().requests[Class::Control.index()] / 2);
    pair.send(FIRST + half, Nanos::ZERO);
    assert_eq!(pair.rung(), u64::from(FIRST) + 1);
    pair.assert_arrived(FIRST + half);
}

/// Shows: calls.stream-separate
#[test]
fn separate_notifications_leave_immediately() {
    let pair = Pair::new();
    pair.send(40, PAUSE);
    assert_eq!((pair.rung(), pair.left()), (40, 0));
    pair.assert_arrived(40);
}

#[test]
fn a_separate_notification_takes_those_that_are_held_along() {
    let pair = Pair::new();
    pair.send(FIRST + 3, Nanos::ZERO);
    pair.rung();
    pair.send(1, PAUSE);
    assert_eq!(pair.rung(), 1);
    pair.assert_arrived(FIRST + 4);
}

/// Shows: calls.stream-wait
#[test]
fn a_call_of_the_other_class_takes_them_along() {
    let pair = Pair::new();
    pair.send(FIRST + 3, Nanos::ZERO);
    pair.rung();
    let (mut inline, mut end) = (InlineMessage::default(), None);
    let slots = ReplySlots { inline: &mut inline, short: |_: &[u8]| {}, end: &mut end };
    let spec = CallSpec { key: pair.callee.routes[1].key, class: Class::Bulk, timeout: Nanos::NEVER };
    let payload = InlinePayload::EMPTY;
    let payload = Gather::Inline(&payload);
    let called =
        pair.sender.call_fast(&spec, payload, WaitPolicy::Block.into(), slots, &mut Nobody, &pair.thread);
    assert!(matches!(called, Some(FastOutcome::Open(_))), "{called:?}");
    assert_eq!(pair.rung(), 2, "one for each class");
}

#[test]
fn a_sender_that_is_about_to_wait_sends_the_rest() {
    let pair = Pair::new();
    pair.send(FIRST + 3, Nanos::ZERO);
    pair.rung();
    pair.sender.ring_if_held(&pair.thread);
    assert_eq!(pair.rung(), 1);
    pair.assert_arrived(FIRST + 3);
    pair.sender.ring_if_held(&pair.thread);
    assert_eq!(pair.rung(), 0);
}

#[test]
fn nothing_is_held_without_a_thread_that_sends_the_rest() {
    let pair = Pair::new();
    pair.thread.has_server.store(false, Ordering::Relaxed);
    pair.send(FIRST + 10, Nanos::ZERO);
    assert_eq!(pair.rung(), u64::from(FIRST) + 10);
    pair.assert_arrived(FIRST + 10);
}
