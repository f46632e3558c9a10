//! Values of a pause: the end of an idle link to which both sides agree, after which the session waits without a link until a message needs
//! one.
//!
//! A side asks only when it has nothing open, and takes no new request or notification until the answer. So no message is lost if the other
//! side has nothing open either and agrees.

use core::fmt;

use pronto_sync::atomic::{AtomicU8, Ordering};

use crate::time::Nanos;

/// The state of a link with regard to a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pausing {
    /// The link is in use.
    No,
    /// The peer has asked, and could not be answered yet that the link stays.
    Declines,
    /// This side has asked and takes no new messages until the answer.
    Asked {
        /// Time of the question.
        at: Nanos,
        /// The peer's own question.
        peers: PeersQuestion,
    },
    /// This side has accepted and takes no new messages. The peer ends the link.
    Accepted {
        /// Time of the answer.
        at: Nanos,
    },
    /// The peer has accepted, and this side ends the link.
    Over,
}

impl Pausing {
    /// Returns whether the peer waits for an answer for which there was no room.
    pub(super) const fn owes_answer(self) -> bool {
        matches!(self, Self::Declines | Self::Asked { peers: PeersQuestion::Due, .. })
    }

    /// Returns whether the end of the link is the one to which both sides agreed.
    pub(super) const fn is_settled(self) -> bool {
        matches!(
            self,
            Self::Asked { peers: PeersQuestion::Accepted, .. } | Self::Accepted { .. } | Self::Over
        )
    }
}

/// The question of a peer that has asked at the same time as this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeersQuestion {
    /// It has not come.
    None,
    /// It has come, and could not be answered yet.
    Due,
    /// This side has accepted. Either side may end the link.
    Accepted,
}

/// The traffic of a link, as one number that changes with each request and notification of either side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Requests and notifications received, by class, wrapping.
    pub(super) received: [u16; 2],
    /// Requests sent, over all links.
    pub(super) requests: u64,
    /// Notifications sent, by class, wrapping.
    pub(super) notifications: [u16; 2],
}

/// The demand for a link: whether the node keeps a link to the peer at all times, or only while messages need one.
#[derive(Default)]
pub(super) struct Demand(AtomicU8);

/// The node keeps a link.
const ALWAYS: u8 = 0;
/// No message needs a link.
const QUIET: u8 = 1;
/// A message needs a link, and there was none.
const WANTED: u8 = 2;

impl Demand {
    /// Called once, before the first message: the node makes links only on demand.
    pub(super) fn set_on_demand(&self) {
        self.0.store(QUIET, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_on_demand(&self) -> bool {
        self.0.load(Ordering::Relaxed) != ALWAYS
    }

    /// Returns whether the node should make a link if there is none.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed) != QUIET
    }

    /// Records that a message needs a link. Returns whether that is new.
    pub(super) fn want(&self) -> bool {
        self.change(QUIET, WANTED)
    }

    /// Records that no message needs a link, or that there is one.
    pub(super) fn is_met(&self) {
        self.change(WANTED, QUIET);
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.0.load(Ordering::Relaxed) == from
            && self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl fmt::Debug for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.load(Ordering::Relaxed) {
            ALWAYS => "Always",
            QUIET => "Quiet",
            _ => "Wanted",
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_wanted_from_the_first_message_that_needs_one_until_there_is_one() {
        let demand = Demand::default();
        assert!(demand.is_wanted() && !demand.is_on_demand() && !demand.want());
        demand.is_met();
        assert!(demand.is_wanted(), "the node keeps a link at all times");
        demand.set_on_demand();
        assert!(demand.is_on_demand() && !demand.is_wanted());
        assert!(demand.want() && !demand.want(), "the first message is the one that the node is notified of");
        assert!(demand.is_wanted());
        demand.is_met();
        assert!(demand.is_on_demand() && !demand.is_wanted());
    }
}
