//! A queue pair that notes the times of its first poll and of its first send. They separate the steps on the critical path of a call
//! from the others.
//!
//! The notes are thread-local, so that sessions, which own their queue pairs, do not have to return them.

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
    static FIRST_POLL: Cell<Option<Instant>> = const { Cell::new(None) };
    static FIRST_SEND: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Notes between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notes {
    begun: Instant,
    /// Time of the first poll.
    pub(crate) polled: Option<Instant>,
    /// Time at which the first message sent.
    pub(crate) sent: Option<Instant>,
    ended: Instant,
}

impl Notes {
    /// Runs `work`, and returns the notes made meanwhile with its result.
    pub(crate) fn of<R>(work: impl FnOnce() -> R) -> (Self, R) {
        FIRST_POLL.set(None);
        FIRST_SEND.set(None);
        let begun = clock::now();
        let done = work();
        let ended = clock::now();
        (Self { begun, polled: FIRST_POLL.get(), sent: FIRST_SEND.get(), ended }, done)
    }

    /// Divides the time at these moments, in their order. Returns the pieces in nanoseconds; `None` if a moment is missing.
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

/// A queue pair that notes its first poll and its first send.
#[derive(Debug)]
pub(crate) struct Watched<Q> {
    qp: Q,
    /// Whether a posted message leaves with the next doorbell.
    posted: bool,
}

impl<Q: QueuePair> Watched<Q> {
    pub(crate) const fn new(qp: Q) -> Self {
        Self { qp, posted: false }
    }

    fn note_poll() {
        if FIRST_POLL.get().is_none() {
            FIRST_POLL.set(Some(clock::now()));
        }
    }

    fn note_send() {
        if FIRST_SEND.get().is_none() {
            FIRST_SEND.set(Some(clock::now()));
        }
    }

    /// Notes a post. Without system calls, the peer sees a message once it is posted.
    fn note_post(&mut self) {
        if self.qp.capabilities().polls_without_syscalls {
            Self::note_send();
        } else {
            self.posted = true;
        }
    }

    fn note_doorbell(&mut self) {
        if core::mem::take(&mut self.posted) {
            Self::note_send();
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
        self.note_post();
        Ok(())
    }

    #[inline]
    fn ring_doorbell(&mut self, event: DoorbellEvent) -> Result<(), FabricError> {
        self.qp.ring_doorbell(event)?;
        self.note_doorbell();
        Ok(())
    }

    #[inline(always)]
    fn is_quiet(&self) -> bool {
        Self::note_poll();
        self.qp.is_quiet()
    }

    #[inline(always)]
    fn poll_send(&mut self) -> Option<Completion> {
        self.qp.poll_send()
    }

    #[inline(always)]
    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<Q::Lease>, FabricError> {
        Self::note_poll();
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
    fn pieces_are_cut_at_the_notes() {
        let begun = clock::now();
        let at = |ns| begun + Duration::from_nanos(ns);
        let notes = Notes { begun, polled: Some(at(10)), sent: Some(at(40)), ended: at(100) };
        let pieces: Vec<_> = notes.pieces([notes.polled, notes.sent]).expect("both came").collect();
        assert!(pieces.iter().zip([10.0, 30.0, 60.0]).all(|(found, there)| (found - there).abs() < 0.01));
        assert!(notes.pieces([None]).is_none());
    }

    #[test]
    fn notes_belong_to_one_piece_of_work() {
        Watched::<pronto_fabric_shm::ShmQueuePair>::note_poll();
        let (notes, ()) = Notes::of(|| ());
        assert!(notes.polled.is_none() && notes.sent.is_none());
    }
}
