//! The agreement of two greetings: a pure function of both. The node transfers the bytes.

use alloc::string::String;
use alloc::vec::Vec;

use pronto_wire::greeting::{PAUSE, PRESSURE, VERSIONS};
use pronto_wire::{Class, Epoch, Greeting, GreetingRefusal, NodeId, SessionId, TypeEntry, Windows};

use super::limits::Limits;
use super::pressure::HeaderPressure;
use super::rendezvous::MAX_SENDS;
use crate::fabric::ConnectionLimits;

/// The identity of this node in its greetings.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// Its human-readable name.
    pub name: String,
    /// Message types that it handles.
    pub types: Vec<TypeEntry>,
}

/// The agreement of two greetings, from the view of this side.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Agreement {
    /// The other node.
    pub peer: NodeId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// Its human-readable name.
    pub name: String,
    /// The session that the link carries.
    pub session: SessionId,
    /// True if the link resumes an existing session.
    pub resumed: bool,
    /// True if the session survives the loss of such a link.
    pub resumable: bool,
    /// True if the peer runs on this host. Set by the node.
    pub local: bool,
    /// How this side knows the peer.
    pub evidence: Evidence,
    /// True if windows may grow on the link: see [`Self::fixed`].
    pub grows: bool,
    /// True if either side may ask for the end of the link when it is idle.
    pub pauses: bool,
    /// True if headers may carry the pressure of their sender.
    pub carries_pressure: bool,
    /// Receive windows of this side, by class.
    pub windows: [Windows; 2],
    /// Receive windows of the peer, by class.
    pub peer_windows: [Windows; 2],
    /// Types that the peer handles.
    pub types: Vec<TypeEntry>,
    /// Feature bits that the peer supports.
    pub features: u64,
    /// Length of the send memory, by class, bytes.
    pub send_memory: [u32; 2],
}

/// Returns the greeting of this side. `session` is the session to resume on the dialling side, and the chosen session on the accepting
/// side.
pub fn greet(me: &Identity, limits: &Limits, target: NodeId, session: Option<SessionId>) -> Greeting {
    Greeting {
        versions: VERSIONS,
        features: PAUSE | pressure_feature(limits),
        node: me.node,
        epoch: me.epoch,
        target,
        session,
        windows: Class::ALL.map(|class| limits.window(class)),
        name: me.name.clone(),
        types: me.types.clone(),
    }
}

/// Returns the feature bit for pressure in headers, if this side wants it.
const fn pressure_feature(limits: &Limits) -> u64 {
    match limits.pressure {
        HeaderPressure::Off => 0,
        HeaderPressure::Carried => PRESSURE,
    }
}

/// How this side knows that the other one is the node that its greeting names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The kernel has confirmed that it is a process of the same user on this host.
    SameUser,
    /// The kernel has confirmed that it is a process of the user that the operator configured for that node.
    User,
    /// It has a certificate with that name, of an authority that the operator trusts.
    Certificate,
    /// It has the private key of the public key that the operator configured for that node.
    Key,
    /// Only the greeting says so: the operator permitted connections without authentication.
    Claim,
}

/// A greeting with the evidence for the node that it names. Only the code that has seen the evidence makes one. An agreement takes it, and
/// with it everything that an agreement is needed for: a link, the peer's table of types, and grants of memory.
#[derive(Debug)]
pub struct Authenticated {
    greeting: Greeting,
    by: Evidence,
}

impl Authenticated {
    /// Returns a greeting whose sender is the node that it names, by this evidence.
    pub const fn new(greeting: Greeting, by: Evidence) -> Self {
        Self { greeting, by }
    }

    /// Returns a greeting whose sender need not prove that it is the node that it names.
    pub const fn claimed(greeting: Greeting) -> Self {
        Self::new(greeting, Evidence::Claim)
    }
}

/// Returns the agreement with the peer's greeting, or the reason to refuse it. `session` is the session of the link: on the dialling side
/// that in the peer's greeting, on the accepting side the chosen one. `held` is this side's session from an earlier link.
pub fn agree(
    me: &Identity,
    limits: &Limits,
    theirs: Authenticated,
    session: SessionId,
    held: Option<SessionId>,
) -> Result<Agreement, GreetingRefusal> {
    let Authenticated { greeting: theirs, by: evidence } = theirs;
    if theirs.versions.0 > VERSIONS.1 || theirs.versions.1 < VERSIONS.0 {
        return Err(GreetingRefusal::Version);
    }
    if theirs.node == me.node {
        return Err(GreetingRefusal::SameId);
    }
    if theirs.target != me.node {
        return Err(GreetingRefusal::WrongNode);
    }
    let differs = |mine: &TypeEntry| {
        theirs.types.iter().any(|other| {
            (other.service, other.name) == (mine.service, mine.name) && other.layout != mine.layout
        })
    };
    if me.types.iter().any(differs) {
        return Err(GreetingRefusal::Layout);
    }
    Ok(Agreement {
        peer: theirs.node,
        epoch: theirs.epoch,
        name: theirs.name,
        session,
        resumed: held == Some(session),
        resumable: true,
        local: false,
        evidence,
        grows: true,
        pauses: theirs.features & PAUSE != 0,
        carries_pressure: theirs.features & pressure_feature(limits) != 0,
        windows: Class::ALL.map(|class| limits.window(class)),
        peer_windows: theirs.windows,
        types: theirs.types,
        features: theirs.features,
        send_memory: limits.send_memory,
    })
}

/// Returns the agreement of two nodes that begin a session in one process, from the view of each.
///
/// # Errors
/// The errors of [`agree`].
pub fn introduce(
    near: &Identity,
    far: &Identity,
    limits: &Limits,
) -> Result<[Agreement; 2], GreetingRefusal> {
    let id = SessionId(1);
    let view = |me: &Identity, other| {
        agree(me, limits, Authenticated::claimed(greet(other, limits, me.node, Some(id))), id, None)
    };
    Ok([view(near, far)?, view(far, near)?])
}

impl Agreement {
    /// Returns the receive windows of this side and of the peer for one connection, as far as they can grow on the link.
    pub fn windows(&self, class: Class) -> [Windows; 2] {
        let [mine, theirs] = [self.windows, self.peer_windows].map(|windows| {
            windows.map(
                |window| {
                    if self.grows { window } else { Windows { grows_to: window.requests, ..window } }
                },
            )
        });
        // A side has no more replies to receive than requests that the other side has granted, and offers, which give their credits back
        // before their responses. A reply may be of another class than its request; the response to an offer is of class control.
        let offers = if class == Class::Control { u16::try_from(MAX_SENDS).unwrap_or(u16::MAX) } else { 0 };
        let window = |here: &[Windows; 2], there: &[Windows; 2]| {
            let most = there.iter().fold(offers, |sum, window| sum.saturating_add(window.grows_to));
            let window = here[class.index()];
            Windows { replies: window.replies.min(most), ..window }
        };
        [window(&mine, &theirs), window(&theirs, &mine)]
    }

    /// Returns the agreement for a provider that posts a receive for each message, and posts them when the link begins: windows keep
    /// their first size.
    pub fn fixed(&self) -> Self {
        Self { grows: false, ..self.clone() }
    }

    /// Returns the limits of one connection, for its provider.
    pub fn connection(&self, class: Class) -> ConnectionLimits {
        let [mine, theirs] = self.windows(class);
        ConnectionLimits {
            send_depth: theirs.depth(),
            receive_depth: mine.depth(),
            max_send_payload: theirs.max_payload,
            max_receive_payload: mine.max_payload,
            send_memory: self.send_memory[class.index()],
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use pronto_wire::{LayoutHash, NameHash, ServiceId, TypeId};

    use super::*;

    fn node(id: u16, layout: u64) -> Identity {
        let entry = TypeEntry {
            name: NameHash::of("t"),
            layout: LayoutHash(layout),
            service: ServiceId(0),
            type_id: TypeId(id),
        };
        Identity { node: NodeId(id), epoch: Epoch(id.into()), name: String::new(), types: vec![entry] }
    }

    fn outcome(me: &Identity, theirs: Greeting) -> Result<bool, GreetingRefusal> {
        agree(me, &Limits::default(), Authenticated::claimed(theirs), SessionId(1), None)
            .map(|agreement| agreement.resumed)
    }

    /// Shows: protocol.versions, protocol.layout, messages.compared
    #[test]
    fn unsuitable_greetings_are_refused_with_a_reason() {
        let (one, two) = (node(1, 5), node(2, 5));
        let good = || greet(&two, &Limits::default(), NodeId(1), None);
        assert_eq!(outcome(&one, good()), Ok(false));
        assert_eq!(outcome(&one, Greeting { target: NodeId(3), ..good() }), Err(GreetingRefusal::WrongNode));
        assert_eq!(outcome(&one, Greeting { node: NodeId(1), ..good() }), Err(GreetingRefusal::SameId));
        assert_eq!(outcome(&one, Greeting { versions: (7, 9), ..good() }), Err(GreetingRefusal::Version));
        assert_eq!(outcome(&node(1, 6), good()), Err(GreetingRefusal::Layout));
    }

    /// Shows: protocol.pressure
    #[test]
    fn pressure_is_carried_only_if_both_sides_want_it() {
        let (one, two) = (node(1, 5), node(2, 5));
        let of = |pressure| Limits { pressure, ..Limits::default() };
        let bit = |limits: &Limits| greet(&two, limits, NodeId(1), None).features & PRESSURE;
        assert_eq!([HeaderPressure::Off, HeaderPressure::Carried].map(|choice| bit(&of(choice))), [0, 4]);
        for (mine, theirs, carries) in [
            (HeaderPressure::Off, HeaderPressure::Off, false),
            (HeaderPressure::Off, HeaderPressure::Carried, false),
            (HeaderPressure::Carried, HeaderPressure::Off, false),
            (HeaderPressure::Carried, HeaderPressure::Carried, true),
        ] {
            let theirs = Authenticated::claimed(greet(&two, &of(theirs), NodeId(1), None));
            let agreement = agree(&one, &of(mine), theirs, SessionId(1), None).expect("the greetings agree");
            assert_eq!(agreement.carries_pressure, carries);
        }
    }

    /// Shows: protocol.session, protocol.resumed
    #[test]
    fn a_held_session_is_resumed() {
        let (one, two) = (node(1, 5), node(2, 5));
        let theirs = greet(&two, &Limits::default(), NodeId(1), Some(SessionId(9)));
        let agreement =
            agree(&one, &Limits::default(), Authenticated::claimed(theirs), SessionId(9), Some(SessionId(9)));
        assert!(agreement.expect("the greetings agree").resumed);
    }
}
