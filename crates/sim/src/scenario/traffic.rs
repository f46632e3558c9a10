//! What scenario nodes send each other, as numbers that a story turns.

use pronto_core::Nanos;

use crate::random::{Random, Span};

/// Random traffic of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Between two bursts; none sends nothing.
    pub gap: Option<Span>,
    /// Messages of a burst, at most.
    pub burst: u32,
    /// One message in so many travels in the bulk class.
    pub bulk_one_in: u32,
    /// One in so many is longer than a line, up to what the peer takes.
    pub long_one_in: u32,
    /// One long message in so many is sent by reference.
    pub by_reference_one_in: u32,
    /// One in so many is a notification.
    pub notice_one_in: u32,
    /// One call in so many is worked on in a lane.
    pub laned_one_in: u32,
    /// One call in so many has a deadline.
    pub deadline_one_in: u32,
    /// Such a deadline.
    pub deadline: Span,
    /// One call in so many is given up by its caller.
    pub abandon_one_in: u32,
    /// After so long.
    pub abandon_after: Span,
    /// How long a lane works on a call.
    pub work: Span,
    /// One call in `n` is worked on for longer.
    pub late_one_in: u32,
    /// How much longer, at most.
    pub late: Span,
    /// Responses that are ready wait for the next inline handler of the same node, which gives them all while the engine is held;
    /// or for this time to pass. None gives each when it is ready.
    pub hoard: Option<Nanos>,
    /// One link in `n` is granted a window of one request in each class.
    pub tight_one_in: u32,
    /// Between two receives or sends of a rendezvous with one peer; none for none of them.
    pub transfers: Option<Span>,
    /// One burst in so many is sent with doorbells held back, to each peer by itself.
    pub held_one_in: u32,
    /// For so long.
    pub hold: Span,
}

impl Traffic {
    /// A little of everything.
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

    /// Calls that only a lost peer keeps from being answered.
    pub const fn patient() -> Self {
        Self { deadline_one_in: 0, abandon_one_in: 0, ..Self::mixed() }
    }

    /// No new messages.
    #[must_use]
    pub const fn silent(self) -> Self {
        Self { gap: None, transfers: None, tight_one_in: 0, ..self }
    }

    /// Some of the messages are held back for a while.
    #[must_use]
    pub const fn holding(self, held_one_in: u32, hold: Span) -> Self {
        Self { held_one_in, hold, ..self }
    }

    /// Also messages into posted buffers.
    #[must_use]
    pub const fn transferring(self, gap: Span) -> Self {
        Self { transfers: Some(gap), ..self }
    }

    /// Some handlers respond long after their request, and many of them at a time.
    #[must_use]
    pub const fn responding_late(self, late_one_in: u32, hoard: Nanos) -> Self {
        Self { late_one_in, hoard: Some(hoard), ..self }
    }

    /// Some links have room for one request at a time.
    #[must_use]
    pub const fn over_tight_links(self, tight_one_in: u32) -> Self {
        Self { tight_one_in, ..self }
    }

    /// How long a lane works on the next call.
    pub(super) fn work_on(&self, random: &mut Random) -> Nanos {
        let span = if random.one_in(self.late_one_in) { self.late } else { self.work };
        random.within(span)
    }

    /// Handlers that take this long.
    #[must_use]
    pub const fn working(self, work: Span) -> Self {
        Self { work, laned_one_in: 1, ..self }
    }
}

/// How long after the end of its faults a cluster may take to be whole again: two liveness limits, and dialling.
pub(super) const RECOVERY: Nanos = Nanos::from_secs(12);
