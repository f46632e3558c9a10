//! Spare threads, which take over the duty while the engine thread is in a call that blocks (PIOMan, section 3.2).
//!
//! The paper wakes a spare kernel thread of low priority before each such call. That thread does not run unless the call blocks.
//! Here a timer is set before the call and cancelled after it, and the spares wait for the timer. A call that does not block
//! therefore wakes no thread.
//!
//! # Invariants
//! 1. The timer runs only while there is a call for which no spare may have taken over yet, or after the spares were dismissed.

use core::cell::Cell;
use core::time::Duration;
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use pronto_sync::atomic::{AtomicUsize, Ordering};

use crate::handover::{Handover, Signals};
use crate::manager::{Manager, Shared};

/// Time after which a call counts as blocked: several times the cost of waking a spare, and far below a delay that peers notice.
pub const BLOCKS_AFTER: Duration = Duration::from_micros(100);
/// Maximum number of spares of one manager. One more than the number of calls that can block at the same time without a loss of
/// service.
pub const MAX_SPARES: usize = 4;

thread_local! {
    /// Address of the manager whose role this thread has released for the moment, to run tasklets.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Callback that starts a thread to run [`EngineThreads::run_spare`](crate::EngineThreads::run_spare), and returns whether it did.
pub type Hire = Box<dyn Fn() -> bool + Send + Sync>;

/// The spare threads of a manager and the timer that wakes them.
pub(crate) struct Spares {
    timer: TimerFd,
    /// All spares must end.
    dismissed: Mutex<bool>,
    pub(crate) handover: Handover,
    hired: AtomicUsize,
    hire: OnceLock<Hire>,
}

impl Spares {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?,
            dismissed: Mutex::new(false),
            handover: Handover::new(),
            hired: AtomicUsize::new(0),
            hire: OnceLock::new(),
        })
    }

    fn dismissed(&self) -> MutexGuard<'_, bool> {
        // No foreign code runs under this lock, so a poisoned one is consistent.
        self.dismissed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a spare is needed. Returns whether the caller is dismissed.
    pub(crate) fn wait(&self) -> bool {
        // A signal ends the wait early; the caller then checks whether a spare is needed.
        let _woken = self.timer.wait();
        let dismissed = *self.dismissed();
        if dismissed {
            // The read above consumed the event, so the timer is fired again for the next spare.
            self.fire();
        }
        dismissed
    }

    fn fire(&self) {
        self.set(Duration::from_nanos(1));
    }

    fn set(&self, after: Duration) {
        // Setting fails only for invalid spans.
        let _set =
            self.timer.set(Expiration::OneShot(TimeSpec::from_duration(after)), TimerSetTimeFlags::empty());
    }

    /// Starts a spare if there are fewer than `needed`, up to [`MAX_SPARES`].
    fn hire(&self, needed: usize) {
        let Some(hire) = self.hire.get() else { return };
        let hired = self.hired.load(Ordering::Relaxed);
        if hired < needed.min(MAX_SPARES)
            && self.hired.compare_exchange(hired, hired + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && !hire()
        {
            self.hired.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Signals for Shared {
    fn set_timer(&self) {
        let dismissed = self.spares.dismissed();
        if !*dismissed {
            self.spares.set(BLOCKS_AFTER);
        }
    }

    fn unset_timer(&self) {
        let dismissed = self.spares.dismissed();
        if !*dismissed {
            let _unset = self.spares.timer.unset();
        }
    }

    fn ring(&self) {
        self.set.ring();
    }
}

/// Scope of a call that may block.
struct Section<'a>(&'a Shared);

impl<'a> Section<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.spares.handover.begin_call(|needed| shared.spares.hire(needed), shared);
        Self(shared)
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        self.0.spares.handover.end_call(self.0);
    }
}

/// Runs a function on a thread that has released the role, and marks it as able to use spares.
pub(crate) fn without_role<T>(shared: &Shared, run: impl FnOnce() -> T) -> T {
    let before = LEFT.replace(core::ptr::from_ref(shared).addr());
    let result = run();
    LEFT.set(before);
    result
}

impl Manager {
    /// Makes a call that may block. Within a tasklet of the role holder, a spare thread takes over if the call takes longer than
    /// [`BLOCKS_AFTER`], and returns the duty when the engine thread has finished its tasklets. A call that does not block wakes no
    /// thread and costs two system calls. Anywhere else the call is made directly: within a poll no spare can take over, and other
    /// threads have no duty.
    pub fn may_block<T>(&self, call: impl FnOnce() -> T) -> T {
        if LEFT.get() != core::ptr::from_ref(&*self.0).addr() || self.0.spares.hire.get().is_none() {
            return call();
        }
        self.0.reports.blocking.add(1);
        let _section = Section::begin(&self.0);
        call()
    }

    /// Sets the callback that starts spares, the first one at the first call that may block. Later calls of this function have no
    /// effect.
    pub fn spares(&self, hire: Hire) {
        let _first = self.0.spares.hire.set(hire);
    }

    /// Returns whether a thread is in a call that may block, and might never return.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.0.spares.handover.is_blocked()
    }

    /// Ends the spares. A spare that holds the role ends when its driver stops, all others end immediately.
    pub fn dismiss_spares(&self) {
        *self.0.spares.dismissed() = true;
        self.0.spares.fire();
    }
}

impl fmt::Debug for Spares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spares")
            .field("handover", &self.handover)
            .field("hired", &self.hired)
            .finish_non_exhaustive()
    }
}
