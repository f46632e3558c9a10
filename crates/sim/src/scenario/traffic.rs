//! Parameters of the traffic between scenario nodes.

use pronto_core::Nanos;

use crate::random::{Random, Span};

/// Random traffic of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Time between two bursts; `None` sends nothing.
    pub gap: Option<Span>,
    /// Maximum number of messages in a burst.
    pub burst: u32,
    /// One message in `bulk_one_in` is sent in the bulk class.
    pub bulk_one_in: u32,
    /// One message in `long_one_in` is longer than an inline message, up to the peer's limit.
    pub long_one_in: u32,
    /// One long message in `by_reference_one_in` is sent by reference.
    pub by_reference_one_in: u32,
    /// One message in `notice_one_in` is a notification.
    pub notice_one_in: u32,
    /// One call in `laned_one_in` runs in a lane.
    pub laned_one_in: u32,
    /// One call in `deadline_one_in` has a deadline.
    pub deadline_one_in: u32,
    /// Time until such a deadline.
    pub deadline: Span,
    /// One call in `abandon_one_in` is abandoned by its caller.
    pub abandon_one_in: u32,
    /// Time after which it is abandoned.
    pub abandon_after: Span,
    /// Time for which a lane runs a call.
    pub work: Span,
    /// One call in `late_one_in` runs longer.
    pub late_one_in: u32,
    /// Maximum additional time of such a call.
    pub late: Span,
    /// Finished responses wait for the next inline handler of the same node, which sends them all while the engine is
    /// held, or for this time. `None` sends each immediately.
    pub hoard: Option<Nanos>,
    /// One link in `tight_one_in` is granted a window of one request in each class.
    pub tight_one_in: u32,
    /// Time between two receives or sends of a rendezvous with one peer; `None` for no rendezvous.
    pub transfers: Option<Span>,
    /// One burst in `held_one_in` is sent with held doorbells, separately to each peer.
    pub held_one_in: u32,
    /// Time for which doorbells are held.
    pub hold: Span,
}

impl Traffic {
    /// Returns a mix of all kinds of traffic.
    pub const fn mixed() -> Self {
        Self {
            gap: Some(Span::micros(20, 4_000)),
            burst: 6,
            bulk_one_in: 3,
            long_one_in: 3,
            by_reference_one_in: 4,
            notice_one_in: 4,
            laned_one_in: 3,
            deadline_one_in: 6,
            deadline: Span::millis(1, 60),
            abandon_one_in: 12,
            abandon_after: Span::micros(0, 3_000),
            work: Span::micros(1, 2_000),
            late_one_in: 0,
            late: Span::millis(1, 400),
            hoard: None,
            tight_one_in: 0,
            transfers: None,
            held_one_in: 0,
            hold: Span::micros(0, 10_000),
        }
    }

    /// Returns traffic with calls that always get a reply unless the peer is lost.
    pub const fn patient() -> Self {
        Self { deadline_one_in: 0, abandon_one_in: 0, ..Self::mixed() }
    }

    /// Stops new messages.
    #[must_use]
    pub const fn silent(self) -> Self {
        Self { gap: None, transfers: None, tight_one_in: 0, ..self }
    }

    /// Holds the doorbells of some messages for a time.
    #[must_use]
    pub const fn holding(self, held_one_in: u32, hold: Span) -> Self {
        Self { held_one_in, hold, ..self }
    }

    /// Adds transfers into posted buffers.
    #[must_use]
    pub const fn transferring(self, gap: Span) -> Self {
        Self { transfers: Some(gap), ..self }
    }

    /// Makes some handlers respond late, and many of them at a time.
    #[must_use]
    pub const fn responding_late(self, late_one_in: u32, hoard: Nanos) -> Self {
        Self { late_one_in, hoard: Some(hoard), ..self }
    }

    /// Limits some links to one request at a time.
    #[must_use]
    pub const fn over_tight_links(self, tight_one_in: u32) -> Self {
        Self { tight_one_in, ..self }
    }

    /// Returns the time for which a lane runs the next call.
    pub(super) fn work_on(&self, random: &mut Random) -> Nanos {
        let span = if random.one_in(self.late_one_in) { self.late } else { self.work };
        random.within(span)
    }

    /// Sets the time for which handlers run.
    #[must_use]
    pub const fn working(self, work: Span) -> Self {
        Self { work, laned_one_in: 1, ..self }
    }
}

/// Maximum time until a cluster has recovered after its faults: two liveness limits, and dialling.
pub(super) const RECOVERY: Nanos = Nanos::from_secs(12);
