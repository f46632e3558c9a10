//! A peer's memory, as far as it has granted it: read, written and counted up without its handlers.

use core::ops::Range;
use core::time::Duration;

use pronto_core::executor::Asked;
use pronto_core::fabric::{Grant, GrantError, GrantId, Region, RemoteRange, Rights};
use pronto_core::session::{Access, End, Refused, Waited};
use thiserror::Error;

use crate::Payload;
use crate::host::{Host, MayWait};
use crate::peer::Peer;

/// A piece of a node's memory as it travels to the peer that it was granted to.
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
    /// Length, bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of it, counted from its start.
    pub fn part(&self, range: Range<u64>) -> Option<Self> {
        RemoteRange::from(*self).part(range).map(Self::from)
    }
}

/// Why a one-sided operation was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// Not taken, here.
    #[error(transparent)]
    Rejected(#[from] Refused),
    /// An inline handler, or a forked child, may not wait for it.
    #[error("neither an inline handler nor a forked child may wait")]
    MayNotWait,
    /// No grant allows it: never made to this node, revoked, or out of its bounds or rights.
    #[error(
        "no grant allows this access: never made to this node, revoked, out of its bounds, or without the right to it"
    )]
    Refused,
    /// The connection has no one-sided operations.
    #[error("this provider has no one-sided operations")]
    Unsupported,
    /// The connection failed; it may or may not have been carried out.
    #[error("the connection failed; the operation may or may not have been carried out")]
    Lost,
    /// It was not done in time; it may be yet.
    #[error("not done in time; the operation may be carried out yet")]
    TimedOut,
}

impl<H: Host> Peer<H> {
    /// Readies a region for sends by reference and one-sided operations over the present link, ahead of need: where the
    /// transport pins memory, no message waits for that.
    ///
    /// # Errors
    /// [`GrantError::WouldDeadlock`] in an inline handler, [`GrantError::Failed`] without a link or where memory cannot be pinned.
    pub fn register(&self, region: &Region) -> Result<(), GrantError> {
        self.may_wait_for_engine()?;
        self.session().register_region(region, &**self.host())
    }

    /// Lets this peer, and nobody else, access a range of a region. Send it what the grant says is remote.
    ///
    /// # Errors
    /// [`GrantError::WouldDeadlock`] in an inline handler, and why the transport does not grant.
    pub fn grant(&self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        self.may_wait_for_engine()?;
        self.session().grant(region, range, rights, &**self.host())
    }

    /// Ends a grant.
    ///
    /// # Errors
    /// [`GrantError::WouldDeadlock`] in an inline handler, and why there is nothing to end.
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

    /// Replaces eight aligned bytes of the peer's memory if they are as expected. Returns what was there.
    pub fn compare_swap(
        &self,
        remote: RemoteMemory,
        expected: u64,
        desired: u64,
        timeout: Duration,
    ) -> Result<u64, AccessError> {
        self.access(Access::CompareSwap { remote: remote.into(), expected, desired }, timeout)
    }

    /// Adds to eight aligned bytes of the peer's memory, wrapping. Returns what was there.
    pub fn fetch_add(&self, remote: RemoteMemory, add: u64, timeout: Duration) -> Result<u64, AccessError> {
        self.access(Access::FetchAdd { remote: remote.into(), add }, timeout)
    }

    /// Refuses what an inline handler must not do, whether the engine is free at the moment or not.
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
        let asked = Asked::unlike_others(self.policy());
        match session.wait(slot, crate::peer::nanos(timeout), asked, &mut sink, &**host) {
            Waited::TimedOut => {
                session.abandon_send(slot);
                Err(AccessError::TimedOut)
            }
            Waited::Ended(end) => match end {
                End::Done(found) => Ok(found),
                End::AccessRefused => Err(AccessError::Refused),
                End::Unsupported => Err(AccessError::Unsupported),
                _ => Err(AccessError::Lost),
            },
        }
    }
}
