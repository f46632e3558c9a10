//! Posting one-sided operations on the current link.

use super::Engine;
use crate::executor::Executor;
use crate::fabric::{FabricError, PostError, QueuePair, SendWork, Signal};
use crate::session::doorbells::PendingDoorbell;
use crate::session::end::End;
use crate::session::one_sided::{CLASS, OneSided};
use crate::session::shared::Turn;

impl<Q: QueuePair> Engine<Q> {
    /// Posts an operation on the current link. Returns it as an error if there is no room.
    pub(in crate::session) fn try_access(
        &mut self,
        work: OneSided,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) -> Result<(), OneSided> {
        let generation = self.generation;
        let Some(link) = self.phase.link_mut().filter(|_| work.link == generation) else {
            if turn.shared.is_unended(work.completes) {
                turn.shared.end_access(work.completes, End::Flushed, turn.executor);
            }
            return Ok(());
        };
        let Some(wr) = self.work.claim(CLASS) else { return Err(work) };
        let connection = &mut link.connections[CLASS.index()];
        let posted = connection
            .qp
            .post(SendWork { signal: Signal::Signalled(wr), operation: work.access.operation() });
        match posted {
            Ok(()) => {
                connection.pending = connection.pending.and(PendingDoorbell::SOLICITED);
                link.has_sent = true;
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
                    // The connection is intact, and waiting for memory that cannot be locked now is not worthwhile.
                    PostError::Unsupported | PostError::Failed(FabricError::PinLimit { .. }) => {
                        End::Unsupported
                    }
                    PostError::Failed(_) => End::Flushed,
                    PostError::Unreadable => End::Unreadable,
                    _ => End::AccessRefused,
                };
                turn.shared.end_access(work.completes, end, turn.executor);
            }
        }
        Ok(())
    }
}
