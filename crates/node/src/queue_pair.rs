//! The queue pairs of all providers as one enum.

use core::ops::Range;
use std::sync::Arc;

use pronto_core::fabric::region::SharedBytes;
use pronto_core::fabric::{
    Armed, Capabilities, Completion, CompletionChannel, DoorbellEvent, FabricError, Grant, GrantError,
    GrantId, MessageSlot, OutOfBounds, Payload, PollOutcome, PostError, QueuePair, Region, Rights,
    SendMemory, SendWork, Withdrawn,
};
use pronto_fabric_shm::{ShmLease, ShmQueuePair};
use pronto_fabric_tcp::{Lease as TcpLease, TcpQueuePair};
#[cfg(feature = "verbs")]
use pronto_fabric_verbs::{Lease as VerbsLease, VerbsQueuePair};

/// A queue pair of any provider that this node has.
#[derive(Debug)]
pub enum AnyQueuePair {
    /// Shared memory.
    Shm(ShmQueuePair),
    /// TCP.
    Tcp(TcpQueuePair),
    /// RDMA. Boxed, because it is much larger than the other variants.
    #[cfg(feature = "verbs")]
    Verbs(Box<VerbsQueuePair>),
}

/// A lease of any provider.
#[derive(Debug)]
pub enum AnyLease {
    /// Shared memory.
    Shm(ShmLease),
    /// TCP.
    Tcp(TcpLease),
    /// RDMA.
    #[cfg(feature = "verbs")]
    Verbs(VerbsLease),
}

macro_rules! each {
    ($self:expr, $qp:ident => $call:expr) => {
        match $self {
            AnyQueuePair::Shm($qp) => $call,
            AnyQueuePair::Tcp($qp) => $call,
            #[cfg(feature = "verbs")]
            AnyQueuePair::Verbs($qp) => $call,
        }
    };
}

impl QueuePair for AnyQueuePair {
    type Lease = AnyLease;

    fn capabilities(&self) -> &Capabilities {
        each!(self, qp => qp.capabilities())
    }

    fn send_memory(&self) -> Arc<dyn SendMemory> {
        each!(self, qp => qp.send_memory())
    }

    fn prepare(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        let len = range.len();
        let prepared = each!(self, qp => qp.prepare(range));
        prepared.inspect_err(|error| tracing::warn!(%error, bytes = len, "cannot prepare send memory"))
    }

    fn retire(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        each!(self, qp => qp.retire(range))
    }

    fn register(&mut self, region: &Region) -> Result<(), FabricError> {
        each!(self, qp => qp.register(region))
    }

    #[inline(always)]
    fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        each!(self, qp => qp.post(work))
    }

    #[inline]
    fn ring_doorbell(&mut self, event: DoorbellEvent) -> Result<(), FabricError> {
        each!(self, qp => qp.ring_doorbell(event))
    }

    #[inline(always)]
    fn is_quiet(&self) -> bool {
        each!(self, qp => qp.is_quiet())
    }

    #[inline(always)]
    fn poll_send(&mut self) -> Option<Completion> {
        each!(self, qp => qp.poll_send())
    }

    #[inline(always)]
    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<AnyLease>, FabricError> {
        match self {
            Self::Shm(qp) => map_lease(qp.poll(slot), AnyLease::Shm),
            Self::Tcp(qp) => map_lease(qp.poll(slot), AnyLease::Tcp),
            #[cfg(feature = "verbs")]
            Self::Verbs(qp) => map_lease(qp.poll(slot), AnyLease::Verbs),
        }
    }

    fn lease_copy(&self, payload: &[u8]) -> AnyLease {
        match self {
            Self::Shm(qp) => AnyLease::Shm(qp.lease_copy(payload)),
            Self::Tcp(qp) => AnyLease::Tcp(qp.lease_copy(payload)),
            #[cfg(feature = "verbs")]
            Self::Verbs(qp) => AnyLease::Verbs(qp.lease_copy(payload)),
        }
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        each!(self, qp => qp.arm(events))
    }

    fn notify_woken(&mut self) {
        each!(self, qp => qp.notify_woken());
    }

    fn channel(&self) -> Option<CompletionChannel> {
        each!(self, qp => qp.channel())
    }

    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        each!(self, qp => qp.grant(region, range, rights))
    }

    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
        each!(self, qp => qp.revoke(grant))
    }

    fn give_back(&mut self) {
        each!(self, qp => qp.give_back());
    }

    fn close(&mut self) {
        each!(self, qp => qp.close());
    }
}

/// Converts the lease of a poll's outcome. A single match, because the `?` operator would copy the outcome before its variant is known.
#[inline(always)]
fn map_lease<L>(
    polled: Result<PollOutcome<L>, FabricError>,
    map: impl FnOnce(L) -> AnyLease,
) -> Result<PollOutcome<AnyLease>, FabricError> {
    match polled {
        Ok(PollOutcome::Nothing) => Ok(PollOutcome::Nothing),
        Ok(PollOutcome::Inline) => Ok(PollOutcome::Inline),
        Ok(PollOutcome::Short) => Ok(PollOutcome::Short),
        Ok(PollOutcome::Leased(received)) => Ok(PollOutcome::Leased(received.map_lease(map))),
        Ok(PollOutcome::OneSided) => Ok(PollOutcome::OneSided),
        Err(error) => Err(error),
    }
}

impl Payload for AnyLease {
    fn len(&self) -> usize {
        match self {
            Self::Shm(lease) => lease.len(),
            Self::Tcp(lease) => lease.len(),
            #[cfg(feature = "verbs")]
            Self::Verbs(lease) => lease.len(),
        }
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        match self {
            Self::Shm(lease) => lease.copy_to(offset, out),
            Self::Tcp(lease) => lease.copy_to(offset, out),
            #[cfg(feature = "verbs")]
            Self::Verbs(lease) => lease.copy_to(offset, out),
        }
    }

    fn as_private(&self) -> Option<&[u8]> {
        match self {
            Self::Shm(lease) => lease.as_private(),
            Self::Tcp(lease) => lease.as_private(),
            #[cfg(feature = "verbs")]
            Self::Verbs(lease) => lease.as_private(),
        }
    }

    fn as_shared(&self) -> Option<SharedBytes<'_>> {
        match self {
            Self::Shm(lease) => lease.as_shared(),
            Self::Tcp(lease) => lease.as_shared(),
            #[cfg(feature = "verbs")]
            Self::Verbs(lease) => lease.as_shared(),
        }
    }

    fn validate(&self) -> Result<(), Withdrawn> {
        match self {
            Self::Shm(lease) => lease.validate(),
            Self::Tcp(lease) => lease.validate(),
            #[cfg(feature = "verbs")]
            Self::Verbs(lease) => lease.validate(),
        }
    }

    fn read_copy(&self, read: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Shm(lease) => lease.read_copy(read),
            Self::Tcp(lease) => lease.read_copy(read),
            #[cfg(feature = "verbs")]
            Self::Verbs(lease) => lease.read_copy(read),
        }
    }
}
