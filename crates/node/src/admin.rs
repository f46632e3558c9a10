//! What every node answers about itself: whether it is there, and what it is doing.

use core::fmt;

use pronto_core::session::Refused;
use pronto_rpc::{CallError, Context, Message, Payload, Peer, Rejection, Route};
use pronto_wire::NodeId;

use crate::flight;
use crate::host::NodeHost;
use crate::node::{Down, PeerStatus, Status};
use crate::waiting;

/// Ids from here on are those of visitors: nodes that join for a moment, to ask for something. No configuration takes one.
pub const FIRST_VISITOR: NodeId = NodeId(64_000);

/// Asks for nothing but an answer.
#[derive(Debug, Message)]
#[message(name = "pronto.ping", reply = Pong, idempotent)]
pub struct Ping {
    /// Comes back.
    pub nonce: u64,
}

/// The answer to a [`Ping`].
#[derive(Debug, Message, PartialEq, Eq)]
#[message(name = "pronto.pong")]
pub struct Pong {
    /// The ping's.
    pub nonce: u64,
}

/// Asks what the node is doing.
#[derive(Debug, Message)]
#[message(name = "pronto.status", reply = StatusReport, idempotent)]
pub struct StatusRequest {}

/// What a node is doing, as it travels.
#[derive(Clone, Debug, Message)]
#[message(name = "pronto.status_report")]
pub struct StatusReport {
    /// The node.
    pub node: u16,
    /// This life of it.
    pub epoch: u64,
    /// Its name for people.
    pub name: String,
    /// Where it listens.
    pub listening: Vec<String>,
    /// Message types that it handles.
    pub types: Vec<String>,
    /// Why its adaptive waits sleep at once, if they do: processors are short.
    pub crowded: Option<String>,
    /// How its serving thread waits, and why.
    pub serves: String,
    /// How its handlers are boosted, and why no better.
    pub boost: String,
    /// Who polls what.
    pub engine: String,
    /// Up to which length a rendezvous carries its payload along, by transport.
    pub carries: String,
    /// Where on its machine it is, and why.
    pub placement: String,
    /// What polling and sleeping have counted.
    pub progress: Vec<Counter>,
    /// Connections that it accepted and refused, by reason.
    pub refused: Vec<Counter>,
    /// Its own attempts to connect that failed, by reason.
    pub failed_dials: Vec<Counter>,
    /// What the node as a whole has counted, by name.
    pub counters: Vec<Counter>,
    /// Its peers.
    pub peers: Vec<PeerReport>,
}

/// What a node knows of a peer, as it travels.
#[derive(Clone, Debug, Payload)]
pub struct PeerReport {
    /// The peer.
    pub node: u16,
    /// Its present life, if there is a session.
    pub epoch: Option<u64>,
    /// The provider of its link, if there was one.
    pub provider: String,
    /// Whether a link carries the session now.
    pub linked: bool,
    /// Why its link goes, or went, over what it does.
    pub choice: Option<String>,
    /// Why it is down, if it was up before.
    pub down: Option<DownReport>,
    /// Why the last attempt of the reporting node to reach it failed, if it is not linked.
    pub last_failure: Option<String>,
    /// How its threads wait for it, and why.
    pub waits: String,
    /// Calls of the reporting node that are open.
    pub open_calls: u16,
    /// Request credits left: control, bulk.
    pub credits: [u32; 2],
    /// Counters, by name.
    pub counters: Vec<Counter>,
}

/// How a peer went down, as it travels.
#[derive(Clone, Debug, Payload)]
pub struct DownReport {
    /// The cause's name: `Goodbye`, `Died`, `Silent`, `Replaced`, `Corrupt`.
    pub cause: String,
    /// The cause in words.
    pub why: String,
    /// How long ago, milliseconds.
    pub ms_ago: u64,
}

/// A counter, as it travels.
#[derive(Clone, Debug, Payload)]
pub struct Counter {
    /// What is counted.
    pub name: String,
    /// How many so far.
    pub count: u64,
}

/// Asks what the threads of the node's process did last.
#[derive(Debug, Message)]
#[message(name = "pronto.recent", reply = RecentReport, idempotent)]
pub struct RecentRequest {
    /// At most so many notes, of all threads together; never more than 4,096.
    pub most: u32,
}

/// What the flight recorder of a node's process has kept, oldest first.
#[derive(Clone, Debug, Message)]
#[message(name = "pronto.recent_report", class = bulk)]
pub struct RecentReport {
    /// Notes of all threads.
    pub notes: Vec<NoteReport>,
}

/// A note of the flight recorder, as it travels.
#[derive(Clone, Debug, Payload)]
pub struct NoteReport {
    /// The thread that made it.
    pub thread: String,
    /// When that thread had last read the clock before, microseconds of the node's clock.
    pub time_us: u64,
    /// What it did.
    pub text: String,
}

/// Says how the node is to wait for one of its peers from now on. Only processes of its host may ask for it.
#[derive(Debug, Message)]
#[message(name = "pronto.waiting", reply = WaitingReport, idempotent)]
pub struct WaitingRequest {
    /// The peer.
    pub peer: u16,
    /// `spin`, `block` or `adaptive`; `None`: as each wait asks for itself.
    pub policy: Option<String>,
    /// For how long adaptive waits poll, nanoseconds; `None` for what a wake-up costs.
    pub bound_ns: Option<u64>,
}

/// What came of it.
#[derive(Debug, Message, PartialEq, Eq)]
#[message(name = "pronto.waiting_report")]
pub struct WaitingReport {
    /// How the node waits for that peer now, and why.
    pub waits: String,
    /// Why nothing was changed, if it was not.
    pub refused: Option<String>,
}

/// The routes that every node has.
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
            match waiting::set(context.host(), context.source(), &request) {
                Ok(waits) => WaitingReport { waits, refused: None },
                Err(refused) => WaitingReport { waits: String::new(), refused: Some(refused.to_string()) },
            }
        }),
    ]
}

/// What the threads of this process noted last, oldest first, at most `most` notes; for a panic hook, for example. Allocates, and
/// takes the lock under which threads begin and end.
pub fn recent(most: usize) -> Vec<NoteReport> {
    let most = most.min(MOST_NOTES);
    let notes = flight::latest(&pronto_recorder::threads(most), most);
    notes
        .into_iter()
        .map(|(thread, time, note)| NoteReport { thread, time_us: time / 1_000, text: note.to_string() })
        .collect()
}

/// Notes in one report.
const MOST_NOTES: usize = 4096;

/// Asks a peer what its threads did last.
pub fn recent_of(peer: &Peer<NodeHost>, most: u32) -> Result<RecentReport, CallError> {
    peer.call(&RecentRequest { most })
}

/// Tells a peer how to wait for one of its own.
pub fn tell_waiting(peer: &Peer<NodeHost>, request: &WaitingRequest) -> Result<WaitingReport, CallError> {
    peer.call(request)
}

/// Asks a peer what it is doing.
pub fn status_of(peer: &Peer<NodeHost>) -> Result<StatusReport, CallError> {
    peer.call(&StatusRequest {})
}

/// Whether an error says that the peer is not there, rather than that it cannot answer.
pub const fn is_absent(error: &CallError) -> bool {
    matches!(error, CallError::Rejected(Rejection::Here(Refused::NotConnected { .. })))
}

impl From<&Status> for StatusReport {
    fn from(status: &Status) -> Self {
        Self {
            node: status.node.0,
            epoch: status.epoch.0,
            name: status.name.clone(),
            listening: status.listening.iter().map(ToString::to_string).collect(),
            types: status.types.iter().map(ToString::to_string).collect(),
            crowded: status.crowded.map(|crowded| crowded.to_string()),
            serves: status.serves.clone(),
            boost: status.boost.clone(),
            engine: status.engine.clone(),
            carries: status.carries.clone(),
            placement: status.placement.clone(),
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
