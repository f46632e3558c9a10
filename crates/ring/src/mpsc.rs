//! A bounded queue from many threads to the holder of its receiving end.
//!
//! Each slot has a sequence number. A producer claims a position by moving the tail, fills the slot and then sets its number
//! to position + 1. The consumer empties the slot and sets its number to position + 2 x capacity, for the next lap. Positions
//! are even; positions and numbers wrap.
//!
//! A queue may begin with few slots, as most queues never need more. A producer that finds this first ring full closes it by
//! setting a bit of its tail. All later values go to a second ring, which is allocated at that time. The consumer moves to the
//! second ring after it has taken the last value out of the first.
//!
//! # Invariants
//! 1. A slot whose number equals its position is empty, and belongs to the producer that moves the tail over it.
//! 2. A slot numbered position + 1 is full, and belongs to the consumer.
//! 3. There is one [`Receiver`], and popping needs `&mut`.
//! 4. A closed tail never moves.
//! 5. No thread waits for a producer that has claimed a slot and not filled it: the consumer finds no value, and producers no room.
#![expect(unsafe_code, reason = "the sequence numbers decide which thread may access a slot")]

use alloc::boxed::Box;
use core::fmt;
use core::mem::MaybeUninit;

use pronto_sync::atomic::{AtomicUsize, Ordering};
use pronto_sync::cell::UnsafeCell;
use pronto_sync::{Arc, CachePadded, OnceBox, hint};
use thiserror::Error;

/// Distance from a position to the next.
const STEP: usize = 2;
/// The bit of a tail that marks the ring as closed: no value is pushed there any more.
const CLOSED: usize = 1;

/// An error that returns the value, because the queue was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the queue is full")]
pub struct Full<T>(pub T);

struct Slot<T> {
    sequence: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// A ring of slots.
struct Ring<T> {
    tail: CachePadded<AtomicUsize>,
    /// The consumer's position. Only the consumer writes it; other threads read it to check whether a value is pending.
    head: CachePadded<AtomicUsize>,
    slots: Box<[Slot<T>]>,
}

struct Shared<T> {
    first: Ring<T>,
    /// The second ring, for values that are pushed after the first is closed.
    rest: OnceBox<Ring<T>>,
    /// Capacity of the second ring; 0 if there is only the first.
    capacity: usize,
}

// SAFETY: invariants 1 to 3: one thread at a time accesses a value, which moves from producer to consumer.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: only the values could be bound to a thread, and they are Send.
unsafe impl<T: Send> Send for Ring<T> {}

/// The constructors of bounded queues.
#[derive(Debug)]
pub struct Mpsc;

impl Mpsc {
    /// Returns the ends of a queue for `capacity` values, rounded up to a power of two.
    #[expect(clippy::new_ret_no_self, reason = "a queue consists of its two ends")]
    pub fn new<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        Self::growing(capacity, 0)
    }

    /// Returns the ends of a queue with room for `few` values at first. The first push that finds no room allocates room for
    /// `capacity` further values, which the queue keeps. Both numbers are rounded up to powers of two.
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

    /// Returns the distance of positions in one lap.
    fn lap(&self) -> usize {
        self.slots.len() * STEP
    }

    /// Returns tail and head.
    fn ends(&self) -> (usize, usize) {
        (self.tail.load(Ordering::Relaxed), self.head.load(Ordering::Relaxed))
    }

    /// Claims the next position, if the ring is open and has room. If an open ring has no room, closes it if `closes` says so.
    #[inline]
    fn claim(&self, closes: Closes) -> Option<(usize, &Slot<T>)> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            if tail & CLOSED != 0 {
                return None;
            }
            // SYNC: Acquire sees the slot emptied; pairs with the store in empty.
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

    /// Returns whether a value of the previous lap occupies the slot at `tail`, or will: its producer may not have filled the slot yet.
    /// In both cases the ring has no room. A producer that waited here for the other one might keep it from the CPU.
    fn is_taken(&self, sequence: usize, tail: usize) -> bool {
        sequence.wrapping_sub(tail.wrapping_sub(self.lap())) <= 1
    }

    /// Returns the slot at `head`, if it is full.
    #[inline(always)]
    fn full(&self, head: usize) -> Option<&Slot<T>> {
        let slot = self.slot(head);
        // SYNC: Acquire sees the value; pairs with the store in fill.
        (slot.sequence.load(Ordering::Acquire) == head.wrapping_add(1)).then_some(slot)
    }

    /// Takes the value out of the full slot at `head`. The caller ensures invariant 3, and `head` is the position of the consumer.
    #[inline(always)]
    fn empty(&self, slot: &Slot<T>, head: usize) -> T {
        // SAFETY: invariant 2: the slot is full, and the one consumer reads it once before it changes the slot's number.
        let value = slot.value.with(|value| unsafe { value.cast::<T>().read() });
        // SYNC: releases the slot; pairs with the load in claim.
        slot.sequence.store(head.wrapping_add(self.lap()), Ordering::Release);
        self.head.store(head.wrapping_add(STEP), Ordering::Relaxed);
        value
    }
}

impl<T> Slot<T> {
    /// Fills the slot at a position that the caller has claimed.
    #[inline(always)]
    fn fill(&self, position: usize, value: T) {
        // SAFETY: invariant 1: the slot is empty, and the caller has claimed the position.
        self.value.with_mut(|place| unsafe { place.cast::<T>().write(value) });
        // SYNC: publishes the value; pairs with the load in full.
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

/// A choice whether [`Ring::claim`] closes a ring without room.
#[derive(Clone, Copy)]
enum Closes {
    Never,
    WhenFull,
}

impl<T> Shared<T> {
    /// Returns whether the value at the head can be popped. A value whose producer is still filling its slot does not count, as that
    /// producer will check for pending work itself afterwards.
    #[inline]
    fn pending(&self) -> bool {
        let (tail, head) = self.first.ends();
        // A published value is behind the tail, which its producer has moved before.
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

    /// Appends a value to the second ring, if the queue may have one. Allocates it if needed. The first ring is closed.
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

/// A sending end. Clones send to the same queue. Values that are sent after the receiver was dropped stay in the queue until the queue is
/// dropped, too.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Appends a value. Values of one thread stay in order.
    ///
    /// # Errors
    /// If there is no room for the value, which the error returns.
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

    /// Returns whether a value can be popped. A thread that has stopped receiving uses this to recheck.
    #[inline]
    pub fn pending(&self) -> bool {
        self.shared.pending()
    }

    /// Returns whether any push has begun whose value was not popped yet, including all pushes of this thread. Such a value cannot be
    /// popped while the push before it is still in progress.
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
    /// Position in the current ring.
    head: usize,
    /// True if the second ring is the current one: the first ring is closed and empty.
    in_rest: bool,
}

impl<T> Receiver<T> {
    /// Removes and returns the oldest value, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let ring = if self.in_rest { self.shared.rest.get()? } else { &self.shared.first };
        let head = self.head;
        let Some(slot) = ring.full(head) else { return self.pop_behind_closed() };
        let value = ring.empty(slot, head);
        self.head = head.wrapping_add(STEP);
        Some(value)
    }

    /// Moves to the second ring and pops its first value, if the first ring is closed and empty.
    fn pop_behind_closed(&mut self) -> Option<T> {
        // Invariant 4: no value can follow in a closed ring.
        if self.in_rest || self.shared.first.tail.load(Ordering::Relaxed) != self.head | CLOSED {
            return None;
        }
        (self.in_rest, self.head) = (true, 0);
        self.pop()
    }

    /// Returns whether a value can be popped.
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
    fn a_pushed_value_counts_as_unpopped_until_it_is_popped() {
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

    /// Claims a slot without filling it, like a producer that is preempted in between.
    fn claims<T>(sender: &Sender<T>) -> usize {
        let claimed = sender.shared.first.claim(Closes::Never);
        claimed.expect("there is room").0
    }

    fn fills<T>(sender: &Sender<T>, position: usize, value: T) {
        sender.shared.first.slot(position).fill(position, value);
    }

    #[test]
    fn no_thread_waits_for_a_producer_that_has_claimed_a_slot_and_not_filled_it() {
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
            assert_eq!(receiver.pop(), None, "the first value is not filled in yet");
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
    fn unpopped_values_of_a_queue_that_grew_are_dropped() {
        let value = Arc::new(());
        let (sender, receiver) = Mpsc::growing(2, 4);
        for _ in 0..5 {
            sender.push(Arc::clone(&value)).unwrap();
        }
        drop((sender, receiver));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn unpopped_values_are_dropped() {
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

    /// A thread's number, and the number of values that it sent before.
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
        /// Compares with a queue of the standard library: both give the same values and the same refusals.
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
