//! The whole world behind one lock: agenda, links, nodes, randomness, trace.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pronto_core::Nanos;
use pronto_core::fabric::{Armed, DoorbellEvent, FabricError, PeerFault, Status, WrId};
use pronto_sync::Arc;
use pronto_sync::atomic::{AtomicU64, Ordering};
use pronto_wire::CallId;

use crate::access::Outcome;
use crate::dial::{Attempt, DialId, Ended};
use crate::fault::{Fault, Fired};
use crate::link::{End, Frame, Link, Message};
use crate::options::{CompletionMeaning, SimOptions, Target};
use crate::queue_pair::channel_of;
use crate::random::Random;
use crate::trace::Trace;
use crate::world::{LinkId, SimNode};

/// State of the world.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: Nanos,
    /// Copy of the time, for clocks that must not take the lock.
    pub(crate) clock: Arc<AtomicU64>,
    pub(crate) options: SimOptions,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) fired: Fired,
    pub(crate) links: Vec<Link>,
    pub(crate) nodes: Vec<Node>,
    /// Directions in which nothing passes.
    pub(crate) blocked: BTreeSet<(SimNode, SimNode)>,
    /// Directions in which no message is taken, with the time of their end.
    pub(crate) full_until: BTreeMap<(SimNode, SimNode), Nanos>,
    /// Directions in which the next message is damaged.
    pub(crate) damaging: BTreeSet<(SimNode, SimNode)>,
    /// Number of grant keys in the world so far.
    pub(crate) keys: u64,
    pub(crate) overruns: u64,
    /// Requests that a connection has accepted: the node, its incarnation, the peer, and the call's slot and generation.
    pub(crate) accepted: BTreeSet<(SimNode, u32, SimNode, (u16, u32))>,
    /// Responses that arrived on a connection in excess of the requests sent on it.
    pub(crate) unasked: u64,
    pub(crate) attempts: BTreeMap<DialId, Attempt>,
    pub(crate) dials: u64,
    /// True if threads sleep in channels: queue pairs then have them.
    pub(crate) has_channels: bool,
    /// One event in this number is lost; 0 means none. Channels that resemble sockets lose none.
    pub(crate) lost_event_one_in: u32,
    /// Channels that have had an event since [`SimWorld::take_rung`](crate::SimWorld::take_rung), in order.
    pub(crate) rung: Vec<i32>,
    agenda: BTreeMap<(Nanos, u64), Event>,
    scheduled: u64,
}

/// Differences between the clock of a machine and that of the world.
#[derive(Debug, Default)]
pub(crate) struct Shift {
    /// Time for which the machine was suspended, nanoseconds.
    pub(crate) behind: AtomicU64,
    /// Time by which the machine's clock has leapt forward, nanoseconds.
    pub(crate) ahead: AtomicU64,
    /// Time until which the clock stands still, nanoseconds.
    pub(crate) until: AtomicU64,
}

/// One machine with one process.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) alive: bool,
    /// True if the machine is dead: nothing responds for it.
    pub(crate) dark: bool,
    /// Number of the node's incarnations.
    pub(crate) incarnation: u32,
    pub(crate) slow_by: Nanos,
    pub(crate) paused_until: Nanos,
    /// Before this time its system makes no send memory ready.
    pub(crate) exhausted_until: Nanos,
    pub(crate) shift: Arc<Shift>,
    /// Time of its next turn because of an event.
    pub(crate) wake: Option<Nanos>,
    pub(crate) incoming: VecDeque<DialId>,
    pub(crate) dialled: VecDeque<Ended>,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self {
            alive: true,
            dark: false,
            incarnation: 1,
            slow_by: Nanos::ZERO,
            paused_until: Nanos::ZERO,
            exhausted_until: Nanos::ZERO,
            shift: Arc::default(),
            wake: None,
            incoming: VecDeque::new(),
            dialled: VecDeque::new(),
        }
    }
}

/// A future event.
#[derive(Debug)]
pub(crate) enum Event {
    /// The first frame in flight on this end's line arrives.
    Arrive {
        link: LinkId,
        from: usize,
    },
    /// A send completes without an action of the other end.
    Copied {
        link: LinkId,
        end: usize,
        wr: WrId,
    },
    /// Frames have waited for too long, unless it was another wait.
    GiveUp {
        link: LinkId,
        from: usize,
        stall: u64,
    },
    /// An end is notified that its connection is cut.
    Notice {
        link: LinkId,
        end: usize,
    },
    /// A hello reaches its target, or does not.
    Hello(DialId),
    /// The response to a hello arrives, or does not.
    HelloAnswered(DialId),
    /// An attempt to connect times out, if it has not ended.
    DialTimeout(DialId),
    /// The time in which connections took no message ends, unless another one has begun.
    Room {
        from: SimNode,
        to: SimNode,
    },
    Fault(Fault),
}

impl State {
    pub(crate) fn new(seed: u64, options: SimOptions) -> Self {
        Self {
            now: Nanos::ZERO,
            clock: Arc::new(AtomicU64::new(0)),
            options,
            random: Random::new(seed),
            trace: Trace::new(),
            fired: Fired::default(),
            links: Vec::new(),
            nodes: Vec::new(),
            blocked: BTreeSet::new(),
            full_until: BTreeMap::new(),
            damaging: BTreeSet::new(),
            keys: 0,
            accepted: BTreeSet::new(),
            overruns: 0,
            unasked: 0,
            attempts: BTreeMap::new(),
            dials: 0,
            has_channels: false,
            lost_event_one_in: 0,
            rung: Vec::new(),
            agenda: BTreeMap::new(),
            scheduled: 0,
        }
    }

    pub(crate) fn note(&mut self, what: &'static str, numbers: [u64; 3]) {
        self.trace.note(self.now, what, numbers);
    }

    pub(crate) fn schedule(&mut self, at: Nanos, event: Event) {
        self.scheduled += 1;
        self.agenda.insert((at.max(self.now), self.scheduled), event);
    }

    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.agenda.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn advance_to(&mut self, at: Nanos) {
        self.now = self.now.max(at);
        // SYNC: a plain number; readers elsewhere order nothing by it.
        self.clock.store(self.now.0, Ordering::Relaxed);
    }

    /// Executes the earliest event. Returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.agenda.pop_first() else { return false };
        self.advance_to(at);
        match event {
            Event::Arrive { link, from } => {
                if let Some(frame) = self.link(link).lines[from].in_flight.pop_front() {
                    self.deliver(link, 1 - from, frame);
                }
            }
            Event::Copied { link, end, wr } => self.complete(link, end, wr, Status::Done(0)),
            Event::GiveUp { link, from, stall } => self.give_up(link, from, stall),
            Event::Notice { link, end } => self.fail(link, end, FabricError::Lost),
            Event::Hello(id) => self.hello(id),
            Event::HelloAnswered(id) => self.hello_answered(id),
            Event::DialTimeout(id) => self.dial_timeout(id),
            Event::Room { from, to } => self.room(from, to),
            Event::Fault(fault) => self.inflict(fault),
        }
        true
    }

    pub(crate) fn link(&mut self, link: LinkId) -> &mut Link {
        &mut self.links[link.0]
    }

    /// Returns the end with this channel.
    pub(crate) fn end_of(&self, channel: i32) -> &End {
        let channel = usize::try_from(channel).expect("a channel of this world");
        &self.links[channel / 2].ends[channel % 2]
    }

    pub(crate) fn node(&mut self, node: SimNode) -> &mut Node {
        &mut self.nodes[node.0]
    }

    /// Returns whether frames pass from one node to another.
    pub(crate) fn is_open(&self, from: SimNode, to: SimNode) -> bool {
        !self.blocked.contains(&(from, to)) && !self.nodes[to.0].dark && !self.nodes[from.0].dark
    }

    /// Records a request that a connection has accepted.
    pub(crate) fn accept(&mut self, link: LinkId, end: usize, call: CallId) {
        let ends = &self.links[link.0].ends;
        let (from, to) = (ends[end].node, ends[1 - end].node);
        let incarnation = self.nodes[from.0].incarnation;
        self.accepted.insert((from, incarnation, to, (call.slot, call.generation)));
    }

    /// Returns whether connections from one node to another take no message now.
    pub(crate) fn is_full(&self, from: SimNode, to: SimNode) -> bool {
        self.full_until.get(&(from, to)).is_some_and(|until| self.now < *until)
    }

    /// Raises an event at an end if it is armed for one of this kind, which wakes its node and the threads that sleep in its channel. A
    /// channel that resembles a socket wakes them in any case.
    pub(crate) fn touch(&mut self, link: LinkId, end: usize, event: DoorbellEvent) {
        let is_armed = self.link(link).ends[end].is_armed_for(event);
        if is_armed {
            self.link(link).ends[end].armed = Armed::Nothing;
        }
        if is_armed && !self.has_sockets() && self.random.one_in(self.lost_event_one_in) {
            return;
        }
        if self.has_channels && (self.has_sockets() || is_armed) {
            self.rung.push(channel_of(link, end));
        }
        if is_armed {
            let end = &mut self.link(link).ends[end];
            end.event = true;
            let node = end.node;
            self.wake(node);
        }
    }

    /// Returns whether channels resemble sockets, which are readable while anything is there. Other channels have an event if one was
    /// requested before it came.
    pub(crate) fn has_sockets(&self) -> bool {
        self.options.completion == CompletionMeaning::Copied
    }

    pub(crate) fn wake(&mut self, node: SimNode) {
        let after = self.random.within(self.options.wake);
        let now = self.now;
        let node = self.node(node);
        let at = (now + after + node.slow_by).max(node.paused_until);
        node.wake = Some(node.wake.map_or(at, |earlier| earlier.min(at)));
    }

    /// Sends a frame, unless the connection is cut. A frame that cannot pass waits in order.
    pub(crate) fn transmit(&mut self, id: LinkId, from: usize, frame: Frame) {
        let [source, target] = [from, 1 - from].map(|end| self.links[id.0].ends[end].node);
        let open = self.is_open(source, target);
        let link = self.link(id);
        if link.cut {
            return;
        }
        let gone = link.ends[from].is_gone();
        let line = &mut link.lines[from];
        if open && line.stalled.is_empty() {
            self.fly(id, from, frame);
            return;
        }
        line.stalled.push_back(frame);
        // An end that is gone retries forever: it has no connection to give up.
        if line.stalled.len() == 1 && !gone {
            line.stalls += 1;
            let stall = line.stalls;
            let at = self.now + self.options.retry_for;
            self.schedule(at, Event::GiveUp { link: id, from, stall });
        }
        self.fired.stalled_frames += 1;
    }

    fn fly(&mut self, id: LinkId, from: usize, frame: Frame) {
        let mut delay = self.random.within(self.options.delay);
        if self.random.one_in(self.options.spike_one_in) {
            delay = delay + self.random.within(self.options.spike);
            self.fired.spikes += 1;
        }
        let now = self.now;
        let line = &mut self.link(id).lines[from];
        line.last_arrival = line.last_arrival.max(now + delay);
        line.in_flight.push_back(frame);
        let at = line.last_arrival;
        self.schedule(at, Event::Arrive { link: id, from });
    }

    /// Sends the waiting frames that can pass now.
    pub(crate) fn release_stalled(&mut self) {
        for index in 0..self.links.len() {
            for from in [0, 1] {
                let link = &self.links[index];
                if self.is_open(link.ends[from].node, link.ends[1 - from].node) {
                    for frame in core::mem::take(&mut self.links[index].lines[from].stalled) {
                        self.fly(LinkId(index), from, frame);
                    }
                }
            }
        }
    }

    fn deliver(&mut self, id: LinkId, to: usize, frame: Frame) {
        self.note(frame.name(), [id.0 as u64, to as u64, frame.len() as u64]);
        if self.links[id.0].ends[to].is_gone() {
            // Like a TCP reset for a segment without a connection; a reset itself gets no response.
            if !matches!(frame, Frame::Closed) {
                self.transmit(id, to, Frame::Closed);
            }
            return;
        }
        match frame {
            Frame::Message(message) => self.receive(id, to, message),
            Frame::Ack(wr) => self.complete(id, to, wr, Status::Done(0)),
            Frame::Request(request) if self.options.target == Target::Passive => {
                let outcome = request.serve(&self.links[id.0].ends[to], self.options.atomics);
                self.answer(id, to, outcome);
            }
            Frame::Request(request) => {
                self.link(id).ends[to].requests.push_back(request);
                self.touch(id, to, DoorbellEvent::Solicited);
            }
            Frame::Response(outcome) => self.conclude(id, to, &outcome),
            Frame::Closed => self.fail(id, to, FabricError::Lost),
        }
    }

    fn receive(&mut self, id: LinkId, to: usize, mut message: Message) {
        let end = &self.links[id.0].ends[to];
        let in_use = end.inbox.len() as u64 + u64::from(end.leases);
        if in_use >= u64::from(end.limits.receive_depth) {
            self.overruns += 1;
            self.fail(id, to, PeerFault::Overrun.into());
            self.transmit(id, to, Frame::Closed);
            return;
        }
        if self.options.completion == CompletionMeaning::Acknowledged {
            message.body.own();
            if let Some(wr) = message.wr.take() {
                self.transmit(id, to, Frame::Ack(wr));
            }
        }
        let direction = [1 - to, to].map(|end| self.links[id.0].ends[end].node).into();
        if self.damaging.remove(&direction) {
            self.fired.damaged += 1;
            message.damage();
        }
        let is_response = message.is_response();
        let end = &mut self.link(id).ends[to];
        end.exchanged.responses += u64::from(is_response);
        let unasked = is_response && end.exchanged.responses > end.exchanged.requests;
        let event = if message.solicited { DoorbellEvent::Solicited } else { DoorbellEvent::Unsolicited };
        end.inbox.push_back(message);
        self.unasked += u64::from(unasked);
        self.touch(id, to, event);
    }

    /// Sends the outcome of a one-sided request to the requester.
    pub(crate) fn answer(&mut self, id: LinkId, target: usize, outcome: Outcome) {
        let refused = outcome.status == Status::AccessRefused;
        self.transmit(id, target, Frame::Response(outcome));
        if refused && self.options.refusal_ends_connection {
            self.fail(id, target, PeerFault::Access.into());
        }
    }

    fn conclude(&mut self, id: LinkId, end: usize, outcome: &Outcome) {
        outcome.land();
        self.complete(id, end, outcome.wr, outcome.status);
        if outcome.status == Status::AccessRefused && self.options.refusal_ends_connection {
            self.fail(id, end, FabricError::Lost);
        }
    }

    pub(crate) fn complete(&mut self, id: LinkId, end: usize, wr: WrId, status: Status) {
        if self.link(id).ends[end].complete(wr, status) {
            self.note("completion", [id.0 as u64, end as u64, u64::from(wr.slot)]);
            self.touch(id, end, DoorbellEvent::Unsolicited);
        }
    }

    /// Fails an end because of an event outside it.
    pub(crate) fn fail(&mut self, id: LinkId, end: usize, error: FabricError) {
        if self.link(id).ends[end].is_gone() {
            return;
        }
        self.note("failure", [id.0 as u64, end as u64, 0]);
        let link = self.link(id);
        link.detach(end);
        link.ends[end].failed = Some(error);
        link.ends[end].requests.clear();
        link.ends[end].grants.clear();
        link.ends[end].flush();
        self.touch(id, end, DoorbellEvent::Solicited);
    }

    /// Closes an end. Notifies the other end, unless this end has failed before.
    pub(crate) fn close(&mut self, id: LinkId, end: usize) {
        if self.link(id).ends[end].closed {
            return;
        }
        self.note("close", [id.0 as u64, end as u64, 0]);
        let link = self.link(id);
        link.detach(end);
        let state = &mut link.ends[end];
        let told = state.failed.is_some();
        state.closed = true;
        state.inbox.clear();
        state.requests.clear();
        state.grants.clear();
        state.flush();
        if !told {
            self.transmit(id, end, Frame::Closed);
        }
    }

    fn give_up(&mut self, id: LinkId, from: usize, stall: u64) {
        let line = &mut self.link(id).lines[from];
        if line.stalled.is_empty() || line.stalls != stall {
            return;
        }
        line.stalled.clear();
        self.fired.given_up += 1;
        self.note("given up", [id.0 as u64, from as u64, 0]);
        self.fail(id, from, FabricError::Lost);
        // The other end is notified as soon as a frame can pass.
        self.transmit(id, from, Frame::Closed);
    }
}
