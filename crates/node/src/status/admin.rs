//! Administrative messages that every node handles: ping, status, flight recorder, wait overrides.

use core::fmt;

use pronto_core::session::SendError;
use pronto_rpc::{CallError, CallRejection, Context, Message, Payload, Peer, Route};
use pronto_wire::NodeId;

use crate::host::NodeHost;
use crate::node::{Down, PeerStatus, Status};
use crate::recorder;
use crate::recorder::flight;
use crate::system;
use crate::waits::overrides;

/// First id of visitors: short-lived nodes that ask another node something. A configured node cannot have such an id.
pub const FIRST_VISITOR: NodeId = NodeId(64_000);
/// Number of ids of visitors: all that the wire has from the first one on.
const VISITORS: u64 = (u16::MAX - FIRST_VISITOR.0) as u64 + 1;

/// Returns a random id of a visitor. Process ids would be equal in two containers, and twice in one process.
pub(crate) fn visitor_id() -> NodeId {
    let number = u16::try_from(system::random() % VISITORS).expect("less than VISITORS");
    NodeId(FIRST_VISITOR.0 + number)
}

/// Request for an empty reply, which shows that the node works.
#[derive(Debug, Message)]
#[message(name = "pronto.ping", reply = Pong, idempotent)]
pub struct Ping {
    /// Number that the reply repeats.
    pub nonce: u64,
}

/// Reply to a [`Ping`].
#[derive(Debug, Message, PartialEq, Eq)]
#[message(name = "pronto.pong")]
pub struct Pong {
    /// Number of the ping.
    pub nonce: u64,
}

/// Request for a [`StatusReport`].
#[derive(Debug, Message)]
#[message(name = "pronto.status", reply = StatusReport, idempotent)]
pub struct StatusRequest {}

/// Message form of [`Status`].
#[derive(Clone, Debug, Message)]
#[message(name = "pronto.status_report")]
pub struct StatusReport {
    /// The node.
    pub node: u16,
    /// Epoch of the present incarnation.
    pub epoch: u64,
    /// Human-readable name.
    pub name: String,
    /// Addresses where the node listens.
    pub listening: Vec<String>,
    /// Message types that the node handles.
    pub types: Vec<String>,
    /// Reason why adaptive waits sleep immediately, if they do: other threads want the CPUs.
    pub contention: Option<String>,
    /// Wait policy of the serving thread, and its reason.
    pub serves: String,
    /// Boost of the handlers, and why better ones are not available.
    pub boost: String,
    /// Engine and its sources.
    pub engine: String,
    /// Maximum payload length that a rendezvous carries in its call, by transport.
    pub carries: String,
    /// Placement on the machine, and its reason.
    pub placement: String,
    /// Credentials of the node.
    pub trust: String,
    /// Counters of polling and sleeping.
    pub progress: Vec<Counter>,
    /// Incoming connections that were rejected, by reason.
    pub refused: Vec<Counter>,
    /// Failed attempts of the node to connect, by reason.
    pub failed_dials: Vec<Counter>,
    /// Counters of the node as a whole, by name.
    pub counters: Vec<Counter>,
    /// Peers of the node.
    pub peers: Vec<PeerReport>,
}

/// Message form of [`PeerStatus`].
#[derive(Clone, Debug, Payload)]
pub struct PeerReport {
    /// The peer.
    pub node: u16,
    /// Epoch of the peer's present incarnation, if there is a session.
    pub epoch: Option<u64>,
    /// Provider of the session's link, or `-` without a session.
    pub provider: String,
    /// Whether a link carries the session now.
    pub linked: bool,
    /// Whether the session waits without a link until a message needs one.
    pub paused: bool,
    /// Reason for the transport of the present or last link.
    pub choice: Option<String>,
    /// Reason why the peer is down, if it was up before.
    pub down: Option<DownReport>,
    /// Reason why the reporting node's last attempt to reach the peer failed, if the peer is not linked.
    pub last_failure: Option<String>,
    /// Wait policy for this peer, and its reason.
    pub waits: String,
    /// Open calls of the reporting node.
    pub open_calls: u16,
    /// Request credits left: control, bulk.
    pub credits: [u32; 2],
    /// Counters, by name.
    pub counters: Vec<Counter>,
}

/// Message form of [`Down`].
#[derive(Clone, Debug, Payload)]
pub struct DownReport {
    /// Name of the cause, such as `Goodbye`, `Died` or `Silent`; see [`DownCause::name`](pronto_core::session::DownCause::name).
    pub cause: String,
    /// Human-readable cause.
    pub why: String,
    /// Time since then, in milliseconds.
    pub ms_ago: u64,
}

/// A counter with its name.
#[derive(Clone, Debug, Payload)]
pub struct Counter {
    /// Name of the counter.
    pub name: String,
    /// Count so far.
    pub count: u64,
}

/// Request for the last flight-recorder notes of the node's process.
#[derive(Debug, Message)]
#[message(name = "pronto.recent", reply = RecentReport, idempotent)]
pub struct RecentRequest {
    /// Maximum number of notes, of all threads together; values above 4,096 count as 4,096.
    pub most: u32,
}

/// Last flight-recorder notes of a node's process, oldest first.
#[derive(Clone, Debug, Message)]
#[message(name = "pronto.recent_report", class = bulk)]
pub struct RecentReport {
    /// Notes of all threads.
    pub notes: Vec<NoteReport>,
}

/// Message form of a flight-recorder note.
#[derive(Clone, Debug, Payload)]
pub struct NoteReport {
    /// Name of the thread that wrote the note.
    pub thread: String,
    /// Last clock reading of that thread before the note, in microseconds of the node's clock.
    pub time_us: u64,
    /// Human-readable text of the note.
    pub text: String,
}

/// Request to set or remove the wait override for one of the node's peers. Only processes of the node's own user may send it, over shared memory.
#[derive(Debug, Message)]
#[message(name = "pronto.waiting", reply = WaitingReport, idempotent)]
pub struct WaitingRequest {
    /// The peer.
    pub peer: u16,
    /// `spin`, `block` or `adaptive`; `None` removes the override.
    pub policy: Option<String>,
    /// Polling limit of adaptive waits, in nanoseconds; `None` for the cost of a wake-up.
    pub bound_ns: Option<u64>,
}

/// Result of a [`WaitingRequest`].
#[derive(Debug, Message, PartialEq, Eq)]
#[message(name = "pronto.waiting_report")]
pub struct WaitingReport {
    /// Wait policy for that peer now, and its reason.
    pub waits: String,
    /// Reason why the request was refused, if it was.
    pub refused: Option<String>,
}

/// Returns the routes that every node has.
pub(crate) fn routes() -> [Route<NodeHost>; 4] {
    [
        Route::inline(|_, ping: Ping| Pong { nonce: ping.nonce }),
        Route::pooled(|context: &Context<'_, NodeHost>, _: StatusRequest| {
            StatusReport::from(&context.host().status())
        }),
        Route::pooled(|_: &Context<'_, NodeHost>, request: RecentRequest| RecentReport {
            notes: recent(usize::try_from(request.most).unwrap_or(MOST_NOTES)),
        }),
        Route::pooled(|context: &Context<'_, NodeHost>, request: WaitingRequest| {
            match overrides::set(context.host(), context.source(), &request) {
                Ok(waits) => WaitingReport { waits, refused: None },
                Err(refused) => WaitingReport { waits: String::new(), refused: Some(refused.to_string()) },
            }
        }),
    ]
}

/// Returns the last flight-recorder notes of this process, oldest first, at most `most` and at most 4,096. A panic hook can call it,
/// for example. It allocates, and takes the lock under which threads acquire and release their rings.
pub fn recent(most: usize) -> Vec<NoteReport> {
    let most = most.min(MOST_NOTES);
    let notes = flight::latest(&recorder::threads(most), most);
    notes
        .into_iter()
        .map(|(thread, time, note)| NoteReport { thread, time_us: time / 1_000, text: note.to_string() })
        .collect()
}

/// Maximum number of notes in one report.
const MOST_NOTES: usize = 4096;

/// Asks a peer for its last flight-recorder notes.
pub fn recent_of(peer: &Peer<NodeHost>, most: u32) -> Result<RecentReport, CallError> {
    peer.call(&RecentRequest { most })
}

/// Sends a [`WaitingRequest`] to a peer.
pub fn tell_waiting(peer: &Peer<NodeHost>, request: &WaitingRequest) -> Result<WaitingReport, CallError> {
    peer.call(request)
}

/// Asks a peer for its status.
pub fn status_of(peer: &Peer<NodeHost>) -> Result<StatusReport, CallError> {
    peer.call(&StatusRequest {})
}

/// Returns whether a call failed because the peer is not connected. Otherwise the peer may be connected and unable to reply.
pub const fn is_absent(error: &CallError) -> bool {
    matches!(error, CallError::Rejected(CallRejection::Here(SendError::NotConnected { .. })))
}

impl From<&Status> for StatusReport {
    fn from(status: &Status) -> Self {
        Self {
            node: status.node.0,
            epoch: status.epoch.0,
            name: status.name.clone(),
            listening: status.listening.iter().map(ToString::to_string).collect(),
            types: status.types.iter().map(ToString::to_string).collect(),
            contention: status.contention.map(|contention| contention.to_string()),
            serves: status.serves.clone(),
            boost: status.boost.clone(),
            engine: status.engine.clone(),
            carries: status.carries.clone(),
            placement: status.placement.clone(),
            trust: status.trust.clone(),
            progress: status.progress.iter().map(Counter::from).collect(),
            refused: status.refused.iter().map(Counter::from).collect(),
            failed_dials: status.failed_dials.iter().map(Counter::from).collect(),
            counters: status.counters.iter().map(Counter::from).collect(),
            peers: status.peers.iter().map(PeerReport::from).collect(),
        }
    }
}

impl fmt::Display for NoteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, time_us, text } = self;
        write!(f, "{time_us:>12} us  {thread}: {text}")
    }
}

impl From<&(&'static str, u64)> for Counter {
    fn from((name, count): &(&'static str, u64)) -> Self {
        Self { name: (*name).into(), count: *count }
    }
}

impl From<&Down> for DownReport {
    fn from(down: &Down) -> Self {
        Self {
            cause: down.cause.name().into(),
            why: down.cause.to_string(),
            ms_ago: u64::try_from(down.ago.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl From<&PeerStatus> for PeerReport {
    fn from(peer: &PeerStatus) -> Self {
        Self {
            node: peer.node.0,
            epoch: peer.info.map(|info| info.epoch.0),
            provider: peer.info.map_or("-", |info| info.provider).into(),
            linked: peer.linked,
            paused: peer.paused,
            choice: peer.choice.clone(),
            down: peer.down.map(|down| DownReport::from(&down)),
            last_failure: peer.last_failure.clone(),
            waits: peer.waits.clone(),
            open_calls: peer.open_calls,
            credits: peer.credits,
            counters: peer.counters.iter().map(Counter::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{FIRST_VISITOR, visitor_id};

    /// Shows: operations.visitor-ids
    #[test]
    fn visitors_of_one_process_have_random_ids_from_the_whole_range() {
        let ids: HashSet<u16> = (0..1_000).map(|_| visitor_id().0).collect();
        assert!(ids.iter().all(|id| *id >= FIRST_VISITOR.0));
        assert!(ids.len() > 500, "{} ids", ids.len());
        assert!(ids.iter().any(|id| *id < 64_100) && ids.iter().any(|id| *id > 65_400));
    }
}
