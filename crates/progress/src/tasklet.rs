//! Tasklets: work that follows an event, run soon after the poll and outside of it (PIOMan, section 3.3).
//!
//! # Invariants
//! 1. A tasklet is queued at most once, by the thread that changes its state from idle to queued.
//! 2. Tasklets of one kind run one at a time, in the order in which they were scheduled, on the thread that holds the kind's lock.
//!    If tasklets are queued when that thread releases the lock, it wakes the engine.
//! 3. A tasklet that is scheduled while it runs, runs once more.

use core::panic::AssertUnwindSafe;
use std::collections::VecDeque;
use std::fmt;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use pronto_sync::TryLock;
use pronto_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::manager::Shared;
use crate::reports::Reports;
use crate::source::{Trigger, Triggers};

const IDLE: u32 = 0;
const QUEUED: u32 = 1;
const RUNNING: u32 = 2;
const RUNNING_AND_QUEUED: u32 = 3;
/// The tasklet panicked.
const DEAD: u32 = 4;

/// CPU on which a tasklet runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Any CPU.
    Anywhere,
    /// The CPU of the thread that scheduled the tasklet last, whose caches hold its memory. A thread on another CPU moves there to run
    /// the tasklet and moves back, at the cost of two system calls. If its affinity forbids that, it runs the tasklet where it is.
    Submitter,
}

/// A kind of tasklets. Tasklets of one kind never run at the same time.
#[derive(Clone)]
pub struct Kind {
    pub(crate) shared: Arc<KindShared>,
    pub(crate) manager: Weak<Shared>,
}

pub(crate) struct KindShared {
    name: &'static str,
    triggers: Triggers,
    turn: TryLock<()>,
    queue: Mutex<VecDeque<Arc<Inner>>>,
    queued: AtomicUsize,
}

struct Inner {
    state: AtomicU32,
    place: Place,
    /// CPU of the thread that scheduled the tasklet last.
    cpu: AtomicUsize,
    run: Mutex<Box<dyn FnMut() + Send>>,
}

/// A function that a polling thread runs soon, after its polls. It may block only within
/// [`Manager::may_block`](crate::Manager::may_block). It must not call user code, because it runs on whichever thread polls.
#[derive(Clone)]
pub struct Tasklet {
    inner: Arc<Inner>,
    kind: Kind,
}

impl Kind {
    /// Creates a tasklet of this kind.
    pub fn tasklet(&self, place: Place, run: impl FnMut() + Send + 'static) -> Tasklet {
        let (state, cpu) = (AtomicU32::new(IDLE), AtomicUsize::new(0));
        let run: Mutex<Box<dyn FnMut() + Send>> = Mutex::new(Box::new(run));
        Tasklet { inner: Arc::new(Inner { state, place, cpu, run }), kind: self.clone() }
    }
}

impl Tasklet {
    /// Schedules one run of the tasklet. Has no further effect if the tasklet is already scheduled and has not begun. May be called
    /// from any thread, also from a poll or from the tasklet itself.
    pub fn schedule(&self) {
        if self.inner.place == Place::Submitter {
            // Only a hint: the thread may move to another CPU immediately afterwards.
            self.inner.cpu.store(sched_getcpu().unwrap_or(0), Ordering::Relaxed);
        }
        if self.inner.mark_wanted() {
            self.kind.shared.push(Arc::clone(&self.inner));
            if let Some(manager) = self.kind.manager.upgrade() {
                manager.tasklet_came();
            }
        }
    }
}

impl Inner {
    /// Records that the tasklet is to run. Returns whether the caller must queue it.
    fn mark_wanted(&self) -> bool {
        let next = |state| match state {
            IDLE => Some(QUEUED),
            RUNNING => Some(RUNNING_AND_QUEUED),
            _ => None,
        };
        // SYNC: publishes the scheduling thread's earlier writes to the tasklet; pairs with the swap in `run`.
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(IDLE)
    }

    /// Runs the tasklet. Returns whether the caller must queue it again.
    fn run(&self, name: &'static str, reports: &Reports) -> bool {
        // SYNC: acquires what was written before the tasklet was scheduled; pairs with `mark_wanted`.
        self.state.swap(RUNNING, Ordering::AcqRel);
        reports.tasklets.add(1);
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let home = match self.place {
            Place::Anywhere => None,
            Place::Submitter => move_to(self.cpu.load(Ordering::Relaxed)),
        };
        let result = catch_unwind(AssertUnwindSafe(&mut *run));
        if let Some(home) = home {
            reports.moved.add(1);
            // The affinity was valid before, so restoring it succeeds unless the cpuset has changed since.
            let _back = sched_setaffinity(Pid::from_raw(0), &home);
        }
        if let Err(panic) = result {
            self.state.store(DEAD, Ordering::Release);
            reports.panicked(name, &*panic);
            return false;
        }
        let done = self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if done.is_err() {
            self.state.store(QUEUED, Ordering::Release);
        }
        done.is_err()
    }
}

/// Moves the calling thread to `cpu`. Returns its previous affinity, or `None` if it runs there already or must not move there.
fn move_to(cpu: usize) -> Option<CpuSet> {
    if sched_getcpu() == Ok(cpu) {
        return None;
    }
    let home = sched_getaffinity(Pid::from_raw(0)).ok()?;
    if !home.is_set(cpu).ok()? {
        return None;
    }
    let mut there = CpuSet::new();
    there.set(cpu).ok()?;
    sched_setaffinity(Pid::from_raw(0), &there).ok()?;
    Some(home)
}

impl KindShared {
    pub(crate) fn new(name: &'static str, triggers: Triggers) -> Self {
        let (turn, queue, queued) = (TryLock::new(()), Mutex::default(), AtomicUsize::new(0));
        Self { name, triggers, turn, queue, queued }
    }

    pub(crate) const fn runs_on(&self, trigger: Trigger) -> bool {
        self.triggers.contains(trigger)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.queued.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a thread runs tasklets of this kind.
    pub(crate) fn is_running(&self) -> bool {
        self.turn.is_locked()
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<Inner>>> {
        // No foreign code runs under this lock, so a poisoned one is consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, tasklet: Arc<Inner>) {
        let mut queue = self.queue();
        queue.push_back(tasklet);
        self.queued.store(queue.len(), Ordering::Relaxed);
    }

    fn pop(&self) -> Option<Arc<Inner>> {
        let mut queue = self.queue();
        let tasklet = queue.pop_front();
        self.queued.store(queue.len(), Ordering::Relaxed);
        tasklet
    }

    /// Runs the tasklets that are queued at the start of the call, or none if another thread runs some of this kind. Returns how
    /// many ran here, and how many of them are queued again.
    pub(crate) fn run(&self, reports: &Reports) -> (usize, usize) {
        let Some(_turn) = self.turn.try_lock() else { return (0, 0) };
        let (mut ran, mut again) = (0, 0);
        // A tasklet that schedules itself again waits for the next poll.
        for _ in 0..self.queued.load(Ordering::Relaxed) {
            let Some(tasklet) = self.pop() else { break };
            ran += 1;
            if tasklet.run(self.name, reports) {
                self.push(tasklet);
                again += 1;
            }
        }
        (ran, again)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KindShared { name, triggers, .. } = &*self.shared;
        f.debug_struct("Kind").field("name", name).field("triggers", triggers).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tasklet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasklet")
            .field("kind", &self.kind)
            .field("place", &self.inner.place)
            .finish_non_exhaustive()
    }
}
