//! The workers: they run every handler that is not inline.
//!
//! A lane runs its jobs one at a time, in their order. Jobs that may run now wait in one ready queue per class. A worker takes control
//! before bulk, whatever arrived first, and takes one of bulk after a bounded number of control, so that bulk does not starve. A bulk
//! handler that has begun is not interrupted.
//!
//! A worker that waits in a nested call leaves its place to a spare, so that two nodes that call each other from their
//! handlers do not wait for each other's workers; up to a bound.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::dispatch::{Lanes, Ready};
use pronto_wire::TypeId;

use crate::flight;
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
    ready: Ready<(Option<LaneKey>, Job)>,
    lanes: Lanes<LaneKey, Job>,
    /// Workers that may run handlers now.
    places: usize,
    /// Threads there are.
    threads: usize,
    /// Idle workers that wait for the common word.
    idle: usize,
    /// Idle workers that each sleep on a descriptor of their own, where a booster finds them.
    bells: Vec<Arc<EventFd>>,
    /// Workers that were called and have not looked yet. While there is one nobody else is: it calls the next.
    coming: usize,
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

    /// Queues a job, in its lane if it has one. [`Self::wake`] is to follow. A pool that has stopped drops the job, which
    /// fails its call.
    pub(crate) fn submit(&self, lane: Option<LaneKey>, job: Job) {
        let mut state = self.shared.state.lock().expect("no holder panics");
        if state.stopping {
            // A token that is dropped sends, which must not happen under this lock.
            drop(state);
            drop(job);
            return;
        }
        let job = match lane {
            Some(lane) => state.lanes.push(lane, job),
            None => Some(job),
        };
        if let Some(job) = job {
            state.enqueue(lane, job);
        }
    }

    /// Calls a worker for what was submitted.
    pub(crate) fn wake(&self) {
        let called = self.shared.state.lock().expect("no holder panics").call();
        self.shared.fetch(called);
    }

    /// Leaves the calling worker's place to another. None if too many have been left.
    pub(crate) fn leave_place(&self) -> Option<Left> {
        let mut state = self.shared.state.lock().expect("no holder panics");
        if state.left >= SPARES {
            return None;
        }
        state.left += 1;
        state.places += 1;
        let called = state.call();
        drop(state);
        self.shared.fetch(called);
        Some(Left(Arc::clone(&self.shared)))
    }

    /// Whether nothing runs and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.shared.state.lock().expect("no holder panics");
        state.ready.is_empty() && state.running == 0 && state.lanes.running() == 0
    }

    /// Workers end after what they run now. Jobs that still wait are dropped, which fails their calls.
    pub(crate) fn stop(&self) {
        let mut state = self.shared.state.lock().expect("no holder panics");
        state.stopping = true;
        state.host = None;
        let (ready, lanes) = (core::mem::take(&mut state.ready), core::mem::take(&mut state.lanes));
        let bells = core::mem::take(&mut state.bells);
        drop(state);
        // Their tokens send, which must not happen under the pool's lock.
        drop((ready, lanes));
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

/// Who is to take the next job.
#[derive(Debug)]
enum Called {
    /// One of the idle workers without a bell.
    Idle,
    /// The idle worker whose bell it is.
    Bell(Arc<EventFd>),
    /// A thread that is to be started.
    New(Arc<NodeHost>, String),
}

impl State {
    /// Queues a job that may run now, behind those of its class.
    fn enqueue(&mut self, lane: Option<LaneKey>, job: Job) {
        self.ready.push(job.token.class(), (lane, job));
    }

    /// Who is to take the next job, if there is one, nobody is coming for it, and a place is free.
    fn call(&mut self) -> Option<Called> {
        if self.ready.is_empty() || self.coming > 0 {
            return None;
        }
        let called = if let Some(bell) = self.bells.pop() {
            Called::Bell(bell)
        } else if self.idle > 0 {
            Called::Idle
        } else if self.threads < self.places {
            let host = Arc::clone(self.host.as_ref()?);
            let name = format!("pronto-worker-{}", self.threads);
            self.threads += 1;
            Called::New(host, name)
        } else {
            return None;
        };
        self.coming += 1;
        Some(called)
    }

    /// A worker looks. One that woke by itself is taken for one that was called: then one more than needed is called.
    fn came(&mut self) {
        self.coming = self.coming.saturating_sub(1);
    }
}

impl Shared {
    /// Lets the worker that was called know; a system call, made without the lock.
    fn fetch(self: &Arc<Self>, called: Option<Called>) {
        match called {
            None => {}
            Some(Called::Idle) => self.work.notify_one(),
            Some(Called::Bell(bell)) => ring(&bell),
            Some(Called::New(host, name)) => {
                let shared = Arc::clone(self);
                let started = std::thread::Builder::new().name(name).spawn(move || shared.work(&host));
                if let Err(error) = started {
                    tracing::error!(%error, "no thread for a worker; its work waits for another");
                    let mut state = self.state.lock().expect("no holder panics");
                    state.threads -= 1;
                    state.came();
                }
            }
        }
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

    /// A worker: takes jobs until the pool stops, or there are more threads than places. Before it runs one it calls who takes the next: who
    /// submits many makes one system call and not one each.
    fn work(self: &Arc<Self>, host: &Arc<NodeHost>) {
        host.leave_seat();
        host.boosting.adopt();
        let bell = host.boosting.needs_descriptors().then(|| bell(host)).flatten();
        host.boosting.before_wait();
        flight::awake(host);
        let mut state = self.state.lock().expect("no holder panics");
        state.came();
        loop {
            if state.stopping || state.threads > state.places {
                break;
            }
            let Some((lane, job)) = state.ready.pop() else {
                state = self.rest(state, bell.as_ref());
                flight::awake(host);
                state.came();
                continue;
            };
            let called = state.call();
            state.running += 1;
            drop(state);
            self.fetch(called);
            job.run_pooled(host);
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
        // What this worker was called for is another's.
        let called = state.call();
        drop(state);
        self.fetch(called);
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

#[cfg(test)]
mod tests {
    use pronto_core::Nanos;
    use pronto_core::fabric::Arrived;
    use pronto_core::session::{Limits, Session, TokenSlot};
    use pronto_rpc::handler::Origin;
    use pronto_wire::{Class, InlinePayload, NodeId, ServiceId};

    use super::*;
    use crate::Node;

    /// A node for the tokens of jobs that nobody has sent.
    fn node() -> Node {
        Node::builder(1).start().expect("it listens nowhere")
    }

    fn job(node: &Node, class: Class) -> Job {
        let session = Arc::new(Session::new(NodeId(9), Limits::default()));
        let origin = Origin { session, host: Arc::clone(&node.host) };
        Job {
            token: TokenSlot::unowed(None, class).token().detach(origin),
            type_id: TypeId(0),
            service: ServiceId(0),
            deadline: Nanos::NEVER,
            payload: Arrived::Inline(InlinePayload::EMPTY),
        }
    }

    #[test]
    fn one_worker_is_called_for_many_jobs_and_calls_the_next() {
        let node = node();
        let mut state = State { places: 4, threads: 3, idle: 3, ..State::default() };
        assert!(state.call().is_none(), "there is nothing to do");
        for class in [Class::Control, Class::Bulk, Class::Control] {
            state.enqueue(None, job(&node, class));
        }
        assert!(matches!(state.call(), Some(Called::Idle)));
        assert!(state.call().is_none(), "one is coming");
        // It comes, and takes one.
        state.idle -= 1;
        state.came();
        state.ready.pop();
        assert!(matches!(state.call(), Some(Called::Idle)), "for the rest");
        // And one that woke by itself found the rest done.
        state.ready = Ready::new();
        state.came();
        state.came();
        state.enqueue(None, job(&node, Class::Control));
        assert!(matches!(state.call(), Some(Called::Idle)));
    }

    #[test]
    fn control_is_taken_before_bulk_also_where_it_comes_out_of_a_lane() {
        let node = node();
        let mut state = State::default();
        let lane = LaneKey::of_type(TypeId(1));
        assert!(state.lanes.push(lane, job(&node, Class::Control)).is_some(), "it runs");
        assert!(state.lanes.push(lane, job(&node, Class::Control)).is_none(), "it waits for the first");
        state.enqueue(None, job(&node, Class::Bulk));
        let next = state.lanes.finish(&lane).expect("it waits no more");
        state.enqueue(Some(lane), next);
        let taken = [state.ready.pop(), state.ready.pop()];
        let taken = taken.map(|job| job.map(|(lane, job)| (lane, job.token.class())));
        assert_eq!(taken, [Some((Some(lane), Class::Control)), Some((None, Class::Bulk))]);
    }

    #[test]
    fn nobody_is_called_where_no_place_is_free() {
        let node = node();
        let mut state = State { places: 2, threads: 2, running: 2, ..State::default() };
        state.enqueue(None, job(&node, Class::Control));
        assert!(state.call().is_none());
        // Not before a pool has begun, or after its end: without a host no thread is started, and none is counted.
        state.places += 1;
        assert!(state.call().is_none());
        assert_eq!((state.threads, state.coming), (2, 0));
    }
}
