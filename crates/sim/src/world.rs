//! The handle to a simulated world: its clock, nodes, connections, faults.

use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pronto_core::fabric::ConnectionLimits;
use pronto_core::{Clock, Nanos};
use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::fault::{Fault, Fired};
use crate::link::Exchanged;
use crate::options::SimOptions;
use crate::queue_pair::SimQueuePair;
use crate::state::{Event, Node, Slept, State};
use crate::trace::Trace;

/// A machine of the simulated world, with one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimNode(pub usize);

/// A connection of the simulated world; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// A world with its own time. Cheap to clone; all clones are the same world.
///
/// Nothing moves by itself: [`SimWorld::step`] carries out the next thing that happens in the network, and lets time
/// pass up to it. Who needs nodes that act builds a [`crate::Simulation`] around it.
#[derive(Clone)]
pub struct SimWorld {
    state: Arc<Mutex<State>>,
    clock: Arc<AtomicU64>,
}

impl SimWorld {
    /// An empty world. Two of the same seed and options behave alike, whatever is done to both alike.
    pub fn new(seed: u64, options: SimOptions) -> Self {
        let state = State::new(seed, options);
        let clock = state.clock.clone();
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a test's thread leaves the state as whole as it was: each method ends what it begins.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a living node.
    pub fn add_node(&self) -> SimNode {
        let mut state = self.lock();
        state.nodes.push(Node::new());
        SimNode(state.nodes.len() - 1)
    }

    /// Connects two nodes at once; `limits` as `a` sees them.
    pub fn connect(&self, a: SimNode, b: SimNode, limits: ConnectionLimits) -> (SimQueuePair, SimQueuePair) {
        let link = self.lock().connect([a, b], [limits, limits.mirrored()]);
        let end = |end| SimQueuePair::new(self.clone(), link, end);
        (end(0), end(1))
    }

    /// The world's clock.
    pub fn clock(&self) -> SimClock {
        SimClock { now: self.clock.clone(), slept: Arc::default() }
    }

    /// A node's clock: the world's, less what its machine was suspended for.
    pub fn clock_of(&self, node: SimNode) -> SimClock {
        SimClock { now: self.clock.clone(), slept: Arc::clone(&self.lock().node(node).slept) }
    }

    /// Now.
    pub fn now(&self) -> Nanos {
        self.lock().now
    }

    /// When the network does something next.
    pub fn next_event(&self) -> Option<Nanos> {
        self.lock().next_event()
    }

    /// Carries out what the network does next, and lets time pass up to it; false if nothing is going to happen.
    pub fn step(&self) -> bool {
        self.lock().step()
    }

    /// Carries out everything up to a time, and lets it become that time.
    pub fn run_until(&self, time: Nanos) {
        let mut state = self.lock();
        while state.next_event().is_some_and(|at| at <= time) {
            state.step();
        }
        state.advance_to(time);
    }

    /// Lets time pass, but not beyond the next event.
    pub fn advance_to(&self, time: Nanos) {
        let mut state = self.lock();
        let time = state.next_event().map_or(time, |event| event.min(time));
        state.advance_to(time);
    }

    /// Makes something go wrong now.
    pub fn inflict(&self, fault: Fault) {
        self.lock().inflict(fault);
    }

    /// Makes something go wrong at a time.
    pub fn schedule(&self, at: Nanos, fault: Fault) {
        self.lock().schedule(at, Event::Fault(fault));
    }

    /// How often which fault has happened.
    pub fn fired(&self) -> Fired {
        self.lock().fired
    }

    /// Whether a node's process runs.
    pub fn is_alive(&self, node: SimNode) -> bool {
        self.lock().node(node).alive
    }

    /// Which life of its process a node is in; the first is 1.
    pub fn life(&self, node: SimNode) -> u32 {
        self.lock().node(node).life
    }

    /// When a node should make a turn for what the network did, if it did anything since its last one.
    pub fn wake_time(&self, node: SimNode) -> Option<Nanos> {
        self.lock().node(node).wake
    }

    /// The earliest time at which this node can make a turn that it wants at `time`: later if it is paused or slow.
    pub fn turn_time(&self, node: SimNode, time: Nanos) -> Nanos {
        let mut state = self.lock();
        let node = state.node(node);
        (time + node.slow_by).max(node.paused_until)
    }

    /// The node makes its turn: what it should be woken for, it sees now.
    pub fn clear_wake(&self, node: SimNode) {
        self.lock().node(node).wake = None;
    }

    /// Puts something into the trace.
    pub fn note(&self, what: &'static str, numbers: [u64; 3]) {
        self.lock().note(what, numbers);
    }

    /// What happened so far.
    pub fn trace(&self) -> Trace {
        self.lock().trace.clone()
    }

    /// Messages that arrived although every receive was in use: breaches of flow control.
    pub fn overruns(&self) -> u64 {
        self.lock().overruns
    }

    /// Requests sent and responses received at both ends of a connection so far; the dialling end, or `a` of
    /// [`Self::connect`], comes first.
    pub fn exchanged(&self, link: LinkId) -> [Exchanged; 2] {
        self.lock().links[link.0].ends.each_ref().map(|end| end.exchanged)
    }

    /// Responses that arrived on a connection beyond the requests that were sent on it, in all the world. Each of them takes a
    /// receive that no request has reserved.
    pub fn unasked_responses(&self) -> u64 {
        self.lock().unasked
    }

    /// Received payloads that somebody holds, in all the world.
    pub fn leases(&self) -> u32 {
        self.lock().links.iter().flat_map(|link| &link.ends).map(|end| end.leases).sum()
    }

    /// Signalled work requests that have not completed, in all the world.
    pub fn outstanding(&self) -> usize {
        self.lock().links.iter().flat_map(|link| &link.ends).map(|end| end.outstanding.len()).sum()
    }
}

impl fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimWorld").field("now", &self.clock.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}

/// The time of a simulated world, or of one node of it.
#[derive(Clone, Debug)]
pub struct SimClock {
    now: Arc<AtomicU64>,
    slept: Arc<Slept>,
}

impl SimClock {
    /// What this clock says at `time` was, or is going to be, in the world unless it is suspended before.
    pub(crate) fn in_world(&self, time: Nanos) -> Nanos {
        if time == Nanos::NEVER { time } else { time + Nanos(self.slept.behind.load(Ordering::Relaxed)) }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Nanos {
        // SYNC: a plain number; nothing is ordered by it.
        let now = self.now.load(Ordering::Relaxed).max(self.slept.until.load(Ordering::Relaxed));
        Nanos(now - self.slept.behind.load(Ordering::Relaxed))
    }
}
