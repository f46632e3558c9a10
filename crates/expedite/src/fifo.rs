//! The `fifo` tier: a real-time class without the kernel module, and a budget that each thread keeps itself. Needs a privilege.
//!
//! Before each wait a thread raises itself if its budget covers a slice. While it works, it lowers itself once the budget is
//! spent. All time that it runs while raised is charged, by its own CPU-time clock. A thread cannot check its budget while a
//! handler runs; the guard lowers a thread whose handler runs too long.

use core::cell::RefCell;
use std::sync::Arc;

use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::gettid;
use pronto_core::boost::{BoostError, Booster, Tier};
use pronto_sched_policy::policy::boost::SLICE;
use pronto_sched_policy::policy::budget::{Budget, Cap, Terms};
use pronto_sched_policy::policy::caps::{THREAD, WINDOW};
use pronto_sched_policy::policy::time::Nanos;
use pronto_sync::atomic::{AtomicBool, Ordering};

use crate::guard::Guard;
use crate::schedule::{CALLER, Class, schedule};

/// Lowest real-time priority: threads that are real-time on purpose preempt these threads.
pub(crate) const PRIORITY: u8 = 1;

thread_local! {
    static METER: RefCell<Option<Metered>> = const { RefCell::new(None) };
}

/// Booster that makes threads real-time, each within a tenth of a CPU.
#[derive(Debug)]
pub(crate) struct Fifo {
    terms: Terms,
    guard: Guard,
}

/// State of an adopted thread, shared by the thread and the guard.
#[derive(Debug)]
pub(crate) struct Raised {
    pub(crate) thread: i32,
    /// Whether it is real-time now. The thread sets it before it raises itself and clears it after it has lowered itself; the guard
    /// only clears.
    pub(crate) is_raised: AtomicBool,
}

/// Private state of an adopted thread.
#[derive(Debug)]
struct Metered {
    meter: Meter,
    /// Whether the thread has raised itself and not lowered itself since. The guard may have lowered it meanwhile; the meter charges
    /// the time anyway.
    raised: bool,
    shared: Arc<Raised>,
}

/// The budget of a thread, and up to where it was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Meter {
    budget: Budget,
    /// CPU time of the thread.
    ran: Nanos,
}

/// Point at which a thread checks its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    BeforeWait,
    Worked,
}

impl Fifo {
    /// # Errors
    /// The guard thread cannot be started.
    pub(crate) fn start() -> Result<Self, Errno> {
        let terms = Terms::capped(Cap { share: THREAD, window: WINDOW }, SLICE);
        Ok(Self { terms, guard: Guard::start()? })
    }

    fn check(&self, moment: Moment) {
        METER.with_borrow_mut(|metered| {
            // Only adopted threads are raised.
            let Some(Metered { meter, raised, shared }) = metered else { return };
            *meter = meter.settled(&self.terms, *raised, cpu_time(), now());
            // SYNC: a hint; the kernel keeps the class itself.
            let is_raised = shared.is_raised.load(Ordering::Relaxed);
            let wanted = meter.wants(&self.terms, is_raised, moment);
            if wanted != is_raised {
                set(shared, wanted);
            }
            *raised = shared.is_raised.load(Ordering::Relaxed);
        });
    }
}

/// Raises or lowers the calling thread. If the kernel refuses, the class stays unchanged, and the next check tries again.
fn set(shared: &Raised, raised: bool) {
    let class = if raised { Class::Fifo(PRIORITY) } else { Class::Normal };
    if raised {
        shared.is_raised.store(true, Ordering::Relaxed);
    }
    let done = schedule(CALLER, class).is_ok();
    if raised != done {
        shared.is_raised.store(false, Ordering::Relaxed);
    }
}

impl Meter {
    fn new(terms: &Terms, ran: Nanos, now: Nanos) -> Self {
        Self { budget: Budget::new(terms, now), ran }
    }

    /// Returns the meter, charged for the time that the thread ran raised, and refilled.
    fn settled(self, terms: &Terms, was_raised: bool, ran: Nanos, now: Nanos) -> Self {
        let spent = if was_raised { ran.since(self.ran) } else { Nanos::ZERO };
        Self { budget: self.budget.charged(spent).refilled(terms, now), ran }
    }

    /// Returns whether the thread should be real-time from now on.
    fn wants(&self, terms: &Terms, is_raised: bool, moment: Moment) -> bool {
        match moment {
            Moment::BeforeWait => self.budget.allowance(terms).is_some(),
            Moment::Worked => is_raised && self.budget.left() > Nanos::ZERO,
        }
    }
}

impl Booster for Fifo {
    fn tier(&self) -> Tier {
        Tier::Fifo
    }

    fn adopt(&self) -> Result<(), BoostError> {
        let shared = Arc::new(Raised { thread: gettid().as_raw(), is_raised: AtomicBool::new(true) });
        schedule(CALLER, Class::Fifo(PRIORITY)).map_err(|errno| BoostError::System(errno as i32))?;
        self.guard.watch(&shared);
        let meter = Meter::new(&self.terms, cpu_time(), now());
        METER.set(Some(Metered { meter, raised: true, shared }));
        Ok(())
    }

    fn watch(&self, _: i32) -> Result<(), BoostError> {
        Ok(())
    }

    fn before_wait(&self) {
        self.check(Moment::BeforeWait);
    }

    fn worked(&self) {
        self.check(Moment::Worked);
    }
}

/// Returns the CPU time of the calling thread.
fn cpu_time() -> Nanos {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

pub(crate) fn now() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Returns the time of a clock; zero if the clock cannot be read, so that nothing is charged or refilled.
pub(crate) fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock).map_or(core::time::Duration::ZERO, core::time::Duration::from);
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        Terms::capped(Cap { share: THREAD, window: WINDOW }, SLICE)
    }

    #[test]
    fn a_thread_that_works_little_is_raised_before_every_wait() {
        let terms = terms();
        let mut meter = Meter::new(&terms, Nanos::ZERO, Nanos::ZERO);
        for message in 1..=1_000 {
            let (ran, now) = (Nanos::from_micros(30 * message), Nanos::from_millis(message));
            meter = meter.settled(&terms, true, ran, now);
            assert!(meter.wants(&terms, true, Moment::Worked), "message {message}: {meter:?}");
            assert!(meter.wants(&terms, true, Moment::BeforeWait), "message {message}: {meter:?}");
        }
    }

    /// Shows: operations.fifo
    #[test]
    fn a_thread_that_works_much_gets_no_more_than_its_cap() {
        let terms = terms();
        let (mut meter, mut raised, mut boosted) = (Meter::new(&terms, Nanos::ZERO, Nanos::ZERO), true, 0);
        for tenth_of_ms in 1..=10_000_u64 {
            boosted += u64::from(raised);
            let passed = Nanos::from_micros(100 * tenth_of_ms);
            meter = meter.settled(&terms, raised, passed, passed);
            raised = meter.wants(&terms, raised, Moment::Worked);
            raised = raised || meter.wants(&terms, raised, Moment::BeforeWait);
        }
        assert!((500..=1_050).contains(&boosted), "{boosted} of 10000 while raised");
    }

    #[test]
    fn a_spent_budget_lowers_at_work_and_does_not_raise_there() {
        let terms = terms();
        let meter = Meter::new(&terms, Nanos::ZERO, Nanos::ZERO);
        let spent = meter.settled(&terms, true, Nanos::from_millis(5), Nanos::from_millis(5));
        assert!(!spent.wants(&terms, true, Moment::Worked) && !spent.wants(&terms, true, Moment::BeforeWait));
        let later = spent.settled(&terms, false, Nanos::from_millis(6), Nanos::from_millis(500));
        assert!(
            !later.wants(&terms, false, Moment::Worked),
            "a lowered thread stays ordinary until its next wait"
        );
        assert!(later.wants(&terms, false, Moment::BeforeWait));
    }
}
