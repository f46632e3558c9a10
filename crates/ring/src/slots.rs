//! A free list of small indices, for tables of fixed size.
//!
//! The list is a stack: the slot released last is claimed next, while it is still in the cache. A list may begin with some of its slots and
//! get the others when they are needed. The table behind it then needs memory only for slots that were used.
//!
//! # Invariants
//! 1. The head word has the top of the stack, the number of slots in use, and a tag that every change increments. A slow
//!    thread that read an old top fails its CAS because of the tag, even if the same index is on top again.
//! 2. `next` of a claimed slot is `CLAIMED`; that of a free slot is the slot below.
//! 3. The thread that changes `len` adds the new slots, and nobody else refers to them before.

use pronto_sync::CachePadded;
use pronto_sync::atomic::{AtomicU16, AtomicU64, Ordering};

use crate::growing::Growing;

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

/// A list of slots, which any thread may claim and release.
#[derive(Debug)]
pub struct Slots {
    head: CachePadded<AtomicU64>,
    next: Growing<AtomicU16>,
    /// Number of slots so far, including those that a thread is about to add.
    len: AtomicU16,
}

impl Slots {
    /// Returns a list of `n` free slots.
    ///
    /// # Panics
    /// If `n` is more than [`MAX_SLOTS`].
    pub fn new(n: u16) -> Self {
        Self::growing(n, n)
    }

    /// Returns a list of `few` free slots, which may [grow](Self::grow) up to `max`.
    ///
    /// # Panics
    /// If `max` is more than [`MAX_SLOTS`], or if there are none of `few` and some of `max`.
    pub fn growing(few: u16, max: u16) -> Self {
        assert!(max <= MAX_SLOTS, "the two highest indices are marks");
        assert!(few != 0 || max == 0, "an empty list cannot grow");
        let few = few.min(max);
        let next = Growing::new(few.into(), max.into(), || AtomicU16::new(CLAIMED));
        let this = Self { head: CachePadded::new(AtomicU64::new(0)), next, len: AtomicU16::new(few) };
        this.link(0..few, NONE);
        let head = Head { tag: 0, in_use: 0, top: if few == 0 { NONE } else { 0 } };
        this.head.store(head.pack(), Ordering::Relaxed);
        this
    }

    /// Adds free slots, as many as there are. Returns false if the list has its maximum length. If true, a slot may be free, or another
    /// thread may be adding some: try to claim one, and otherwise grow again.
    #[cold]
    pub fn grow(&self) -> bool {
        let len = self.len.load(Ordering::Relaxed);
        let more = len.saturating_mul(2).min(self.max());
        if len == more {
            return false;
        }
        // Relaxed: the claimers of the new slots see them by the head word.
        if self.len.compare_exchange(len, more, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let mut word = self.head.load(Ordering::Relaxed);
            loop {
                let head = Head::unpack(word);
                self.link(len..more, head.top);
                let grown = Head { tag: head.tag.wrapping_add(1), top: len, ..head };
                // SYNC: publishes `next` of the new slots; pairs with the CAS in claim. SeqCst as in release.
                match self.head.compare_exchange_weak(word, grown.pack(), Ordering::SeqCst, Ordering::Relaxed)
                {
                    Ok(_) => break,
                    Err(found) => word = found,
                }
            }
        }
        true
    }

    /// Links free slots to a chain, the first of them on top, above `below`.
    fn link(&self, slots: core::ops::Range<u16>, below: u16) {
        let end = slots.end;
        for slot in slots {
            let next = if slot + 1 == end { below } else { slot + 1 };
            self.next.at(slot.into()).store(next, Ordering::Relaxed);
        }
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
            let below = self.next.at(head.top.into()).load(Ordering::Relaxed);
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
                    self.next.at(head.top.into()).store(CLAIMED, Ordering::Relaxed);
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
        let next = self.next.at(slot.into());
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

    /// Returns whether the stack is empty if every slot is in use, and has slots if some of the first ones are not.
    fn is_consistent(&self, head: Head) -> bool {
        let Head { in_use, top, .. } = head;
        let full = in_use == self.len();
        in_use <= self.len() && if top == NONE { usize::from(in_use) >= self.next.few() } else { !full }
    }

    /// Returns whether a slot is claimed. Unless the caller prevents changes, the result may already be out of date.
    pub fn is_claimed(&self, slot: u16) -> bool {
        self.next.at(slot.into()).load(Ordering::Relaxed) == CLAIMED
    }

    /// Returns the number of claimed slots.
    pub fn in_use(&self) -> u16 {
        Head::unpack(self.head.load(Ordering::Relaxed)).in_use
    }

    /// Returns the number of slots so far, claimed or free, including those that a thread is adding.
    pub fn len(&self) -> u16 {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns the number of slots that the list can grow to.
    pub fn max(&self) -> u16 {
        u16::try_from(self.next.len()).expect("not more than `MAX_SLOTS`")
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
    fn a_list_grows_to_its_maximum_and_keeps_its_slots() {
        let slots = Slots::growing(2, 7);
        let mut claimed = BTreeSet::new();
        for (len, grows) in [(2, true), (4, true), (7, false)] {
            assert_eq!((slots.len(), slots.max()), (len, 7));
            while let Some(slot) = slots.claim() {
                assert!(slot < len && claimed.insert(slot));
            }
            assert_eq!(slots.in_use(), len);
            assert_eq!(slots.grow(), grows);
        }
        assert_eq!(claimed.len(), 7);
        claimed.into_iter().for_each(|slot| slots.release(slot));
        assert_eq!((slots.in_use(), core::iter::from_fn(|| slots.claim()).count()), (0, 7));
    }

    #[test]
    fn slots_that_are_free_stay_below_the_new_ones() {
        let slots = Slots::growing(2, 4);
        assert_eq!(slots.claim(), Some(0));
        assert!(slots.grow());
        assert_eq!([0; 3].map(|_| slots.claim()), [Some(2), Some(3), Some(1)]);
        assert_eq!((slots.claim(), slots.grow()), (None, false));
    }

    #[test]
    #[should_panic(expected = "an empty list cannot grow")]
    fn a_list_that_grows_has_a_slot() {
        Slots::growing(0, 4);
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
        let slots = Slots::growing(1, N);
        let owned: [std::sync::Mutex<()>; N as usize] = Default::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if let Some(slot) = slots.claim().or_else(|| slots.grow().then(|| slots.claim())?) {
                            let alone = owned[usize::from(slot)].try_lock().expect("one claimer");
                            drop(alone);
                            slots.release(slot);
                        }
                    }
                });
            }
        });
        assert_eq!(slots.in_use(), 0);
        // Threads that never ran side by side needed fewer than all slots.
        assert_eq!(core::iter::from_fn(|| slots.claim()).count(), usize::from(slots.len()));
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
