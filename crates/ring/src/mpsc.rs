//! A bounded queue from many threads to whoever holds its receiving end.
//!
//! Each slot carries a sequence number. A producer claims a position by moving the tail, fills the slot and then numbers it
//! position + 1; the consumer empties the slot and numbers it position + 2 x capacity, for the next time round. Positions are
//! even; they and the numbers wrap.
//!
//! A queue may begin with few slots, as most queues never need more. A producer that finds them full closes them, which is a
//! bit of their tail; from then on all values go to the other slots, which are made at that moment. The consumer goes there
//! when it has taken the last value out of the first ones.
//!
//! # Invariants
//! 1. A slot numbered like its position is empty, and belongs to the producer who moves the tail over it.
//! 2. A slot numbered position + 1 is full, and belongs to the consumer.
//! 3. There is one [`Receiver`], and popping needs `&mut`.
//! 4. A closed tail never moves.
//! 5. Nobody waits for a producer that has claimed a slot and not filled it: the consumer finds nothing there, producers find no room.
#![expect(unsafe_code, reason = "the sequence numbers decide who may touch a slot")]

use alloc::boxed::Box;
use core::fmt;
use core::mem::MaybeUninit;

use pronto_sync::atomic::{AtomicUsize, Ordering};
use pronto_sync::cell::UnsafeCell;
use pronto_sync::{Arc, CachePadded, OnceBox, hint};
use thiserror::Error;

/// From a position to the next.
const STEP: usize = 2;
/// The bit of a tail that says that nothing is pushed there any more.
const CLOSED: usize = 1;

/// The queue was full; here is the value back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the queue is full")]
pub struct Full<T>(pub T);

struct Slot<T> {
    sequence: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// Slots in a ring.
struct Ring<T> {
    tail: CachePadded<AtomicUsize>,
    /// Written by the consumer alone; others read it to see whether something is pending.
    head: CachePadded<AtomicUsize>,
    slots: Box<[Slot<T>]>,
}

struct Shared<T> {
    first: Ring<T>,
    /// Where values go once the first ring is closed.
    rest: OnceBox<Ring<T>>,
    /// How many that one takes; none if the first ring is all there is.
    capacity: usize,
}

// SAFETY: invariants 1 to 3: a value is touched by one thread at a time, and moves from producer to consumer.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: nothing in it is bound to a thread but the values, which are Send.
unsafe impl<T: Send> Send for Ring<T> {}

/// Makes bounded queues.
#[derive(Debug)]
pub struct Mpsc;

impl Mpsc {
    /// A queue for `capacity` values, rounded up to a power of two.
    #[expect(clippy::new_ret_no_self, reason = "a queue is nothing but its two ends")]
    pub fn new<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        Self::growing(capacity, 0)
    }

    /// A queue for `few` values, and once they were not enough for `capacity` beside those that are left of the few; both
    /// rounded up to powers of two. It takes the memory for more at the push for which the few have no room, and keeps it.
    pub fn growing<T>(few: usize, capacity: usize) -> (Sender<T>, Receiver<T>) {
        let shared = Arc::new(Shared { first: Ring::new(few), rest: OnceBox::new(), capacity });
        (Sender { shared: Arc::clone(&shared) }, Receiver { shared, head: 0, in_rest: false })
    }
}

impl<T> Ring<T> {
    fn new(capacity: usize) -> Self {
        let slots = (0..capacity.next_power_of_two())
            .map(|i| Slot {
                sequence: AtomicUsize::new(i * STEP),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            })
            .collect();
        Self {
            tail: CachePadded::new(AtomicUsize::new(0)),
            head: CachePadded::new(AtomicUsize::new(0)),
            slots,
        }
    }

    #[inline(always)]
    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots[(position / STEP) & (self.slots.len() - 1)]
    }

    /// Positions of one lap.
    fn lap(&self) -> usize {
        self.slots.len() * STEP
    }

    /// Tail and head.
    fn ends(&self) -> (usize, usize) {
        (self.tail.load(Ordering::Relaxed), self.head.load(Ordering::Relaxed))
    }

    /// Takes the next position, if the ring is open and has room; closes it if it has none and that is what the caller wants.
    #[inline]
    fn claim(&self, closes: Closes) -> Option<(usize, &Slot<T>)> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            if tail & CLOSED != 0 {
                return None;
            }
            // SYNC: Acquire sees the slot emptied; pairs with the store in take.
            let slot = self.slot(tail);
            let sequence = slot.sequence.load(Ordering::Acquire);
            let next = if sequence == tail {
                tail.wrapping_add(STEP)
            } else if self.is_taken(sequence, tail) {
                if matches!(closes, Closes::Never) {
                    return None;
                }
                tail | CLOSED
            } else {
                // Another producer moved the tail since it was read.
                hint::spin_loop();
                tail = self.tail.load(Ordering::Relaxed);
                continue;
            };
            match self.tail.compare_exchange_weak(tail, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (next & CLOSED == 0).then_some((tail, slot)),
                Err(moved) => tail = moved,
            }
        }
    }

    /// Returns whether a value of the lap before has the slot at `tail`, or will have it: its producer may not have filled the slot yet.
    /// The ring has no room in either case. A producer that waited for the other one here might keep it from the CPU.
    fn is_taken(&self, sequence: usize, tail: usize) -> bool {
        sequence.wrapping_sub(tail.wrapping_sub(self.lap())) <= 1
    }

    /// The slot at `head`, if it is full.
    #[inline(always)]
    fn full(&self, head: usize) -> Option<&Slot<T>> {
        let slot = self.slot(head);
        // SYNC: Acquire sees the value; pairs with the store in fill.
        (slot.sequence.load(Ordering::Acquire) == head.wrapping_add(1)).then_some(slot)
    }

    /// Empties the full slot at `head`. Caller: invariant 3, and `head` is the position of the consumer.
    #[inline(always)]
    fn empty(&self, slot: &Slot<T>, head: usize) -> T {
        // SAFETY: invariant 2: the slot is full, and the one consumer reads it once before numbering it anew.
        let value = slot.value.with(|value| unsafe { value.cast::<T>().read() });
        // SYNC: gives the slot back; pairs with the load in claim.
        slot.sequence.store(head.wrapping_add(self.lap()), Ordering::Release);
        self.head.store(head.wrapping_add(STEP), Ordering::Relaxed);
        value
    }
}

impl<T> Slot<T> {
    /// Fills the slot at a position that the caller has claimed.
    #[inline(always)]
    fn fill(&self, position: usize, value: T) {
        // SAFETY: invariant 1: the slot is empty and the position is the caller's.
        self.value.with_mut(|place| unsafe { place.cast::<T>().write(value) });
        // SYNC: publishes the value; pairs with the load in take and in pending.
        self.sequence.store(position.wrapping_add(1), Ordering::Release);
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let mut head = self.head.load(Ordering::Relaxed);
        while let Some(slot) = self.full(head) {
            drop(self.empty(slot, head));
            head = head.wrapping_add(STEP);
        }
    }
}

/// Whether a ring without room is closed.
#[derive(Clone, Copy)]
enum Closes {
    Never,
    WhenFull,
}

impl<T> Shared<T> {
    /// Whether a value lies at the head, ready to be popped. A value whose producer is still filling its slot does not count:
    /// that producer is yet to come and look after it.
    #[inline]
    fn pending(&self) -> bool {
        let (tail, head) = self.first.ends();
        // A value that a producer has published is behind the tail that it has moved.
        tail != head && (self.first.full(head).is_some() || tail == head | CLOSED && self.rest_is_pending())
    }

    #[cold]
    fn rest_is_pending(&self) -> bool {
        self.rest.get().is_some_and(|rest| rest.full(rest.head.load(Ordering::Relaxed)).is_some())
    }

    #[inline]
    fn has_unpopped(&self) -> bool {
        let (tail, head) = self.first.ends();
        tail != head && (tail != head | CLOSED || self.rest_has_unpopped())
    }

    #[cold]
    fn rest_has_unpopped(&self) -> bool {
        self.rest.get().is_some_and(|rest| {
            let (tail, head) = rest.ends();
            tail != head
        })
    }

    /// Appends a value to the other ring, if there is to be one; it is made now if it is not there. The first one is closed.
    #[cold]
    fn push_into_rest(&self, value: T) -> Result<(), Full<T>> {
        if self.capacity == 0 {
            return Err(Full(value));
        }
        let rest = self.rest.get_or_make(|| Ring::new(self.capacity));
        match rest.claim(Closes::Never) {
            Some((position, slot)) => {
                slot.fill(position, value);
                Ok(())
            }
            None => Err(Full(value)),
        }
    }
}

/// A sending end; clones send to the same queue. Values sent after the receiver is gone stay in the queue until it goes too.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Appends a value. Values of one thread stay in order.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn push(&self, value: T) -> Result<(), Full<T>> {
        let Shared { first, capacity, .. } = &*self.shared;
        let closes = if *capacity == 0 { Closes::Never } else { Closes::WhenFull };
        match first.claim(closes) {
            Some((position, slot)) => {
                slot.fill(position, value);
                Ok(())
            }
            None => self.shared.push_into_rest(value),
        }
    }

    /// Whether something is there to be popped: what a holder of the receiver looks at after giving it back.
    #[inline]
    pub fn pending(&self) -> bool {
        self.shared.pending()
    }

    /// Whether any push has begun whose value was not popped: among them all that this thread made. A value may be there that
    /// cannot be popped yet, because the push before it is still under way.
    #[inline]
    pub fn has_unpopped(&self) -> bool {
        self.shared.has_unpopped()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("pending", &self.pending()).finish()
    }
}

/// The receiving end.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Of the ring that it has come to.
    head: usize,
    /// The first ring is closed and empty.
    in_rest: bool,
}

impl<T> Receiver<T> {
    /// The oldest value, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let ring = if self.in_rest { self.shared.rest.get()? } else { &self.shared.first };
        let head = self.head;
        let Some(slot) = ring.full(head) else { return self.pop_behind_closed() };
        let value = ring.empty(slot, head);
        self.head = head.wrapping_add(STEP);
        Some(value)
    }

    /// The first value of the other ring, if everything was taken out of the first one, which is closed.
    fn pop_behind_closed(&mut self) -> Option<T> {
        // Invariant 4: once it is closed nothing comes behind what was taken.
        if self.in_rest || self.shared.first.tail.load(Ordering::Relaxed) != self.head | CLOSED {
            return None;
        }
        (self.in_rest, self.head) = (true, 0);
        self.pop()
    }

    /// Whether something is there to be popped.
    pub fn pending(&self) -> bool {
        self.shared.pending()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("pending", &self.pending()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::{Closes, Full, Mpsc, Receiver, Sender};

    #[test]
    fn what_was_pushed_is_unpopped_until_it_is_popped() {
        let (sender, mut receiver) = Mpsc::new(4);
        assert!(!sender.has_unpopped());
        sender.push(1).unwrap();
        assert!(sender.has_unpopped());
        receiver.pop();
        assert!(!sender.has_unpopped());
    }

    #[test]
    fn a_full_queue_gives_the_value_back() {
        let (sender, mut receiver) = Mpsc::new(4);
        for i in 0..4 {
            sender.push(i).unwrap();
        }
        assert_eq!(sender.push(4), Err(Full(4)));
        assert_eq!(receiver.pop(), Some(0));
        assert_eq!(sender.push(4), Ok(()));
        assert!(sender.pending());
        let rest: Vec<_> = core::iter::from_fn(|| receiver.pop()).collect();
        assert_eq!(rest, [1, 2, 3, 4]);
        assert!(!sender.pending() && !receiver.pending());
    }

    /// What a producer does that is taken off its CPU between claiming a slot and filling it.
    fn claims<T>(sender: &Sender<T>) -> usize {
        let claimed = sender.shared.first.claim(Closes::Never);
        claimed.expect("there is room").0
    }

    fn fills<T>(sender: &Sender<T>, position: usize, value: T) {
        sender.shared.first.slot(position).fill(position, value);
    }

    #[test]
    fn nobody_waits_for_a_producer_that_has_claimed_a_slot_and_not_filled_it() {
        let (sender, mut receiver) = Mpsc::new(2);
        let claimed = claims(&sender);
        assert_eq!(sender.push(1), Ok(()));
        assert!((sender.push(2), receiver.pop(), sender.pending()) == (Err(Full(2)), None, false));
        fills(&sender, claimed, 0);
        assert!(sender.pending());
        assert_eq!([receiver.pop(), receiver.pop(), receiver.pop()], [Some(0), Some(1), None]);
        assert_eq!((sender.push(2), receiver.pop()), (Ok(()), Some(2)));
    }

    #[test]
    fn a_queue_grows_past_a_slot_that_is_claimed_and_not_filled() {
        let (sender, mut receiver) = Mpsc::growing(2, 4);
        let claimed = claims(&sender);
        for i in 1..4 {
            assert_eq!(sender.push(i), Ok(()));
            assert_eq!(receiver.pop(), None, "the first one is not there yet");
        }
        fills(&sender, claimed, 0);
        let all: Vec<_> = core::iter::from_fn(|| receiver.pop()).collect();
        assert_eq!(all, [0, 1, 2, 3]);
    }

    #[test]
    fn a_queue_that_grew_keeps_its_order_and_is_bounded() {
        let (sender, mut receiver) = Mpsc::growing(2, 4);
        for i in 0..6 {
            sender.push(i).unwrap();
            assert!(sender.pending() && sender.has_unpopped());
        }
        assert_eq!(sender.push(6), Err(Full(6)));
        assert_eq!((receiver.pop(), receiver.pop(), sender.push(6)), (Some(0), Some(1), Err(Full(6))));
        for i in 2..40 {
            assert_eq!(receiver.pop(), Some(i));
            assert_eq!(sender.push(i + 4), Ok(()));
            assert!(sender.pending() && sender.has_unpopped());
        }
        let rest: Vec<_> = core::iter::from_fn(|| receiver.pop()).collect();
        assert_eq!(rest, [40, 41, 42, 43]);
        assert!(!sender.pending() && !sender.has_unpopped());
    }

    #[test]
    fn what_nobody_popped_of_a_queue_that_grew_is_dropped() {
        let value = Arc::new(());
        let (sender, receiver) = Mpsc::growing(2, 4);
        for _ in 0..5 {
            sender.push(Arc::clone(&value)).unwrap();
        }
        drop((sender, receiver));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn what_nobody_popped_is_dropped() {
        let value = Arc::new(());
        let (sender, mut receiver) = Mpsc::new(2);
        for _ in 0..3 {
            sender.push(Arc::clone(&value)).unwrap();
            drop(receiver.pop());
        }
        sender.push(Arc::clone(&value)).unwrap();
        drop(receiver);
        drop(sender);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        for queue in [Mpsc::new(64), Mpsc::growing(2, 64)] {
            arrives_whole(queue);
        }
    }

    /// A thread, and how many it has sent before.
    type Sent = (usize, u64);

    fn arrives_whole((sender, mut receiver): (Sender<Sent>, Receiver<Sent>)) {
        const EACH: u64 = 20_000;
        let mut last = [None; 2];
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let sender = sender.clone();
                scope.spawn(move || {
                    for i in 0..EACH {
                        while sender.push((thread, i)).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut received = 0;
            while received < 2 * EACH {
                match receiver.pop() {
                    Some((thread, i)) => {
                        let last: &mut Option<u64> = &mut last[thread];
                        assert_eq!(i, last.map_or(0, |last| last + 1));
                        *last = Some(i);
                        received += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
        assert_eq!(receiver.pop(), None);
    }

    proptest! {
        /// Against a queue from the standard library: same values, same refusals.
        #[test]
        fn behaves_like_a_bounded_deque(operations in prop::collection::vec(any::<Option<u8>>(), 0..200)) {
            let (sender, mut receiver) = Mpsc::new(8);
            let mut model = alloc::collections::VecDeque::new();
            for operation in operations {
                match operation {
                    Some(value) if model.len() < 8 => {
                        prop_assert_eq!(sender.push(value), Ok(()));
                        model.push_back(value);
                    }
                    Some(value) => prop_assert_eq!(sender.push(value), Err(Full(value))),
                    None => prop_assert_eq!(receiver.pop(), model.pop_front()),
                }
                prop_assert_eq!(sender.pending(), !model.is_empty());
            }
        }
    }
}
