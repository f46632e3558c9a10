//! The slots that are set aside for the engine.

use alloc::vec::Vec;

use super::*;
use crate::fabric::OutOfBounds;

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
fn a_slot_that_is_set_aside_is_free_and_taken_first_in_the_engine() {
    let table = CallTable::<NoLease>::new(2);
    assert!(!table.was_used());
    let first = table.claim().expect("it is free");
    assert!(table.was_used());
    let second = table.claim().expect("it is free");
    table.set_aside(first.slot);
    assert_eq!(table.in_use(), 1);
    assert_eq!(table.claim(), None, "it is not in the free list");
    let again = table.claim_in_engine().expect("it was set aside");
    assert_eq!((again.slot, again.generation), (first.slot, first.generation + 1));
    table.set_aside(again.slot);
    table.set_aside(second.slot);
    assert_eq!(table.in_use(), 0);
    assert!(table.claim().is_some(), "the second is in the free list");
    assert!(table.claim_in_engine().is_some());
    assert_eq!((table.claim_in_engine(), table.in_use()), (None, 2));
}

#[test]
fn a_part_of_the_slots_is_set_aside_at_most() {
    let capacity = 20;
    let table = CallTable::<NoLease>::new(capacity);
    let calls: Vec<_> = (0..capacity).map(|_| table.claim().expect("it is free")).collect();
    calls.iter().for_each(|call| table.set_aside(call.slot));
    assert_eq!(table.in_use(), 0);
    let others = core::iter::from_fn(|| table.claim()).count();
    assert_eq!(others, usize::from(capacity) / 4 * 3);
    let aside: Vec<_> = core::iter::from_fn(|| table.claim_in_engine()).map(|call| call.slot).collect();
    assert_eq!(aside, [4, 3, 2, 1, 0], "the last one first");
    assert_eq!(table.in_use(), capacity);
}
