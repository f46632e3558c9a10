//! Work completions: the memory that they free, and their effect on the message.

use pronto_wire::{CallId, Class, Kind};

use super::Engine;
use crate::executor::Executor;
use crate::fabric::{Completion, QueuePair, Status, WrId};
use crate::session::calls::Resend;
use crate::session::end::End;
use crate::session::inbound::{CachedResponse, LastCallState};
use crate::session::outgoing::{Outgoing, OutgoingPayload};
use crate::session::shared::Turn;
use crate::session::work::{Held, KeepFor, Work};

impl<Q: QueuePair> Engine<Q> {
    /// Records a message that the provider copied while posting. Frees its buffer, unless the message may have to be sent again.
    pub(in crate::session) fn remember_copied(&mut self, outgoing: Outgoing, sequence: u16) {
        let Outgoing { class, kind, payload, timeout, .. } = outgoing;
        let resumable = self.phase.link().is_some_and(|link| link.resumable);
        match kind {
            Kind::Request { call, type_id, service, .. } => {
                let resend = resumable.then(|| Resend { type_id, service, payload: Some(payload) });
                self.calls.posted(call, class, timeout, resend);
            }
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                let posted_on = Some(self.generation);
                // An inline payload occupies no send memory, so it may be kept until the next call of its slot.
                let is_trimmed = resumable && matches!(payload, OutgoingPayload::Frame(_));
                let kept = || resumable.then_some(CachedResponse { class, kind, payload, posted_on });
                if self.note_response(call, kept) && is_trimmed {
                    self.connection(class).cache_response(sequence, call);
                }
            }
            _ => {}
        }
    }

    /// Records a posted message whose memory the work request refers to.
    pub(in crate::session) fn remember(&mut self, outgoing: Outgoing, wr: WrId, sequence: u16) {
        let Outgoing { class, kind, payload, completes, timeout, .. } = outgoing;
        let resumable = self.phase.link().is_some_and(|link| link.resumable);
        let mut keep_for = None;
        let held = match payload {
            OutgoingPayload::Inline(_) => Held::Nothing,
            OutgoingPayload::Frame(frame) => Held::Posted(frame.post()),
            OutgoingPayload::Region { region, offset, len } => Held::Region { region, offset, len },
        };
        match kind {
            Kind::Request { call, type_id, service, .. } => {
                let resend = resumable.then_some(Resend { type_id, service, payload: None });
                keep_for = resumable.then_some(KeepFor::Request(call));
                self.calls.posted(call, class, timeout, resend);
            }
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                if resumable {
                    self.connection(class).cache_response(sequence, call);
                    keep_for = Some(KeepFor::Response(call));
                }
                self.note_response(call, || None);
            }
            _ => {}
        }
        let work = self.work.claimed(wr);
        work.holds = Some(held);
        work.completes = completes;
        work.keep_for = keep_for;
        work.posted = Some((class, kind));
        work.sequence = sequence;
    }

    /// Processes one completion. Returns false if no such work was in flight.
    pub(in crate::session) fn completed(
        &mut self,
        completion: Completion,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) -> bool {
        let Some(work) = self.work.complete(completion.wr) else { return false };
        if completion.status == Status::Flushed {
            // The queue pair has failed, and the peer may still read its last messages where they are: their memory must not be lent again.
            self.retire_rings(turn);
        }
        self.finish(work, completion.status, turn);
        true
    }

    /// Flushes all work in flight when the link ends.
    pub(in crate::session) fn flush_work(&mut self, turn: Turn<'_, Q::Lease, impl Executor>) {
        for work in self.work.take_all() {
            self.finish(work, Status::Flushed, turn);
        }
    }

    fn finish(&mut self, work: Work, status: Status, turn: Turn<'_, Q::Lease, impl Executor>) {
        let Work { holds, completes, keep_for, posted, sequence, .. } = work;
        self.end_send(completes, status, turn);
        let connections = self.phase.link().map(|link| &link.connections);
        let acknowledged = |class: Class, sequence| {
            connections.is_some_and(|connections| connections[class.index()].is_acknowledged(sequence))
        };
        let Some(payload) = holds.and_then(Held::into_payload) else { return };
        match keep_for {
            Some(KeepFor::Request(call)) => self.calls.payload_back(call, payload),
            Some(KeepFor::Response(call)) => {
                let posted_on = Some(self.generation);
                if let Some(last_call) = self.last_calls.get_mut(usize::from(call.slot))
                    && last_call.generation == call.generation
                    && let Some((class, kind)) = posted
                    && !acknowledged(class, sequence)
                {
                    debug_assert!(
                        matches!(last_call.state, LastCallState::Responded(None)),
                        "a payload is at one place"
                    );
                    last_call.state =
                        LastCallState::Responded(Some(CachedResponse { class, kind, payload, posted_on }));
                }
            }
            None => {}
        }
    }

    pub(in crate::session) fn end_send(
        &self,
        completes: Option<CallId>,
        status: Status,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) {
        if let Some(slot) = completes {
            let end = match status {
                Status::Done(value) => End::Done(value),
                Status::Flushed => End::Flushed,
                Status::AccessRefused => End::AccessRefused,
                Status::Unreadable => End::Unreadable,
            };
            turn.shared.end_access(slot, end, turn.executor);
        }
    }
}

impl<Q: QueuePair> Engine<Q> {
    /// Processes the completions in the send queues.
    pub(in crate::session) fn reap_sends(&mut self, turn: Turn<'_, Q::Lease, impl Executor>) {
        for class in Class::ALL {
            while let Some(link) = self.phase.link_mut()
                && let Some(completion) = link.connections[class.index()].qp.poll_send()
            {
                if !self.completed(completion, turn) {
                    // The next turn reports that the link is lost.
                    self.connection(class).failed = true;
                    return;
                }
            }
        }
    }
}
