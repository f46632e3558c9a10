//! Tests of the engine reserve, and of the time when a slot is free again.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::*;
use crate::fabric::OutOfBounds;
use crate::wait::back_off::tests::RealTime;

struct NoLease;

impl Payload for NoLease {
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

#[test]
fn a_reserved_slot_is_free_and_taken_first_by_the_engine() {
    let table = CallTable::<NoLease>::new(2);
    assert!(!table.was_used());
    let first = table.claim().expect("a slot is free");
    assert!(table.was_used());
    let second = table.claim().expect("a slot is free");
    table.put_in_reserve(first.slot);
    assert_eq!(table.in_use(), 1);
    assert_eq!(table.claim(), None, "the slot is not in the free list");
    let again = table.claim_in_engine().expect("the slot is in the engine reserve");
    assert_eq!((again.slot, again.generation), (first.slot, first.generation + 1));
    table.put_in_reserve(again.slot);
    table.put_in_reserve(second.slot);
    assert_eq!(table.in_use(), 0);
    assert!(table.claim().is_some(), "the second is in the free list");
    assert!(table.claim_in_engine().is_some());
    assert_eq!((table.claim_in_engine(), table.in_use()), (None, 2));
}

#[test]
fn the_reserve_of_slots_has_a_limit() {
    let capacity = 20;
    let table = CallTable::<NoLease>::new(capacity);
    let calls: Vec<_> = (0..capacity).map(|_| table.claim().expect("a slot is free")).collect();
    calls.iter().for_each(|call| table.put_in_reserve(call.slot));
    assert_eq!(table.in_use(), 0);
    let others = core::iter::from_fn(|| table.claim()).count();
    assert_eq!(others, usize::from(capacity) / 4 * 3);
    let reserve: Vec<_> = core::iter::from_fn(|| table.claim_in_engine()).map(|call| call.slot).collect();
    assert_eq!(reserve, [4, 3, 2, 1, 0], "the last one first");
    assert_eq!(table.in_use(), capacity);
}

/// A lease for which a test checks that it was dropped.
struct Lease(#[expect(dead_code, reason = "only its drop matters")] Arc<()>);

impl Payload for Lease {
    fn len(&self) -> usize {
        0
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        NoLease.copy_to(offset, out)
    }

    fn as_private(&self) -> Option<&[u8]> {
        None
    }
}

const DOWN: End<NoLease> = End::PeerDown { executed: Executed::Maybe };

/// An executor for calls that no thread sleeps on.
fn executor() -> RealTime<'static> {
    RealTime::with(|| ())
}

#[test]
fn a_slot_whose_waiter_left_is_free_after_its_response() {
    let table = CallTable::<NoLease>::new(1);
    let call = table.claim().expect("a slot is free");
    assert!(table.leave(call), "a response may still come");
    assert_eq!(table.in_use(), 1, "the slot is not reused until then");
    assert!(!table.end(call, DOWN, Expects::Nothing, &executor()), "the waiter has left");
    assert_eq!(table.in_use(), 0);
}

#[test]
fn a_slot_whose_response_is_outstanding_is_free_after_it_was_settled() {
    for waiter_is_first in [true, false] {
        let table = CallTable::<NoLease>::new(1);
        let call = table.claim().expect("a slot is free");
        if waiter_is_first {
            table.leave(call);
            assert!(!table.end(call, DOWN, Expects::Response, &executor()), "the waiter has left");
        } else {
            assert!(table.end(call, DOWN, Expects::Response, &executor()), "its waiter takes the end");
            assert!(matches!(table.take(call), End::PeerDown { executed: Executed::Maybe }));
        }
        assert_eq!((table.in_use(), table.claim()), (1, None), "its response is outstanding");
        table.settle(call);
        assert_eq!(table.in_use(), 0);
        let next = table.claim().expect("the slot is free again");
        assert!(next.generation != call.generation && !table.has_ended(next));
    }
}

#[test]
fn the_end_of_a_failed_session_spares_ends_and_slots_that_are_free() {
    let table = CallTable::<NoLease>::new(8);
    let calls: Vec<_> = (0..4).map(|_| table.claim().expect("a slot is free")).collect();
    table.end(calls[0], End::Flushed, Expects::Nothing, &executor());
    table.end(calls[1], End::Flushed, Expects::Response, &executor());
    table.put_in_reserve(calls[3].slot);
    assert_eq!(table.end_claimed(&executor()), 1, "one call was open");
    for (call, is_flushed) in calls.iter().zip([true, true, false]) {
        assert_eq!(matches!(table.take(*call), End::Flushed), is_flushed, "the first end stays");
    }
    assert_eq!(table.in_use(), 0);
}

#[test]
fn an_unclaimed_payload_is_dropped_with_its_slot() {
    let table = CallTable::<Lease>::new(1);
    let call = table.claim().expect("a slot is free");
    let lease = Arc::new(());
    table.leave(call);
    let reply = End::Reply(Arrived::Buffer(Lease(Arc::clone(&lease))));
    assert!(!table.end(call, reply, Expects::Nothing, &executor()));
    assert_eq!((Arc::strong_count(&lease), table.in_use()), (1, 0));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a call ends once")]
fn a_call_does_not_end_twice() {
    let table = CallTable::<NoLease>::new(1);
    let call = table.claim().expect("a slot is free");
    table.end(call, DOWN, Expects::Nothing, &executor());
    table.end(call, DOWN, Expects::Nothing, &executor());
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a slot in use is set aside once")]
fn a_slot_is_not_reserved_twice() {
    let table = CallTable::<NoLease>::new(8);
    let call = table.claim().expect("a slot is free");
    table.put_in_reserve(call.slot);
    table.put_in_reserve(call.slot);
}
