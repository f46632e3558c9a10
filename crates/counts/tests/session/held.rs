//! Doorbells that a sender holds back: a window of calls rings for many of them at a time, and none of them stays behind.
//!
//! Over TCP, where what was posted is with the peer after a doorbell and not before.

use core::cell::Cell;
use std::sync::Arc;

use pronto_core::executor::{ASLEEP, Circumstances, alone};
use pronto_core::fabric::InlineMessage;
use pronto_core::session::{CallSpec, OutgoingPayload, Places, Refused, Session, Soon, Waited};
use pronto_core::{Channels, Clock, Executor, Nanos, WaitPolicy};
use pronto_counts::pair::{Callee, Ends, LOOKS, Nobody, tcp_link};
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

/// Turns in which something would have come that is with the kernel.
const A_FEW: u32 = 100;

/// A caller's thread: each reading of its clock is a millisecond after the one before.
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
        unreachable!("it is the only caller")
    }

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {}

    fn back_off(&self, _: Nanos) {}

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        [false; 2]
    }
}

/// Two nodes, of which one holds doorbells back.
struct Pair {
    caller: Arc<Session<TcpQueuePair>>,
    callee: Callee<TcpQueuePair>,
    thread: Caller,
    /// Doorbells of the caller at the last look.
    rung: Cell<u64>,
}

impl Pair {
    fn new(policy: WaitPolicy) -> Self {
        let routes = vec![Route::inline(|_, _: Ask| Answer {})];
        let Ends { caller, callee } = Ends::new(routes, tcp_link).expect("two nodes over TCP");
        let thread = Caller { policy, now: AtomicU64::new(1) };
        let pair = Self { caller, callee, thread, rung: Cell::new(0) };
        pair.caller.hold_doorbells();
        assert!(pair.rung() <= 2, "each node has said something at most once");
        pair
    }

    /// Doorbells since it was asked last.
    fn rung(&self) -> u64 {
        let rung = self.caller.stats().doorbells.count();
        rung - self.rung.replace(rung)
    }

    fn try_start(&self) -> Result<CallId, Refused> {
        let spec = CallSpec { key: self.callee.routes[0].key, class: Class::Control, timeout: Nanos::NEVER };
        self.caller.call_small(&spec, &InlinePayload::EMPTY, &self.thread)
    }

    fn start(&self) -> CallId {
        self.try_start().expect("there is room")
    }

    fn window(&self, calls: usize) -> Vec<CallId> {
        (0..calls).map(|_| self.start()).collect()
    }

    /// The first looks of a wait.
    fn look(&self, call: CallId) -> bool {
        let (mut inline, mut end) = (InlineMessage::default(), None);
        let places = Places { inline: &mut inline, short: |_: &[u8]| {}, end: &mut end };
        let policy = self.thread.policy;
        let soon = self.caller.wait_soon(call, policy.into(), places, &mut Nobody, &self.thread);
        match soon {
            Some(Soon::Open(_)) | None => false,
            Some(_) => true,
        }
    }

    fn wait(&self, call: CallId, timeout: Nanos) -> bool {
        let waited = self.caller.wait(call, timeout, self.thread.policy, &mut Nobody, &self.thread);
        matches!(waited, Waited::Ended(_))
    }

    /// Everything that has left is answered, in one turn.
    fn assert_served(&self, calls: u32) {
        let doorbells = || self.callee.session.stats().doorbells.count();
        let before = doorbells();
        assert_eq!(self.callee.serve(if calls == 0 { A_FEW } else { LOOKS }), calls);
        assert_eq!(doorbells() - before, u64::from(calls != 0), "all answers of a turn leave together");
    }
}

#[test]
fn a_window_rings_for_half_of_it_at_a_time() {
    const WINDOW: usize = 8;
    const CALLS: u64 = 400;
    for policy in [WaitPolicy::Spin, WaitPolicy::Block] {
        let pair = Pair::new(policy);
        let mut open = pair.window(WINDOW);
        assert_eq!(pair.rung(), 0, "{policy:?}: they are held back");
        pair.assert_served(0);
        let mut at_once = 0;
        for _ in 0..CALLS {
            let oldest = open.remove(0);
            if pair.look(oldest) {
                at_once += 1;
            } else {
                pair.callee.serve(LOOKS);
                pair.caller.turn(LOOKS, || pair.caller.has_ended(oldest), &mut Nobody, &pair.thread);
                assert!(pair.caller.has_ended(oldest), "{policy:?}: it has left, and was answered");
                drop(pair.caller.take(oldest));
            }
            open.push(pair.start());
        }
        let half = WINDOW as u64 / 2;
        let rung = pair.rung();
        assert!((CALLS / half - 2..=CALLS / half + 2).contains(&rung), "{policy:?}: {rung}");
        // The answers that came with another one were found where they lay.
        assert!(at_once >= CALLS / 2, "{policy:?}: {at_once}");
    }
}

#[test]
fn a_turn_leaves_held_back_what_it_has_not_posted() {
    let pair = Pair::new(WaitPolicy::Spin);
    let first = pair.start();
    assert!(!pair.look(first), "nobody has answered");
    let _others = pair.window(3);
    pair.assert_served(1);
    assert_eq!(pair.rung(), 1);
    pair.caller.turn(LOOKS, || pair.caller.has_ended(first), &mut Nobody, &pair.thread);
    assert!(pair.caller.has_ended(first));
    assert_eq!(pair.rung(), 0);
    pair.assert_served(0);
}

#[test]
fn a_turn_says_what_of_it_was_for_callers() {
    let pair = Pair::new(WaitPolicy::Spin);
    let open = pair.window(4);
    assert!(!pair.look(open[0]), "nobody has answered");
    pair.assert_served(4);
    let taken_in = || {
        let taken = || pair.caller.turn(1, || false, &mut Nobody, &pair.thread).unwrap_or_default();
        (0..LOOKS).map(|_| taken()).find(|progress| progress.moved != 0).expect("there are answers")
    };
    let progress = taken_in();
    assert_eq!((progress.moved, progress.answers), (4, 4), "their callers look for them");
    // One of them is a future's, which nobody looks for.
    let [call, other] = [pair.start(), pair.start()];
    pair.caller.ring_if_held(&pair.thread);
    pair.caller.register(call, core::task::Waker::noop());
    pair.caller.listen(&mut Nobody, &pair.thread);
    pair.assert_served(2);
    let progress = taken_in();
    assert_eq!((progress.moved, progress.answers), (2, 0));
    assert!(pair.caller.has_ended(call) && pair.caller.has_ended(other));
}

#[test]
fn turns_that_bring_credits_alone_again_and_again_are_for_senders() {
    let pair = Pair::new(WaitPolicy::Spin);
    let key = pair.callee.routes[0].key;
    let window = u32::from(pair.caller.limits().requests[Class::Control.index()]);
    // Sends a window, and takes in what comes for it.
    let round = || {
        for _ in 0..window {
            let sent = pair.caller.notify(&key, Class::Control, OutgoingPayload::EMPTY, &pair.thread);
            sent.expect("there is room");
        }
        pair.caller.ring_if_held(&pair.thread);
        let mut taken = 0;
        while taken < window {
            let more = pair.callee.serve(LOOKS);
            assert_ne!(more, 0, "{taken} of {window} have arrived");
            taken += more;
        }
        let (mut moved, mut answers) = (0, 0);
        for _ in 0..LOOKS {
            let progress = pair.caller.turn(1, || false, &mut Nobody, &pair.thread).unwrap_or_default();
            (moved, answers) = (moved + progress.moved, answers + progress.answers);
            if pair.caller.credits(Class::Control) >= window {
                break;
            }
        }
        (moved, answers)
    };
    let (moved, answers) = round();
    assert!(
        moved > 0 && answers == 0,
        "requests may come with them: {moved} messages, {answers} for senders"
    );
    for _ in 0..16 {
        round();
    }
    let (moved, answers) = round();
    assert!(moved > 0 && moved == answers, "{moved} messages, {answers} for senders");
}

/// Four calls have left, and a fifth has not.
fn one_behind(policy: WaitPolicy) -> (Pair, CallId) {
    let pair = Pair::new(policy);
    let open = pair.window(4);
    assert!(!pair.look(open[0]), "nobody has answered");
    let _fifth = pair.start();
    // Nor does the first look of a wait for another one let it leave.
    assert!(!pair.look(open[1]), "nobody has answered");
    assert_eq!(pair.rung(), 1);
    pair.assert_served(4);
    (pair, open[3])
}

#[test]
fn what_is_held_back_leaves_when_the_hold_ends() {
    let (pair, _) = one_behind(WaitPolicy::Spin);
    pair.caller.release_doorbells(&pair.thread);
    pair.assert_served(1);
}

#[test]
fn it_leaves_before_a_wait_that_takes_longer() {
    for policy in [WaitPolicy::Spin, WaitPolicy::Block] {
        let pair = Pair::new(policy);
        let open = pair.window(4);
        assert!(!pair.look(open[0]), "nobody has answered");
        let _fifth = pair.start();
        assert!(!pair.wait(open[0], Nanos::from_millis(20)), "nobody has answered");
        pair.assert_served(5);
    }
}

#[test]
fn it_leaves_when_time_passes() {
    let (pair, _) = one_behind(WaitPolicy::Block);
    let ticked = pair.caller.tick(Nanos::from_millis(4), Nanos::ZERO, &mut Nobody, &pair.thread);
    assert!(ticked.is_some());
    pair.assert_served(1);
}

#[test]
fn it_leaves_when_there_is_no_room_for_more() {
    let (pair, _) = one_behind(WaitPolicy::Spin);
    let refused = loop {
        if let Err(refused) = pair.try_start() {
            break refused;
        }
    };
    assert!(refused.is_retryable(), "{refused}");
    assert_eq!(pair.rung(), 1);
    assert!(pair.callee.serve(LOOKS) > 1);
}

#[test]
fn it_leaves_with_what_does_not_wait() {
    let (pair, answered) = one_behind(WaitPolicy::Spin);
    // Somebody's change of mind is not held back, and takes what is along.
    pair.caller.abandon(answered, Class::Control, &pair.thread);
    pair.assert_served(1);
}
