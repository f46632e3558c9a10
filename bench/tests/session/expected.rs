//! When a caller goes to sleep, depending on its hint and on the past reply times of its peer.

use pronto_bench::pair::{Ends, Nobody, shm_link};
use pronto_core::executor::{Circumstances, WaitRequest, alone};
use pronto_core::fabric::QueuePair;
use pronto_core::session::{CallSpec, OutgoingPayload, WaitOutcome};
use pronto_core::{Channels, Clock, Executor, Nanos, WaitPolicy};
use pronto_rpc::{Message, Route};
use pronto_sched_policy::policy::time;
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pronto_wire::{Class, InlinePayload};

#[derive(Message)]
#[message(name = "expected.ask", reply = Answer)]
struct Ask {}

#[derive(Message)]
#[message(name = "expected.answer")]
struct Answer {}

/// Time for which polling pays.
const BOUND: Nanos = Nanos::from_micros(20);
/// Duration of its sleeps, if replies come late.
const LATE: Nanos = Nanos::from_millis(1);

/// Executor of an undisturbed caller: each reading of its clock is a microsecond after the previous one, and the reply
/// comes while it sleeps.
struct Caller<'a> {
    now: AtomicU64,
    /// Time at which it went to sleep.
    slept: AtomicU64,
    answer: &'a (dyn Fn() + Sync),
}

impl Clock for Caller<'_> {
    fn now(&self) -> Nanos {
        Nanos(self.now.fetch_add(1_000, Ordering::Relaxed))
    }
}

impl Executor for Caller<'_> {
    fn circumstances(&self, _: WaitPolicy) -> Circumstances {
        alone(BOUND)
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {
        unreachable!("this is the only caller")
    }

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {}

    fn back_off(&self, _: Nanos) {}

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        self.slept.store(self.now.fetch_add(LATE.0, Ordering::Relaxed), Ordering::Relaxed);
        (self.answer)();
        [true; 2]
    }
}

/// Returns the time for which a caller polls for a reply that comes while it sleeps.
fn polls_for<Q: QueuePair + 'static>(ends: &Ends<Q>, expected: Option<Nanos>) -> Nanos {
    let Ends { caller, callee } = ends;
    let answer = || assert_eq!(callee.serve(1), 1, "the handler runs");
    let executor = Caller { now: AtomicU64::new(0), slept: AtomicU64::new(0), answer: &answer };
    let spec = CallSpec { key: callee.routes[0].key, class: Class::Control, timeout: Nanos::NEVER };
    let payload = OutgoingPayload::Inline(InlinePayload::EMPTY);
    let call = caller.call(&spec, payload, &executor).expect("the call is sent");
    let usual = WaitRequest::from(WaitPolicy::Adaptive);
    let asked = expected.map_or(usual, |expected| usual.expecting(time::Nanos(expected.0)));
    let waited = caller.wait(call, Nanos::NEVER, asked, &mut Nobody, &executor);
    assert!(matches!(waited, WaitOutcome::Ended(_)));
    Nanos(executor.slept.load(Ordering::Relaxed))
}

/// Maximum polling time of a caller that sleeps immediately, from its clock readings.
const IMMEDIATELY: Nanos = Nanos::from_micros(5);

/// Shows: calls.expecting, operations.hint
#[test]
fn a_caller_sleeps_immediately_if_it_expects_a_late_reply_or_past_replies_were_late() {
    let routes = vec![Route::inline(|_, _: Ask| Answer {})];
    let ends = Ends::new(routes, shm_link).expect("two nodes over shared memory");
    let soon = Some(Nanos::ZERO);
    let polls = |expected| polls_for(&ends, expected);
    let usual = polls(None);
    assert!(usual >= BOUND && usual < BOUND + IMMEDIATELY, "{usual:?}");
    assert!(polls(Some(BOUND + Nanos(1))) < IMMEDIATELY);
    assert!(polls(soon) >= BOUND);
    for _ in 0..32 {
        polls(None);
    }
    assert!(polls(None) < IMMEDIATELY, "the wait history has late replies");
    assert!(ends.caller.reply_waits().gap() > LATE.since(Nanos::from_micros(400)));
    assert!(polls(soon) >= BOUND, "a caller with a hint polls regardless of the history");
}
