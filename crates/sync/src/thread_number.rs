//! A small number for each thread, by which threads keep out of each other's lines.
//!
//! It is a hint. Threads have numbers of their own as long as no more than 64 that asked for one live at a time; nothing may
//! depend on it, for beyond that, and without a standard library, threads share numbers.

#[cfg(all(feature = "std", not(loom)))]
pub use imp::thread_number;

/// The number of this thread: without a standard library every thread has the same.
#[cfg(not(all(feature = "std", not(loom))))]
#[inline(always)]
pub const fn thread_number() -> usize {
    0
}

#[cfg(all(feature = "std", not(loom)))]
mod imp {
    use core::cell::Cell;
    use std::thread_local;

    use crate::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// Which of the first 64 numbers belong to threads that live.
    static IN_USE: AtomicU64 = AtomicU64::new(0);
    /// Numbers that were given out when all of those were in use.
    static FURTHER: AtomicUsize = AtomicUsize::new(OWN);

    thread_local! {
        /// Read on every call. It has no destructor, so that reading it is one instruction.
        static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
        /// Gives the number back when the thread ends.
        static HELD: Cell<Option<Held>> = const { Cell::new(None) };
    }

    /// One of the first 64 numbers, until dropped.
    struct Held(usize);

    impl Drop for Held {
        fn drop(&mut self) {
            // Nothing but the number itself is handed on.
            IN_USE.fetch_and(!(1 << self.0), Ordering::Relaxed);
        }
    }

    /// The number of this thread, the smallest that no other has; see the module for when two have the same.
    #[inline]
    pub fn thread_number() -> usize {
        match NUMBER.get() {
            UNKNOWN => ask(),
            number => number,
        }
    }

    #[cold]
    fn ask() -> usize {
        let free = |in_use: u64| in_use | in_use.wrapping_add(1);
        let claimed = IN_USE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |in_use| {
            (in_use != u64::MAX).then(|| free(in_use))
        });
        let number = match claimed {
            Ok(before) => {
                let number = before.trailing_ones() as usize;
                // A thread that is ending keeps its number; there are others.
                let _ = HELD.try_with(|held| held.set(Some(Held(number))));
                number
            }
            Err(_) => FURTHER.fetch_add(1, Ordering::Relaxed),
        };
        NUMBER.set(number);
        number
    }

    /// Of a thread that has not asked yet.
    const UNKNOWN: usize = usize::MAX;
    /// Numbers that threads have to themselves.
    const OWN: usize = 64;

    #[cfg(test)]
    mod tests {
        use std::sync::Barrier;
        use std::thread;
        use std::vec::Vec;

        use super::thread_number;

        #[test]
        fn threads_that_live_together_have_numbers_of_their_own_and_leave_them_to_others() {
            const THREADS: usize = 8;
            let round = || {
                let together = Barrier::new(THREADS);
                let ask = || {
                    let number = thread_number();
                    together.wait();
                    assert_eq!(thread_number(), number, "a thread keeps its number");
                    number
                };
                let mut numbers: Vec<usize> = thread::scope(|scope| {
                    let asked: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
                    asked.into_iter().map(|thread| thread.join().unwrap()).collect()
                });
                numbers.sort_unstable();
                numbers.dedup();
                assert_eq!(numbers.len(), THREADS);
                numbers
            };
            // Without giving back, the numbers of 16 rounds would not fit below 64.
            for _ in 0..16 {
                assert!(round().iter().all(|number| *number < 64));
            }
        }
    }
}
