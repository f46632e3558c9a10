//! Two sessions with each other. A test makes, fills and cuts their links, and advances their time.

use std::sync::{Arc, Mutex};

use pronto_core::fabric::Arrived;
use pronto_core::session::{
    self, Authenticated, CallSpec, DetachedToken, DownCause, End, Event, Executed, Identity, Inbound, Limits,
    Links, OutgoingPayload, Response, Session, Sink, TypeKey, agree, greet,
};
use pronto_core::{Clock as _, Nanos};
use pronto_sim::{
    Exchanged, Fault, LinkId, SimExecutor, SimLease, SimNode, SimOptions, SimQueuePair, SimWorld,
};
use pronto_wire::{
    CallId, Class, Epoch, LayoutHash, NameHash, NodeId, ServiceId, SessionId, TypeEntry, TypeId,
};

/// Interval of ticks for a session with an open call.
const TICK: Nanos = Nanos::from_millis(4);
/// Longer than the flight of any frame.
const FLIGHT: Nanos = Nanos::from_millis(1);

pub(crate) type SimSession = Session<SimQueuePair>;

/// Session through which a request came.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    session: Arc<SimSession>,
    executor: SimExecutor,
}

impl session::Callee for Origin {
    type Qp = SimQueuePair;
    type Executor = SimExecutor;

    fn session(&self) -> &SimSession {
        &self.session
    }

    fn executor(&self) -> &SimExecutor {
        &self.executor
    }
}

/// A request as seen by the callee's sink, with its token until the response.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) timeout: Nanos,
    pub(crate) resent: bool,
    token: Arc<Mutex<Option<DetachedToken<Origin>>>>,
}

/// A callee whose handlers do not respond by themselves.
#[derive(Debug, Default)]
pub(crate) struct Callee {
    pub(crate) asked: Vec<Asked>,
    /// Cancelled calls, in order of arrival of the cancellations.
    pub(crate) cancelled: Vec<CallId>,
    origin: Option<Origin>,
}

impl Callee {
    /// Returns the numbers of the requests, in order of arrival.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.asked.iter().map(|asked| asked.number).collect()
    }
}

impl Sink<SimLease> for Callee {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        let number = number(&inbound);
        let origin = self.origin.clone().expect("only the far side gets requests");
        let Inbound { timeout, resent, .. } = inbound;
        let token = Arc::new(Mutex::new(Some(inbound.token.detach(origin))));
        self.asked.push(Asked { number, timeout, resent, token });
    }

    fn event(&mut self, _event: Event) {}

    fn cancelled(&mut self, call: CallId) {
        self.cancelled.push(call);
    }
}

/// Returns the number that a request carries.
pub(crate) fn number(inbound: &Inbound<'_, Arrived<SimLease>>) -> u64 {
    let mut bytes = [0; 8];
    inbound.payload.copy_to(0, &mut bytes).expect("a request begins with its number");
    u64::from_le_bytes(bytes)
}

/// Sink of a side that gets no requests.
pub(crate) struct Nothing;

impl Sink<SimLease> for Nothing {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        unreachable!("unexpected request: {inbound:?}")
    }

    fn event(&mut self, _event: Event) {}
}

/// Grants of the far side on a link, and memory of the near side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) requests: u16,
    pub(crate) send_memory: u32,
}

pub(crate) struct Pair {
    pub(crate) world: SimWorld,
    pub(crate) executor: SimExecutor,
    pub(crate) near: Arc<SimSession>,
    pub(crate) far: Arc<SimSession>,
    /// Requests at the far side.
    pub(crate) callee: Callee,
    pub(crate) nodes: [SimNode; 2],
    limits: Limits,
    /// Connections of the current or last link, by class.
    connections: Option<[LinkId; 2]>,
}

impl Pair {
    /// Creates two sessions that have just greeted each other.
    pub(crate) fn new(options: SimOptions, limits: Limits) -> Self {
        let world = SimWorld::new(1, options);
        let nodes = [world.add_node(), world.add_node()];
        let session = |peer| Arc::new(Session::new(NodeId(peer), limits));
        let mut pair = Self {
            executor: SimExecutor::new(&world),
            near: session(2),
            far: session(1),
            callee: Callee::default(),
            world,
            nodes,
            limits,
            connections: None,
        };
        let origin = Origin { session: Arc::clone(&pair.far), executor: pair.executor.clone() };
        pair.callee.origin = Some(origin);
        let room = Room { requests: limits.requests[0], send_memory: limits.send_memory[0] };
        pair.link(room);
        // Later than zero, which a session treats as before all time.
        pair.pass(TICK);
        pair
    }

    /// Makes another link. All links but the first one resume the session.
    pub(crate) fn link(&mut self, room: Room) {
        let session = SessionId(7);
        let held = self.connections.map(|_| session);
        let granted = Limits { requests: [room.requests; 2], ..self.limits };
        let agreement = |me: u16, mine: &Limits, peer: u16, theirs: &Limits| {
            let greeting = greet(&identity(peer), theirs, NodeId(me), Some(session));
            agree(&identity(me), mine, Authenticated::claimed(greeting), session, held)
                .expect("the greetings match")
        };
        let agreements = [agreement(1, &self.limits, 2, &granted), agreement(2, &granted, 1, &self.limits)];
        let connect = |class: Class| {
            let limits = agreements[0].connection(class);
            let limits = pronto_core::fabric::ConnectionLimits { send_memory: room.send_memory, ..limits };
            self.world.connect(self.nodes[0], self.nodes[1], limits)
        };
        let [(near, far), (near_bulk, far_bulk)] = Class::ALL.map(connect);
        self.connections = Some([near.link(), near_bulk.link()]);
        let ends = [[near, near_bulk], [far, far_bulk]];
        for ((session, agreement), pairs) in [&self.near, &self.far].into_iter().zip(agreements).zip(ends) {
            session.install(Links { pairs, agreement }, &mut Callee::default(), &self.executor);
        }
    }

    /// Makes a link of a new session, whatever the sides hold.
    pub(crate) fn link_anew(&mut self) {
        self.connections = None;
        self.link(Room { requests: self.limits.requests[0], send_memory: self.limits.send_memory[0] });
    }

    /// Cuts the link; both sides notice.
    pub(crate) fn cut(&mut self) {
        let before = self.world.fired().cuts;
        self.world.inflict(Fault::CutBetween(self.nodes[0], self.nodes[1]));
        assert_eq!(self.world.fired().cuts, before + 2, "both connections of the link are cut");
        self.world.run_until(self.world.now() + Nanos::from_millis(10));
        self.turn();
        assert!(!self.near.is_linked(&self.executor) && !self.far.is_linked(&self.executor));
    }

    /// Makes the near side's connections take no message for a time.
    pub(crate) fn fill(&self, span: Nanos) {
        self.world.inflict(Fault::Full { from: self.nodes[0], to: self.nodes[1], span });
    }

    /// Runs both engines until nothing moves and nothing is in flight.
    pub(crate) fn turn(&mut self) {
        for _ in 0..1000 {
            self.world.run_until(self.world.now() + FLIGHT);
            let near = self.near.turn(1, || false, &mut Nothing, &self.executor);
            let far = self.far.turn(1, || false, &mut self.callee, &self.executor);
            let moved = [near, far].map(|progress| progress.expect("no other thread holds the engine").moved);
            if moved == [0, 0] {
                return;
            }
        }
        panic!("the two sides never become idle");
    }

    /// Runs the far side's engine once, after all that was sent has arrived.
    pub(crate) fn receive(&mut self) {
        self.world.run_until(self.world.now() + FLIGHT);
        let turned = self.far.turn(1, || false, &mut self.callee, &self.executor);
        assert!(turned.is_some(), "no other thread holds the engine");
    }

    /// Advances the time, with the ticks of a session with open calls.
    pub(crate) fn pass(&mut self, span: Nanos) {
        let end = self.world.now() + span;
        while self.world.now() < end {
            self.world.run_until(self.world.now() + TICK);
            self.tick();
            self.turn();
        }
    }

    fn tick(&mut self) {
        let now = self.executor.now();
        let ticked = self.near.tick(now, TICK, &mut Nothing, &self.executor);
        assert!(ticked.is_some(), "no other thread holds the engine");
        let ticked = self.far.tick(now, TICK, &mut self.callee, &self.executor);
        assert!(ticked.is_some(), "no other thread holds the engine");
    }

    /// Cuts the link and makes no other: the near side's session ends at the liveness limit.
    pub(crate) fn end_session(&mut self) {
        if self.near.is_linked(&self.executor) {
            self.cut();
        }
        self.pass(self.limits.liveness + Nanos::from_secs(1));
        assert!(!self.near.is_up(), "the session ended");
    }

    /// Ends the near side's session immediately.
    pub(crate) fn take_down(&self) {
        self.near.take_down(DownCause::Silent, &mut Nothing, &self.executor);
    }

    /// Makes a call of the near side whose request carries a number.
    pub(crate) fn call(&self, number: u64, timeout: Nanos) -> CallId {
        self.call_in(Class::Control, number, timeout)
    }

    pub(crate) fn call_in(&self, class: Class, number: u64, timeout: Nanos) -> CallId {
        let payload =
            OutgoingPayload::inline(&number.to_le_bytes()).expect("eight bytes fit an inline message");
        self.near.call(&spec(class, timeout), payload, &self.executor).expect("there is room for a call")
    }

    /// Makes a call whose request is composed in send memory.
    pub(crate) fn long_call(&self, number: u64, len: usize) -> CallId {
        let class = Class::Control;
        let mut loan = self.near.loan(class, len, 0).expect("there is send memory");
        loan.as_mut_slice().fill(0);
        loan.as_mut_slice()[..8].copy_from_slice(&number.to_le_bytes());
        let payload = OutgoingPayload::Frame(loan.finish());
        self.near.call(&spec(class, Nanos::NEVER), payload, &self.executor).expect("there is room for a call")
    }

    /// Finishes the far side's handler of a request, and passes its response to the session.
    #[expect(clippy::unused_self, reason = "the caller names the side that responds")]
    pub(crate) fn respond(&self, asked: &Asked) {
        respond(asked);
    }

    /// Returns the outcome of a call that has ended.
    pub(crate) fn outcome(&self, call: CallId) -> Outcome {
        assert!(self.near.has_ended(call), "call {call:?} is still open");
        Outcome::of(&self.near.take(call, &self.executor))
    }

    /// Returns the counts of requests sent and responses received on the current or last link, over both classes.
    pub(crate) fn exchanged(&self) -> Exchanged {
        let connections = self.connections.expect("there was a link");
        let [control, bulk] = connections.map(|connection| self.world.exchanged(connection)[0]);
        Exchanged {
            requests: control.requests + bulk.requests,
            responses: control.responses + bulk.responses,
        }
    }
}

/// Sends a response whose payload is the request's number.
pub(crate) fn respond(asked: &Asked) {
    let payload =
        OutgoingPayload::inline(&asked.number.to_le_bytes()).expect("eight bytes fit an inline message");
    let token = asked.token.lock().expect("no handler panics").take().expect("a request gets one response");
    let class = token.class();
    token.respond(Response::Reply { class, payload });
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Reply,
    Deadline(Executed),
    PeerDown(Executed),
}

impl Outcome {
    pub(crate) fn of(end: &End<SimLease>) -> Self {
        match end {
            End::Reply(_) => Self::Reply,
            End::Deadline { executed } => Self::Deadline(*executed),
            End::PeerDown { executed } => Self::PeerDown(*executed),
            end => panic!("a call ended as {end:?}"),
        }
    }
}

pub(crate) fn spec(class: Class, timeout: Nanos) -> CallSpec {
    CallSpec { key: key(), class, timeout }
}

/// Returns the only message type of these tests.
pub(crate) fn key() -> TypeKey {
    TypeKey { name: NameHash::of("t"), layout: LayoutHash(5), service: ServiceId(0) }
}

pub(crate) fn identity(id: u16) -> Identity {
    let TypeKey { name, layout, service } = key();
    let entry = TypeEntry { name, layout, service, type_id: TypeId(id) };
    Identity { node: NodeId(id), epoch: Epoch(id.into()), name: String::new(), types: vec![entry] }
}

/// Returns the limits of most tests: short queues of everything.
pub(crate) fn few() -> Limits {
    Limits { calls: 8, requests: [8, 8], send_memory: [1 << 20; 2], ..Limits::default() }
}

/// Returns the room that the limits grant.
pub(crate) fn enough() -> Room {
    Room { requests: few().requests[0], send_memory: few().send_memory[0] }
}
