//! Handle of a simulated world: its clock, nodes, connections, faults.

use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pronto_core::fabric::ConnectionLimits;
use pronto_core::{Clock, Nanos};
use pronto_sync::atomic::{AtomicU64, Ordering};
use pronto_wire::CallId;

use crate::fault::{Fault, Fired};
use crate::link::Exchanged;
use crate::options::SimOptions;
use crate::queue_pair::SimQueuePair;
use crate::state::{Event, Node, Slept, State};
use crate::trace::Trace;

/// A machine of the simulated world, with one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimNode(pub usize);

/// A connection of the simulated world; its number is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// A world with its own time. Cheap to clone; all clones refer to the same world.
///
/// Nothing moves by itself: [`SimWorld::step`] executes the next event of the network, and advances the time to it. For
/// nodes that act, build a [`crate::Simulation`] around it.
#[derive(Clone)]
pub struct SimWorld {
    state: Arc<Mutex<State>>,
    clock: Arc<AtomicU64>,
}

impl SimWorld {
    /// Creates an empty world. Two worlds with the same seed and options behave alike under the same calls.
    pub fn new(seed: u64, options: SimOptions) -> Self {
        let state = State::new(seed, options);
        let clock = state.clock.clone();
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a test's thread leaves the state consistent: each method finishes its change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a live node.
    pub fn add_node(&self) -> SimNode {
        let mut state = self.lock();
        state.nodes.push(Node::new());
        SimNode(state.nodes.len() - 1)
    }

    /// Connects two nodes immediately; `limits` are those of `a`.
    pub fn connect(&self, a: SimNode, b: SimNode, limits: ConnectionLimits) -> (SimQueuePair, SimQueuePair) {
        let link = self.lock().connect([a, b], [limits, limits.mirrored()]);
        let end = |end| SimQueuePair::new(self.clone(), link, end);
        (end(0), end(1))
    }

    /// Returns the world's clock.
    pub fn clock(&self) -> SimClock {
        SimClock { now: self.clock.clone(), slept: Arc::default() }
    }

    /// Returns a node's clock: the world's, minus the time for which its machine was suspended.
    pub fn clock_of(&self, node: SimNode) -> SimClock {
        SimClock { now: self.clock.clone(), slept: Arc::clone(&self.lock().node(node).slept) }
    }

    /// Returns the current time.
    pub fn now(&self) -> Nanos {
        self.lock().now
    }

    /// Returns the time of the next event of the network.
    pub fn next_event(&self) -> Option<Nanos> {
        self.lock().next_event()
    }

    /// Executes the next event of the network, and advances the time to it. Returns false if there is none.
    pub fn step(&self) -> bool {
        self.lock().step()
    }

    /// Executes everything up to `time`, and advances the time to it.
    pub fn run_until(&self, time: Nanos) {
        let mut state = self.lock();
        while state.next_event().is_some_and(|at| at <= time) {
            state.step();
        }
        state.advance_to(time);
    }

    /// Advances the time, but not beyond the next event.
    pub fn advance_to(&self, time: Nanos) {
        let mut state = self.lock();
        let time = state.next_event().map_or(time, |event| event.min(time));
        state.advance_to(time);
    }

    /// Injects a fault now.
    pub fn inflict(&self, fault: Fault) {
        self.lock().inflict(fault);
    }

    /// Injects a fault at a time.
    pub fn schedule(&self, at: Nanos, fault: Fault) {
        self.lock().schedule(at, Event::Fault(fault));
    }

    /// Returns the counters of faults.
    pub fn fired(&self) -> Fired {
        self.lock().fired
    }

    /// Returns whether a node's process runs.
    pub fn is_alive(&self, node: SimNode) -> bool {
        self.lock().node(node).alive
    }

    /// Returns the incarnation of a node's process; the first is 1.
    pub fn incarnation(&self, node: SimNode) -> u32 {
        self.lock().node(node).incarnation
    }

    /// Returns the time of a node's next turn because of network events since its last one, if any.
    pub fn wake_time(&self, node: SimNode) -> Option<Nanos> {
        self.lock().node(node).wake
    }

    /// Returns the earliest time at which a node can make a turn that it requests for `time`: later if it is paused or
    /// slow.
    pub fn turn_time(&self, node: SimNode, time: Nanos) -> Nanos {
        let mut state = self.lock();
        let node = state.node(node);
        (time + node.slow_by).max(node.paused_until)
    }

    /// Notes that the node makes its turn and so handles its pending events.
    pub fn clear_wake(&self, node: SimNode) {
        self.lock().node(node).wake = None;
    }

    /// Adds an entry to the trace.
    pub fn note(&self, what: &'static str, numbers: [u64; 3]) {
        self.lock().note(what, numbers);
    }

    /// Returns the trace.
    pub fn trace(&self) -> Trace {
        self.lock().trace.clone()
    }

    /// Returns the number of messages that arrived while every receive was in use: violations of flow control.
    pub fn overruns(&self) -> u64 {
        self.lock().overruns
    }

    /// Returns the counts of requests sent and responses received at both ends of a connection. The dialling end, or
    /// `a` of [`Self::connect`], comes first.
    pub fn exchanged(&self, link: LinkId) -> [Exchanged; 2] {
        self.lock().links[link.0].ends.each_ref().map(|end| end.exchanged)
    }

    /// Returns whether a connection from the current incarnation of one node to another has accepted the request of a call.
    pub fn has_accepted(&self, from: SimNode, to: SimNode, call: CallId) -> bool {
        let state = self.lock();
        let incarnation = state.nodes[from.0].incarnation;
        state.accepted.contains(&(from, incarnation, to, (call.slot, call.generation)))
    }

    /// Returns the number of responses in the world that arrived on a connection in excess of the requests sent on it.
    /// Each of them takes a receive that no request has reserved.
    pub fn unasked_responses(&self) -> u64 {
        self.lock().unasked
    }

    /// Returns the number of received payloads that are held, in the whole world.
    pub fn leases(&self) -> u32 {
        self.lock().links.iter().flat_map(|link| &link.ends).map(|end| end.leases).sum()
    }

    /// Returns the number of signalled work requests that have not completed, in the whole world.
    pub fn outstanding(&self) -> usize {
        self.lock().links.iter().flat_map(|link| &link.ends).map(|end| end.outstanding.len()).sum()
    }
}

impl fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimWorld").field("now", &self.clock.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}

/// Clock of a simulated world, or of one node of it.
#[derive(Clone, Debug)]
pub struct SimClock {
    now: Arc<AtomicU64>,
    slept: Arc<Slept>,
}

impl SimClock {
    /// Converts a time of this clock to the time of the world, unless the machine is suspended before then.
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
