//! A queue pair that notes when it was looked at first and when a message left it: where the steps of a call that its other end waits for
//! are told apart from those that it does not wait for.
//!
//! The notes are the calling thread's, so that sessions, which own their queue pairs, need not give them back.

use core::cell::Cell;
use core::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use pronto_core::fabric::{
    Armed, Capabilities, Completion, CompletionChannel, DoorbellEvent, FabricError, Grant, GrantError,
    GrantId, MessageSlot, PollOutcome, PostError, QueuePair, Region, Rights, SendMemory, SendWork,
};

use crate::clock;

thread_local! {
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
    static LEFT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// What was noted between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notes {
    begun: Instant,
    /// When a queue pair was looked at first.
    pub(crate) looked: Option<Instant>,
    /// When the first message left.
    pub(crate) left: Option<Instant>,
    ended: Instant,
}

impl Notes {
    /// Does something, and says what was noted meanwhile.
    pub(crate) fn of<R>(work: impl FnOnce() -> R) -> (Self, R) {
        LOOKED.set(None);
        LEFT.set(None);
        let begun = clock::now();
        let done = work();
        let ended = clock::now();
        (Self { begun, looked: LOOKED.get(), left: LEFT.get(), ended }, done)
    }

    /// The same in pieces, cut at these moments, in their order: nanoseconds. None if one of them did not come.
    pub(crate) fn pieces<const N: usize>(
        &self,
        cuts: [Option<Instant>; N],
    ) -> Option<impl Iterator<Item = f64>> {
        let cuts = cuts.into_iter().collect::<Option<Vec<_>>>()?;
        let starts: Vec<_> = core::iter::once(self.begun).chain(cuts.iter().copied()).collect();
        let ends: Vec<_> = cuts.into_iter().chain([self.ended]).collect();
        let ns = |(start, end): (Instant, Instant)| end.saturating_duration_since(start).as_secs_f64() * 1e9;
        Some(starts.into_iter().zip(ends).map(ns))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Watched<Q> {
    qp: Q,
    /// Something was posted that leaves with the doorbell.
    posted: bool,
}

impl<Q: QueuePair> Watched<Q> {
    pub(crate) const fn new(qp: Q) -> Self {
        Self { qp, posted: false }
    }

    fn look() {
        if LOOKED.get().is_none() {
            LOOKED.set(Some(clock::now()));
        }
    }

    fn leaves() {
        if LEFT.get().is_none() {
            LEFT.set(Some(clock::now()));
        }
    }

    /// Without system calls the peer sees a message once it is posted.
    fn was_posted(&mut self) {
        if self.qp.capabilities().polls_without_syscalls {
            Self::leaves();
        } else {
            self.posted = true;
        }
    }

    fn was_rung(&mut self) {
        if core::mem::take(&mut self.posted) {
            Self::leaves();
        }
    }
}

impl<Q: QueuePair> QueuePair for Watched<Q> {
    type Lease = Q::Lease;

    fn capabilities(&self) -> &Capabilities {
        self.qp.capabilities()
    }

    fn send_memory(&self) -> Arc<dyn SendMemory> {
        self.qp.send_memory()
    }

    fn prepare(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        self.qp.prepare(range)
    }

    fn retire(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        self.qp.retire(range)
    }

    fn register(&mut self, region: &Region) -> Result<(), FabricError> {
        self.qp.register(region)
    }

    #[inline(always)]
    fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        self.qp.post(work)?;
        self.was_posted();
        Ok(())
    }

    #[inline]
    fn ring_doorbell(&mut self, event: DoorbellEvent) -> Result<(), FabricError> {
        self.qp.ring_doorbell(event)?;
        self.was_rung();
        Ok(())
    }

    #[inline(always)]
    fn is_quiet(&self) -> bool {
        Self::look();
        self.qp.is_quiet()
    }

    #[inline(always)]
    fn poll_send(&mut self) -> Option<Completion> {
        self.qp.poll_send()
    }

    #[inline(always)]
    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<Q::Lease>, FabricError> {
        Self::look();
        self.qp.poll(slot)
    }

    fn lease_copy(&self, payload: &[u8]) -> Q::Lease {
        self.qp.lease_copy(payload)
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        self.qp.arm(events)
    }

    fn notify_woken(&mut self) {
        self.qp.notify_woken();
    }

    fn channel(&self) -> Option<CompletionChannel> {
        self.qp.channel()
    }

    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        self.qp.grant(region, range, rights)
    }

    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
        self.qp.revoke(grant)
    }

    fn close(&mut self) {
        self.qp.close();
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn pieces_are_cut_where_something_was_noted() {
        let begun = clock::now();
        let at = |ns| begun + Duration::from_nanos(ns);
        let notes = Notes { begun, looked: Some(at(10)), left: Some(at(40)), ended: at(100) };
        let pieces: Vec<_> = notes.pieces([notes.looked, notes.left]).expect("both came").collect();
        assert!(pieces.iter().zip([10.0, 30.0, 60.0]).all(|(found, there)| (found - there).abs() < 0.01));
        assert!(notes.pieces([None]).is_none());
    }

    #[test]
    fn what_is_noted_is_of_this_work_alone() {
        Watched::<pronto_fabric_shm::ShmQueuePair>::look();
        let (notes, ()) = Notes::of(|| ());
        assert!(notes.looked.is_none() && notes.left.is_none());
    }
}
