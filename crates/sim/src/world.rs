//! Handle of a simulated world: its clock, nodes, connections, faults.

use core::fmt;
use core::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pronto_core::fabric::ConnectionLimits;
use pronto_core::{Clock, Nanos};
use pronto_sync::atomic::{AtomicU64, Ordering};
use pronto_wire::CallId;

use crate::fault::{Fault, Fired};
use crate::link::Exchanged;
use crate::options::SimOptions;
use crate::queue_pair::SimQueuePair;
use crate::state::{Event, Node, Shift, State};
use crate::threads::{self, Quiet};
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

    pub(crate) fn lock(&self) -> Locked<'_> {
        threads::point();
        let quiet = Quiet::new();
        // A panic in a test's thread leaves the state consistent: each method finishes its change.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { state, _quiet: quiet }
    }

    /// Gives queue pairs channels in which simulated threads can sleep. Called before connections are made.
    pub(crate) fn with_channels(self) -> Self {
        self.lock().has_channels = true;
        self
    }

    /// Makes channels lose one event in `one_in`; 0 means none. The message of a lost event stays.
    pub(crate) fn losing_events(self, one_in: u32) -> Self {
        self.lock().lost_event_one_in = one_in;
        self
    }

    /// Executes everything due in `span`, and advances the time by it.
    pub(crate) fn pass(&self, span: Nanos) {
        let until = self.lock().now + span;
        self.run_until(until);
    }

    /// Takes the channels that have had an event since the last call.
    pub(crate) fn take_rung(&self) -> Vec<i32> {
        core::mem::take(&mut self.lock().rung)
    }

    /// Returns whether a channel has an event that would end a sleep.
    pub(crate) fn is_readable(&self, channel: i32) -> bool {
        let state = self.lock();
        let end = state.end_of(channel);
        !end.closed && if state.has_sockets() { end.has_anything() } else { end.event }
    }

    /// Returns whether no event can ever come from these channels, because their link is closed or there are none.
    pub(crate) fn are_closed(&self, channels: &[i32]) -> bool {
        let state = self.lock();
        channels.iter().all(|channel| state.end_of(*channel).closed)
    }

    /// Returns whether a poll would find something at the end with this channel. If `solicited`, only solicited messages and
    /// the loss of the connection count.
    pub(crate) fn has_anything(&self, channel: i32, solicited: bool) -> bool {
        let state = self.lock();
        let end = state.end_of(channel);
        if !solicited {
            return end.has_anything();
        }
        !end.closed && (end.failed.is_some() || end.inbox.iter().any(|message| message.solicited))
    }

    /// Returns whether the response to a call of `from` to `to` has arrived and nobody has received it.
    pub(crate) fn has_response(&self, from: SimNode, to: SimNode, call: CallId) -> bool {
        let state = self.lock();
        let between = |link: &&crate::link::Link| {
            let nodes = link.ends.each_ref().map(|end| end.node);
            nodes == [from, to] || nodes == [to, from]
        };
        let own = |end: &&crate::link::End| end.node == from && !end.closed;
        let ends = state.links.iter().filter(between).flat_map(|link| link.ends.iter().filter(own));
        ends.flat_map(|end| &end.inbox).any(|message| message.response() == Some(call))
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
        SimClock { now: self.clock.clone(), shift: Arc::default() }
    }

    /// Returns a node's clock: the world's, minus the time for which its machine was suspended, plus the distances by which the clock has
    /// leapt.
    pub fn clock_of(&self, node: SimNode) -> SimClock {
        SimClock { now: self.clock.clone(), shift: Arc::clone(&self.lock().node(node).shift) }
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

    /// Returns the number of connections that were made, including those that have ended.
    pub fn connections(&self) -> usize {
        self.lock().links.len()
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

    /// Makes the next poll of each connection of a node find nothing, unless a thread reports before that an event has woken it, as in a
    /// provider that skips the first receive after `arm`.
    pub fn skip_polls(&self, node: SimNode) {
        let mut state = self.lock();
        let ends = state.links.iter_mut().flat_map(|link| &mut link.ends);
        ends.filter(|end| end.node == node).for_each(|end| end.skips = true);
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

/// The locked state of a world. The simulated thread that holds it is not switched.
pub(crate) struct Locked<'a> {
    // Dropped before the thread may be switched.
    state: MutexGuard<'a, State>,
    _quiet: Quiet,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
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
    shift: Arc<Shift>,
}

impl SimClock {
    /// Converts a time of this clock to the time of the world, unless the machine is suspended before then.
    pub(crate) fn in_world(&self, time: Nanos) -> Nanos {
        let Shift { behind, ahead, .. } = &*self.shift;
        if time == Nanos::NEVER {
            return time;
        }
        let time = time + Nanos(behind.load(Ordering::Relaxed));
        Nanos(time.0.saturating_sub(ahead.load(Ordering::Relaxed)))
    }
}

impl Clock for SimClock {
    fn now(&self) -> Nanos {
        // SYNC: a plain number; nothing is ordered by it.
        let Shift { behind, ahead, until } = &*self.shift;
        let now = self.now.load(Ordering::Relaxed).max(until.load(Ordering::Relaxed));
        Nanos(now + ahead.load(Ordering::Relaxed) - behind.load(Ordering::Relaxed))
    }
}
