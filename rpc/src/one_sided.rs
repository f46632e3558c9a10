//! One-sided operations: reads, writes and atomic operations on memory that a peer has granted. They run no handler of the peer.

use core::fmt;
use core::ops::Range;
use core::time::Duration;

use pronto_core::executor::WaitRequest;
use pronto_core::fabric::{Grant, GrantError, GrantId, Region, RemoteRange, Rights};
use pronto_core::session::{Access, End, SendError, WaitOutcome};
use thiserror::Error;

use crate::Payload;
use crate::host::{Host, MayWait};
use crate::peer::Peer;

/// A description of granted memory that can be sent to the peer to which it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Payload)]
pub struct RemoteMemory {
    key: u64,
    offset: u64,
    len: u64,
}

impl From<RemoteRange> for RemoteMemory {
    fn from(range: RemoteRange) -> Self {
        let RemoteRange { key, offset, len } = range;
        Self { key, offset, len }
    }
}

impl From<RemoteMemory> for RemoteRange {
    fn from(memory: RemoteMemory) -> Self {
        let RemoteMemory { key, offset, len } = memory;
        Self { key, offset, len }
    }
}

impl RemoteMemory {
    /// Returns the length, bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the length is zero.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a part of the memory; `range` is relative to its start.
    pub fn part(&self, range: Range<u64>) -> Option<Self> {
        RemoteRange::from(*self).part(range).map(Self::from)
    }
}

/// The reason why a one-sided operation failed. `Debug` prints the same text as `Display`.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// This node refused the operation before it sent anything.
    #[error(transparent)]
    Rejected(#[from] SendError),
    /// An inline handler or a forked child called the operation, which waits.
    #[error("an inline handler or a forked child must not wait for a one-sided operation")]
    MayNotWait,
    /// No grant allows the access: it was never made to this node, is revoked, or does not cover the range or the right.
    #[error(
        "no grant allows this access: it was never made to this node, is revoked, or does not cover the range or the right"
    )]
    Refused,
    /// The connection does not support one-sided operations.
    #[error("this provider does not support one-sided operations")]
    Unsupported,
    /// The connection failed. The operation may or may not have been executed.
    #[error("the connection failed; the operation may or may not have been executed")]
    Lost,
    /// The operation did not complete in time. It may still be executed.
    #[error("the operation did not complete in time; it may still be executed")]
    TimedOut,
}

impl fmt::Debug for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<H: Host> Peer<H> {
    /// Registers a region in advance for sends by reference and one-sided operations over the current link. If the transport pins
    /// memory, no message is delayed by that later.
    ///
    /// # Errors
    /// [`GrantError::WouldDeadlock`] in an inline handler; [`GrantError::Failed`] without a link, or if memory cannot be pinned.
    pub fn register(&self, region: &Region) -> Result<(), GrantError> {
        self.may_wait_for_engine()?;
        self.session().register_region(region, &**self.host())
    }

    /// Allows this peer, and no other, to access a range of a region. Send the grant's `remote` field to the peer.
    ///
    /// # Errors
    /// [`GrantError::WouldDeadlock`] in an inline handler, and the errors of the transport.
    pub fn grant(&self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        self.may_wait_for_engine()?;
        self.session().grant(region, range, rights, &**self.host())
    }

    /// Ends a grant.
    ///
    /// # Errors
    /// [`GrantError::WouldDeadlock`] in an inline handler, and the reason why there is no such grant.
    pub fn revoke(&self, grant: GrantId) -> Result<(), GrantError> {
        self.may_wait_for_engine()?;
        self.session().revoke(grant, &**self.host())
    }

    /// Copies the peer's memory into a local region.
    pub fn read_memory(
        &self,
        remote: RemoteMemory,
        local: &Region,
        offset: u64,
        timeout: Duration,
    ) -> Result<(), AccessError> {
        let access = Access::Read { local: local.clone(), offset, remote: remote.into() };
        self.access(access, timeout).map(|_| ())
    }

    /// Copies a local region into the peer's memory.
    pub fn write_memory(
        &self,
        local: &Region,
        offset: u64,
        remote: RemoteMemory,
        timeout: Duration,
    ) -> Result<(), AccessError> {
        let access = Access::Write { local: local.clone(), offset, remote: remote.into() };
        self.access(access, timeout).map(|_| ())
    }

    /// Replaces eight aligned bytes of the peer's memory if they equal the expected value. Returns the previous value.
    pub fn compare_swap(
        &self,
        remote: RemoteMemory,
        expected: u64,
        desired: u64,
        timeout: Duration,
    ) -> Result<u64, AccessError> {
        self.access(Access::CompareSwap { remote: remote.into(), expected, desired }, timeout)
    }

    /// Adds to eight aligned bytes of the peer's memory, wrapping. Returns the previous value.
    pub fn fetch_add(&self, remote: RemoteMemory, add: u64, timeout: Duration) -> Result<u64, AccessError> {
        self.access(Access::FetchAdd { remote: remote.into(), add }, timeout)
    }

    /// Returns an error if the calling thread must not wait for the engine lock, even if the lock is free at the moment.
    fn may_wait_for_engine(&self) -> Result<(), GrantError> {
        if self.host().may_wait() == MayWait::Never { Err(GrantError::WouldDeadlock) } else { Ok(()) }
    }

    fn access(&self, access: Access, timeout: Duration) -> Result<u64, AccessError> {
        let (session, host) = (self.session(), self.host());
        if matches!(host.may_wait(), MayWait::Never | MayWait::Forked) {
            return Err(AccessError::MayNotWait);
        }
        let slot = session.access(access, &**host)?;
        let mut sink = host.waiting_sink(session);
        let asked = WaitRequest::unlike_others(self.policy());
        match session.wait(slot, crate::peer::nanos(timeout), asked, &mut sink, &**host) {
            WaitOutcome::TimedOut => {
                session.abandon_send(slot, &**host);
                Err(AccessError::TimedOut)
            }
            WaitOutcome::Ended(end) => match end {
                End::Done(found) => Ok(found),
                End::AccessRefused | End::Unreadable => Err(AccessError::Refused),
                End::Unsupported => Err(AccessError::Unsupported),
                _ => Err(AccessError::Lost),
            },
        }
    }
}
