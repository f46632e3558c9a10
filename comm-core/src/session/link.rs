//! Links: one after another, they carry a session.

use core::fmt;

use pronto_wire::{Epoch, NodeId, SessionId};

use super::greeting::Agreement;
use crate::fabric::FabricError;

/// The queue pairs of a new link, control and bulk.
#[derive(Debug)]
pub struct Links<Q> {
    /// Both connections.
    pub pairs: [Q; 2],
    /// What the greetings agreed on.
    pub agreement: Agreement,
}

/// What happened to a peer, for those who want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer can be called: a new session.
    PeerUp(LinkInfo),
    /// The peer is gone: its open calls have ended, and stay ended.
    PeerDown {
        /// Which node.
        peer: NodeId,
        /// Which life of it.
        epoch: Epoch,
        /// Why.
        cause: DownCause,
    },
    /// The link broke; the session waits for another one.
    LinkLost {
        /// Which node.
        peer: NodeId,
        /// Why.
        error: FabricError,
    },
    /// Another link carries the session on. Nothing was lost but notifications that were under way.
    LinkResumed {
        /// Which node.
        peer: NodeId,
        /// Notifications of this side that did not arrive.
        notifications_lost: u32,
    },
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Which node.
    pub peer: NodeId,
    /// Which life of it.
    pub epoch: Epoch,
    /// The session.
    pub session: SessionId,
    /// The provider.
    pub provider: &'static str,
    /// Whether the peer runs on this host.
    pub local: bool,
}

/// Why a peer counts as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownCause {
    /// It said goodbye.
    Goodbye,
    /// Its process ended.
    Died,
    /// Nothing was heard of it for the liveness limit.
    Silent,
    /// It broke the rules.
    Corrupt(FabricError),
    /// Another life of the node has greeted, or it has forgotten the session.
    Replaced,
    /// This node shuts down.
    Local,
    /// This node panicked while it served the peer.
    Panicked,
}

impl DownCause {
    /// Its name, as documents and programs know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Goodbye => "Goodbye",
            Self::Died => "Died",
            Self::Silent => "Silent",
            Self::Corrupt(_) => "Corrupt",
            Self::Replaced => "Replaced",
            Self::Local => "Local",
            Self::Panicked => "Panicked",
        }
    }
}

impl fmt::Display for DownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Goodbye => f.write_str("it stopped in order"),
            Self::Died => f.write_str("its process ended"),
            Self::Silent => f.write_str("nothing was heard of it for the liveness limit"),
            Self::Corrupt(error) => write!(f, "it broke the protocol: {error}"),
            Self::Replaced => f.write_str("its process was started anew, or forgot the session"),
            Self::Local => f.write_str("this node stops"),
            Self::Panicked => f.write_str("this node failed while it served the peer; see the log"),
        }
    }
}
