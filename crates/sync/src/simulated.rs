//! Switch points of simulated threads, which exist with `--cfg simulated`.
//!
//! A thread of the simulation [`join`]s with the functions of its scheduler. From then on each operation on an atomic counts down,
//! and the last one of a count calls the scheduler, which may run other simulated threads before it returns. A thread that has not
//! joined is not affected.
//!
//! The scheduler runs one simulated thread at a time, so that the simulation sees every interleaving as sequentially consistent.
//! Weaker orderings are explored by loom.

use core::cell::Cell;
use std::thread_local;

/// The functions of a scheduler, which are called on the simulated thread.
#[derive(Clone, Copy, Debug)]
pub struct Scheduler {
    /// Called at the last operation of a count. Returns the next count, which is at least 1.
    pub at_point: fn() -> u32,
    /// Called by a thread that spins: another thread should run.
    pub at_pause: fn(),
}

thread_local! {
    /// Number of operations until the scheduler is called; 0 if it is not called.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    static SCHEDULER: Cell<Option<Scheduler>> = const { Cell::new(None) };
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Makes the calling thread a simulated one, whose [`thread_number`](crate::thread_number()) is `number`. It calls the scheduler
/// after the first [`resume`].
pub fn join(scheduler: Scheduler, number: usize) {
    SCHEDULER.set(Some(scheduler));
    NUMBER.set(number);
}

/// Makes the calling thread an ordinary one again.
pub fn leave() {
    LEFT.set(0);
    SCHEDULER.set(None);
}

/// Stops counting on this thread, and returns what is left of the count; 0 if it was not counting.
pub fn suspend() -> u32 {
    LEFT.replace(0)
}

/// Counts on this thread from `points`; 0 stops counting.
pub fn resume(points: u32) {
    LEFT.set(points);
}

/// Returns the number given to [`join`]; 0 for an ordinary thread.
pub fn number() -> usize {
    NUMBER.get()
}

/// Counts one operation: a switch point.
#[inline(always)]
pub fn point() {
    match LEFT.get() {
        0 => {}
        1 => reached(),
        left => LEFT.set(left - 1),
    }
}

/// Lets another thread run, if the calling thread is a simulated one that counts.
pub fn pause() {
    if LEFT.get() != 0
        && let Some(Scheduler { at_pause, .. }) = SCHEDULER.get()
    {
        at_pause();
    }
}

#[cold]
fn reached() {
    LEFT.set(0);
    if let Some(Scheduler { at_point, .. }) = SCHEDULER.get() {
        LEFT.set(at_point());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic::{AtomicU32, Ordering};

    thread_local! {
        static CALLS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }

    #[test]
    fn every_operation_of_a_joined_thread_counts() {
        let word = AtomicU32::new(0);
        let count = |from, operations| {
            let before = CALLS.get();
            resume(from);
            for _ in 0..operations {
                word.fetch_add(1, Ordering::Relaxed);
            }
            (CALLS.get().0 - before.0, suspend())
        };
        assert_eq!(count(0, 5), (0, 0), "an ordinary thread");
        let at_point = || {
            CALLS.set((CALLS.get().0 + 1, CALLS.get().1));
            3
        };
        let at_pause = || CALLS.set((CALLS.get().0, CALLS.get().1 + 1));
        join(Scheduler { at_point, at_pause }, 7);
        assert_eq!(number(), 7);
        assert_eq!(count(2, 1), (0, 1));
        assert_eq!(count(2, 6), (2, 2));
        resume(1);
        crate::hint::spin_loop();
        assert_eq!((CALLS.get().1, suspend()), (1, 1));
        leave();
        assert_eq!(count(0, 5), (0, 0));
    }
}
