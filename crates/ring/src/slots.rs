//! A free list of small indices, for tables of fixed size.
//!
//! The list is a stack: the slot released last is claimed next, while it is still in the cache.
//!
//! # Invariants
//! 1. The head word has the top of the stack, the number of slots in use, and a tag that every change increments. A slow
//!    thread that read an old top fails its CAS because of the tag, even if the same index is on top again.
//! 2. `next` of a claimed slot is `CLAIMED`; that of a free slot is the slot below.

use alloc::boxed::Box;

use pronto_sync::CachePadded;
use pronto_sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// The mark for the bottom of the stack.
const NONE: u16 = u16::MAX;
/// The mark of a claimed slot.
const CLAIMED: u16 = u16::MAX - 1;
/// Maximum number of slots of a list; the indices above are marks.
pub const MAX_SLOTS: u16 = CLAIMED;

const _: () = assert!(MAX_SLOTS <= CLAIMED && CLAIMED < NONE, "no index is a mark");

/// The head word, unpacked.
#[derive(Clone, Copy)]
struct Head {
    tag: u32,
    in_use: u16,
    top: u16,
}

impl Head {
    fn unpack(word: u64) -> Self {
        let [t0, t1, u0, u1, g0, g1, g2, g3] = word.to_le_bytes();
        Self {
            top: u16::from_le_bytes([t0, t1]),
            in_use: u16::from_le_bytes([u0, u1]),
            tag: u32::from_le_bytes([g0, g1, g2, g3]),
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.in_use) << 16 | u64::from(self.top)
    }
}

/// A list of `n` slots, which any thread may claim and release.
#[derive(Debug)]
pub struct Slots {
    head: CachePadded<AtomicU64>,
    next: Box<[AtomicU16]>,
}

impl Slots {
    /// Returns a list of `n` free slots.
    ///
    /// # Panics
    /// If `n` is more than [`MAX_SLOTS`].
    pub fn new(n: u16) -> Self {
        assert!(n <= MAX_SLOTS, "the two highest indices are marks");
        let next = (1..=n).map(|below| AtomicU16::new(if below == n { NONE } else { below })).collect();
        let head = Head { tag: 0, in_use: 0, top: if n == 0 { NONE } else { 0 } };
        Self { head: CachePadded::new(AtomicU64::new(head.pack())), next }
    }

    /// Claims a free slot, if there is one.
    pub fn claim(&self) -> Option<u16> {
        // SYNC: Acquire sees `next` of the top; pairs with the CAS in release.
        let mut word = self.head.load(Ordering::Acquire);
        loop {
            let head = Head::unpack(word);
            if head.top == NONE {
                return None;
            }
            let below = self.next[usize::from(head.top)].load(Ordering::Relaxed);
            let taken =
                Head { tag: head.tag.wrapping_add(1), in_use: head.in_use.wrapping_add(1), top: below };
            // SYNC: Acquire sees the changes of the slot's last user; pairs with the CAS in release.
            match self.head.compare_exchange_weak(word, taken.pack(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    debug_assert!(
                        self.is_consistent(head) && self.is_consistent(taken),
                        "the stack is empty when all slots are in use"
                    );
                    debug_assert!(below != CLAIMED, "the top of the stack is free");
                    self.next[usize::from(head.top)].store(CLAIMED, Ordering::Relaxed);
                    return Some(head.top);
                }
                Err(found) => word = found,
            }
        }
    }

    /// Releases a claimed slot.
    ///
    /// # Panics
    /// If the slot is not claimed, as two threads could claim it then.
    pub fn release(&self, slot: u16) {
        let next = &self.next[usize::from(slot)];
        assert!(next.load(Ordering::Relaxed) == CLAIMED, "a slot that is released is a claimed one");
        let mut word = self.head.load(Ordering::Relaxed);
        loop {
            let head = Head::unpack(word);
            next.store(head.top, Ordering::Relaxed);
            let freed =
                Head { tag: head.tag.wrapping_add(1), in_use: head.in_use.wrapping_sub(1), top: slot };
            // SYNC: publishes `next` and the changes of the slot's user; pairs with the CAS in claim. SeqCst, so that a thread that releases a
            // slot and then reads whether it is wanted, and one that wants a slot and then reads `in_use`, see each other; the latter fences.
            match self.head.compare_exchange_weak(word, freed.pack(), Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    debug_assert!(
                        self.is_consistent(head) && self.is_consistent(freed),
                        "the stack is empty when all slots are in use"
                    );
                    return;
                }
                Err(found) => word = found,
            }
        }
    }

    /// Returns whether the stack is empty exactly when every slot is in use.
    fn is_consistent(&self, head: Head) -> bool {
        let Head { in_use, top, .. } = head;
        usize::from(in_use) <= self.len() && (top == NONE) == (usize::from(in_use) == self.len())
    }

    /// Returns whether a slot is claimed. Unless the caller prevents changes, the result may already be out of date.
    pub fn is_claimed(&self, slot: u16) -> bool {
        self.next[usize::from(slot)].load(Ordering::Relaxed) == CLAIMED
    }

    /// Returns the number of claimed slots.
    pub fn in_use(&self) -> u16 {
        Head::unpack(self.head.load(Ordering::Relaxed)).in_use
    }

    /// Returns the number of all slots, claimed or free.
    pub fn len(&self) -> usize {
        self.next.len()
    }

    /// Returns whether the list has no slots at all.
    pub fn is_empty(&self) -> bool {
        self.next.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::Slots;

    #[test]
    fn the_slot_released_last_is_claimed_next() {
        let slots = Slots::new(4);
        let all: BTreeSet<_> = core::iter::from_fn(|| slots.claim()).collect();
        assert_eq!(all, BTreeSet::from([0, 1, 2, 3]));
        slots.release(2);
        slots.release(1);
        assert_eq!((slots.claim(), slots.claim(), slots.claim()), (Some(1), Some(2), None));
        assert_eq!(slots.in_use(), 4);
    }

    #[test]
    #[should_panic(expected = "a slot that is released is a claimed one")]
    fn a_slot_is_released_once() {
        let slots = Slots::new(2);
        let slot = slots.claim().unwrap();
        slots.release(slot);
        slots.release(slot);
    }

    #[test]
    fn a_list_may_have_no_slots() {
        let slots = Slots::new(0);
        assert!(slots.is_empty());
        assert_eq!(slots.claim(), None);
    }

    #[test]
    fn threads_never_share_a_slot() {
        const N: u16 = 4;
        let slots = Slots::new(N);
        let owned: [std::sync::Mutex<()>; N as usize] = Default::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if let Some(slot) = slots.claim() {
                            let alone = owned[usize::from(slot)].try_lock().expect("one claimer");
                            drop(alone);
                            slots.release(slot);
                        }
                    }
                });
            }
        });
        assert_eq!(slots.in_use(), 0);
        assert_eq!(core::iter::from_fn(|| slots.claim()).count(), usize::from(N));
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(operations in prop::collection::vec(any::<Option<u8>>(), 0..200)) {
            let slots = Slots::new(16);
            let mut model = BTreeSet::new();
            for operation in operations {
                match operation {
                    None => match slots.claim() {
                        Some(slot) => prop_assert!(slot < 16 && model.insert(slot)),
                        None => prop_assert_eq!(model.len(), 16),
                    },
                    Some(pick) if !model.is_empty() => {
                        let slot = *model.iter().nth(usize::from(pick) % model.len()).unwrap();
                        model.remove(&slot);
                        slots.release(slot);
                    }
                    Some(_) => {}
                }
                prop_assert_eq!(usize::from(slots.in_use()), model.len());
            }
        }
    }
}
