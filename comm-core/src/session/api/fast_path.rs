//! The fast path of a call: posting a short request and polling for its reply in one hold of the engine.
//!
//! A reply that the caller itself finds is recognized by comparing words, and skips the processing that other messages need. If any
//! other message is found first, it takes the ordinary path.
//!
//! Work between a reply and the caller's next request is on the critical path; work while the reply is in flight is free. Bookkeeping is
//! therefore done right after the request was sent, and the reply is written directly into memory of the caller. Returned in nested
//! enums, it would be copied three times, at offsets that defeat store forwarding.

use pronto_wire::CallId;

use super::Session;
use super::engine_lock::EngineGuard;
use super::wait::{Caller, POLL_BATCH};
use crate::executor::{Executor, WaitRequest};
use crate::fabric::{Armed, Gather, InlineMessage, QueuePair};
use crate::note::{Note, What};
use crate::session::connection::Connection;
use crate::session::end::End;
use crate::session::engine::{Engine, NextMessage, Prefetched};
use crate::session::inbound::Sink;
use crate::session::peer_types::TypeLookup;
use crate::session::shared::Turn;
use crate::session::spec::CallSpec;
use crate::time::Nanos;
use crate::wait::history::HistoryUpdate;

/// The outcome of a call on the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOutcome {
    /// The reply arrived and is in [`ReplySlots::inline`].
    Inline,
    /// The reply arrived and was passed to [`ReplySlots::short`].
    Short,
    /// The call ended with anything but an inline or a short reply, for example with a failure or a reply in a receive buffer. The caller's
    /// slot [`ReplySlots::end`] holds the end.
    Ended(CallId),
    /// The call is still open: wait for it.
    Open(CallId),
}

/// The destinations for the end of a call.
#[derive(Debug)]
pub struct ReplySlots<'a, L, F> {
    /// Receives a reply that is an inline message.
    pub inline: &'a mut InlineMessage,
    /// Takes the payload of a reply that is a short message, in place.
    pub short: F,
    /// Receives any other end.
    pub end: &'a mut Option<End<L>>,
}

/// A guard for a call that possibly no other thread knows. If a panic drops the guard, it gives up the waiter's claim on the slot. Without
/// a panic, the guard is forgotten.
pub(super) struct LeavesIfUnwound<'a, Q: QueuePair> {
    pub(super) session: &'a Session<Q>,
    pub(super) call: CallId,
}

impl<Q: QueuePair> Drop for LeavesIfUnwound<'_, Q> {
    #[cold]
    fn drop(&mut self) {
        if self.session.calls.is_unleft(self.call) {
            self.session.calls.leave(self.call);
        }
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Sends a request whose payload the provider copies, and polls one batch for the reply if the caller may poll. Returns `None` if the
    /// request cannot be posted immediately: nothing was sent, and [`Session::call`] posts it or returns the reason.
    #[inline]
    pub fn call_fast(
        &self,
        spec: &CallSpec,
        payload: Gather<'_>,
        request: WaitRequest,
        slots: ReplySlots<'_, Q::Lease, impl FnOnce(&[u8])>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<FastOutcome> {
        let TypeLookup::As(type_id) = self.types.find(&spec.key) else { return None };
        let mut engine = self.engine.try_lock()?;
        let call = engine.call_small(spec, type_id, payload, self);
        if let Some(call) = call {
            executor.note(Note { what: What::Called, peer: self.peer, call, more: 0 });
            // A caller that waits for the reply does not hold the doorbell.
            engine.ring_pending(spec.class, self);
            if self.holds.streams() {
                engine.ring_streams(self);
            }
        }
        if let Some(call) = call {
            let decision = self.decide(request, executor);
            if decision.polls_for() != Nanos::ZERO {
                // Processes the acknowledgements of the last reply, while this one is in flight.
                engine.settle_early(self);
                let leaves = LeavesIfUnwound { session: self, call };
                let outcome = self.poll_fast(engine, (call, decision.history_update), slots, sink, executor);
                core::mem::forget(leaves);
                return Some(outcome);
            }
        }
        engine.release();
        self.recheck(executor);
        call.map(FastOutcome::Open)
    }

    /// Polls for the reply to a call that was sent before: one batch, or a single poll if the caller would sleep immediately. Returns
    /// `None` if another thread holds the engine, if the call has already ended, or if the single poll did not end it.
    #[inline]
    pub fn wait_fast(
        &self,
        call: CallId,
        request: WaitRequest,
        slots: ReplySlots<'_, Q::Lease, impl FnOnce(&[u8])>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<FastOutcome> {
        if self.has_ended(call) {
            return None;
        }
        let mut engine = self.engine.try_lock()?;
        if self.holds.any() {
            engine.ring_for_waiter(call, self);
        }
        let decision = self.decide(request, executor);
        if decision.polls_for() == Nanos::ZERO {
            return self.poll_before_sleep(engine, (call, decision.history_update), slots, sink, executor);
        }
        Some(self.poll_fast(engine, (call, decision.history_update), slots, sink, executor))
    }

    /// Polls once for a reply that may already have arrived, for example together with the reply to an earlier call. Arming and sleeping
    /// for it would take longer than the rest of the call.
    fn poll_before_sleep(
        &self,
        mut engine: EngineGuard<'_, Q>,
        (call, history_update): (CallId, HistoryUpdate),
        slots: ReplySlots<'_, Q::Lease, impl FnOnce(&[u8])>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<FastOutcome> {
        let ReplySlots { inline, short, end } = slots;
        let mut outcome = None;
        if self.may_poll(&engine) && !engine.is_left(self) && !engine.connections_are_quiet() {
            match engine.find_reply(call, inline, Connection::may_hold_message, self) {
                NextMessage::Reply => outcome = Some(FastOutcome::Inline),
                NextMessage::ShortReply => {
                    short(engine.short.payload());
                    outcome = Some(FastOutcome::Short);
                }
                // A poll could find something only with a system call, which the sleep makes first anyway.
                NextMessage::Other(None | Some(Prefetched::Nothing)) => {}
                NextMessage::Other(prefetched) => {
                    let mut caller = Caller { session: self, call, caught: end, counted: false };
                    engine.turn(prefetched, Turn::new(self, executor), &mut caller, sink);
                    outcome = end.is_some().then_some(FastOutcome::Ended(call));
                }
            }
        }
        engine.release();
        if outcome.is_some() {
            self.reply_waits.add_short(history_update);
        }
        self.recheck(executor);
        outcome
    }

    /// Returns whether a thread without the poller role may poll. It may if no other thread sleeps for the messages that it would take, or
    /// if the armed event occurs anyway and stays pending until the sleeper consumes it.
    #[inline]
    pub(super) fn may_poll(&self, engine: &Engine<Q>) -> bool {
        if self.role.is_free() {
            self.arming.armed() != Armed::All
        } else {
            self.may_poll_with_sleeper(engine)
        }
    }

    /// Returns whether a thread may poll although another one holds the poller role. It may if the holder sleeps in the channel and the
    /// peer's doorbell causes the event, even if the messages are received before. If instead the event means that unread bytes are
    /// available, these are left to the sleeper.
    #[inline(never)]
    pub(super) fn may_poll_with_sleeper(&self, engine: &Engine<Q>) -> bool {
        self.role.holder_is_asleep() && engine.peer_wakes()
    }

    /// Polls one batch for the end of a call, without the poller role, as the serving thread does.
    #[inline]
    pub(super) fn poll_fast(
        &self,
        mut engine: EngineGuard<'_, Q>,
        (call, history_update): (CallId, HistoryUpdate),
        slots: ReplySlots<'_, Q::Lease, impl FnOnce(&[u8])>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> FastOutcome {
        let ReplySlots { inline, short, end } = slots;
        // The rings are extended now, while the reply is in flight.
        engine.extend_rings();
        let polls = if self.may_poll(&engine) { POLL_BATCH } else { 0 };
        let outcome = 'polls: {
            for _ in 0..polls {
                let (is_left, is_quiet) = (engine.is_left(self), engine.connections_are_quiet());
                let found = match (is_quiet, is_left) {
                    (true, false) if !self.rendezvous.is_due() => continue,
                    (false, false) => engine.find_reply(call, inline, |_| true, self),
                    _ => NextMessage::Other(None),
                };
                let prefetched = match found {
                    NextMessage::Reply => break 'polls FastOutcome::Inline,
                    NextMessage::ShortReply => {
                        short(engine.short.payload());
                        break 'polls FastOutcome::Short;
                    }
                    NextMessage::Other(prefetched) => prefetched,
                };
                let mut caller = Caller { session: self, call, caught: end, counted: false };
                let progress = engine.turn(prefetched, Turn::new(self, executor), &mut caller, sink);
                if end.is_some() {
                    break 'polls FastOutcome::Ended(call);
                }
                if progress.moved != 0 {
                    break;
                }
            }
            FastOutcome::Open(call)
        };
        engine.release();
        if !matches!(outcome, FastOutcome::Open(_)) {
            self.reply_waits.add_short(history_update);
        }
        self.recheck(executor);
        outcome
    }
}
