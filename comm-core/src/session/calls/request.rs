//! An outgoing request, its resend copy, and the time limit of its caller.

use pronto_wire::{Class, ServiceId, TypeId};

use crate::session::end::Executed;
use crate::session::outgoing::OutgoingPayload;
use crate::time::Nanos;

/// A request that waits to be posted.
#[derive(Debug)]
pub(in crate::session) struct Request {
    pub(in crate::session) class: Class,
    /// The link for which the request was composed. The request may name grants of that link.
    pub(in crate::session) composed: u16,
    /// The link to which its credit belongs.
    pub(in crate::session) link: u16,
    pub(in crate::session) type_id: TypeId,
    pub(in crate::session) service: ServiceId,
    pub(in crate::session) payload: OutgoingPayload,
}

impl Request {
    /// Returns whether the payload cannot change after the call has ended. The owner of a region may write to the region from then on.
    pub(super) const fn keeps_its_payload(&self) -> bool {
        !matches!(self.payload, OutgoingPayload::Region { .. })
    }
}

/// The resend copy of a posted request, from which it is posted again on the session's next link.
#[derive(Debug)]
pub(in crate::session) struct Resend {
    pub(in crate::session) type_id: TypeId,
    pub(in crate::session) service: ServiceId,
    /// `None` while the work request holds the payload.
    pub(in crate::session) payload: Option<OutgoingPayload>,
}

/// The time limit of the caller.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct TimeLimit {
    timeout: Nanos,
    /// Time when the call ends with a timeout. The first tick that sees the call sets it.
    deadline: Option<Nanos>,
}

impl Default for TimeLimit {
    fn default() -> Self {
        Self::new(Nanos::NEVER)
    }
}

impl TimeLimit {
    /// Returns a time limit that starts with the first tick that sees the call.
    #[inline]
    pub(in crate::session) const fn new(timeout: Nanos) -> Self {
        Self { timeout, deadline: None }
    }

    /// Returns the rest of the timeout.
    pub(in crate::session) fn remaining(&self, now: Nanos) -> Nanos {
        self.deadline.map_or(self.timeout, |deadline| deadline.since(now))
    }

    pub(super) fn has_passed(&mut self, now: Nanos) -> bool {
        self.timeout != Nanos::NEVER && *self.deadline.get_or_insert(now + self.timeout) <= now
    }
}

/// State of a waiting request with regard to earlier links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Before {
    /// No link ever carried the request, so its handler did not run.
    NeverPosted,
    /// An earlier link carried the request, so its handler may have run.
    Posted,
    /// An earlier link carried the request, and the waiter has taken the end or has left. The request is posted again nevertheless: the
    /// peer may be processing it and reading memory lent to it, and only a response tells when that is over.
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
