//! One-sided operations: the peer's memory, as far as it has granted it, without its handlers.
//!
//! They travel on the bulk connection, in order with its messages, and end in a slot of the table of calls like a
//! synchronous send: [`End::Done`] carries what an atomic operation found.

use core::ops::Range;

use pronto_wire::{CallId, Class};

use super::Session;
use super::end::End;
use super::engine::Engine;
use super::link::Unrung;
use super::outgoing::Submitted;
use super::refusal::Refused;
use crate::executor::Executor;
use crate::fabric::{
    FabricError, Grant, GrantError, GrantId, Operation, PostError, QueuePair, Region, RemoteRange, Rights,
    SendWork, Signal,
};

/// The class whose connection carries one-sided operations, and whose grants they need.
pub(super) const CLASS: Class = Class::Bulk;

/// A one-sided operation.
#[derive(Clone, Debug)]
pub enum Access {
    /// The peer's memory into a local region.
    Read {
        /// Where to; held until the end.
        local: Region,
        /// Offset in it, bytes.
        offset: u64,
        /// Where from.
        remote: RemoteRange,
    },
    /// A local region into the peer's memory.
    Write {
        /// Where from; held until the end.
        local: Region,
        /// Offset in it, bytes.
        offset: u64,
        /// Where to.
        remote: RemoteRange,
    },
    /// Replaces eight aligned bytes if they are as expected.
    CompareSwap {
        /// The eight bytes.
        remote: RemoteRange,
        /// What must be there.
        expected: u64,
        /// What to put there.
        desired: u64,
    },
    /// Adds to eight aligned bytes, wrapping.
    FetchAdd {
        /// The eight bytes.
        remote: RemoteRange,
        /// What to add.
        add: u64,
    },
}

/// A one-sided operation on its way out.
#[derive(Debug)]
pub(super) struct OneSided {
    pub(super) access: Access,
    /// The link whose grants it means.
    pub(super) link: u16,
    pub(super) completes: CallId,
}

impl Access {
    fn operation(&self) -> Operation<'_> {
        match self {
            Self::Read { local, offset, remote } => {
                Operation::Read { local, local_offset: *offset, remote: *remote }
            }
            Self::Write { local, offset, remote } => {
                Operation::Write { local, local_offset: *offset, remote: *remote }
            }
            Self::CompareSwap { remote, expected, desired } => {
                Operation::CompareSwap { remote: *remote, expected: *expected, desired: *desired }
            }
            Self::FetchAdd { remote, add } => Operation::FetchAdd { remote: *remote, add: *add },
        }
    }

    /// What is wrong with it whatever the peer has granted.
    fn check(&self) -> Result<(), Refused> {
        match self {
            Self::Read { local, offset, remote } | Self::Write { local, offset, remote } => {
                let end = offset.checked_add(remote.len).filter(|end| *end <= local.len() as u64);
                end.map(|_| ()).ok_or(Refused::OutOfRegion)
            }
            Self::CompareSwap { remote, .. } | Self::FetchAdd { remote, .. } => {
                let word = remote.len == 8 && remote.offset.is_multiple_of(8);
                if word { Ok(()) } else { Err(Refused::NoWord { len: remote.len }) }
            }
        }
    }

    /// The local memory that must live until the end.
    fn into_region(self) -> Option<Region> {
        match self {
            Self::Read { local, .. } | Self::Write { local, .. } => Some(local),
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => None,
        }
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Starts a one-sided operation. Wait for the returned slot's end.
    pub fn access(&self, access: Access, executor: &impl Executor) -> Result<CallId, Refused> {
        if !self.is_up() {
            return Err(Refused::NotConnected { peer: self.peer });
        }
        access.check()?;
        let completes = self.claim(executor)?;
        let link = self.credits[CLASS.index()].link();
        if self.calls.has_ended(completes) {
            // The session failed after the slot was claimed, and the link may be the next one.
            self.calls.unclaim(completes);
            return Err(Refused::NotConnected { peer: self.peer });
        }
        let work = Submitted::OneSided(OneSided { access, link, completes });
        self.submit(work, executor).map(|()| completes).inspect_err(|_| self.calls.unclaim(completes))
    }

    /// Readies a region for sends by reference and one-sided operations on the present link, ahead of need: where the
    /// transport pins memory, no message waits for that.
    pub fn register_region(&self, region: &Region, executor: &impl Executor) -> Result<(), GrantError> {
        self.with_engine(executor, |engine| match engine.phase.link_mut() {
            Some(link) => Ok(link.lanes[CLASS.index()].qp.register(region)?),
            None => Err(FabricError::Lost.into()),
        })
        .unwrap_or(Err(GrantError::WouldDeadlock))
    }

    /// Lets this peer, and nobody else, access a range of a region, while the present link lasts.
    pub fn grant(
        &self,
        region: &Region,
        range: Range<u64>,
        rights: Rights,
        executor: &impl Executor,
    ) -> Result<Grant, GrantError> {
        let lost = GrantError::Failed(FabricError::Lost);
        self.with_engine(executor, |engine| match engine.phase.link_mut() {
            Some(link) => link.lanes[CLASS.index()].qp.grant(region, range, rights),
            None => Err(lost),
        })
        .unwrap_or(Err(GrantError::WouldDeadlock))
    }

    /// Ends a grant. A link that ended has ended its grants.
    pub fn revoke(&self, grant: GrantId, executor: &impl Executor) -> Result<(), GrantError> {
        self.with_engine(executor, |engine| match engine.phase.link_mut() {
            Some(link) => link.lanes[CLASS.index()].qp.revoke(grant),
            None => Ok(()),
        })
        .unwrap_or(Err(GrantError::WouldDeadlock))
    }
}

impl<Q: QueuePair> Engine<Q> {
    /// Posts an operation on the present link; gives it back if there is no room.
    pub(super) fn try_access(
        &mut self,
        work: OneSided,
        session: &Session<Q>,
        executor: &impl Executor,
    ) -> Result<(), OneSided> {
        let generation = self.generation;
        let Some(link) = self.phase.link_mut().filter(|_| work.link == generation) else {
            if session.is_unended(work.completes) {
                session.end_access(work.completes, End::Flushed, executor);
            }
            return Ok(());
        };
        let Some(wr) = self.work.claim() else { return Err(work) };
        let lane = &mut link.lanes[CLASS.index()];
        let posted =
            lane.qp.post_send(SendWork { signal: Signal::Signalled(wr), operation: work.access.operation() });
        match posted {
            Ok(()) => {
                lane.unrung = lane.unrung.and(Unrung::SOLICITED);
                link.spoke = true;
                let OneSided { access, completes, .. } = work;
                self.work.hold_access(wr, access.into_region(), completes);
                return Ok(());
            }
            Err(error) => {
                self.work.unclaim(wr);
                if error == PostError::Full {
                    return Err(work);
                }
                let end = match error {
                    // The connection lives, and memory that cannot be locked now is not worth waiting for.
                    PostError::Unsupported | PostError::Failed(FabricError::PinLimit { .. }) => {
                        End::Unsupported
                    }
                    PostError::Failed(_) => End::Flushed,
                    _ => End::AccessRefused,
                };
                session.end_access(work.completes, end, executor);
            }
        }
        Ok(())
    }
}
