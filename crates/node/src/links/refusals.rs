//! Connections that did not become links, counted by reason for the operator.

use std::sync::{Arc, Mutex};

use pronto_core::Nanos;
use pronto_core::stats::Counter;
use pronto_fabric_shm as shm;
use pronto_fabric_tcp as tcp;
use pronto_wire::{GreetingFault, GreetingRefusal};

use crate::links::NoLink;

/// Reason why a connection did not become a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Crowded,
    NotPronto,
    UnknownToken,
    Oversized,
    Silent,
    Broken,
    BadMemory,
    Greeting,
    Version,
    WrongNode,
    SameId,
    Duplicate,
    Superseded,
    IdTaken,
    Layout,
    Draining,
    TooManyPeers,
    NotPermitted,
    Rdma,
    NotListening,
    System,
    Untrusted,
}

/// Names of the reasons, in the order of [`Reason`].
const NAMES: [&str; 22] = [
    "crowded",
    "not_pronto",
    "unknown_token",
    "oversized",
    "silent",
    "broken",
    "bad_memory",
    "malformed_greeting",
    "version",
    "wrong_node",
    "same_id",
    "duplicate",
    "superseded",
    "id_taken",
    "layout",
    "draining",
    "too_many_peers",
    "not_permitted",
    "no_rdma",
    "not_listening",
    "system",
    "untrusted",
];

/// Minimum time between two log lines of one reason, as strangers decide how often a connection fails.
const PAUSE: Nanos = Nanos::from_secs(1);

/// An error that was logged.
#[derive(Debug)]
struct Logged {
    text: String,
    at: Nanos,
}

/// Connections that did not become links, by reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: [Counter; NAMES.len()],
    /// The last logged error of each reason.
    logged: Mutex<[Option<Logged>; NAMES.len()]>,
    /// Listeners, which drop excess connections and count them themselves.
    listeners: Mutex<Vec<Arc<tcp::Listener>>>,
}

impl Refusals {
    /// Counts a connection. Excess connections that a listener dropped are in the listener's own count.
    pub(crate) fn count(&self, error: &NoLink) {
        if matches!(error, NoLink::Tcp(tcp::SetupError::Crowded)) {
            return;
        }
        self.counts[reason_of(error) as usize].add(1);
    }

    /// Returns whether the error is to be logged: it differs from the last logged one with the same reason, which was logged at least
    /// [`PAUSE`] before `now`.
    pub(crate) fn is_news(&self, error: &NoLink, now: Nanos) -> bool {
        let mut logged = self.logged.lock().expect("no holder panics");
        let last = &mut logged[reason_of(error) as usize];
        let text = error.without_time();
        let news = last.as_ref().is_none_or(|last| last.text != text && now.since(last.at) >= PAUSE);
        if news {
            *last = Some(Logged { text, at: now });
        }
        news
    }

    /// Adds the connections that this listener drops to the count.
    pub(crate) fn watch(&self, listener: &Arc<tcp::Listener>) {
        self.listeners.lock().expect("no holder panics").push(Arc::clone(listener));
    }

    /// Returns every reason that has occurred, with its count.
    pub(crate) fn each(&self) -> Vec<(&'static str, u64)> {
        let listeners = self.listeners.lock().expect("no holder panics");
        let crowded: u64 = listeners.iter().map(|listener| listener.counters().crowded).sum();
        let counts = NAMES.iter().zip(&self.counts).map(|(name, counter)| (*name, counter.count()));
        counts
            .map(|(name, count)| (name, if name == NAMES[0] { count + crowded } else { count }))
            .filter(|(_, count)| *count != 0)
            .collect()
    }
}

fn reason_of(error: &NoLink) -> Reason {
    match error {
        NoLink::Shm(error) => of_shm(error),
        NoLink::Tcp(error) => of_tcp(error),
        NoLink::Greeting(GreetingFault::Refused { refusal, .. })
        | NoLink::Refused(refusal)
        | NoLink::RefusedNode { refusal, .. } => of_refusal(*refusal),
        NoLink::Greeting(_) => Reason::Greeting,
        NoLink::OtherSource { .. } => Reason::NotPermitted,
        NoLink::OtherIdentity { .. } | NoLink::Denied(_) | NoLink::DeniedByPeer(_) => Reason::Untrusted,
        NoLink::OtherNode { .. } => Reason::WrongNode,
        NoLink::Crowded => Reason::Crowded,
        NoLink::Superseded => Reason::Superseded,
        NoLink::Rdma(_) => Reason::Rdma,
    }
}

const fn of_shm(error: &shm::SetupError) -> Reason {
    match error {
        shm::SetupError::TimedOut => Reason::Silent,
        shm::SetupError::Closed => Reason::Broken,
        shm::SetupError::NotListening => Reason::NotListening,
        shm::SetupError::OtherUser { .. } => Reason::NotPermitted,
        shm::SetupError::Peer(shm::SetupFault::Oversized { .. }) => Reason::Oversized,
        shm::SetupError::Peer(shm::SetupFault::Version { .. }) => Reason::Version,
        shm::SetupError::Peer(shm::SetupFault::Segment(_)) => Reason::BadMemory,
        shm::SetupError::Peer(_) => Reason::NotPronto,
        _ => Reason::System,
    }
}

const fn of_tcp(error: &tcp::SetupError) -> Reason {
    match error {
        tcp::SetupError::Preamble(_) => Reason::NotPronto,
        tcp::SetupError::TooLong { .. } => Reason::Oversized,
        tcp::SetupError::UnknownToken => Reason::UnknownToken,
        tcp::SetupError::TimedOut => Reason::Silent,
        tcp::SetupError::Lost | tcp::SetupError::OutOfTurn => Reason::Broken,
        tcp::SetupError::NotListening => Reason::NotListening,
        tcp::SetupError::Tls(_)
        | tcp::SetupError::PeerWithoutTls
        | tcp::SetupError::PeerRequiresTls
        | tcp::SetupError::OtherIdentity => Reason::Untrusted,
        _ => Reason::System,
    }
}

const fn of_refusal(refusal: GreetingRefusal) -> Reason {
    match refusal {
        GreetingRefusal::Version => Reason::Version,
        GreetingRefusal::WrongNode => Reason::WrongNode,
        GreetingRefusal::SameId => Reason::SameId,
        GreetingRefusal::Duplicate => Reason::Duplicate,
        GreetingRefusal::IdTaken => Reason::IdTaken,
        GreetingRefusal::Layout => Reason::Layout,
        GreetingRefusal::Draining => Reason::Draining,
        GreetingRefusal::TooManyPeers => Reason::TooManyPeers,
        GreetingRefusal::NotPermitted => Reason::NotPermitted,
        _ => Reason::Greeting,
    }
}

#[cfg(test)]
mod tests {
    use pronto_core::stats::Stats;
    use pronto_progress::Counters;
    use pronto_wire::NodeId;

    use super::*;

    /// Shows: operations.system, operations.json-counters
    #[test]
    fn every_reason_has_its_own_name() {
        let refusals = Refusals::default();
        refusals.count(&NoLink::Refused(GreetingRefusal::NotPermitted));
        refusals.count(&NoLink::Tcp(tcp::SetupError::Preamble([0; 8])));
        let (refusal, by) = (GreetingRefusal::SameId, NodeId(1));
        refusals.count(&NoLink::Greeting(GreetingFault::Refused { refusal, by }));
        refusals.count(&NoLink::Shm(shm::SetupError::System { call: "poll", errno: 4 }));
        refusals.count(&NoLink::Shm(shm::SetupError::NotListening));
        refusals.count(&NoLink::Tcp(tcp::SetupError::NotListening));
        refusals.count(&NoLink::Crowded);
        let expected = [
            ("crowded", 1),
            ("not_pronto", 1),
            ("same_id", 1),
            ("not_permitted", 1),
            ("not_listening", 2),
            ("system", 1),
        ];
        assert_eq!(refusals.each(), expected);
    }

    /// Shows: operations.log-rate
    #[test]
    fn each_reason_is_logged_once_a_second_and_not_twice_in_a_row() {
        let refusals = Refusals::default();
        let other = |node| NoLink::OtherSource { node: NodeId(node), from: [10, 0, 0, 1].into() };
        let at = Nanos::from_millis;
        assert!(refusals.is_news(&other(1), at(5)));
        assert!(refusals.is_news(&NoLink::Crowded, at(5)), "another reason");
        assert!(!refusals.is_news(&other(2), at(1_004)), "less than a second after the last one");
        assert!(!refusals.is_news(&other(1), at(2_000)), "the last one again");
        assert!(refusals.is_news(&other(2), at(2_000)));
        assert!(!refusals.is_news(&other(1), at(2_999)));
        assert!(!refusals.is_news(&NoLink::Crowded, at(60_000)));
    }

    /// Shows: operations.duplicate
    #[test]
    fn a_duplicate_link_is_no_fault_and_a_taken_id_is() {
        let by = NodeId(1);
        let refused =
            |refusal| [NoLink::Greeting(GreetingFault::Refused { refusal, by }), NoLink::Refused(refusal)];
        assert!(refused(GreetingRefusal::Duplicate).iter().all(NoLink::is_one_too_many));
        assert!(!refused(GreetingRefusal::IdTaken).iter().any(NoLink::is_one_too_many));
        let (refusal, node) = (GreetingRefusal::Duplicate, None);
        assert!(NoLink::RefusedNode { refusal, node }.is_one_too_many());
    }

    #[test]
    fn the_operations_guide_explains_every_counter() {
        let known = include_str!("../../../../docs/operations.md");
        let (of_manager, of_session) = (Counters::default().each(), Stats::default());
        let of_manager = of_manager.iter().map(|(name, _)| *name);
        let of_session = of_session.each().map(|(name, _)| name);
        let unknown: Vec<_> = NAMES
            .into_iter()
            .chain(of_manager)
            .chain(of_session)
            .filter(|name| !known.contains(&format!("`{name}`")))
            .collect();
        assert!(unknown.is_empty(), "docs/operations.md does not explain {unknown:?}");
    }
}
