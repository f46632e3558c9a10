//! A request on its way out: what it is made of, what repeats it, and how long its caller waits.

use pronto_wire::{Class, ServiceId, TypeId};

use crate::session::end::Executed;
use crate::session::outgoing::OutgoingPayload;
use crate::time::Nanos;

/// A request that waits to be posted.
#[derive(Debug)]
pub(in crate::session) struct Request {
    pub(in crate::session) class: Class,
    /// The link for which it was composed: it may name grants of that link.
    pub(in crate::session) composed: u16,
    /// The link whose credit it holds.
    pub(in crate::session) link: u16,
    pub(in crate::session) type_id: TypeId,
    pub(in crate::session) service: ServiceId,
    pub(in crate::session) payload: OutgoingPayload,
}

impl Request {
    /// Whether its payload stays as it is after the call has ended. The owner of a region may write to it from then on.
    pub(super) const fn keeps_its_payload(&self) -> bool {
        !matches!(self.payload, OutgoingPayload::Region { .. })
    }
}

/// What repeats a posted request on the session's next link.
#[derive(Debug)]
pub(in crate::session) struct Resend {
    pub(in crate::session) type_id: TypeId,
    pub(in crate::session) service: ServiceId,
    /// None while the work request holds it.
    pub(in crate::session) payload: Option<OutgoingPayload>,
}

/// How long the caller waits.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct TimeLimit {
    timeout: Nanos,
    /// When the call ends by its timeout; set by the first tick that sees the call.
    deadline: Option<Nanos>,
}

impl Default for TimeLimit {
    fn default() -> Self {
        Self::new(Nanos::NEVER)
    }
}

impl TimeLimit {
    /// A limit that begins with the first tick that sees it.
    #[inline]
    pub(in crate::session) const fn new(timeout: Nanos) -> Self {
        Self { timeout, deadline: None }
    }

    /// What is left of the timeout.
    pub(in crate::session) fn remaining(&self, now: Nanos) -> Nanos {
        self.deadline.map_or(self.timeout, |deadline| deadline.since(now))
    }

    pub(super) fn has_passed(&mut self, now: Nanos) -> bool {
        self.timeout != Nanos::NEVER && *self.deadline.get_or_insert(now + self.timeout) <= now
    }
}

/// Whether a waiting request was posted on an earlier link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Before {
    /// No link ever carried it: its handler did not run.
    NeverPosted,
    /// An earlier link carried it: its handler may have run.
    Posted,
    /// An earlier link carried it, and its waiter has its end or has left. It is repeated nevertheless: the peer may be at work
    /// on it, reading memory that was lent for it, and only a response tells when that is over.
    GivenUp,
}

impl Before {
    pub(super) const fn executed(self) -> Executed {
        match self {
            Self::NeverPosted => Executed::No,
            Self::Posted | Self::GivenUp => Executed::Maybe,
        }
    }
}
