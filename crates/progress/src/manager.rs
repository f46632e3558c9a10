//! The shared half of a manager: who may register, poll, wake, and run as its engine.

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
use crate::sleep_set::{SleepSet, Watch};
use crate::source::{Source, Spec, Trigger, Triggers};
use crate::spares::Spares;
use crate::tasklet::{Kind, KindShared};

/// Sources that cost a system call are asked for at most so often while somebody polls: PIOMan's granularity of idle
/// polling.
pub const GROUP_INTERVAL: Nanos = Nanos(spin::IDLE_GRANULARITY.0);
/// Sources of one manager, at most.
pub const MAX_SOURCES: usize = 65_536;
/// Kinds of tasklets of one manager, at most.
pub const MAX_KINDS: usize = 256;

/// Who polls when no thread of the program does: the paper's three builds (section 3), chosen at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Nobody: sources are polled where threads of the program wait or yield, and nowhere else.
    None,
    /// A thread that wakes so often, whatever happens.
    Timer(Nanos),
    /// A thread that polls while it may, and sleeps on everything at once otherwise.
    #[default]
    Idle,
}

/// The manager: registers sources, lets any thread poll them, puts one thread to sleep on all of them. Clones are the same
/// manager.
#[derive(Clone)]
pub struct Manager(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) poller: TryLock<Poller>,
    pub(crate) set: SleepSet,
    pub(crate) word: WakeWord,
    pub(crate) spares: Spares,
    /// The present sleep of the engine's thread is a long one.
    pub(crate) drowsy: AtomicBool,
    changes: Mutex<Vec<Change>>,
    /// How many; written under the lock.
    changed: AtomicUsize,
    /// Registrations so far: what is registered anew may have a descriptor that another source had.
    pub(crate) generation: AtomicU64,
    sources: AtomicUsize,
    kinds: RwLock<Vec<Arc<KindShared>>>,
    /// Tasklets scheduled and not begun, roughly: never zero while one is.
    tasklets: AtomicUsize,
    /// When the epoll of the group was asked last, nanoseconds.
    group_asked: AtomicU64,
    pub(crate) reports: Arc<Reports>,
}

/// A source could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// There are as many as may be.
    #[error("{MAX_SOURCES} sources are registered, and {MAX_KINDS} kinds of tasklets: no more fit")]
    Full,
}

/// A registered source: taken out when this is dropped. One that is being polled by another thread at that moment is taken
/// out right after; when it has been, the source is dropped.
pub struct Registration {
    manager: Manager,
    id: u64,
}

/// Wakes an engine that sleeps: for whoever publishes events of a source in memory.
#[derive(Clone)]
pub struct Notifier(Weak<Shared>);

impl Manager {
    /// A manager without sources. Nothing is polled until somebody does, or runs as its engine.
    ///
    /// # Errors
    /// If the system has no descriptors for it.
    pub fn new(engine: Engine, clock: impl Clock + 'static) -> Result<Self, Errno> {
        Self::watched(engine, clock, Box::new(|_| ()))
    }

    /// The same; `watch` is told of every descriptor that the engine's thread sleeps on.
    ///
    /// # Errors
    /// If the system has no descriptors for it.
    pub fn watched(engine: Engine, clock: impl Clock + 'static, watch: Watch) -> Result<Self, Errno> {
        let reports = Arc::new(Reports::default());
        let group = Group::new()?;
        let set = SleepSet::new(watch, group.descriptor())?;
        Ok(Self(Arc::new(Shared {
            engine,
            clock: Box::new(clock),
            poller: TryLock::new(Poller::new(group, Arc::clone(&reports))),
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

    /// Who polls.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.0.engine
    }

    /// Registers a source; also while it polls, and from within a poll, a tasklet, or another thread.
    ///
    /// # Errors
    /// If there are [`MAX_SOURCES`].
    pub fn register(&self, spec: Spec, source: impl Source + 'static) -> Result<Registration, RegisterError> {
        if self.0.sources.fetch_add(1, Ordering::Relaxed) >= MAX_SOURCES {
            self.0.sources.fetch_sub(1, Ordering::Relaxed);
            return Err(RegisterError::Full);
        }
        let id = self.0.generation.fetch_add(1, Ordering::Relaxed);
        let registration = Registration { manager: self.clone(), id };
        self.0.change(Change::Add(Box::new(Slot { id, spec, source: Box::new(source), vain: 0 })));
        Ok(registration)
    }

    /// A new kind of tasklets, run by those triggers. It stays for the life of the manager.
    ///
    /// # Errors
    /// If there are [`MAX_KINDS`].
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

    /// Polls every source of this trigger once, and runs the tasklets of this trigger. Returns how many events were taken and
    /// tasklets run; none if another thread polls.
    pub fn poll(&self, trigger: Trigger) -> Option<usize> {
        let mut poller = self.0.enter()?;
        let mut taken = poller.look(trigger, 1);
        if !poller.group.is_empty() {
            taken += self.0.look_at_group(&mut poller, trigger, self.0.clock.now());
        }
        drop(poller);
        self.0.make_changes();
        Some(taken + self.0.run_tasklets(trigger))
    }

    /// Wakes the engine's thread if it sleeps on the sources.
    pub fn wake(&self) {
        self.0.wake();
    }

    /// Has the engine's thread look around, whichever engine it is: something has changed that is no event of a source.
    pub fn alert(&self) {
        match self.0.engine {
            Engine::Idle => self.0.wake(),
            // It sleeps without having armed anything.
            Engine::None | Engine::Timer(_) => self.0.set.ring(),
        }
    }

    /// Somebody waits for an event without polling: sleeps are short from now on, [`SAFETY_NET`](pronto_core::wait::SAFETY_NET) at most.
    pub fn keep_time(&self) {
        if self.0.drowsy.load(Ordering::Relaxed) && self.0.drowsy.swap(false, Ordering::Relaxed) {
            self.0.set.ring();
        }
    }

    /// Whether the present sleep of the engine's thread is longer than [`SAFETY_NET`](pronto_core::wait::SAFETY_NET).
    #[must_use]
    pub fn is_drowsy(&self) -> bool {
        self.0.drowsy.load(Ordering::Relaxed)
    }

    /// Sleeps on a source's channels in place of the engine's thread, which is not woken by what ends this sleep: the caller
    /// looks after it. May return early. Returns which channels have an event.
    pub fn sleep_instead(&self, channels: &Channels, limit: Duration) -> [bool; 2] {
        self.0.set.sleep_instead(channels, limit)
    }

    /// Has the kernel poll network devices for a while before the engine's thread sleeps on connections over them.
    ///
    /// # Errors
    /// Why it does not; sleeps are what they were then.
    pub fn busy_poll(&self, wanted: BusyPoll) -> Result<(), BusyPollError> {
        busy_poll::set(self.0.set.descriptor(), wanted)
    }

    /// How it does.
    ///
    /// # Errors
    /// Why it does not.
    pub fn busy_polling(&self) -> Result<BusyPoll, BusyPollError> {
        busy_poll::get(self.0.set.descriptor())
    }

    /// Counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.reports.counters()
    }

    /// Sources and tasklets that were taken out, the last ones of them.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        self.0.reports.failures()
    }

    /// Sources registered.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.0.sources.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// A tasklet was queued.
    pub(crate) fn tasklet_came(&self) {
        self.tasklets.fetch_add(1, Ordering::Relaxed);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if self.word.needs_wake() {
            self.set.ring();
        }
    }

    /// The engine half, if nobody polls; with all changes made that were asked for.
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
        // No code of others runs under it.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, poller: &mut Poller) {
        let mut changes = self.changes();
        let wanted = core::mem::take(&mut *changes);
        self.changed.store(0, Ordering::Relaxed);
        drop(changes);
        // A source that is dropped here may change something itself.
        poller.apply(wanted.into_iter());
    }

    /// Makes the changes that were left to the thread which has just polled: an engine would come by again, others may not.
    fn make_changes(&self) {
        // SYNC: giving the lock back before the look for changes; pairs with the fence of `serve` in `change`.
        fence(Ordering::SeqCst);
        if self.is_changed() {
            self.poller.serve(|| self.is_changed(), |poller| self.apply(poller));
        }
    }

    /// Leaves a change to whoever polls, or makes it.
    fn change(&self, change: Change) {
        let mut changes = self.changes();
        changes.push(change);
        self.changed.store(changes.len(), Ordering::Relaxed);
        drop(changes);
        self.poller.serve(|| self.is_changed(), |poller| self.apply(poller));
        // A new source may have events already, for which nobody has been woken.
        self.wake();
    }

    /// Asks the epoll of the group, unless that was done a moment ago.
    pub(crate) fn look_at_group(&self, poller: &mut Poller, trigger: Trigger, now: Nanos) -> usize {
        let asked = Nanos(self.group_asked.load(Ordering::Relaxed));
        if now.since(asked) < GROUP_INTERVAL && asked != Nanos::ZERO {
            return 0;
        }
        self.look_at_group_now(poller, trigger, now)
    }

    pub(crate) fn look_at_group_now(&self, poller: &mut Poller, trigger: Trigger, now: Nanos) -> usize {
        self.group_asked.store(now.0.max(1), Ordering::Relaxed);
        self.reports.group_looks.add(1);
        let muted = poller.group.muted();
        let taken = poller.look_at_group(trigger, now);
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
        // Those of a kind that another thread runs are that thread's: it wakes the engine if it leaves any.
        kinds.iter().any(|kind| kind.runs_on(trigger) && kind.is_waiting() && !kind.is_running())
    }

    /// Runs the tasklets that wait. Returns how many.
    pub(crate) fn run_tasklets(&self, trigger: Trigger) -> usize {
        if !self.may_have_tasklets() {
            return 0;
        }
        let kinds: Vec<_> = {
            let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
            kinds.iter().filter(|kind| kind.runs_on(trigger) && kind.is_waiting()).cloned().collect()
        };
        // A tasklet may make a kind: no lock is held.
        let (mut ran, mut again) = (0, 0);
        for kind in &kinds {
            let (more, queued) = kind.run(&self.reports);
            (ran, again) = (ran + more, again + queued);
        }
        self.tasklets.fetch_sub(ran - again, Ordering::Relaxed);
        // SYNC: giving a kind back before the look at what came for it meanwhile; pairs with the fence of who schedules, which comes
        // before its look at the word, and with that of who arms, before its look at the kinds.
        fence(Ordering::SeqCst);
        if kinds.iter().any(|kind| kind.is_waiting()) {
            self.wake();
        }
        ran
    }
}

impl Registration {
    /// Wakes the engine for this source.
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
    /// An event was published, or will not come any more. Costs a fence and a load while the engine is awake.
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
    /// Who polls how many sources, and which were taken out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} sources", self.0.engine, self.sources())?;
        for Failure { name, why } in self.failures() {
            write!(f, "; {name} was taken out: {why}")?;
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
