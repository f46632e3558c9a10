//! The workers: they run every handler that is not inline, lanes in their order, the rest in any.
//!
//! A worker that waits in a nested call leaves its place to a spare, so that two nodes that call each other from their
//! handlers do not wait for each other's workers; up to a bound.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::dispatch::Lanes;
use pronto_wire::TypeId;

use crate::host::NodeHost;
use crate::sink::Job;

/// Places that may be left at a time: nested calls that wait. Beyond it they are refused.
const SPARES: usize = 64;

/// Which lane a job belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneKey {
    type_id: TypeId,
    key: Option<u64>,
}

impl LaneKey {
    pub(crate) const fn of_type(type_id: TypeId) -> Self {
        Self { type_id, key: None }
    }

    pub(crate) const fn of_key(type_id: TypeId, key: u64) -> Self {
        Self { type_id, key: Some(key) }
    }
}

/// The pool as those who submit see it.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// For idle workers without a bell.
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<(Option<LaneKey>, Job)>,
    lanes: Lanes<LaneKey, Job>,
    /// Workers that may run handlers now.
    places: usize,
    /// Threads there are.
    threads: usize,
    /// Idle workers that wait for the common word.
    idle: usize,
    /// Idle workers that each sleep on a descriptor of their own, where a booster finds them.
    bells: Vec<Arc<EventFd>>,
    running: usize,
    /// Places left by workers in nested calls.
    left: usize,
    stopping: bool,
    host: Option<Arc<NodeHost>>,
}

/// A place that was left for the time of a nested call; taken again when dropped.
#[derive(Debug)]
pub(crate) struct Left(Arc<Shared>);

impl Pool {
    pub(crate) fn new(workers: usize) -> Self {
        let state = State { places: workers, ..State::default() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), work: Condvar::new() }) }
    }

    /// The pool may start threads from now on.
    pub(crate) fn start(&self, host: &Arc<NodeHost>) {
        self.shared.state.lock().expect("no holder panics").host = Some(Arc::clone(host));
    }

    /// A job, in its lane if it has one.
    pub(crate) fn submit(&self, lane: Option<LaneKey>, job: Job) {
        let mut state = self.shared.state.lock().expect("no holder panics");
        let job = match lane {
            Some(lane) => state.lanes.push(lane, job),
            None => Some(job),
        };
        if let Some(job) = job {
            state.ready.push_back((lane, job));
            self.shared.wake_or_start(&mut state);
        }
    }

    /// Leaves the calling worker's place to another. None if too many have been left.
    pub(crate) fn leave_place(&self) -> Option<Left> {
        let mut state = self.shared.state.lock().expect("no holder panics");
        if state.left >= SPARES {
            return None;
        }
        state.left += 1;
        state.places += 1;
        if !state.ready.is_empty() {
            self.shared.wake_or_start(&mut state);
        }
        Some(Left(Arc::clone(&self.shared)))
    }

    /// Whether nothing runs and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.shared.state.lock().expect("no holder panics");
        state.ready.is_empty() && state.running == 0 && state.lanes.running() == 0
    }

    /// Workers end after what they run now.
    pub(crate) fn stop(&self) {
        let mut state = self.shared.state.lock().expect("no holder panics");
        state.stopping = true;
        state.host = None;
        state.ready.clear();
        let bells = core::mem::take(&mut state.bells);
        drop(state);
        bells.iter().for_each(|bell| ring(bell));
        self.shared.work.notify_all();
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().expect("no holder panics");
        state.left -= 1;
        state.places -= 1;
    }
}

impl Shared {
    /// Sees to it that somebody takes the next job, if there is a place free.
    fn wake_or_start(self: &Arc<Self>, state: &mut State) {
        if self.wake_one(state) {
            return;
        }
        if state.threads < state.places {
            let Some(host) = state.host.clone() else { return };
            let shared = Arc::clone(self);
            let name = format!("pronto-worker-{}", state.threads);
            match std::thread::Builder::new().name(name).spawn(move || shared.work(&host)) {
                Ok(_detached) => state.threads += 1,
                Err(error) => tracing::error!(%error, "no thread for a worker; its work waits for another"),
            }
        }
    }

    /// Wakes an idle worker, if there is one.
    fn wake_one(&self, state: &mut State) -> bool {
        if let Some(bell) = state.bells.pop() {
            ring(&bell);
            return true;
        }
        if state.idle > 0 {
            self.work.notify_one();
        }
        state.idle > 0
    }

    /// Sleeps until there may be work.
    fn rest<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        bell: Option<&Arc<EventFd>>,
    ) -> MutexGuard<'a, State> {
        let Some(bell) = bell else {
            state.idle += 1;
            state = self.work.wait(state).expect("no holder panics");
            state.idle -= 1;
            return state;
        };
        state.bells.push(Arc::clone(bell));
        drop(state);
        // Interrupted, it looks again as well.
        let _rung = bell.read();
        state = self.state.lock().expect("no holder panics");
        state.bells.retain(|other| !Arc::ptr_eq(other, bell));
        state
    }

    /// A worker: takes jobs until the pool stops, or there are more threads than places.
    fn work(&self, host: &Arc<NodeHost>) {
        host.leave_seat();
        host.boosting.adopt();
        let bell = host.boosting.needs_descriptors().then(|| bell(host)).flatten();
        host.boosting.before_wait();
        let mut state = self.state.lock().expect("no holder panics");
        loop {
            if state.stopping || state.threads > state.places {
                break;
            }
            let Some((lane, job)) = state.ready.pop_front() else {
                state = self.rest(state, bell.as_ref());
                continue;
            };
            state.running += 1;
            drop(state);
            job.run_pooled(host);
            host.boosting.worked();
            host.boosting.before_wait();
            state = self.state.lock().expect("no holder panics");
            state.running -= 1;
            if let Some(lane) = lane
                && let Some(next) = state.lanes.finish(&lane)
            {
                state.ready.push_back((Some(lane), next));
            }
        }
        state.threads -= 1;
        // Whoever was about to be woken in this worker's stead is.
        self.wake_one(&mut state);
    }
}

/// A descriptor of its own for the calling worker. None if the system has none: then it waits as others do.
fn bell(host: &NodeHost) -> Option<Arc<EventFd>> {
    let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).ok()?;
    host.boosting.watch(bell.as_fd().as_raw_fd());
    Some(Arc::new(bell))
}

fn ring(bell: &EventFd) {
    // A full counter is as good as a write: the descriptor is readable.
    let _full = bell.write(1);
}
