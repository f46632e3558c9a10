//! A scenario node: real sessions with every peer, a serving loop like that of a real node, and a caller.

use core::cell::{Cell, RefCell};
use core::fmt;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use pronto_core::executor::WaitPolicy;
use pronto_core::fabric::{Arrived, Gather, HeapMemory, InlineMessage, Region, SHORT_PAYLOAD};
use pronto_core::session::{
    CallSpec, End, Event, FastOutcome, Identity, Inbound, Limits, OutgoingPayload, ReplySlots, SendError,
    Sink,
};
use pronto_core::{Clock as _, Nanos};
use pronto_wire::{CallId, Class, Epoch, INLINE_PAYLOAD, NodeId};

use super::handler::{Lease, NodeSink, SimSession, Workshop};
use super::handshake::Dialling;
use super::ledger::Ledger;
use super::message::{Kind, Name, STAMP, Stamp};
use super::traffic::Traffic;
use super::transfers::{Transferred, Transfers, With};
use crate::executor::SimExecutor;
use crate::random::Random;
use crate::simulation::Actor;
use crate::world::{SimNode, SimWorld};

/// Intervals between ticks while a call or send is open, and otherwise: as in a real node.
const BUSY_TICK: Nanos = Nanos::from_millis(4);
const IDLE_TICK: Nanos = Nanos::from_secs(1);
/// Maximum number of polls of all sessions in one turn; the rest waits for the next turn.
const POLL_BATCH: u32 = 64;
/// Interval at which a node in its examination retries refused calls.
const EXAM_PAUSE: Nanos = Nanos::from_micros(200);

/// Returns a short payload for the functions that copy it. Half of the payloads are not for them.
fn in_copy(payload: &OutgoingPayload) -> Option<Gather<'_>> {
    match payload {
        OutgoingPayload::Frame(frame) if frame.len() <= SHORT_PAYLOAD && !frame.len().is_multiple_of(2) => {
            Some(Gather::Short(frame.bytes()))
        }
        _ => None,
    }
}

/// Makes a call with a short payload by one of the copying functions. Returns `None` if they do not apply.
fn call_in_copy(
    session: &SimSession,
    spec: &CallSpec,
    payload: &OutgoingPayload,
    executor: &SimExecutor,
) -> Option<CallId> {
    let copied = in_copy(payload)?;
    let asked = WaitPolicy::Block.into();
    let places = ReplySlots {
        inline: &mut InlineMessage::default(),
        short: |_: &[u8]| unreachable!("the call is not polled"),
        end: &mut None,
    };
    match session.call_fast(spec, copied, asked, places, &mut Nobody, executor) {
        Some(FastOutcome::Open(call)) => Some(call),
        Some(other) => unreachable!("the call is not polled, but returned {other:?}"),
        None => None,
    }
}

/// Sink of a call that is not polled immediately.
struct Nobody;

impl Sink<Lease> for Nobody {
    fn request(&mut self, _: Inbound<'_, Arrived<Lease>>) {
        unreachable!("the call is not polled")
    }

    fn event(&mut self, _: Event) {
        unreachable!("the call is not polled")
    }
}

/// Number of calls to make, by caller, callee and class.
pub(super) type Exam = BTreeMap<(NodeId, NodeId, Class), u32>;
/// Sessions by node and peer.
pub(super) type Sessions = BTreeMap<(NodeId, NodeId), Rc<SimSession>>;

/// State shared by all nodes of a cluster.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) world: SimWorld,
    pub(super) ledger: Rc<RefCell<Ledger>>,
    pub(super) traffic: Rc<Cell<Traffic>>,
    pub(super) transferred: Rc<RefCell<Transferred>>,
    /// Calls per peer and class that every node must still make, in addition to its traffic, and get replies to.
    pub(super) exam: Rc<RefCell<Exam>>,
    /// Every session of all current incarnations.
    pub(super) sessions: Rc<RefCell<Sessions>>,
    pub(super) limits: Limits,
    pub(super) resumable: bool,
    pub(super) places: usize,
    pub(super) seed: u64,
}

/// One peer of a node.
pub(super) struct Peer {
    pub(super) session: Rc<SimSession>,
    pub(super) dialling: Dialling,
    open: Vec<Open>,
    transfers: Transfers,
    /// Time until which doorbells are held.
    held_until: Option<Nanos>,
}

/// An open call or synchronous send.
#[derive(Debug)]
struct Open {
    name: Name,
    call: CallId,
    class: Class,
    answer_len: u32,
    abandon_at: Nanos,
    /// Sender's memory of a message that was sent by reference.
    lent: Option<Region>,
}

/// One incarnation of a node.
pub(super) struct ScenarioNode {
    pub(super) world: SimWorld,
    pub(super) place: SimNode,
    pub(super) identity: Identity,
    pub(super) limits: Limits,
    pub(super) executor: SimExecutor,
    pub(super) resumable: bool,
    pub(super) peers: BTreeMap<NodeId, Peer>,
    pub(super) random: Random,
    common: Common,
    incarnation: u32,
    workshop: Workshop,
    numbers: u64,
    next_burst: Nanos,
    last_tick: Nanos,
    tick_after: Nanos,
    /// Time of the next tick if nothing is open: when a heartbeat is due or a peer may be lost.
    tick_due: Nanos,
}

impl ScenarioNode {
    pub(super) fn boot(common: &Common, place: SimNode, incarnation: u32) -> Self {
        let node = id_at(place);
        let mut random = Random::new(common.seed ^ u64::from(node.0) << 32 ^ u64::from(incarnation) << 16);
        common.ledger.borrow_mut().reborn(node.0, incarnation);
        let others = (0..common.places).map(|place| id_at(SimNode(place))).filter(|id| *id != node);
        let peers: BTreeMap<_, _> = others
            .map(|id| {
                let session = Rc::new(SimSession::new(id, common.limits));
                if common.limits.pause_after != Nanos::NEVER {
                    session.set_on_demand();
                }
                common.sessions.borrow_mut().insert((node, id), Rc::clone(&session));
                (
                    id,
                    Peer {
                        session,
                        dialling: Dialling::new(),
                        open: Vec::new(),
                        transfers: Transfers::default(),
                        held_until: None,
                    },
                )
            })
            .collect();
        let epoch = Epoch(random.next());
        let identity = Identity { node, epoch, name: format!("node {node}"), types: Kind::entries() };
        Self {
            executor: SimExecutor::of(&common.world, place),
            world: common.world.clone(),
            place,
            identity,
            limits: common.limits,
            resumable: common.resumable,
            peers,
            random,
            common: common.clone(),
            incarnation,
            workshop: Workshop::default(),
            numbers: 0,
            next_burst: Nanos::ZERO,
            last_tick: common.world.clock_of(place).now(),
            tick_after: IDLE_TICK,
            tick_due: common.world.clock_of(place).now() + IDLE_TICK,
        }
    }

    #[expect(clippy::unused_self, reason = "node ids are indices plus one everywhere")]
    pub(super) fn place_of(&self, id: NodeId) -> SimNode {
        SimNode(usize::from(id.0) - 1)
    }

    #[expect(clippy::unused_self, reason = "node ids are indices plus one everywhere")]
    pub(super) fn id_of(&self, place: SimNode) -> NodeId {
        id_at(place)
    }

    /// Returns the current traffic of the node.
    pub(super) fn traffic(&self) -> Traffic {
        self.common.traffic.get()
    }

    pub(super) fn peer_ids(&self) -> Vec<NodeId> {
        self.peers.keys().copied().collect()
    }

    pub(super) fn with_sink<R>(
        &mut self,
        peer: NodeId,
        now: Nanos,
        use_it: impl FnOnce(&SimSession, &mut NodeSink<'_>) -> R,
    ) -> R {
        let session = &self.peers[&peer].session;
        let mut sink = NodeSink {
            me: (self.identity.node, self.incarnation),
            peer,
            session,
            ledger: &self.common.ledger,
            workshop: &mut self.workshop,
            random: &mut self.random,
            traffic: self.common.traffic.get(),
            now,
            executor: &self.executor,
        };
        use_it(session, &mut sink)
    }

    /// Polls every peer once. Returns whether anything moved.
    fn poll(&mut self, now: Nanos) -> bool {
        let mut moved = false;
        let executor = self.executor.clone();
        for id in self.peer_ids() {
            let progress =
                self.with_sink(id, now, |session, sink| session.turn(1, || false, sink, &executor));
            moved |= progress.expect("no other thread holds the engine").moved != 0;
        }
        moved | self.take_ends() | self.transfer(now)
    }

    /// Processes the ends of transfers, and starts new ones. Returns whether there were any.
    fn transfer(&mut self, now: Nanos) -> bool {
        let (traffic, mut transferred) = (self.common.traffic.get(), self.common.transferred.borrow_mut());
        let mut moved = false;
        for peer in self.peers.values_mut() {
            let session = &*peer.session;
            let with = With { session, executor: &self.executor, now };
            moved |= peer.transfers.turn(&with, &traffic, &mut self.random, &mut transferred);
        }
        moved
    }

    /// Takes the ends of open calls and sends. Returns whether there were any.
    fn take_ends(&mut self) -> bool {
        let mut ends = Vec::new();
        let executor = &self.executor;
        for (id, peer) in &mut self.peers {
            let session = &peer.session;
            let to = SimNode(usize::from(id.0) - 1);
            peer.open.retain(|open| {
                let ended = session.has_ended(open.call);
                if ended {
                    let end = session.take(open.call, executor);
                    if matches!(end, End::Reply(_) | End::Done(_)) {
                        use_again(open.lent.as_ref());
                    }
                    let posted = self.world.has_accepted(self.place, to, open.call);
                    ends.push((open.name, open.answer_len, end, posted));
                }
                !ended
            });
        }
        let moved = !ends.is_empty();
        for (name, answer_len, end, posted) in ends {
            self.end(name, answer_len, end, posted);
        }
        moved
    }

    fn end(&self, name: Name, answer_len: u32, end: End<Lease>, posted: bool) {
        if let End::Reply(payload) = &end {
            let stamp = Stamp::read(payload);
            assert_eq!(stamp, Stamp { name, answer_len, answer: true }, "the reply belongs to another call");
        }
        self.common.ledger.borrow_mut().ended(name, &end, posted);
    }

    fn give_up(&mut self, now: Nanos) {
        for peer in self.peers.values_mut() {
            let (due, stay) = peer.open.drain(..).partition(|open| open.abandon_at <= now);
            peer.open = stay;
            let due: Vec<Open> = due;
            for open in due {
                peer.session.abandon(open.call, open.class, &self.executor);
                self.common.ledger.borrow_mut().abandoned(open.name);
            }
        }
    }

    /// Ends the holds of doorbells that are due.
    fn release(&mut self, now: Nanos) {
        for peer in self.peers.values_mut() {
            if peer.held_until.take_if(|until| *until <= now).is_some() {
                peer.session.release_doorbells(&self.executor);
            }
        }
    }

    /// Holds doorbells for a time.
    fn hold(&mut self, now: Nanos, traffic: &Traffic) {
        for peer in self.peers.values_mut() {
            if peer.held_until.is_none() && self.random.one_in(traffic.held_one_in) {
                peer.session.hold_doorbells();
                peer.held_until = Some(now + self.random.within(traffic.hold));
            }
        }
    }

    fn send_bursts(&mut self, now: Nanos) {
        let traffic = self.common.traffic.get();
        let Some(gap) = traffic.gap else { return };
        if now < self.next_burst {
            return;
        }
        self.next_burst = now + self.random.within(gap);
        self.hold(now, &traffic);
        for _ in 0..=self.random.below(traffic.burst.into()) {
            let ids = self.peer_ids();
            let peer = ids[usize::try_from(self.random.below(ids.len() as u64)).expect("below a length")];
            let class = if self.random.one_in(traffic.bulk_one_in) { Class::Bulk } else { Class::Control };
            self.send(peer, class, &traffic, now);
        }
    }

    /// Makes the calls of the examination.
    fn sit_exam(&mut self, now: Nanos) {
        let traffic = Traffic { notice_one_in: 0, ..Traffic::patient() };
        for peer in self.peer_ids() {
            for class in Class::ALL {
                let key = (self.identity.node, peer, class);
                let left = self.common.exam.borrow().get(&key).copied().unwrap_or(0);
                for _ in 0..left {
                    if !self.send(peer, class, &traffic, now) {
                        break;
                    }
                    *self.common.exam.borrow_mut().get_mut(&key).expect("just read") -= 1;
                }
            }
        }
    }

    fn has_exam(&self) -> bool {
        self.common.exam.borrow().iter().any(|((node, _, _), left)| *node == self.identity.node && *left != 0)
    }

    /// Sends one random message. Returns whether it was accepted.
    fn send(&mut self, peer: NodeId, class: Class, traffic: &Traffic, now: Nanos) -> bool {
        self.numbers += 1;
        let name = Name { node: self.identity.node.0, incarnation: self.incarnation, number: self.numbers };
        let kind = if self.random.one_in(traffic.notice_one_in) {
            Kind::Notice
        } else if self.random.one_in(traffic.laned_one_in) {
            Kind::Laned
        } else {
            Kind::Prompt
        };
        let answer_len = self.random_len(class, traffic);
        let stamp = Stamp { name, answer_len, answer: false };
        let mut lent = None;
        let sent = self.payload(peer, class, &stamp, traffic).and_then(|payload| {
            if let OutgoingPayload::Region { region, .. } = &payload {
                lent = Some(region.clone());
            }
            let session = &self.peers[&peer].session;
            if kind != Kind::Notice {
                let timeout = if self.random.one_in(traffic.deadline_one_in) {
                    self.random.within(traffic.deadline)
                } else {
                    Nanos::NEVER
                };
                let spec = CallSpec { key: kind.key(), class, timeout };
                match call_in_copy(session, &spec, &payload, &self.executor) {
                    Some(call) => Ok(Some(call)),
                    None => session.call(&spec, payload, &self.executor).map(Some),
                }
            } else if self.random.one_in(2) {
                session.notify_sync(&kind.key(), class, payload, &self.executor).map(Some)
            } else {
                let is_sent = match in_copy(&payload) {
                    Some(copied) => session.notify_fast(&kind.key(), class, copied, &self.executor)?,
                    None => false,
                };
                if !is_sent {
                    session.notify(&kind.key(), class, payload, &self.executor)?;
                }
                Ok(None)
            }
        });
        let mut ledger = self.common.ledger.borrow_mut();
        match sent {
            Ok(awaited) => {
                ledger.posted(name, kind, awaited.is_some());
                let gives_up = kind != Kind::Notice && self.random.one_in(traffic.abandon_one_in);
                let abandon_at =
                    if gives_up { now + self.random.within(traffic.abandon_after) } else { Nanos::NEVER };
                let open = awaited.map(|call| Open { name, call, class, answer_len, abandon_at, lent });
                self.peers.get_mut(&peer).expect("one of the peers").open.extend(open);
            }
            Err(refused) => {
                assert!(expected(&refused), "message {name:?} to node {peer}: {refused}");
                ledger.refused(name, kind, matches!(refused, SendError::NoCredit { .. }));
            }
        }
        sent.is_ok()
    }

    fn random_len(&mut self, class: Class, traffic: &Traffic) -> u32 {
        let stamp = u32::try_from(STAMP).expect("a few bytes");
        let line = u32::try_from(INLINE_PAYLOAD).expect("forty bytes");
        let max = self.limits.max_payload[class.index()];
        let long = self.random.one_in(traffic.long_one_in);
        // Some of the payloads can be copied while they are posted.
        let short = u32::try_from(SHORT_PAYLOAD).expect("four lines").min(max);
        let max = if self.numbers.is_multiple_of(3) { short } else { max };
        let (from, to) = if long { (line, max) } else { (stamp, line) };
        from + u32::try_from(self.random.below(u64::from(to - from + 1))).expect("below 32 bits")
    }

    fn payload(
        &mut self,
        peer: NodeId,
        class: Class,
        stamp: &Stamp,
        traffic: &Traffic,
    ) -> Result<OutgoingPayload, SendError> {
        let len = self.random_len(class, traffic) as usize;
        if len <= INLINE_PAYLOAD {
            let mut bytes = [0; INLINE_PAYLOAD];
            stamp.fill(&mut bytes[..len]);
            return Ok(OutgoingPayload::inline(&bytes[..len]).expect("at most forty bytes"));
        }
        if self.random.one_in(traffic.by_reference_one_in) {
            let mut bytes = vec![0; len];
            stamp.fill(&mut bytes);
            let region = Region::new(Arc::new(HeapMemory::new(len)));
            region.write(0, &bytes).expect("as long as asked for");
            return Ok(OutgoingPayload::Region {
                region,
                offset: 0,
                len: u32::try_from(len).expect("a payload"),
            });
        }
        let owner = peer.0.into();
        let mut loan = self.peers[&peer].session.loan_after_reaping(class, len, owner, &self.executor)?;
        stamp.fill(loan.as_mut_slice());
        Ok(OutgoingPayload::Frame(loan.finish()))
    }

    /// Ticks the sessions (deadlines, heartbeats, liveness) as a real serving thread does.
    fn tick(&mut self, now: Nanos) {
        if now.since(self.last_tick) < self.tick_after {
            return;
        }
        let (slept, executor) = (self.tick_after, self.executor.clone());
        self.tick_due = now + IDLE_TICK;
        for id in self.peer_ids() {
            let ticked = self.with_sink(id, now, |session, sink| session.tick(now, slept, sink, &executor));
            let ticked = ticked.expect("no other thread holds the engine");
            self.tick_due = self.tick_due.min(ticked.next_due);
        }
        self.last_tick = now;
        self.tick_after = self.tick_length();
    }

    fn tick_length(&self) -> Nanos {
        let busy =
            |peer: &Peer| peer.session.open_calls() != 0 || peer.session.work_in_flight(&self.executor) != 0;
        if self.peers.values().any(busy) {
            return BUSY_TICK;
        }
        self.tick_due.since(self.last_tick).max(BUSY_TICK)
    }

    /// Returns the time of the next turn if nothing arrives.
    fn next_turn(&mut self, now: Nanos) -> Nanos {
        self.tick_after = self.tick_after.min(self.tick_length());
        let abandons = self.peers.values().flat_map(|peer| &peer.open).map(|open| open.abandon_at);
        let burst = self.common.traffic.get().gap.map(|_| self.next_burst);
        let exam = self.has_exam().then(|| now + EXAM_PAUSE);
        let others = [self.last_tick + self.tick_after, self.next_dial(), self.workshop.next()];
        let transfers = self.peers.values().map(|peer| peer.transfers.next(&self.common.traffic.get()));
        others
            .into_iter()
            .chain(transfers)
            .chain(abandons)
            .chain(burst)
            .chain(exam)
            .min()
            .expect("the list is not empty")
    }
}

impl Actor for ScenarioNode {
    fn turn(&mut self, now: Nanos) -> Nanos {
        self.keep_links(now);
        let me = (self.identity.node, self.incarnation);
        let traffic = self.common.traffic.get();
        self.workshop.work(now, me, &self.common.ledger, &traffic, &mut self.random);
        self.give_up(now);
        self.release(now);
        self.send_bursts(now);
        self.sit_exam(now);
        self.tick(now);
        // Polls until nothing moves, arms, and polls once more, as before every sleep.
        for _ in 0..POLL_BATCH {
            if self.poll(now) {
                continue;
            }
            for peer in self.peers.values() {
                peer.session.arm();
            }
            if !self.poll(now) {
                return self.next_turn(now);
            }
        }
        now + Nanos(1)
    }
}

impl fmt::Debug for ScenarioNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScenarioNode").field("identity", &self.identity.node).finish_non_exhaustive()
    }
}

/// Overwrites the memory of a message that has ended, as its sender may: a receiver that still reads it would find
/// other bytes.
fn use_again(lent: Option<&Region>) {
    if let Some(region) = lent {
        region.write(0, &vec![0xaa; region.len()]).expect("as long as it is");
    }
}

/// Returns the id of the node at a place.
pub(super) fn id_at(place: SimNode) -> NodeId {
    NodeId(u16::try_from(place.0 + 1).expect("a cluster is small"))
}

/// Returns whether load or a lost link explains a refusal.
fn expected(refused: &SendError) -> bool {
    refused.is_retryable() || matches!(refused, SendError::Draining)
}
