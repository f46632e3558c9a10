//! Links, which carry a session one after another, and events of the peer.

use core::fmt;

use pronto_wire::{Epoch, NodeId, SessionId};

use super::greeting::{Agreement, Evidence};
use crate::fabric::FabricError;

/// The queue pairs of a new link.
#[derive(Debug)]
pub struct Links<Q> {
    /// The queue pairs of both classes, control and bulk.
    pub pairs: [Q; 2],
    /// The agreement of the greetings.
    pub agreement: Agreement,
}

/// An event of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new session has begun, so that the peer can be called.
    PeerUp(LinkInfo),
    /// The session has ended. All calls to the peer have ended, too.
    PeerDown {
        /// The node.
        peer: NodeId,
        /// Its incarnation.
        epoch: Epoch,
        /// The cause.
        cause: DownCause,
    },
    /// The link broke, and the session waits for another one.
    LinkLost {
        /// The node.
        peer: NodeId,
        /// The error of the link.
        error: FabricError,
    },
    /// A new link has resumed the session. Only notifications that were in flight may be lost.
    LinkResumed {
        /// The node.
        peer: NodeId,
        /// Notifications of this side that did not arrive.
        notifications_lost: u32,
    },
    /// The link was idle, and both sides agreed to end it. Nothing was in flight. The session goes on: the next message gets another link.
    LinkPaused {
        /// The node.
        peer: NodeId,
    },
    /// A paused session has a link again.
    PauseEnded {
        /// The node.
        peer: NodeId,
    },
}

/// Information about a link and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// The node.
    pub peer: NodeId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The session.
    pub session: SessionId,
    /// The name of the provider.
    pub provider: &'static str,
    /// True if the peer runs on this host.
    pub local: bool,
    /// How this side knows the peer.
    pub evidence: Evidence,
}

/// The reason why a peer is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownCause {
    /// The peer shut down.
    Goodbye,
    /// The peer's process ended.
    Died,
    /// No message was received from the peer within the liveness limit.
    Silent,
    /// The peer broke the protocol.
    Corrupt(FabricError),
    /// Another incarnation of the node has sent a greeting, or the peer has forgotten the session.
    Replaced,
    /// This node is shutting down.
    Local,
    /// This node panicked while it served the peer.
    Panicked,
    /// The certificate or key of the peer has lost the trust of this node.
    Untrusted,
}

impl DownCause {
    /// The names of the causes, in the order of their numbers.
    const NAMES: [&str; 8] =
        ["Goodbye", "Died", "Silent", "Corrupt", "Replaced", "Local", "Panicked", "Untrusted"];

    /// Returns the number of the cause in an entry of the flight recorder.
    pub const fn number(self) -> u8 {
        match self {
            Self::Goodbye => 0,
            Self::Died => 1,
            Self::Silent => 2,
            Self::Corrupt(_) => 3,
            Self::Replaced => 4,
            Self::Local => 5,
            Self::Panicked => 6,
            Self::Untrusted => 7,
        }
    }

    /// Returns the name of the cause in documents and machine-readable output.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.number() as usize]
    }

    /// Returns the name of the cause with this number, if there is one.
    pub fn name_of(number: u8) -> Option<&'static str> {
        Self::NAMES.get(usize::from(number)).copied()
    }

    /// Returns whether one of the two nodes stopped in an orderly way.
    pub const fn is_orderly(self) -> bool {
        matches!(self, Self::Goodbye | Self::Local)
    }
}

impl fmt::Display for DownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Goodbye => f.write_str("it shut down"),
            Self::Died => f.write_str("its process ended"),
            Self::Silent => f.write_str("no message was received from it within the liveness limit"),
            Self::Corrupt(error) => write!(f, "it broke the protocol: {error}"),
            Self::Replaced => f.write_str("its process was restarted, or has forgotten the session"),
            Self::Local => f.write_str("this node is shutting down"),
            Self::Panicked => f.write_str("this node panicked while it served the peer: see the log"),
            Self::Untrusted => f.write_str("this node trusts its certificate or key no longer"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn each_cause_has_a_text_and_a_name_of_its_own() {
        let corrupt = DownCause::Corrupt(FabricError::Lost);
        let causes = [
            DownCause::Goodbye,
            DownCause::Died,
            DownCause::Silent,
            corrupt,
            DownCause::Replaced,
            DownCause::Local,
            DownCause::Panicked,
            DownCause::Untrusted,
        ];
        assert_eq!(causes.map(DownCause::name), DownCause::NAMES);
        let texts: BTreeSet<_> = causes.iter().map(ToString::to_string).collect();
        assert!(texts.len() == causes.len() && !texts.contains(""), "{texts:?}");
        assert!(corrupt.to_string().ends_with(&FabricError::Lost.to_string()), "{corrupt}");
    }
}
