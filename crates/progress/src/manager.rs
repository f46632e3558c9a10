//! The shared half of a manager: registration, polls by any thread, wake-ups and tasklets.

use core::time::Duration;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use nix::errno::Errno;
use pronto_core::executor::Channels;
use pronto_core::{Clock, Nanos};
use pronto_sched_policy::policy::spin;
use pronto_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use pronto_sync::{TryLock, TryLockGuard, WakeWord};
use thiserror::Error;

use crate::busy_poll::{self, BusyPoll, BusyPollError};
use crate::group::Group;
use crate::poller::{Change, Poller, Slot};
use crate::reports::{Counters, Failure, Reports};
use crate::resting::{Announcement, Resting, Rouse};
use crate::sleep_set::{SleepSet, Watch};
use crate::source::{Source, Spec, Trigger, Triggers};
use crate::spares::Spares;
use crate::tasklet::{Kind, KindShared};

/// Minimum interval between two checks of the sources that cost a system call while the engine polls: PIOMan's granularity of
/// idle polling.
pub const GROUP_INTERVAL: Nanos = Nanos(spin::IDLE_GRANULARITY.0);
/// Maximum number of sources of one manager.
pub const MAX_SOURCES: usize = 65_536;
/// Maximum number of tasklet kinds of one manager.
pub const MAX_KINDS: usize = 256;

/// Thread that polls when no thread of the program does: one of the paper's three builds (section 3), chosen at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// No thread. Sources are polled only when threads of the program wait or yield.
    None,
    /// A thread that wakes once per period and polls, regardless of events.
    Timer(Nanos),
    /// A thread that polls while its driver lets it, and otherwise sleeps on all sources.
    #[default]
    Idle,
}

/// The manager: registers sources, lets any thread poll them, and lets one thread sleep on all of them. Clones refer to the
/// same manager.
#[derive(Clone)]
pub struct Manager(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) poller: TryLock<Poller>,
    pub(crate) set: SleepSet,
    pub(crate) word: WakeWord,
    pub(crate) spares: Spares,
    /// The engine thread's present sleep is longer than the safety-net timeout.
    pub(crate) drowsy: AtomicBool,
    changes: Mutex<Vec<Change>>,
    /// Length of `changes`; written under its lock.
    changed: AtomicUsize,
    /// Registrations so far. A new source may have the descriptor number of an earlier one.
    pub(crate) generation: AtomicU64,
    sources: AtomicUsize,
    kinds: RwLock<Vec<Arc<KindShared>>>,
    /// Upper bound on the number of tasklets that are scheduled and have not begun.
    tasklets: AtomicUsize,
    /// Time of the last check of the group's epoll, nanoseconds.
    group_asked: AtomicU64,
    pub(crate) reports: Arc<Reports>,
}

/// Reason for which a source or a kind of tasklet could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The manager has [`MAX_SOURCES`] sources, or [`MAX_KINDS`] kinds of tasklets.
    #[error("the limit of {MAX_SOURCES} sources or {MAX_KINDS} kinds of tasklets is reached")]
    Full,
}

/// A registered source. Dropping this removes the source and drops it, immediately or, if another thread polls at that moment,
/// after that poll.
pub struct Registration {
    manager: Manager,
    id: u64,
    announcement: Announcement,
}

/// Handle with which the publisher of a source's events wakes a sleeping engine.
#[derive(Clone)]
pub struct Notifier(Weak<Shared>);

impl Manager {
    /// Creates a manager without sources. It starts no thread: see [`Self::poll`] and [`Self::run`].
    ///
    /// # Errors
    /// Returns the error of the system if descriptors cannot be created.
    pub fn new(engine: Engine, clock: impl Clock + 'static) -> Result<Self, Errno> {
        Self::watched(engine, clock, Box::new(|_| ()))
    }

    /// Creates a manager without sources that passes to `watch` every descriptor on which the engine thread sleeps.
    ///
    /// # Errors
    /// Returns the error of the system if descriptors cannot be created.
    pub fn watched(engine: Engine, clock: impl Clock + 'static, watch: Watch) -> Result<Self, Errno> {
        let reports = Arc::new(Reports::default());
        let group = Group::new()?;
        let resting = Resting::new()?;
        let set = SleepSet::new(watch, group.descriptor(), resting.descriptor())?;
        Ok(Self(Arc::new(Shared {
            engine,
            clock: Box::new(clock),
            poller: TryLock::new(Poller::new(group, resting, Arc::clone(&reports))),
            set,
            word: WakeWord::new(),
            spares: Spares::new()?,
            drowsy: AtomicBool::new(false),
            changes: Mutex::default(),
            changed: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            sources: AtomicUsize::new(0),
            kinds: RwLock::default(),
            tasklets: AtomicUsize::new(0),
            group_asked: AtomicU64::new(0),
            reports,
        })))
    }

    /// Returns the kind of the engine.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.0.engine
    }

    /// Registers a source. May be called from any thread at any time, also from within a poll or a tasklet.
    ///
    /// # Errors
    /// [`RegisterError::Full`] if there are [`MAX_SOURCES`] sources.
    pub fn register(&self, spec: Spec, source: impl Source + 'static) -> Result<Registration, RegisterError> {
        if self.0.sources.fetch_add(1, Ordering::Relaxed) >= MAX_SOURCES {
            self.0.sources.fetch_sub(1, Ordering::Relaxed);
            return Err(RegisterError::Full);
        }
        let id = self.0.generation.fetch_add(1, Ordering::Relaxed);
        let announcement = Announcement::default();
        let registration = Registration { manager: self.clone(), id, announcement: announcement.clone() };
        let slot = Slot { id, spec, source: Box::new(source), empty_polls: 0, announcement };
        self.0.change(Change::Add(Box::new(slot)));
        Ok(registration)
    }

    /// Creates a kind of tasklets that these triggers run. It exists as long as the manager.
    ///
    /// # Errors
    /// [`RegisterError::Full`] if there are [`MAX_KINDS`] kinds.
    pub fn kind(&self, name: &'static str, triggers: &[Trigger]) -> Result<Kind, RegisterError> {
        let shared = Arc::new(KindShared::new(name, Triggers::of(triggers)));
        let mut kinds = self.0.kinds.write().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() == MAX_KINDS {
            return Err(RegisterError::Full);
        }
        kinds.push(Arc::clone(&shared));
        drop(kinds);
        Ok(Kind { shared, manager: Arc::downgrade(&self.0) })
    }

    /// Polls every source of this trigger once, and runs the tasklets of this trigger. Returns the number of events processed plus
    /// tasklets run, or `None` if another thread polls.
    pub fn poll(&self, trigger: Trigger) -> Option<usize> {
        let mut poller = self.0.enter()?;
        poller.rouse_ready();
        let mut taken = poller.poll(trigger, 1);
        if poller.has_epolls() {
            taken += self.0.poll_group(&mut poller, trigger, self.0.clock.now());
        }
        drop(poller);
        self.0.make_changes();
        Some(taken + self.0.run_tasklets(trigger))
    }

    /// Wakes the engine thread if it sleeps on the sources.
    pub fn wake(&self) {
        self.0.wake();
    }

    /// Wakes the engine thread after a change that is not an event of a source. Works for every kind of engine.
    pub fn alert(&self) {
        match self.0.engine {
            Engine::Idle => self.0.wake(),
            // These engines sleep without arming the word.
            Engine::None | Engine::Timer(_) => self.0.set.ring(),
        }
    }

    /// Wakes the engine thread if its present sleep is longer than [`SAFETY_NET`](pronto_core::wait::SAFETY_NET). Called when a
    /// thread begins to wait for an event without polling.
    pub fn keep_time(&self) {
        if self.0.drowsy.load(Ordering::Relaxed) && self.0.drowsy.swap(false, Ordering::Relaxed) {
            self.0.set.ring();
        }
    }

    /// Returns whether the engine thread's present sleep is longer than [`SAFETY_NET`](pronto_core::wait::SAFETY_NET).
    #[must_use]
    pub fn is_drowsy(&self) -> bool {
        self.0.drowsy.load(Ordering::Relaxed)
    }

    /// Sleeps on the channels of one source in place of the engine thread. An event that ends this sleep does not wake the engine
    /// thread, so the caller must process it. May return early. Returns which channels have an event.
    ///
    /// If the source may rest, `first` is called before a thread sleeps on these channels for the first time, and has to rouse it: the kernel
    /// must ask the caller's sleep before the engine's.
    pub fn sleep_instead(&self, channels: &Channels, limit: Duration, first: impl FnOnce()) -> [bool; 2] {
        self.0.set.sleep_instead(channels, limit, first)
    }

    /// Configures the kernel to poll network devices before the engine thread sleeps on connections over them.
    ///
    /// # Errors
    /// Returns the reason if the kernel does not do it. Unless the reason is [`BusyPollError::Changed`], sleeps do not change.
    pub fn busy_poll(&self, wanted: BusyPoll) -> Result<(), BusyPollError> {
        busy_poll::set(self.0.set.descriptor(), wanted)
    }

    /// Returns how the kernel polls network devices during sleeps of the engine thread.
    ///
    /// # Errors
    /// Returns the reason if the kernel cannot report it.
    pub fn busy_polling(&self) -> Result<BusyPoll, BusyPollError> {
        busy_poll::get(self.0.set.descriptor())
    }

    /// Returns the current counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.reports.counters()
    }

    /// Returns the most recent sources and tasklets that were removed after a failure, at most 16.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        self.0.reports.failures()
    }

    /// Returns the number of registered sources.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.0.sources.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Counts a queued tasklet and wakes the engine.
    pub(crate) fn tasklet_came(&self) {
        self.tasklets.fetch_add(1, Ordering::Relaxed);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if self.word.needs_wake() {
            self.set.ring();
        }
    }

    /// Acquires the engine half and applies the pending changes. Returns `None` if another thread polls.
    #[inline]
    pub(crate) fn enter(&self) -> Option<TryLockGuard<'_, Poller>> {
        let mut poller = self.poller.try_lock()?;
        if self.is_changed() {
            self.apply(&mut poller);
        }
        Some(poller)
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed) != 0
    }

    fn changes(&self) -> MutexGuard<'_, Vec<Change>> {
        // No foreign code runs under this lock, so a poisoned one is consistent.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, poller: &mut Poller) {
        let mut changes = self.changes();
        let wanted = core::mem::take(&mut *changes);
        self.changed.store(0, Ordering::Relaxed);
        drop(changes);
        // The drop of a source may request a change itself, so the lock is released first.
        poller.apply(wanted.into_iter());
    }

    /// Applies the changes that other threads left to this thread while it polled. An engine would apply them in its next round;
    /// another thread might not poll again.
    fn make_changes(&self) {
        // SYNC: orders the release of the lock before the check for changes; pairs with the fence of `serve` in `change`.
        fence(Ordering::SeqCst);
        if self.is_changed() {
            self.poller.serve(|| self.is_changed(), |poller| self.apply(poller));
        }
    }

    /// Applies a change, or leaves it to the thread that polls now.
    fn change(&self, change: Change) {
        self.add_change(change);
        self.poller.serve(|| self.is_changed(), |poller| self.apply(poller));
        // A new source may already have events, for which no thread was woken.
        self.wake();
    }

    /// Leaves a change to the engine, which applies it before it polls again. The caller may hold locks.
    pub(crate) fn leave(&self, change: Change) {
        self.add_change(change);
        // SYNC: an engine that is about to sleep sees the change, or its word is armed here; pairs with the fence between its word and
        // its look at the changes.
        fence(Ordering::SeqCst);
        self.wake();
    }

    fn add_change(&self, change: Change) {
        let mut changes = self.changes();
        changes.push(change);
        self.changed.store(changes.len(), Ordering::Relaxed);
    }

    /// Polls the sources behind an epoll that are ready, unless that was done less than [`GROUP_INTERVAL`] ago. Returns the number of events.
    pub(crate) fn poll_group(&self, poller: &mut Poller, trigger: Trigger, now: Nanos) -> usize {
        let asked = Nanos(self.group_asked.load(Ordering::Relaxed));
        if now.since(asked) < GROUP_INTERVAL && asked != Nanos::ZERO {
            return 0;
        }
        self.poll_group_now(poller, trigger, now)
    }

    pub(crate) fn poll_group_now(&self, poller: &mut Poller, trigger: Trigger, now: Nanos) -> usize {
        self.group_asked.store(now.0.max(1), Ordering::Relaxed);
        self.reports.group_looks.add(u64::from(!poller.group.is_empty()));
        let muted = poller.group.muted();
        let taken = poller.poll_ready(trigger) + poller.poll_group(trigger, now);
        self.reports.muted.add(poller.group.muted() - muted);
        taken
    }

    pub(crate) fn may_have_tasklets(&self) -> bool {
        self.tasklets.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn has_tasklets(&self, trigger: Trigger) -> bool {
        if !self.may_have_tasklets() {
            return false;
        }
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        // A kind that another thread runs is left to that thread, which wakes the engine if tasklets remain.
        kinds.iter().any(|kind| kind.runs_on(trigger) && kind.is_waiting() && !kind.is_running())
    }

    /// Runs the queued tasklets. Returns their number.
    pub(crate) fn run_tasklets(&self, trigger: Trigger) -> usize {
        if !self.may_have_tasklets() {
            return 0;
        }
        let kinds: Vec<_> = {
            let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
            kinds.iter().filter(|kind| kind.runs_on(trigger) && kind.is_waiting()).cloned().collect()
        };
        // A tasklet may create a kind, so no lock is held here.
        let (mut ran, mut again) = (0, 0);
        for kind in &kinds {
            let (more, queued) = kind.run(&self.reports);
            (ran, again) = (ran + more, again + queued);
        }
        self.tasklets.fetch_sub(ran - again, Ordering::Relaxed);
        // SYNC: orders the release of a kind before the check for tasklets queued meanwhile; pairs with the fence of the scheduling
        // thread, before its check of the word, and with the fence of the arming thread, before its check of the kinds.
        fence(Ordering::SeqCst);
        if kinds.iter().any(|kind| kind.is_waiting()) {
            self.wake();
        }
        ran
    }
}

impl Registration {
    /// Returns a handle that ends the rest of this source.
    #[must_use]
    pub fn rouse(&self) -> Rouse {
        let manager = Arc::downgrade(&self.manager.0);
        Rouse { manager, id: self.id, announcement: self.announcement.clone() }
    }

    /// Returns a handle that wakes the engine for this source.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier(Arc::downgrade(&self.manager.0))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.manager.0.sources.fetch_sub(1, Ordering::Relaxed);
        self.manager.0.change(Change::Remove(self.id));
    }
}

impl Notifier {
    /// Wakes the engine if it sleeps. To be called after an event was published. Costs a fence and a load while the engine is awake.
    pub fn notify(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.wake();
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "none"),
            Self::Timer(period) => write!(f, "timer, every {} us", period.0 / 1_000),
            Self::Idle => write!(f, "idle"),
        }
    }
}

impl fmt::Display for Manager {
    /// Writes the kind of engine, the number of sources, and the recent failures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, sources: {}", self.0.engine, self.sources())?;
        for Failure { name, why } in self.failures() {
            write!(f, "; {name} was removed: {why}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("engine", &self.0.engine)
            .field("sources", &self.sources())
            .field("poller", &self.0.poller)
            .field("set", &self.0.set)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notifier").finish_non_exhaustive()
    }
}
