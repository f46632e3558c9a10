//! Where a session stands: whether there is one, and whether a link carries it.
//!
//! ```text
//!          link installed              link lost, resumable
//!   Down ------------------> Linked --------------------------> Suspended
//!    ^                         |  ^                                 |  |
//!    |                         |  +---------- link resumed ---------+  |
//!    +-- session over ---------+                                       |
//!    +-- session over -------------------------------------------------+
//! ```

use super::calls::Expects;
use super::lane::Link;
use super::link::LinkInfo;
use crate::time::Nanos;

/// The engine's view of the session's life.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per session; a box would cost every message a load"
)]
pub(super) enum Phase<Q> {
    /// No session.
    Down,
    /// The session's present link.
    Linked(Link<Q>),
    /// The session waits for another link.
    Suspended(LostLink),
}

/// A remnant of a lost link, kept until the next one or until the liveness limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct LostLink {
    pub(super) info: LinkInfo,
    pub(super) since: Nanos,
    /// Notifications that were under way: at most this many are lost.
    pub(super) notifications: u32,
}

impl<Q> Phase<Q> {
    #[inline(always)]
    pub(super) const fn link(&self) -> Option<&Link<Q>> {
        match self {
            Self::Linked(link) => Some(link),
            Self::Down | Self::Suspended(_) => None,
        }
    }

    #[inline(always)]
    pub(super) const fn link_mut(&mut self) -> Option<&mut Link<Q>> {
        match self {
            Self::Linked(link) => Some(link),
            Self::Down | Self::Suspended(_) => None,
        }
    }

    #[inline(always)]
    pub(super) const fn is_linked(&self) -> bool {
        matches!(self, Self::Linked(_))
    }

    pub(super) const fn is_down(&self) -> bool {
        matches!(self, Self::Down)
    }

    /// The peer at the other end of the session.
    pub(super) const fn info(&self) -> Option<&LinkInfo> {
        match self {
            Self::Down => None,
            Self::Linked(link) => Some(&link.info),
            Self::Suspended(lost) => Some(&lost.info),
        }
    }

    /// Whether a response may still come for a request that was posted.
    pub(super) const fn response(&self) -> Expects {
        if self.is_linked() { Expects::Answer } else { Expects::Nothing }
    }
}
