//! The pool of workers, which run every handler that is not inline.
//!
//! A lane runs its jobs one at a time, in their order. Jobs that may run now wait in one ready queue per class. A worker takes control
//! jobs before bulk jobs, regardless of their order of arrival. After a bounded number of control jobs it takes one bulk job, so that
//! bulk does not starve. A bulk handler that has begun is not interrupted.
//!
//! A worker that waits in a nested call leaves its place to a spare worker, up to a bound. Otherwise two nodes that call each other
//! from their handlers could wait for each other's workers.
//!
//! A message of an async handler needs a place as well, which its future keeps until its end. Without one it waits, before it enters its
//! lane. The lane goes on after the first poll of the future.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::dispatch::{Lanes, Ready};
use pronto_wire::{Class, TypeId};

use crate::host::NodeHost;
use crate::recorder::flight;
use crate::serving::futures::{Beginning, Listed};
use crate::serving::sink::Job;
use crate::serving::worker_future::WorkerFuture;

/// Maximum number of nested calls that wait at the same time. Further ones are refused.
const SPARES: usize = 64;

/// Lane of a job.
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

/// Handle of the pool for threads that submit jobs.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes idle workers that have no descriptor.
    work: Condvar,
    /// Number of places for futures.
    futures: usize,
}

/// Bounds of the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLimits {
    /// Threads that run handlers at the same time.
    pub(crate) workers: usize,
    /// Futures of async handlers that exist at the same time.
    pub(crate) futures: usize,
}

/// Work for a worker.
#[derive(Debug)]
pub(crate) enum Work {
    /// Runs a handler.
    Handle(Job),
    /// Calls an async handler.
    Begin(Box<Beginning>),
    /// Polls the future of an async handler.
    Poll(Arc<WorkerFuture>),
}

/// One of the places for futures of async handlers, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Shared>);

#[derive(Debug, Default)]
struct State {
    ready: Ready<(Option<LaneKey>, Work)>,
    lanes: Lanes<LaneKey, Work>,
    /// Free places for futures.
    free_futures: usize,
    /// Messages of async handlers without a place. Empty while a place is free.
    waiting: Ready<(Option<LaneKey>, Job, Listed)>,
    /// Messages of async handlers that found no place.
    without_place: u64,
    /// Permitted number of threads: the configured workers, plus one for each nested call that waits.
    places: usize,
    /// Number of threads.
    threads: usize,
    /// Idle workers that wait for the condition variable.
    idle: usize,
    /// Idle workers that each sleep on their own descriptor, which the booster watches.
    sleeping: Vec<Arc<EventFd>>,
    /// Workers that were woken and do not run yet. At most one at a time, apart from spurious wake-ups; it wakes the next one.
    woken: usize,
    running: usize,
    /// Nested calls that wait.
    left: usize,
    stopping: bool,
    host: Option<Arc<NodeHost>>,
}

/// A place that a worker has left for the duration of a nested call, and takes again when this is dropped.
#[derive(Debug)]
pub(crate) struct Left(Arc<Shared>);

impl Pool {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        let PoolLimits { workers, futures } = limits;
        let state = State { places: workers, free_futures: futures, ..State::default() };
        let (state, work) = (Mutex::new(state), Condvar::new());
        Self { shared: Arc::new(Shared { state, work, futures }) }
    }

    /// Lets the pool start threads.
    pub(crate) fn start(&self, host: &Arc<NodeHost>) {
        self.shared.state.lock().expect("no holder panics").host = Some(Arc::clone(host));
    }

    /// Queues a job, in its lane if it has one. The caller must call [`Self::wake`] afterwards. A pool that has stopped drops the job,
    /// which fails its call.
    pub(crate) fn submit(&self, lane: Option<LaneKey>, work: Work) {
        let mut state = self.shared.state.lock().expect("no holder panics");
        if state.stopping {
            // Dropping a token sends a message, which must not happen under this lock.
            drop(state);
            work.discard();
            return;
        }
        state.admit(lane, work);
    }

    /// Queues a message of an async handler, like [`Self::submit`]. Without a free place it waits for one.
    pub(crate) fn submit_async(&self, lane: Option<LaneKey>, job: Job, listed: Listed) {
        let mut state = self.shared.state.lock().expect("no holder panics");
        if state.stopping {
            drop(state);
            drop((job, listed));
        } else if state.free_futures > 0 {
            state.free_futures -= 1;
            state.begin(lane, job, listed, Place(Arc::clone(&self.shared)));
        } else {
            state.without_place += 1;
            state.waiting.push(job.token.class(), (lane, job, listed));
        }
    }

    /// Wakes a worker for submitted jobs.
    pub(crate) fn wake(&self) {
        let next = self.shared.state.lock().expect("no holder panics").next_worker();
        self.shared.wake(next);
    }

    /// Leaves the calling worker's place to another worker. Returns `None` if [`SPARES`] nested calls wait already.
    pub(crate) fn leave_place(&self) -> Option<Left> {
        let mut state = self.shared.state.lock().expect("no holder panics");
        if state.left >= SPARES {
            return None;
        }
        state.left += 1;
        state.places += 1;
        let next = state.next_worker();
        drop(state);
        self.shared.wake(next);
        Some(Left(Arc::clone(&self.shared)))
    }

    /// Returns the number of places for futures that are taken, and of the messages so far that found none.
    pub(crate) fn futures(&self) -> (usize, u64) {
        let state = self.shared.state.lock().expect("no holder panics");
        (self.shared.futures - state.free_futures, state.without_place)
    }

    /// Returns the number of messages whose handlers wait, run or have futures.
    pub(crate) fn messages(&self) -> usize {
        let state = self.shared.state.lock().expect("no holder panics");
        let waiting = state.ready.len() + state.lanes.waiting() + state.waiting.len();
        waiting + state.running + (self.shared.futures - state.free_futures)
    }

    /// Returns whether no job runs or waits, and no future of an async handler exists.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.shared.state.lock().expect("no holder panics");
        let has_work = !state.ready.is_empty() || state.running != 0 || state.lanes.running() != 0;
        !has_work && state.free_futures == self.shared.futures
    }

    /// Ends the workers after their current jobs. Drops waiting jobs, which fails their calls.
    pub(crate) fn stop(&self) {
        let mut state = self.shared.state.lock().expect("no holder panics");
        state.stopping = true;
        state.host = None;
        let (mut ready, lanes) = (core::mem::take(&mut state.ready), core::mem::take(&mut state.lanes));
        let (waiting, sleeping) = (core::mem::take(&mut state.waiting), core::mem::take(&mut state.sleeping));
        drop(state);
        // Dropping their tokens sends messages, which must not happen under the pool's lock.
        while let Some((_, work)) = ready.pop() {
            work.discard();
        }
        drop((lanes, waiting));
        sleeping.iter().for_each(|event| signal(event));
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

impl Drop for Place {
    /// Gives the place to the message that waits for it, if there is one.
    fn drop(&mut self) {
        let mut state = self.0.state.lock().expect("no holder panics");
        match state.waiting.pop() {
            None => state.free_futures += 1,
            Some((lane, job, listed)) => state.begin(lane, job, listed, Self(Arc::clone(&self.0))),
        }
        let next = state.next_worker();
        drop(state);
        self.0.wake(next);
    }
}

impl Work {
    /// Returns the class in whose ready queue the work waits.
    fn class(&self) -> Class {
        match self {
            Self::Handle(job) => job.token.class(),
            Self::Begin(beginning) => beginning.job.token.class(),
            Self::Poll(future) => future.class(),
        }
    }

    fn run(self, host: &Arc<NodeHost>) {
        match self {
            Self::Handle(job) => job.run_pooled(host),
            Self::Begin(beginning) => beginning.run(host),
            Self::Poll(future) => future.run(),
        }
    }

    /// Drops the work, because the pool has stopped. This fails its call. The caller must not hold the pool's lock.
    fn discard(self) {
        match self {
            Self::Handle(job) => drop(job),
            Self::Begin(beginning) => drop(beginning),
            Self::Poll(future) => future.discard(),
        }
    }
}

/// Worker that takes the next job.
#[derive(Debug)]
enum NextWorker {
    /// One of the idle workers at the condition variable.
    Idle,
    /// The idle worker that sleeps on this descriptor.
    Sleeping(Arc<EventFd>),
    /// A new thread with this name.
    New(Arc<NodeHost>, String),
}

impl State {
    /// Queues work in its lane if it has one.
    fn admit(&mut self, lane: Option<LaneKey>, work: Work) {
        let work = match lane {
            Some(lane) => self.lanes.push(lane, work),
            None => Some(work),
        };
        if let Some(work) = work {
            self.enqueue(lane, work);
        }
    }

    /// Queues a message of an async handler that has a place.
    fn begin(&mut self, lane: Option<LaneKey>, job: Job, listed: Listed, place: Place) {
        self.admit(lane, Work::Begin(Box::new(Beginning { job, listed, place })));
    }

    /// Queues work that may run now, behind the rest of its class.
    fn enqueue(&mut self, lane: Option<LaneKey>, work: Work) {
        self.ready.push(work.class(), (lane, work));
    }

    /// Selects the worker for the next job. Returns `None` if there is no job, a woken worker will take it, or no place is free.
    fn next_worker(&mut self) -> Option<NextWorker> {
        if self.ready.is_empty() || self.woken > 0 {
            return None;
        }
        let next = if let Some(event) = self.sleeping.pop() {
            NextWorker::Sleeping(event)
        } else if self.idle > 0 {
            NextWorker::Idle
        } else if self.threads < self.places {
            let host = Arc::clone(self.host.as_ref()?);
            let name = format!("pronto-worker-{}", self.threads);
            self.threads += 1;
            NextWorker::New(host, name)
        } else {
            return None;
        };
        self.woken += 1;
        Some(next)
    }

    /// Records that a worker runs after a wake-up. A spurious wake-up counts as well; then one worker more than needed is woken.
    fn worker_runs(&mut self) {
        self.woken = self.woken.saturating_sub(1);
    }
}

impl Shared {
    /// Wakes or starts the selected worker. This is a system call, so it must be made without the lock.
    fn wake(self: &Arc<Self>, next: Option<NextWorker>) {
        match next {
            None => {}
            Some(NextWorker::Idle) => self.work.notify_one(),
            Some(NextWorker::Sleeping(event)) => signal(&event),
            Some(NextWorker::New(host, name)) => {
                let shared = Arc::clone(self);
                let started = std::thread::Builder::new().name(name).spawn(move || shared.work(&host));
                if let Err(error) = started {
                    tracing::error!(%error, "cannot start a worker thread; its job waits for another worker");
                    let mut state = self.state.lock().expect("no holder panics");
                    state.threads -= 1;
                    state.worker_runs();
                }
            }
        }
    }

    /// Sleeps until there may be work.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        event: Option<&Arc<EventFd>>,
    ) -> MutexGuard<'a, State> {
        let Some(event) = event else {
            state.idle += 1;
            state = self.work.wait(state).expect("no holder panics");
            state.idle -= 1;
            return state;
        };
        state.sleeping.push(Arc::clone(event));
        drop(state);
        // After an interruption by a signal the worker checks for work as well.
        let _count = event.read();
        state = self.state.lock().expect("no holder panics");
        state.sleeping.retain(|other| !Arc::ptr_eq(other, event));
        state
    }

    /// Runs a worker: takes jobs until the pool stops, or there are more threads than places. Before each job it wakes the worker for the
    /// next one. A thread that submits many jobs therefore makes one system call, not one per job.
    fn work(self: &Arc<Self>, host: &Arc<NodeHost>) {
        host.release_placement();
        host.boosting.adopt();
        let event = host.boosting.needs_descriptors().then(|| watched_event(host)).flatten();
        host.boosting.before_wait();
        flight::awake(host);
        let mut state = self.state.lock().expect("no holder panics");
        state.worker_runs();
        loop {
            if state.stopping || state.threads > state.places {
                break;
            }
            let Some((lane, work)) = state.ready.pop() else {
                state = self.sleep(state, event.as_ref());
                flight::awake(host);
                state.worker_runs();
                continue;
            };
            let next = state.next_worker();
            state.running += 1;
            drop(state);
            self.wake(next);
            work.run(host);
            host.boosting.worked();
            host.boosting.before_wait();
            state = self.state.lock().expect("no holder panics");
            state.running -= 1;
            if let Some(lane) = lane
                && let Some(next) = state.lanes.finish(&lane)
            {
                state.enqueue(Some(lane), next);
            }
        }
        state.threads -= 1;
        // Another worker takes the job for which this one was woken.
        let next = state.next_worker();
        drop(state);
        self.wake(next);
    }
}

/// Creates a descriptor for the calling worker, which the booster watches. Returns `None` if it cannot be created; the worker then
/// waits for the condition variable.
fn watched_event(host: &NodeHost) -> Option<Arc<EventFd>> {
    let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).ok()?;
    host.boosting.watch(event.as_fd().as_raw_fd());
    Some(Arc::new(event))
}

fn signal(event: &EventFd) {
    // If the counter is full, the write fails and the descriptor is readable anyway.
    let _full = event.write(1);
}

#[cfg(test)]
mod tests {
    use pronto_core::Nanos;
    use pronto_core::fabric::Arrived;
    use pronto_core::session::{Limits, Session, TokenSlot};
    use pronto_rpc::handler::Origin;
    use pronto_wire::{InlinePayload, NodeId, ServiceId};

    use super::*;
    use crate::Node;

    /// Returns a node for the tokens of jobs.
    fn node() -> Node {
        Node::builder(1).start().expect("it listens nowhere")
    }

    fn job(node: &Node, class: Class) -> Work {
        let session = Arc::new(Session::new(NodeId(9), Limits::default()));
        let origin = Origin { session, host: Arc::clone(&node.host) };
        Work::Handle(Job {
            token: TokenSlot::unowed(None, class).token().detach(origin),
            type_id: TypeId(0),
            service: ServiceId(0),
            deadline: Nanos::NEVER,
            payload: Arrived::Inline(InlinePayload::EMPTY),
        })
    }

    /// Shows: calls.worker-wake-ups
    #[test]
    fn one_worker_is_woken_for_many_jobs_and_wakes_the_next() {
        let node = node();
        let mut state = State { places: 4, threads: 3, idle: 3, ..State::default() };
        assert!(state.next_worker().is_none(), "the ready queue is empty");
        for class in [Class::Control, Class::Bulk, Class::Control] {
            state.enqueue(None, job(&node, class));
        }
        assert!(matches!(state.next_worker(), Some(NextWorker::Idle)));
        assert!(state.next_worker().is_none(), "a worker was woken already");
        // That worker runs and takes a job.
        state.idle -= 1;
        state.worker_runs();
        state.ready.pop();
        assert!(matches!(state.next_worker(), Some(NextWorker::Idle)), "for the other jobs");
        // A worker with a spurious wake-up finds no job left.
        state.ready = Ready::new();
        state.worker_runs();
        state.worker_runs();
        state.enqueue(None, job(&node, Class::Control));
        assert!(matches!(state.next_worker(), Some(NextWorker::Idle)));
    }

    #[test]
    fn control_is_taken_before_bulk_also_from_a_lane() {
        let node = node();
        let mut state = State::default();
        let lane = LaneKey::of_type(TypeId(1));
        assert!(state.lanes.push(lane, job(&node, Class::Control)).is_some(), "it runs");
        assert!(
            state.lanes.push(lane, job(&node, Class::Control)).is_none(),
            "it waits for the first job of the lane"
        );
        state.enqueue(None, job(&node, Class::Bulk));
        let next = state.lanes.finish(&lane).expect("the lane has a second job");
        state.enqueue(Some(lane), next);
        let taken = [state.ready.pop(), state.ready.pop()];
        let taken = taken.map(|job| job.map(|(lane, work)| (lane, work.class())));
        assert_eq!(taken, [Some((Some(lane), Class::Control)), Some((None, Class::Bulk))]);
    }

    #[test]
    fn no_worker_is_woken_if_no_place_is_free() {
        let node = node();
        let mut state = State { places: 2, threads: 2, running: 2, ..State::default() };
        state.enqueue(None, job(&node, Class::Control));
        assert!(state.next_worker().is_none());
        // Before the pool starts and after it stops there is no host; then no thread is started or counted.
        state.places += 1;
        assert!(state.next_worker().is_none());
        assert_eq!((state.threads, state.woken), (2, 0));
    }
}
