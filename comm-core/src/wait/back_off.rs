//! Waiting for a lock that another thread holds for a moment: yields first, then sleeps.
//!
//! A yield lets threads of the same or a higher scheduling class run, and no others. A real-time thread that waits for an ordinary
//! thread on its own CPU would therefore keep that thread from running for as long as it waits. So every loop that waits for another
//! thread's step pauses by [`BackOff::pause`], which sleeps in between.

use core::time::Duration;

use crate::executor::Executor;
use crate::time::Nanos;

/// Yields before each sleep. They suffice for a lock holder of the same class.
pub(crate) const YIELDS: u32 = 4;
/// Length of the first sleep: about what falling asleep and waking up cost.
pub(crate) const SHORTEST: Nanos = Nanos::from_micros(50);
/// Length of the longest sleep: the delay that a thread accepts whose lock holder needs many time slices.
pub(crate) const LONGEST: Nanos = Nanos::from_millis(2);

/// The pauses of one wait.
#[derive(Debug)]
pub struct BackOff {
    /// Yields since the wait began, or since the last sleep.
    yields: u32,
    next_sleep: Nanos,
}

impl Default for BackOff {
    fn default() -> Self {
        Self { yields: 0, next_sleep: SHORTEST }
    }
}

impl BackOff {
    /// Returns whether the thread has paused.
    pub(crate) fn has_begun(&self) -> bool {
        self.yields != 0 || self.next_sleep != SHORTEST
    }

    /// Lets other threads run: yields [`YIELDS`] times, then sleeps once, and so on. Each sleep is twice as long as the one before, up to
    /// [`LONGEST`]. The yields come again after each sleep, because a lock that is free for short moments only is missed by a thread
    /// that tries once after a sleep.
    #[cold]
    pub(crate) fn pause(&mut self, executor: &impl Executor) {
        let span = self.next_sleep;
        self.pause_by(|| executor.yield_now(), |_| executor.back_off(span));
    }

    /// Pauses as [`Self::pause`] does, for a thread without an executor.
    #[cold]
    pub fn pause_by(&mut self, yield_now: impl FnOnce(), sleep: impl FnOnce(Duration)) {
        if self.yields < YIELDS {
            self.yields += 1;
            return yield_now();
        }
        self.yields = 0;
        sleep(Duration::from_nanos(self.next_sleep.0));
        self.next_sleep = Nanos(self.next_sleep.0 * 2).min(LONGEST);
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests {
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use std::sync::{Mutex, MutexGuard};

    use pronto_sync::atomic::AtomicU32;

    use super::*;
    use crate::executor::{ASLEEP, Channels, Circumstances, WaitPolicy};
    use crate::time::Clock;

    /// Pauses after which a wait counts as endless.
    const ENDLESS: usize = 10_000;

    /// A real-time thread whose lock holder is an ordinary thread of the same CPU: the holder runs while this thread sleeps, and only
    /// then. `holder` is what it does in its first time slice.
    pub(crate) struct RealTime<'a>(Mutex<Pauses<'a>>);

    struct Pauses<'a> {
        holder: Option<Box<dyn FnOnce() + Send + 'a>>,
        sleeps: Vec<Nanos>,
        yields: usize,
    }

    impl<'a> RealTime<'a> {
        pub(crate) fn with(holder: impl FnOnce() + Send + 'a) -> Self {
            Self(Mutex::new(Pauses { holder: Some(Box::new(holder)), sleeps: Vec::new(), yields: 0 }))
        }

        fn pauses(&self) -> MutexGuard<'_, Pauses<'a>> {
            self.0.lock().expect("the test has failed")
        }

        /// Returns whether the holder has run: the wait that the test is about took place.
        pub(crate) fn has_slept(&self) -> bool {
            self.pauses().holder.is_none()
        }
    }

    impl Clock for RealTime<'_> {
        fn now(&self) -> Nanos {
            self.pauses().sleeps.iter().fold(Nanos::ZERO, |now, span| now + *span)
        }
    }

    impl Executor for RealTime<'_> {
        fn circumstances(&self, _: WaitPolicy) -> Circumstances {
            ASLEEP
        }

        fn sleep(&self, _: &AtomicU32, _: Nanos) {
            unreachable!("nothing has a word here")
        }

        fn wake(&self, _: &AtomicU32) {}

        fn yield_now(&self) {
            let mut pauses = self.pauses();
            pauses.yields += 1;
            assert!(pauses.yields < ENDLESS, "yields alone let no ordinary thread run");
        }

        fn back_off(&self, span: Nanos) {
            let mut pauses = self.pauses();
            pauses.sleeps.push(span);
            if let Some(holder) = pauses.holder.take() {
                holder();
            }
        }

        fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
            unreachable!("nothing has a channel here")
        }
    }

    #[test]
    fn sleeps_follow_the_yields_and_grow_to_the_longest() {
        let thread = RealTime::with(|| ());
        let mut back_off = BackOff::default();
        for _ in 0..8 * (YIELDS + 1) {
            back_off.pause(&thread);
        }
        let micros: Vec<_> = thread.pauses().sleeps.iter().map(|span| span.0 / 1000).collect();
        assert_eq!(micros, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(thread.pauses().yields, 8 * YIELDS as usize);
    }
}
