//! Switch points: the places at which another simulated thread may run.
//!
//! With `--cfg simulated` every operation on an atomic of `pronto_sync` is one, and counts down. Without it only the calls into the
//! simulated world are.

use core::cell::Cell;

use super::scheduler;

/// Number of operations that a call into the world stands for, where atomics do not count.
#[cfg(not(simulated))]
const PER_CALL: u32 = 24;

thread_local! {
    /// Number of values of [`Quiet`] on this thread.
    static QUIET: Cell<u32> = const { Cell::new(0) };
    /// The count that this thread was last given.
    static GIVEN: Cell<u32> = const { Cell::new(0) };
    /// The rest of it, where atomics do not count.
    #[cfg(not(simulated))]
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

#[cfg(simulated)]
use pronto_sync::simulated as counter;
#[cfg(not(simulated))]
mod counter {
    pub(super) fn suspend() -> u32 {
        super::LEFT.replace(0)
    }

    pub(super) fn resume(points: u32) {
        super::LEFT.set(points);
    }
}

/// A span of code in which the calling thread is not switched.
#[derive(Debug)]
pub(crate) struct Quiet {
    left: u32,
}

impl Quiet {
    pub(crate) fn new() -> Self {
        QUIET.set(QUIET.get() + 1);
        Self { left: counter::suspend() }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        QUIET.set(QUIET.get() - 1);
        counter::resume(self.left);
    }
}

/// Makes the calling thread a simulated one.
pub(super) fn join(number: usize) {
    #[cfg(simulated)]
    {
        let at_point = || scheduler::switch(scheduler::Why::Point);
        let at_pause = || {
            scheduler::switch(scheduler::Why::Yield);
        };
        counter::join(counter::Scheduler { at_point, at_pause }, number);
    }
    #[cfg(not(simulated))]
    let _ = number;
}

/// Makes the calling thread an ordinary one.
pub(super) fn leave() {
    #[cfg(simulated)]
    counter::leave();
    counter::resume(0);
}

/// Returns whether the calling thread must not be switched now.
pub(super) fn is_quiet() -> bool {
    QUIET.get() != 0
}

/// Stops counting. Returns the number of operations since the count was given.
pub(super) fn stop() -> u32 {
    GIVEN.get() - counter::suspend().min(GIVEN.get())
}

/// Gives the calling thread a new count.
pub(super) fn give(points: u32) {
    GIVEN.set(points);
    counter::resume(points);
}

/// A switch point that is a call into the world.
pub(crate) fn point() {
    #[cfg(simulated)]
    counter::point();
    #[cfg(not(simulated))]
    match LEFT.get() {
        0 => {}
        left if left > PER_CALL => LEFT.set(left - PER_CALL),
        _ => {
            scheduler::switch(scheduler::Why::Point);
        }
    }
}
