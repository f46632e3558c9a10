//! Held doorbells: a pipelined caller rings once for many calls, and no message stays behind.
//!
//! The tests use TCP, where a message reaches the peer only after a doorbell.

use core::cell::Cell;
use std::sync::Arc;

use pronto_bench::pair::{Callee, Ends, Nobody, POLL_BATCH, tcp_link};
use pronto_core::executor::{ASLEEP, Circumstances, alone};
use pronto_core::fabric::InlineMessage;
use pronto_core::session::{
    CallSpec, FastOutcome, OutgoingPayload, ReplySlots, SendError, Session, WaitOutcome,
};
use pronto_core::{Channels, Clock, Executor, Nanos, WaitPolicy};
use pronto_fabric_tcp::TcpQueuePair;
use pronto_rpc::{Message, Route};
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pronto_wire::{CallId, Class, InlinePayload};

#[derive(Message)]
#[message(name = "held.ask", reply = Answer)]
struct Ask {}

#[derive(Message)]
#[message(name = "held.answer")]
struct Answer {}

/// Number of turns within which a message that the kernel has would arrive.
const A_FEW: u32 = 100;

/// Executor of a caller: each reading of its clock is a millisecond after the previous one.
struct Caller {
    policy: WaitPolicy,
    now: AtomicU64,
}

impl Clock for Caller {
    fn now(&self) -> Nanos {
        Nanos(self.now.fetch_add(1_000_000, Ordering::Relaxed))
    }
}

impl Executor for Caller {
    fn circumstances(&self, _: WaitPolicy) -> Circumstances {
        if self.policy == WaitPolicy::Block { ASLEEP } else { alone(Nanos::NEVER) }
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {
        unreachable!("this is the only caller")
    }

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {}

    fn back_off(&self, _: Nanos) {}

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        [false; 2]
    }
}

/// Two nodes, of which one holds doorbells.
struct Pair {
    caller: Arc<Session<TcpQueuePair>>,
    callee: Callee<TcpQueuePair>,
    thread: Caller,
    /// Doorbells of the caller at the last query.
    rung: Cell<u64>,
}

impl Pair {
    fn new(policy: WaitPolicy) -> Self {
        let routes = vec![Route::inline(|_, _: Ask| Answer {})];
        let Ends { caller, callee } = Ends::new(routes, tcp_link).expect("two nodes over TCP");
        let thread = Caller { policy, now: AtomicU64::new(1) };
        let pair = Self { caller, callee, thread, rung: Cell::new(0) };
        pair.caller.hold_doorbells();
        assert!(pair.rung() <= 2, "at most two doorbells during set-up");
        pair
    }

    /// Returns the number of doorbells since the last query.
    fn rung(&self) -> u64 {
        let rung = self.caller.stats().doorbells.count();
        rung - self.rung.replace(rung)
    }

    fn try_start(&self) -> Result<CallId, SendError> {
        let spec = CallSpec { key: self.callee.routes[0].key, class: Class::Control, timeout: Nanos::NEVER };
        self.caller.call_small(&spec, &InlinePayload::EMPTY, &self.thread)
    }

    fn start(&self) -> CallId {
        self.try_start().expect("there is room for a call")
    }

    fn window(&self, calls: usize) -> Vec<CallId> {
        (0..calls).map(|_| self.start()).collect()
    }

    /// Makes the first polls of a wait. Returns whether the call has ended.
    fn poll(&self, call: CallId) -> bool {
        let (mut inline, mut end) = (InlineMessage::default(), None);
        let slots = ReplySlots { inline: &mut inline, short: |_: &[u8]| {}, end: &mut end };
        let policy = self.thread.policy;
        let outcome = self.caller.wait_fast(call, policy.into(), slots, &mut Nobody, &self.thread);
        match outcome {
            Some(FastOutcome::Open(_)) | None => false,
            Some(_) => true,
        }
    }

    fn wait(&self, call: CallId, timeout: Nanos) -> bool {
        let waited = self.caller.wait(call, timeout, self.thread.policy, &mut Nobody, &self.thread);
        matches!(waited, WaitOutcome::Ended(_))
    }

    /// Asserts that `calls` requests have left and are answered in one turn.
    fn assert_served(&self, calls: u32) {
        let doorbells = || self.callee.session.stats().doorbells.count();
        let before = doorbells();
        assert_eq!(self.callee.serve(if calls == 0 { A_FEW } else { POLL_BATCH }), calls);
        assert_eq!(doorbells() - before, u64::from(calls != 0), "all replies of a turn leave together");
    }
}

/// Shows: calls.together-wait
#[test]
fn a_window_rings_for_half_of_it_at_a_time() {
    const WINDOW: usize = 8;
    const CALLS: u64 = 400;
    for policy in [WaitPolicy::Spin, WaitPolicy::Block] {
        let pair = Pair::new(policy);
        let mut open = pair.window(WINDOW);
        assert_eq!(pair.rung(), 0, "{policy:?}: the messages are held");
        pair.assert_served(0);
        let mut at_once = 0;
        for _ in 0..CALLS {
            let oldest = open.remove(0);
            if pair.poll(oldest) {
                at_once += 1;
            } else {
                pair.callee.serve(POLL_BATCH);
                pair.caller.turn(POLL_BATCH, || pair.caller.has_ended(oldest), &mut Nobody, &pair.thread);
                assert!(pair.caller.has_ended(oldest), "{policy:?}: the call has left and has its reply");
                drop(pair.caller.take(oldest, &pair.thread));
            }
            open.push(pair.start());
        }
        let half = WINDOW as u64 / 2;
        let rung = pair.rung();
        assert!((CALLS / half - 2..=CALLS / half + 2).contains(&rung), "{policy:?}: {rung}");
        // Replies that came with an earlier one were found immediately.
        assert!(at_once >= CALLS / 2, "{policy:?}: {at_once}");
    }
}

#[test]
fn a_turn_keeps_holding_messages_that_it_has_not_posted() {
    let pair = Pair::new(WaitPolicy::Spin);
    let first = pair.start();
    assert!(!pair.poll(first), "no reply has come yet");
    let _others = pair.window(3);
    pair.assert_served(1);
    assert_eq!(pair.rung(), 1);
    pair.caller.turn(POLL_BATCH, || pair.caller.has_ended(first), &mut Nobody, &pair.thread);
    assert!(pair.caller.has_ended(first));
    assert_eq!(pair.rung(), 0);
    pair.assert_served(0);
}

#[test]
fn a_turn_counts_the_messages_for_callers() {
    let pair = Pair::new(WaitPolicy::Spin);
    let open = pair.window(4);
    assert!(!pair.poll(open[0]), "no reply has come yet");
    pair.assert_served(4);
    let taken_in = || {
        let taken = || pair.caller.turn(1, || false, &mut Nobody, &pair.thread).unwrap_or_default();
        (0..POLL_BATCH).map(|_| taken()).find(|progress| progress.moved != 0).expect("there are replies")
    };
    let progress = taken_in();
    assert_eq!((progress.moved, progress.responses), (4, 4), "their callers poll for them");
    // One of the replies is for a future, for which no thread polls.
    let [call, other] = [pair.start(), pair.start()];
    pair.caller.ring_if_held(&pair.thread);
    pair.caller.register(call, core::task::Waker::noop());
    pair.caller.listen(&mut Nobody, &pair.thread);
    pair.assert_served(2);
    let progress = taken_in();
    assert_eq!((progress.moved, progress.responses), (2, 0));
    assert!(pair.caller.has_ended(call) && pair.caller.has_ended(other));
}

#[test]
fn repeated_turns_with_credits_only_are_for_senders() {
    let pair = Pair::new(WaitPolicy::Spin);
    let key = pair.callee.routes[0].key;
    let window = u32::from(pair.caller.limits().requests[Class::Control.index()]);
    // Sends a window, and receives the messages that return its credits.
    let round = || {
        for _ in 0..window {
            let sent = pair.caller.notify(&key, Class::Control, OutgoingPayload::EMPTY, &pair.thread);
            sent.expect("there is room for a notification");
        }
        pair.caller.ring_if_held(&pair.thread);
        let mut taken = 0;
        while taken < window {
            let more = pair.callee.serve(POLL_BATCH);
            assert_ne!(more, 0, "{taken} of {window} have arrived");
            taken += more;
        }
        let (mut moved, mut responses) = (0, 0);
        for _ in 0..POLL_BATCH {
            let progress = pair.caller.turn(1, || false, &mut Nobody, &pair.thread).unwrap_or_default();
            (moved, responses) = (moved + progress.moved, responses + progress.responses);
            if pair.caller.credits(Class::Control) >= window {
                break;
            }
        }
        (moved, responses)
    };
    let (moved, responses) = round();
    assert!(
        moved > 0 && responses == 0,
        "requests may come with the credits: {moved} messages, {responses} for senders"
    );
    for _ in 0..16 {
        round();
    }
    let (moved, responses) = round();
    assert!(moved > 0 && moved == responses, "{moved} messages, {responses} for senders");
}

/// Returns a pair of which four calls have left, and a fifth has not.
fn one_behind(policy: WaitPolicy) -> (Pair, CallId) {
    let pair = Pair::new(policy);
    let open = pair.window(4);
    assert!(!pair.poll(open[0]), "no reply has come yet");
    let _fifth = pair.start();
    // The first poll of a wait for another call does not flush the fifth one, either.
    assert!(!pair.poll(open[1]), "no reply has come yet");
    assert_eq!(pair.rung(), 1);
    pair.assert_served(4);
    (pair, open[3])
}

/// Shows: calls.together
#[test]
fn held_messages_leave_when_the_hold_ends() {
    let (pair, _) = one_behind(WaitPolicy::Spin);
    pair.caller.release_doorbells(&pair.thread);
    pair.assert_served(1);
}

#[test]
fn held_messages_leave_before_a_long_wait() {
    for policy in [WaitPolicy::Spin, WaitPolicy::Block] {
        let pair = Pair::new(policy);
        let open = pair.window(4);
        assert!(!pair.poll(open[0]), "no reply has come yet");
        let _fifth = pair.start();
        assert!(!pair.wait(open[0], Nanos::from_millis(20)), "no reply has come yet");
        pair.assert_served(5);
    }
}

#[test]
fn held_messages_leave_at_the_next_tick() {
    let (pair, _) = one_behind(WaitPolicy::Block);
    let ticked = pair.caller.tick(Nanos::from_millis(4), Nanos::ZERO, &mut Nobody, &pair.thread);
    assert!(ticked.is_some());
    pair.assert_served(1);
}

#[test]
fn held_messages_leave_when_the_queue_is_full() {
    let (pair, _) = one_behind(WaitPolicy::Spin);
    let refused = loop {
        if let Err(refused) = pair.try_start() {
            break refused;
        }
    };
    assert!(refused.is_retryable(), "{refused}");
    assert_eq!(pair.rung(), 1);
    assert!(pair.callee.serve(POLL_BATCH) > 1);
}

#[test]
fn held_messages_leave_with_a_message_that_is_not_held() {
    let (pair, answered) = one_behind(WaitPolicy::Spin);
    // A cancellation is not held, and flushes the held messages.
    pair.caller.abandon(answered, Class::Control, &pair.thread);
    pair.assert_served(1);
}
