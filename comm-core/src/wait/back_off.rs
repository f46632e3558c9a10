//! Waiting for a lock that another thread holds for a moment: the waiting thread first yields, then sleeps.
//!
//! A yield lets threads of the same or a higher scheduling class run, and no others. A real-time thread that only yields would therefore
//! starve an ordinary lock holder on its own CPU. So every loop that waits for a step of another thread pauses with [`BackOff::pause`],
//! which also sleeps.

use core::time::Duration;

use crate::executor::Executor;
use crate::time::Nanos;

/// Number of yields before each sleep. They suffice for a lock holder of the same class.
pub(crate) const YIELDS: u32 = 4;
/// Length of the first sleep, about the cost of falling asleep and waking up.
pub(crate) const SHORTEST: Nanos = Nanos::from_micros(50);
/// Length of the longest sleep. It limits the delay if the lock holder needs many time slices.
pub(crate) const LONGEST: Nanos = Nanos::from_millis(2);

/// The pauses of one wait.
#[derive(Debug)]
pub struct BackOff {
    /// Number of yields since the wait began, or since the last sleep.
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

    /// Lets other threads run: yields [`YIELDS`] times, then sleeps once, and so on. Each sleep is twice as long as the previous one, up to
    /// [`LONGEST`]. The yields are repeated after each sleep, because a single attempt would often miss a lock that is free only for short
    /// moments.
    #[cold]
    pub(crate) fn pause(&mut self, executor: &impl Executor) {
        let span = self.next_sleep;
        self.pause_by(|| executor.yield_now(), |_| executor.back_off(span));
    }

    /// Pauses like a thread that has an executor: yields a few times by `yield_now`, then sleeps once, and so on.
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

    /// Number of pauses after which a test considers the wait endless.
    const ENDLESS: usize = 10_000;

    /// A real-time thread whose lock holder is an ordinary thread on the same CPU, and therefore runs only while this thread sleeps. The
    /// closure `holder` is the work of the holder in its first time slice.
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

        /// Returns whether the thread has slept, so that the holder has run.
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
            unreachable!("this test has no wake-up words")
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
            unreachable!("this test has no channels")
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
