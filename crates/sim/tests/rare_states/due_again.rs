//! A request that one link has carried is due again on the next one and finds no room there. In every
//! case, its call ends once, and as one that may have been executed.

use core::panic::AssertUnwindSafe;
use core::task::Waker;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, Weak};
use std::task::Wake;

use pronto_core::Nanos;
use pronto_core::session::Executed;
use pronto_sim::{SimExecutor, SimOptions};
use pronto_wire::{CallId, Class};

use super::pair::{Nothing, Outcome, Pair, Room, SimSession, enough, few};

/// Resource that the second link lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    Credits,
    Places,
    Memory,
}

/// Length of a request that is composed in send memory, bytes.
const LONG: usize = 40 << 10;

/// Two requests were carried by the first link and have reached the callee, which keeps them. On the second link, the
/// second request waits for room, and so does the first one if there is no room at all. Only the second one has a
/// timeout.
fn due_again(lacks: Lacks, timeout: Nanos) -> (Pair, [CallId; 2]) {
    let mut pair = Pair::new(SimOptions::like_verbs(), few());
    let calls = match lacks {
        Lacks::Memory => [1, 2].map(|number| pair.long_call(number, LONG)),
        Lacks::Credits | Lacks::Places => [pair.call(1, Nanos::NEVER), pair.call(2, timeout)],
    };
    pair.turn();
    assert_eq!(pair.callee.numbers(), [1, 2], "the first link carried both");
    pair.cut();
    assert!(calls.iter().all(|call| !pair.near.has_ended(*call)), "the session outlives its link");
    match lacks {
        Lacks::Credits => pair.link(Room { requests: 1, ..enough() }),
        Lacks::Places => {
            pair.fill(Nanos::from_secs(60));
            pair.link(enough());
        }
        Lacks::Memory => pair.link(Room { send_memory: 64 << 10, ..enough() }),
    }
    if lacks == Lacks::Places {
        assert!(pair.world.fired().refused_posts > 0, "no post was refused");
    }
    assert!(pair.exchanged().requests < 2, "there was room for both: {:?}", pair.exchanged());
    (pair, calls)
}

/// Waker that takes the end of a call immediately, like an executor that polls its tasks where they are woken.
struct TakesImmediately {
    session: Weak<SimSession>,
    call: CallId,
    executor: SimExecutor,
    seen: Mutex<Vec<Outcome>>,
}

impl Wake for TakesImmediately {
    fn wake(self: Arc<Self>) {
        let Some(session) = self.session.upgrade() else { return };
        if session.has_ended(self.call) {
            self.seen
                .lock()
                .expect("no holder panics")
                .push(Outcome::of(&session.take(self.call, &self.executor)));
        }
    }
}

/// Ends the session, which ends the call. Its waiter takes the end at the first moment.
fn ends_as_maybe(lacks: Lacks) {
    let (pair, [_, call]) = due_again(lacks, Nanos::NEVER);
    let waiter = Arc::new(TakesImmediately {
        session: Arc::downgrade(&pair.near),
        call,
        executor: pair.executor.clone(),
        seen: Mutex::default(),
    });
    pair.near.register(call, &Waker::from(Arc::clone(&waiter)));
    let ended = catch_unwind(AssertUnwindSafe(|| pair.take_down()));
    let seen = waiter.seen.lock().expect("no holder panics").clone();
    assert_eq!(seen, [Outcome::PeerDown(Executed::Maybe)], "the first link carried it");
    ended.unwrap_or_else(|panic| resume_unwind(panic));
    assert_eq!(pair.near.open_calls(), 1, "the other call has ended, but its end was not taken");
}

/// Shows: calls.ends-maybe, protocol.end-executed
#[test]
fn without_a_credit_it_may_have_been_executed() {
    ends_as_maybe(Lacks::Credits);
}

#[test]
fn without_a_queue_slot_it_may_have_been_executed() {
    ends_as_maybe(Lacks::Places);
}

#[test]
fn without_send_memory_it_may_have_been_executed() {
    ends_as_maybe(Lacks::Memory);
}

/// Checks that every slot is free once, and for one call at a time.
fn all_slots_are_free(pair: &Pair) {
    assert_eq!(pair.near.open_calls(), 0);
}

#[test]
fn abandoned_before_the_session_ends_it_ends_once() {
    let (mut pair, calls) = due_again(Lacks::Credits, Nanos::NEVER);
    for call in calls {
        pair.near.abandon(call, Class::Control, &pair.executor);
    }
    pair.end_session();
    all_slots_are_free(&pair);
}

#[test]
fn abandoned_while_there_is_no_link_it_ends_once() {
    let mut pair = Pair::new(SimOptions::like_verbs(), few());
    let calls = [1, 2].map(|number| pair.call(number, Nanos::NEVER));
    pair.turn();
    pair.cut();
    for call in calls {
        pair.near.abandon(call, Class::Control, &pair.executor);
    }
    pair.link(Room { requests: 1, ..enough() });
    pair.take_down();
    all_slots_are_free(&pair);
}

/// Short enough to pass while a request waits for room, but longer than the first link lives.
const TIMEOUT: Nanos = Nanos::from_millis(100);

#[test]
fn past_its_deadline_it_ends_once() {
    let (mut pair, [_, call]) = due_again(Lacks::Places, TIMEOUT);
    pair.pass(TIMEOUT + TIMEOUT);
    assert_eq!(pair.outcome(call), Outcome::Deadline(Executed::Maybe));
    pair.take_down();
}

#[test]
fn the_first_end_stays() {
    let (mut pair, [_, call]) = due_again(Lacks::Places, TIMEOUT);
    pair.pass(TIMEOUT + TIMEOUT);
    assert!(pair.near.has_ended(call), "its deadline has passed");
    let ended = catch_unwind(AssertUnwindSafe(|| pair.take_down()));
    assert_eq!(pair.outcome(call), Outcome::Deadline(Executed::Maybe));
    ended.unwrap_or_else(|panic| resume_unwind(panic));
}

/// The callee responds while the request waits to be sent again, and another call is made meanwhile, in the same slot
/// if the first one has left it. Each of the two ends once, by itself.
#[test]
fn no_other_call_is_ended_in_its_place() {
    let (pair, [_, waiting]) = due_again(Lacks::Places, Nanos::NEVER);
    let asked = pair.callee.asked[1].clone();
    pair.respond(&asked);
    pair.world.run_until(pair.world.now() + Nanos::from_millis(1));
    let turned = pair.near.turn(1, || false, &mut Nothing, &pair.executor);
    assert!(turned.is_some(), "no other thread holds the engine");
    if pair.near.has_ended(waiting) {
        assert_eq!(pair.outcome(waiting), Outcome::Reply);
    }
    let other = pair.call_in(Class::Bulk, 3, Nanos::NEVER);
    pair.near.abandon(other, Class::Bulk, &pair.executor);
    pair.take_down();
    if other.slot != waiting.slot {
        assert_eq!(pair.outcome(waiting), Outcome::PeerDown(Executed::Maybe));
    }
}

/// A link with room works normally: both requests are sent again, and executed once.
///
/// Shows: protocol.duplicates
#[test]
fn with_room_both_are_answered_once() {
    let mut pair = Pair::new(SimOptions::like_verbs(), few());
    let calls = [1, 2].map(|number| pair.call(number, Nanos::NEVER));
    pair.turn();
    pair.cut();
    pair.link(enough());
    pair.turn();
    assert_eq!(pair.callee.numbers(), [1, 2], "the second time both are duplicates");
    for asked in pair.callee.asked.clone() {
        pair.respond(&asked);
    }
    pair.turn();
    assert_eq!(calls.map(|call| pair.outcome(call)), [Outcome::Reply; 2]);
    all_slots_are_free(&pair);
}
