//! Loom models in which the engine ends a call while its waiter takes the end, sleeps or leaves; and mutants that loom must refute.

use alloc::sync::Arc;

use loom::thread::{self, Thread};

use super::*;
use crate::fabric::OutOfBounds;
use crate::{Channels, Clock, Nanos, WaitPolicy};

/// A lease for which the model checks that it was dropped.
#[derive(Debug)]
struct Lease(#[expect(dead_code, reason = "only its drop matters")] Arc<()>);

impl Payload for Lease {
    fn len(&self) -> usize {
        0
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        if out.is_empty() { Ok(()) } else { Err(OutOfBounds { offset, wanted: out.len(), len: 0 }) }
    }

    fn as_private(&self) -> Option<&[u8]> {
        None
    }
}

/// An executor for the thread that sleeps.
struct Sleeper(Thread);

impl Clock for Sleeper {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
}

impl Executor for Sleeper {
    fn circumstances(&self, _: WaitPolicy) -> crate::executor::Circumstances {
        crate::executor::ASLEEP
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {
        thread::park();
    }

    fn wake(&self, _: &AtomicU32) {
        self.0.unpark();
    }

    fn yield_now(&self) {
        thread::yield_now();
    }

    fn back_off(&self, _: Nanos) {
        thread::yield_now();
    }

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        unreachable!("a call table has no channel");
    }
}

/// Runs `waiter` against an engine that ends the call. `expects` tells whether a response is still outstanding afterwards. Then checks that
/// the only slot and the lease in its end were freed once. A sleeper that misses the end shows as a deadlock.
fn engine_against(waiter: fn(&CallTable<Lease>, CallId), expects: Expects) {
    loom::model(move || {
        let table = Arc::new(CallTable::new(1));
        let call = table.claim().expect("a slot is free");
        let lease = Arc::new(());
        let executor = Sleeper(thread::current());
        let (shared, held) = (Arc::clone(&table), Lease(Arc::clone(&lease)));
        let engine = thread::spawn(move || {
            shared.end(call, End::Reply(Arrived::Buffer(held)), expects, &executor);
            if expects == Expects::Response {
                shared.settle(call);
            }
        });
        waiter(&table, call);
        engine.join().expect("the engine ended the call");
        assert_eq!(table.in_use(), 0, "the slot is lost");
        assert_eq!(Arc::strong_count(&lease), 1, "the lease is lost");
        let next = table.claim().expect("the slot is free again");
        assert!(next.generation != call.generation && !table.has_ended(next));
    });
}

/// Leaves the slot, with the end if the call has ended, and claims the slot again as soon as possible.
fn leave(table: &CallTable<Lease>, call: CallId) {
    if table.has_ended(call) {
        assert!(matches!(table.take(call), End::Reply(Arrived::Buffer(_))));
    } else {
        table.leave(call);
    }
    if let Some(next) = table.claim() {
        assert!(!table.has_ended(next), "the slot has the end of the earlier call");
        table.unclaim(next);
    }
}

fn sleep_until(ready: impl Fn() -> bool, table: &CallTable<Lease>, call: CallId) {
    while !table.has_ended(call) {
        let word = table.sleeper(call.slot);
        word.arm();
        if !ready() && word.should_sleep() {
            thread::park();
        }
        word.disarm();
    }
    assert!(matches!(table.take(call), End::Reply(Arrived::Buffer(_))));
}

fn sleep(table: &CallTable<Lease>, call: CallId) {
    sleep_until(|| table.has_ended(call), table, call);
}

#[test]
fn loom_the_last_user_frees_a_slot_once() {
    engine_against(leave, Expects::Nothing);
}

#[test]
fn loom_the_last_user_frees_a_slot_with_an_outstanding_response_once() {
    engine_against(leave, Expects::Response);
}

#[test]
fn loom_a_sleeper_gets_its_end() {
    engine_against(sleep, Expects::Nothing);
}

#[test]
fn loom_a_sleeper_gets_its_end_before_the_answer_is_settled() {
    engine_against(sleep, Expects::Response);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_sleeping_without_a_recheck() {
    engine_against(|table, call| sleep_until(|| false, table, call), Expects::Nothing);
}

#[test]
#[should_panic(expected = "the slot is lost")]
fn loom_refutes_leaving_in_two_steps() {
    let leave = |table: &CallTable<Lease>, call: CallId| {
        let slot = table.slots.at(call.slot.into());
        let before = slot.state.load(Ordering::Acquire);
        slot.state.store(before | WAITER_GONE, Ordering::Release);
        if before & ENGINE_DONE != 0 {
            table.recycle(call.slot);
        }
    };
    engine_against(leave, Expects::Nothing);
}
