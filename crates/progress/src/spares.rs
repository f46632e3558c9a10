//! Calls that may block: who takes the duty over while the engine's thread is in one (PIOMan, section 3.2).
//!
//! The paper wakes a spare kernel thread of low priority before each such call; it does not run as long as the call does not
//! block. Here a timer is set before the call and taken back after it, and spares wait for the timer: a call that does not block
//! wakes nobody.
//!
//! # Invariants
//! 1. The timer runs only while a call under way may not have been taken over, or once everybody is dismissed.

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

/// A call that takes longer than this has blocked: some times what it costs to wake a spare, and far below what peers notice.
pub const BLOCKS_AFTER: Duration = Duration::from_micros(100);
/// Spares of one manager, at most: one more than calls that may have blocked at once without a loss.
pub const MAX_SPARES: usize = 4;

thread_local! {
    /// The manager whose duty this thread has left for the moment, to run tasklets: its address.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Starts a thread that runs [`Post::stand_in`](crate::Post::stand_in). Returns whether it did.
pub type Hire = Box<dyn Fn() -> bool + Send + Sync>;

/// See the module.
pub(crate) struct Spares {
    timer: TimerFd,
    /// Everybody shall end.
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
        // No code of others runs under it.
        self.dismissed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until somebody is needed. Returns whether the caller is dismissed.
    pub(crate) fn wait(&self) -> bool {
        // Interrupted by a signal, it is as if somebody were needed: the caller looks.
        let _woken = self.timer.wait();
        let dismissed = *self.dismissed();
        if dismissed {
            // One read takes the event from all others.
            self.fire();
        }
        dismissed
    }

    fn fire(&self) {
        self.set(Duration::from_nanos(1));
    }

    fn set(&self, after: Duration) {
        // It fails for spans that are none.
        let _set =
            self.timer.set(Expiration::OneShot(TimeSpec::from_duration(after)), TimerSetTimeFlags::empty());
    }

    /// One spare for each call that may block, up to the bound.
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

/// A call under way that may block.
struct Section<'a>(&'a Shared);

impl<'a> Section<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.spares.handover.begins(|needed| shared.spares.hire(needed), shared);
        Self(shared)
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        self.0.spares.handover.ends(self.0);
    }
}

/// The thread has left its duty: what it calls may block.
pub(crate) fn off_duty<T>(shared: &Shared, run: impl FnOnce() -> T) -> T {
    let before = LEFT.replace(core::ptr::from_ref(shared).addr());
    let result = run();
    LEFT.set(before);
    result
}

impl Manager {
    /// Makes a call that may block. Within a tasklet that the engine's thread runs, a spare thread takes the duty over if the
    /// call takes longer than [`BLOCKS_AFTER`], and gives it back when the thread has returned from its tasklet; a call that does not
    /// block wakes nobody and costs two system calls. Anywhere else it is just made: within a poll nobody can take over, and other
    /// threads have no duty.
    pub fn may_block<T>(&self, call: impl FnOnce() -> T) -> T {
        if LEFT.get() != core::ptr::from_ref(&*self.0).addr() || self.0.spares.hire.get().is_none() {
            return call();
        }
        self.0.reports.blocking.add(1);
        let _section = Section::begin(&self.0);
        call()
    }

    /// Says how spares are started: the first one when a call is made that may block. Only the first word counts.
    pub fn spares(&self, hire: Hire) {
        let _first = self.0.spares.hire.set(hire);
    }

    /// Whether a thread is in a call that may block, and may never come back.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.0.spares.handover.is_blocked()
    }

    /// Ends the spares: those on duty when their keeper stops, all others at once.
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
