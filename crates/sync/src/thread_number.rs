//! A small number for each thread, which keeps threads off each other's cache lines.
//!
//! The number is a hint. It is unique while at most 64 threads that asked for a number are alive. Otherwise, and without a
//! standard library, threads share numbers, so that no code may depend on unique ones.

#[cfg(all(feature = "std", not(any(loom, simulated))))]
pub use imp::thread_number;

#[cfg(simulated)]
pub use crate::simulated::number as thread_number;

/// Returns the number of this thread. Without a standard library it is the same for every thread.
#[cfg(not(any(all(feature = "std", not(loom)), simulated)))]
#[inline(always)]
pub const fn thread_number() -> usize {
    0
}

#[cfg(all(feature = "std", not(any(loom, simulated))))]
mod imp {
    use core::cell::Cell;
    use std::thread_local;

    use crate::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// Bit set of those of the first 64 numbers that belong to live threads.
    static IN_USE: AtomicU64 = AtomicU64::new(0);
    /// The next number for a thread that finds the first 64 in use.
    static FURTHER: AtomicUsize = AtomicUsize::new(OWN);

    thread_local! {
        /// The number, read on every call. It has no destructor, so that reading it is one instruction.
        static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
        /// The guard that releases the number when the thread ends.
        static HELD: Cell<Option<Held>> = const { Cell::new(None) };
    }

    /// One of the first 64 numbers, until dropped.
    struct Held(usize);

    impl Drop for Held {
        fn drop(&mut self) {
            // Only the number itself passes to the next thread.
            IN_USE.fetch_and(!(1 << self.0), Ordering::Relaxed);
        }
    }

    /// Returns the number of this thread: the smallest free one when the thread first called this. While more than 64 threads with
    /// numbers are alive, two threads can have the same number.
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
                // A thread that is ending cannot store the guard. Its number is then never released.
                let _ = HELD.try_with(|held| held.set(Some(Held(number))));
                number
            }
            Err(_) => FURTHER.fetch_add(1, Ordering::Relaxed),
        };
        NUMBER.set(number);
        number
    }

    /// The value of a thread that has not asked for its number yet.
    const UNKNOWN: usize = usize::MAX;
    /// Count of unique numbers.
    const OWN: usize = 64;

    #[cfg(test)]
    mod tests {
        use std::sync::Barrier;
        use std::thread;
        use std::vec::Vec;

        use super::thread_number;

        #[test]
        fn live_threads_have_unique_numbers_and_release_them() {
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
            // If threads did not release their numbers, those of 16 rounds would not fit below 64.
            for _ in 0..16 {
                assert!(round().iter().all(|number| *number < 64));
            }
        }
    }
}
