//! The phase of a session: whether there is a session, and whether a link carries it.
//!
//! ```text
//!          link installed              link lost, resumable
//!   Down ------------------> Linked --------------------------> Suspended
//!    ^                         |  ^                                 |  |
//!    |                         |  +---------- link resumed ---------+  |
//!    +-- session over ---------+                                       |
//!    +-- session over -------------------------------------------------+
//! ```
//!
//! A suspended session may be *paused*: both sides agreed to the end of an idle link. It is suspended for any time, until a message needs
//! a link.
//!
//! # Invariants
//! 1. Only the methods here change the phase. Each asserts the phase that it begins from.
//! 2. A session keeps its number from its first link to its end.
//! 3. A session that ends has no link: the engine closes the link first, which suspends the session.

use super::calls::Expects;
use super::connection::Link;
use super::link::LinkInfo;
use crate::time::Nanos;

/// The phase of a session, from the view of the engine.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per session; a box would cost every message a load"
)]
pub(super) enum Phase<Q> {
    /// No session.
    Down,
    /// The session has this link.
    Linked(Link<Q>),
    /// The session waits for another link.
    Suspended(LostLink),
}

/// A remnant of a lost link, kept until the next one or until the liveness limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct LostLink {
    pub(super) info: LinkInfo,
    pub(super) since: Nanos,
    /// Number of notifications that were in flight. At most this many are lost.
    pub(super) notifications: u32,
    /// True if the link ended because it was idle.
    pub(super) was_paused: bool,
    /// True if the session waits without a limit: no message needs a link.
    pub(super) is_paused: bool,
}

impl LostLink {
    /// Extends the time that the session waits for another link by this node's own lateness.
    pub(super) fn excuse(&mut self, late: Nanos) {
        self.since = self.since + late;
    }
}

impl<Q> Phase<Q> {
    /// Begins a session with its first link.
    pub(super) fn begin(&mut self, link: Link<Q>) {
        assert!(self.is_down(), "a session begins after the earlier one has ended");
        *self = Self::Linked(link);
    }

    /// Resumes the suspended session with another link. Returns the remnant of the lost link.
    pub(super) fn resume(&mut self, link: Link<Q>) -> LostLink {
        let Self::Suspended(lost) = *self else { panic!("a link resumes a suspended session only") };
        assert!(lost.info.session == link.info.session, "a link resumes the session that it was made for");
        *self = Self::Linked(link);
        lost
    }

    /// Suspends the session at `now` and drops its link, which has been closed.
    pub(super) fn suspend(&mut self, now: Nanos) {
        let Self::Linked(link) = self else { panic!("a session is suspended when its link is lost") };
        let notifications =
            link.connections.iter().map(|connection| connection.notifications.len()).sum::<usize>();
        let notifications = u32::try_from(notifications).unwrap_or(u32::MAX);
        *self = Self::Suspended(LostLink {
            info: link.info,
            since: now,
            notifications,
            was_paused: false,
            is_paused: false,
        });
    }

    /// Lets the session, which has just been suspended, wait without a limit.
    pub(super) fn pause(&mut self) {
        let Self::Suspended(lost) = self else { panic!("a session is paused when its link has ended") };
        (lost.was_paused, lost.is_paused) = (true, true);
    }

    /// Ends the session. Returns the remnant of its last link, or `None` if there was no session.
    pub(super) fn end(&mut self) -> Option<LostLink> {
        assert!(!self.is_linked(), "a session ends after its link was closed");
        match core::mem::replace(self, Self::Down) {
            Self::Suspended(lost) => Some(lost),
            Self::Down | Self::Linked(_) => None,
        }
    }

    /// Sets the phase of a failed engine to [`Self::Down`], whatever it was. Returns the old phase.
    pub(super) const fn take_failed(&mut self) -> Self {
        core::mem::replace(self, Self::Down)
    }

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

    /// Returns the peer of the session.
    pub(super) const fn info(&self) -> Option<&LinkInfo> {
        match self {
            Self::Down => None,
            Self::Linked(link) => Some(&link.info),
            Self::Suspended(lost) => Some(&lost.info),
        }
    }

    /// Returns whether a response may still arrive for a posted request.
    pub(super) const fn response(&self) -> Expects {
        if self.is_linked() { Expects::Response } else { Expects::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use pronto_wire::{Epoch, FirstWords, NodeId, SessionId, Windows};

    use super::super::greeting::Evidence;
    use super::*;
    use crate::session::connection::Connection;
    use crate::session::pausing::{Pausing, Usage};

    const NOW: Nanos = Nanos::from_millis(7);

    fn link(session: u64, notifications: [u16; 2]) -> Link<()> {
        let window = Windows { requests: 4, grows_to: 4, replies: 4, control: 4, max_payload: 64 };
        let connections = notifications.map(|count| {
            let mut connection = Connection::new((), window, window);
            connection.notifications.extend(0..count);
            connection
        });
        let session = SessionId(session);
        let info = LinkInfo {
            peer: NodeId(2),
            epoch: Epoch(3),
            session,
            provider: "none",
            local: true,
            evidence: Evidence::SameUser,
        };
        Link {
            connections,
            info,
            last_received: Nanos::ZERO,
            last_sent: Nanos::ZERO,
            has_received: false,
            has_sent: false,
            peer_draining: false,
            resumable: true,
            first_words: FirstWords::PLAIN,
            carries_pressure: false,
            pauses: true,
            pausing: Pausing::No,
            usage: Usage::default(),
            last_used: Nanos::ZERO,
            asks_again: Nanos::ZERO,
            grants: 0,
        }
    }

    /// Shows: protocol.notifications-lost, operations.notifications-lost
    #[test]
    fn a_session_is_suspended_resumed_and_ended() {
        let mut phase = Phase::Down;
        assert!(phase.end().is_none(), "the session has not begun");
        phase.begin(link(1, [2, 1]));
        assert!(phase.is_linked() && phase.response() == Expects::Response);
        phase.suspend(NOW);
        assert!(!phase.is_linked() && !phase.is_down() && phase.response() == Expects::Nothing);
        assert_eq!(phase.info().map(|info| info.session), Some(SessionId(1)));
        let lost = phase.resume(link(1, [0; 2]));
        assert_eq!(
            (lost.since, lost.notifications),
            (NOW, 3),
            "the notifications of both connections may be lost"
        );
        phase.suspend(NOW + NOW);
        let lost = phase.end().expect("there was a session");
        assert_eq!(
            (lost.since, lost.notifications),
            (NOW + NOW, 0),
            "the notifications of the earlier link do not count"
        );
        assert!(phase.is_down() && phase.info().is_none());
    }

    #[test]
    #[should_panic(expected = "a session begins after the earlier one has ended")]
    fn a_suspended_session_does_not_begin_again() {
        let mut phase = Phase::Down;
        phase.begin(link(1, [0; 2]));
        phase.suspend(NOW);
        phase.begin(link(2, [0; 2]));
    }

    #[test]
    #[should_panic(expected = "a link resumes the session that it was made for")]
    fn a_link_does_not_resume_another_session() {
        let mut phase = Phase::Down;
        phase.begin(link(1, [0; 2]));
        phase.suspend(NOW);
        let _lost = phase.resume(link(2, [0; 2]));
    }

    #[test]
    #[should_panic(expected = "a session ends after its link was closed")]
    fn a_linked_session_does_not_end() {
        let mut phase = Phase::Down;
        phase.begin(link(1, [0; 2]));
        let _lost = phase.end();
    }

    /// Shows: protocol.lateness
    #[test]
    fn lateness_of_this_node_is_not_time_without_a_link() {
        let mut phase = Phase::Down;
        phase.begin(link(1, [0; 2]));
        phase.suspend(NOW);
        let Phase::Suspended(lost) = &mut phase else { unreachable!("the session was suspended") };
        lost.excuse(NOW);
        assert_eq!(lost.since, NOW + NOW);
    }
}
