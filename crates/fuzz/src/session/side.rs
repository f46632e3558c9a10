//! This side: its session, the requests that it holds, its open calls, and what it has seen of the peer.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pronto_core::Nanos;
use pronto_core::fabric::Arrived;
use pronto_core::session::{
    CallSpec, Callee, DetachedToken, End, Event, Identity, Inbound, Limits, OutgoingPayload, Response,
    Session, Sink, TypeKey,
};
use pronto_sim::{SimExecutor, SimLease, SimQueuePair};
use pronto_wire::{
    CallId, Class, Epoch, FailureCode, LayoutHash, NameHash, NodeId, ServiceId, TypeEntry, TypeId,
};

use super::peer::Peer;

/// Call slots of either side.
pub(super) const SLOTS: u16 = 4;
/// Requests that either side may have in flight, in each class.
pub(super) const REQUESTS: u16 = 4;
/// Types of both sides, by number: answered immediately, held, and notified.
pub(super) const PROMPT: u16 = 0;
pub(super) const HELD: u16 = 1;
pub(super) const TYPES: u16 = 3;
/// Time limit of calls with one.
const TIMEOUT: Nanos = Nanos::from_millis(5);

pub(super) type SimSession = Session<SimQueuePair>;

/// Returns the limits of both sides.
pub(super) fn limits() -> Limits {
    Limits {
        calls: SLOTS,
        requests: [REQUESTS; 2],
        max_payload: [4 << 10; 2],
        send_memory: [64 << 10; 2],
        pause_after: Nanos::from_secs(1),
        ..Limits::default()
    }
}

/// Returns the key of a type.
fn key(number: u16) -> TypeKey {
    let name = ["fuzz.prompt", "fuzz.held", "fuzz.notice"][usize::from(number)];
    TypeKey { service: ServiceId(0), name: NameHash::of(name), layout: LayoutHash::of("bytes") }
}

/// Returns the identity of a node that handles all types.
pub(super) fn identity(node: u16) -> Identity {
    let entry = |number| {
        let TypeKey { service, name, layout } = key(number);
        TypeEntry { service, name, layout, type_id: TypeId(number) }
    };
    let types = (0..TYPES).map(entry).collect();
    Identity { node: NodeId(node), epoch: Epoch(node.into()), name: String::new(), types }
}

/// The session and executor through which a held request is answered.
pub(super) struct Origin {
    session: Rc<SimSession>,
    executor: SimExecutor,
}

impl Callee for Origin {
    type Qp = SimQueuePair;
    type Executor = SimExecutor;

    fn session(&self) -> &SimSession {
        &self.session
    }

    fn executor(&self) -> &SimExecutor {
        &self.executor
    }
}

/// A request or notification that this side holds, with its payload.
type HeldRequest = (DetachedToken<Origin>, Arrived<SimLease>);

/// An open call of this side.
#[derive(Debug)]
struct Open {
    call: CallId,
    class: Class,
    /// The earliest time of its deadline, and the number of sessions that had ended when it began.
    due: Nanos,
    downs: u32,
}

/// This side.
pub(super) struct Side {
    pub(super) session: Rc<SimSession>,
    pub(super) executor: SimExecutor,
    held: Vec<HeldRequest>,
    open: Vec<Open>,
    /// Calls that this side has made, also those that it has abandoned.
    pub(super) made: BTreeSet<CallId>,
    /// Requests delivered in this session, and the link on which each was delivered.
    pub(super) delivered: BTreeMap<CallId, u32>,
    notified: u64,
    /// Sessions that have ended, and whether one exists.
    downs: u32,
    pub(super) is_up: bool,
    /// Replies that ended calls.
    pub(super) replies: u32,
}

impl Side {
    pub(super) fn new(executor: SimExecutor) -> Self {
        Self {
            session: Rc::new(SimSession::new(NodeId(2), limits())),
            executor,
            held: Vec::new(),
            open: Vec::new(),
            made: BTreeSet::new(),
            delivered: BTreeMap::new(),
            notified: 0,
            downs: 0,
            is_up: false,
            replies: 0,
        }
    }

    /// Runs `use_it` with the session and its sink.
    pub(super) fn with<R>(
        &mut self,
        peer: &Peer,
        use_it: impl FnOnce(&SimSession, &mut Requests<'_>, &SimExecutor) -> R,
    ) -> R {
        let (session, executor) = (Rc::clone(&self.session), self.executor.clone());
        let result = use_it(&session, &mut Requests { side: self, peer }, &executor);
        for class in Class::ALL {
            let held = self.held.iter().filter(|(token, _)| token.class() == class).count();
            // Those of an earlier link do not count in the window of the present one.
            let links = usize::try_from(peer.link).unwrap_or(usize::MAX);
            assert!(held <= links.saturating_mul(REQUESTS.into()), "{held} requests are held");
        }
        result
    }

    /// Makes a call. A refusal is a value.
    pub(super) fn call(&mut self, class: Class, number: u16, now: Nanos, has_limit: bool) -> Option<CallId> {
        let timeout = if has_limit { TIMEOUT } else { Nanos::NEVER };
        let spec = CallSpec { key: key(number), class, timeout };
        let payload = OutgoingPayload::inline(&[class.index().to_le_bytes()[0]; 9]).expect("nine bytes");
        let call = self.session.call(&spec, payload, &self.executor).ok()?;
        assert!(self.made.insert(call), "{call:?} was used before");
        self.open.push(Open { call, class, due: now + timeout, downs: self.downs });
        Some(call)
    }

    pub(super) fn notify(&self, class: Class) {
        // A refusal is a value.
        let _ = self.session.notify(&key(2), class, OutgoingPayload::EMPTY, &self.executor);
    }

    /// Takes the ends of calls, and checks them.
    pub(super) fn take_ends(&mut self, peer: &Peer, now: Nanos) {
        let session = Rc::clone(&self.session);
        let (downs, is_up, executor) = (self.downs, self.is_up, &self.executor);
        let mut replies = 0;
        self.open.retain(|open| {
            if !session.has_ended(open.call) {
                assert!(is_up && open.downs == downs, "{open:?} has outlived its session");
                return true;
            }
            match session.take(open.call, executor) {
                End::Reply(payload) => {
                    replies += 1;
                    check_response(peer, open.call, &payload);
                }
                End::Failure { payload, .. } => check_response(peer, open.call, &payload),
                End::Deadline { .. } => assert!(now >= open.due, "{open:?} has ended at {now:?}"),
                End::PeerDown { .. } => assert!(downs > open.downs, "{open:?} has ended before its session"),
                other => panic!("{open:?} has the end of another operation: {other:?}"),
            }
            false
        });
        self.replies += replies;
    }

    pub(super) fn abandon(&mut self, at: usize) {
        if self.open.is_empty() {
            return;
        }
        let open = self.open.swap_remove(at % self.open.len());
        self.session.abandon(open.call, open.class, &self.executor);
    }

    /// Answers a held request: with a reply of some bytes, a failure, or by dropping it.
    pub(super) fn answer(&mut self, at: usize, how: u8) {
        if self.held.is_empty() {
            return;
        }
        let (token, payload) = self.held.swap_remove(at % self.held.len());
        drop(payload);
        match how % 4 {
            0 => token.fail(FailureCode::HandlerError),
            1 => drop(token),
            _ => {
                let class = if how < 128 { token.class() } else { Class::Bulk };
                let payload =
                    OutgoingPayload::inline(&vec![how; usize::from(how % 41)]).expect("forty bytes");
                token.respond(Response::Reply { class, payload });
            }
        }
    }

    pub(super) fn answer_all(&mut self) {
        while !self.held.is_empty() {
            self.answer(0, 2);
        }
    }

    /// Returns whether nothing is open and nothing is held.
    pub(super) fn is_clear(&self) -> bool {
        self.open.is_empty() && self.held.is_empty()
    }
}

/// Checks that the peer has sent this response for this call.
fn check_response(peer: &Peer, call: CallId, payload: &Arrived<SimLease>) {
    let sent = peer.responses.get(&call);
    assert!(sent.is_some_and(|sent| sent.contains(&bytes(payload))), "the response to {call:?} was not sent");
}

fn bytes(payload: &Arrived<SimLease>) -> Vec<u8> {
    let mut bytes = vec![0; payload.len()];
    payload.copy_to(0, &mut bytes).expect("the whole payload");
    bytes
}

/// The sink of the session.
pub(super) struct Requests<'a> {
    side: &'a mut Side,
    peer: &'a Peer,
}

impl Sink<SimLease> for Requests<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        let Inbound { token, type_id, payload, .. } = inbound;
        let Self { side, peer } = self;
        if let Some(call) = token.call() {
            let sent = peer.requests.get(&call);
            assert!(sent.is_some_and(|sent| sent.contains(&bytes(&payload))), "{call:?} was not sent");
            let again = side.delivered.insert(call, peer.link).is_some();
            assert!(!again || peer.wild.contains(&call.slot), "{call:?} was delivered twice");
        } else {
            side.notified += 1;
            assert!(side.notified <= peer.notifications, "a notification was delivered twice");
        }
        match type_id.0 {
            PROMPT => {
                let payload = OutgoingPayload::inline(b"prompt").expect("six bytes");
                let class = token.class();
                token.respond(Response::Reply { class, payload });
            }
            HELD => {
                let origin = Origin { session: Rc::clone(&side.session), executor: side.executor.clone() };
                side.held.push((token.detach(origin), payload));
            }
            _ => token.finish(),
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::PeerUp(_) => {
                assert!(!self.side.is_up, "a session began while another existed");
                self.side.is_up = true;
                self.side.delivered.clear();
            }
            Event::PeerDown { .. } => {
                assert!(self.side.is_up, "a session ended twice");
                self.side.is_up = false;
                self.side.downs += 1;
            }
            Event::LinkLost { .. }
            | Event::LinkResumed { .. }
            | Event::LinkPaused { .. }
            | Event::PauseEnded { .. } => assert!(self.side.is_up, "{event:?}"),
        }
    }
}
