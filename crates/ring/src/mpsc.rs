//! A bounded queue from many threads to whoever holds its receiving end.
//!
//! Each slot carries a sequence number. A producer claims a position by moving the tail, fills the slot and then numbers it
//! position + 1; the consumer empties the slot and numbers it position + capacity, for the next time round. Positions and
//! numbers wrap.
//!
//! # Invariants
//! 1. A slot numbered like its position is empty, and belongs to the producer who moves the tail over it.
//! 2. A slot numbered position + 1 is full, and belongs to the consumer.
//! 3. There is one [`Receiver`], and popping needs `&mut`.
#![expect(unsafe_code, reason = "the sequence numbers decide who may touch a slot")]

use alloc::boxed::Box;
use core::fmt;
use core::mem::MaybeUninit;

use pronto_sync::atomic::{AtomicUsize, Ordering};
use pronto_sync::cell::UnsafeCell;
use pronto_sync::{Arc, CachePadded, hint};
use thiserror::Error;

/// The smallest capacity: with one slot, full and empty for the next lap would bear the same number.
const MIN_CAPACITY: usize = 2;

/// The queue was full; here is the value back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the queue is full")]
pub struct Full<T>(pub T);

struct Slot<T> {
    sequence: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

struct Shared<T> {
    tail: CachePadded<AtomicUsize>,
    /// Written by the consumer alone; others read it to see whether something is pending.
    head: CachePadded<AtomicUsize>,
    slots: Box<[Slot<T>]>,
}

// SAFETY: invariants 1 to 3: a value is touched by one thread at a time, and moves from producer to consumer.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: nothing in it is bound to a thread but the values, which are Send.
unsafe impl<T: Send> Send for Shared<T> {}

/// Makes bounded queues.
#[derive(Debug)]
pub struct Mpsc;

impl Mpsc {
    /// A queue for `capacity` values, rounded up to a power of two.
    #[expect(clippy::new_ret_no_self, reason = "a queue is nothing but its two ends")]
    pub fn new<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        let slots = (0..capacity.max(MIN_CAPACITY).next_power_of_two())
            .map(|i| Slot { sequence: AtomicUsize::new(i), value: UnsafeCell::new(MaybeUninit::uninit()) })
            .collect();
        let shared = Arc::new(Shared {
            tail: CachePadded::new(AtomicUsize::new(0)),
            head: CachePadded::new(AtomicUsize::new(0)),
            slots,
        });
        (Sender { shared: Arc::clone(&shared) }, Receiver { shared, head: 0 })
    }
}

impl<T> Shared<T> {
    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots[position & (self.slots.len() - 1)]
    }

    /// Whether a value lies at the head, ready to be popped. A value whose producer is still filling its slot does not count:
    /// that producer is yet to come and look after it.
    fn pending(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        self.slot(head).sequence.load(Ordering::Acquire) == head.wrapping_add(1)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let mut head = self.head.load(Ordering::Relaxed);
        while take(self, head).is_some() {
            head = head.wrapping_add(1);
        }
    }
}

/// Empties the slot at `head`, if it is full. Caller: invariant 3, and `head` is the position of the consumer.
fn take<T>(shared: &Shared<T>, head: usize) -> Option<T> {
    let slot = shared.slot(head);
    // SYNC: Acquire sees the value; pairs with the store in push.
    if slot.sequence.load(Ordering::Acquire) != head.wrapping_add(1) {
        return None;
    }
    // SAFETY: invariant 2: the slot is full, and the one consumer reads it once before numbering it anew.
    let value = slot.value.with(|value| unsafe { value.cast::<T>().read() });
    // SYNC: gives the slot back; pairs with the load in push.
    slot.sequence.store(head.wrapping_add(shared.slots.len()), Ordering::Release);
    Some(value)
}

/// A sending end; clones send to the same queue. Values sent after the receiver is gone stay in the queue until it goes too.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Appends a value. Values of one thread stay in order.
    pub fn push(&self, value: T) -> Result<(), Full<T>> {
        let mut tail = self.shared.tail.load(Ordering::Relaxed);
        loop {
            let slot = self.shared.slot(tail);
            // SYNC: Acquire sees the slot emptied; pairs with the store in take.
            let sequence = slot.sequence.load(Ordering::Acquire);
            if sequence == tail {
                let next = tail.wrapping_add(1);
                match self.shared.tail.compare_exchange_weak(tail, next, Ordering::Relaxed, Ordering::Relaxed)
                {
                    Ok(_) => {
                        // SAFETY: invariant 1: the slot is empty and the position is ours.
                        slot.value.with_mut(|place| unsafe { place.cast::<T>().write(value) });
                        // SYNC: publishes the value; pairs with the load in take and in pending.
                        slot.sequence.store(next, Ordering::Release);
                        return Ok(());
                    }
                    Err(moved) => tail = moved,
                }
            } else if sequence == tail.wrapping_sub(self.shared.slots.len()).wrapping_add(1) {
                return Err(Full(value));
            } else {
                // Another producer moved the tail since it was read.
                hint::spin_loop();
                tail = self.shared.tail.load(Ordering::Relaxed);
            }
        }
    }

    /// Whether something is there to be popped: what a holder of the receiver looks at after giving it back.
    pub fn pending(&self) -> bool {
        self.shared.pending()
    }

    /// Whether any push has begun whose value was not popped: among them all that this thread made. A value may be there that
    /// cannot be popped yet, because the push before it is still under way.
    pub fn has_unpopped(&self) -> bool {
        self.shared.tail.load(Ordering::Relaxed) != self.shared.head.load(Ordering::Relaxed)
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
    head: usize,
}

impl<T> Receiver<T> {
    /// The oldest value, if there is one.
    pub fn pop(&mut self) -> Option<T> {
        let value = take(&self.shared, self.head)?;
        self.head = self.head.wrapping_add(1);
        self.shared.head.store(self.head, Ordering::Relaxed);
        Some(value)
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

    use super::{Full, Mpsc};

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
        const EACH: u64 = 20_000;
        let (sender, mut receiver) = Mpsc::new(64);
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
