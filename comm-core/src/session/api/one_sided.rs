//! One-sided operations and grants of a program.

use core::ops::Range;

use pronto_wire::CallId;

use super::Session;
use crate::executor::Executor;
use crate::fabric::{FabricError, Grant, GrantError, GrantId, QueuePair, Region, Rights};
use crate::session::one_sided::{Access, CLASS, OneSided};
use crate::session::outgoing::Submitted;
use crate::session::send_error::SendError;

impl<Q: QueuePair> Session<Q> {
    /// Starts a one-sided operation. Wait for the returned slot's end.
    pub fn access(&self, access: Access, executor: &impl Executor) -> Result<CallId, SendError> {
        if !self.is_up() {
            self.want_link(executor);
            return Err(SendError::NotConnected { peer: self.peer });
        }
        access.check()?;
        let completes = self.claim(executor)?;
        let link = self.credits[CLASS.index()].link();
        if self.calls.has_ended(completes) {
            // The session failed after the slot was claimed, and the link may be the next one.
            self.unclaim(completes, executor);
            return Err(SendError::NotConnected { peer: self.peer });
        }
        let work = Submitted::OneSided(OneSided { access, link, completes });
        self.submit(work, executor).map(|()| completes).inspect_err(|_| self.unclaim(completes, executor))
    }

    /// Registers a region in advance for sends by reference and one-sided operations on the current link. If the transport pins
    /// memory, no message is delayed by that later.
    pub fn register_region(&self, region: &Region, executor: &impl Executor) -> Result<(), GrantError> {
        self.with_engine(executor, |engine| match engine.phase.link_mut() {
            Some(link) => Ok(link.connections[CLASS.index()].qp.register(region)?),
            None => {
                self.want_link(executor);
                Err(FabricError::Lost.into())
            }
        })
        .unwrap_or(Err(GrantError::WouldDeadlock))
    }

    /// Allows this peer, and no other, to access a range of a region while the current link lasts.
    pub fn grant(
        &self,
        region: &Region,
        range: Range<u64>,
        rights: Rights,
        executor: &impl Executor,
    ) -> Result<Grant, GrantError> {
        self.grant_on_link(region, range, rights, executor).map(|(grant, _)| grant)
    }

    /// Grants like [`Self::grant`]. Returns also the generation of the link of the grant.
    pub fn grant_on_link(
        &self,
        region: &Region,
        range: Range<u64>,
        rights: Rights,
        executor: &impl Executor,
    ) -> Result<(Grant, u16), GrantError> {
        if region.is_read_only() && rights != Rights::READ {
            return Err(GrantError::ReadOnly);
        }
        let lost = GrantError::Failed(FabricError::Lost);
        self.with_engine(executor, |engine| match engine.phase.link_mut() {
            Some(link) => {
                let grant = link.grant(region, range, rights)?;
                if grant.is_copy {
                    self.stats.bytes_copied.add(grant.remote.len);
                }
                Ok((grant, engine.generation))
            }
            None => {
                self.want_link(executor);
                Err(lost)
            }
        })
        .unwrap_or(Err(GrantError::WouldDeadlock))
    }

    /// Ends a grant that was made on the link `generation`. The end of that link has ended it, too.
    pub fn revoke_on(&self, generation: u16, grant: GrantId, executor: &impl Executor) {
        // An inline handler makes no grants for transfers.
        let _revoked = self.with_engine(executor, |engine| {
            let link = engine.phase.link_mut();
            // This fails only if the grant has already ended.
            link.filter(|_| engine.generation == generation).map(|link| link.revoke(grant))
        });
    }

    /// Ends a grant. The end of a link ends its grants, too.
    pub fn revoke(&self, grant: GrantId, executor: &impl Executor) -> Result<(), GrantError> {
        self.with_engine(executor, |engine| match engine.phase.link_mut() {
            Some(link) => link.revoke(grant),
            None => Ok(()),
        })
        .unwrap_or(Err(GrantError::WouldDeadlock))
    }
}
