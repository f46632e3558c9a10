//! Rendezvous: posting receives, processing offers, and lending memory for a send.

use alloc::vec;

use pronto_sync::atomic::Ordering;
use pronto_wire::{CallId, Class, FailureCode};

use super::Session;
use super::engine_lock::EngineGuard;
use crate::executor::Executor;
use crate::fabric::{Arrived, Payload, QueuePair, Region};
use crate::session::calls::Expects;
use crate::session::end::End;
use crate::session::inbound::Inbound;
use crate::session::one_sided::CLASS;
use crate::session::outgoing::Submitted;
use crate::session::rendezvous::table::{Body, LeftSend, MAX_PARKED_LEN, Offer, Posted, UnmatchedMessage};
use crate::session::rendezvous::transfer::{GivenUp, Source};
use crate::session::rendezvous::{DUE, MAX_RECEIVES, MAX_SENDS, Offered, Pieces, received};
use crate::session::response::Response;
use crate::session::send_error::SendError;
use crate::session::shared::Turn;
use crate::session::token::Duties;

impl<Q: QueuePair> Session<Q> {
    /// Posts a receive: the next message with this tag goes to `len` bytes of the region from `offset`. Wait for the returned
    /// slot: it ends with [`End::Done`] and the message's length, with a failure whose code is `ReplyTooLarge` if the
    /// message was longer or `Cancelled` if the receive was cancelled, or with [`End::PeerDown`].
    pub fn post_receive(
        &self,
        tag: u64,
        region: &Region,
        (offset, len): (u64, u64),
        executor: &impl Executor,
    ) -> Result<CallId, SendError> {
        if region.is_read_only() || offset.checked_add(len).is_none_or(|end| end > region.len() as u64) {
            return Err(SendError::OutOfRegion);
        }
        let slot = self.claim(executor)?;
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        let refused = if table.posted.len() + table.transfers.len() >= MAX_RECEIVES {
            Some(SendError::TooManyTransfers { max: MAX_RECEIVES })
        } else {
            // This is under the table's lock. The end of a session ends receives that were posted before it, and is seen here afterwards.
            // A failed session has ended the slot, too.
            let gone = !self.is_up() || self.calls.has_ended(slot);
            gone.then_some(SendError::NotConnected { peer: self.peer })
        };
        if let Some(refused) = refused {
            drop(table);
            self.unclaim(slot, executor);
            return Err(refused);
        }
        table.posted.push_back(Posted { slot, tag, region: region.clone(), offset, len });
        self.rendezvous.state.store(DUE, Ordering::Relaxed);
        drop(table);
        self.move_transfers_now(executor);
        Ok(slot)
    }

    /// Cancels a receive. The receive has ended when its slot has ended; until then, chunks in flight may still be written to its
    /// buffer. If it has a sender already, the sender is notified.
    pub fn cancel_receive(&self, slot: CallId, executor: &impl Executor) {
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        let withdrawn = table.withdraw(slot);
        if withdrawn.is_none() {
            let found = table.transfers.iter_mut().find(|transfer| transfer.posted.slot == slot);
            let Some(transfer) = found else { return };
            transfer.give_up(GivenUp::ByReceiver);
            self.rendezvous.state.store(DUE, Ordering::Relaxed);
        }
        drop(table);
        if let Some(posted) = withdrawn {
            let payload = Arrived::Inline(pronto_wire::InlinePayload::EMPTY);
            let end = End::Failure { code: FailureCode::Cancelled, payload };
            self.calls.end(posted.slot, end, Expects::Nothing, executor);
        } else {
            self.move_transfers_now(executor);
        }
    }

    /// Processes an offer that has arrived; for sinks, in place of a handler. The response is sent when the bytes have arrived, or as
    /// soon as the sender need not wait for that.
    pub fn take_offer(
        &self,
        inbound: Inbound<'_, Arrived<Q::Lease>>,
        tag: u64,
        offered: Offered,
        executor: &impl Executor,
    ) {
        let Inbound { token, resent, payload, .. } = inbound;
        let Some(call) = token.call() else { return token.finish() };
        let Duties { link, class, .. } = token.take();
        let offer = Offer { call, link, class, tag };
        let body = match offered {
            Offered::ByReference(pieces) => {
                // The receive buffer of the offer itself is returned before its credit.
                drop(payload);
                // A resent offer names a grant of an earlier link. The regrant for the current link follows.
                Body::Source(Source { pieces, link: if resent { link.wrapping_sub(1) } else { link } })
            }
            Offered::Eager { skip } => Body::Eager { payload, skip },
        };
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        if table.waiting.is_crowded(call.slot) {
            drop(table);
            // The receive buffer is returned before the credit.
            drop(body);
            self.return_credit(class, link, executor);
            let refused = Response::failure(FailureCode::Cancelled);
            return self.respond(call, link, Class::Control, refused, executor);
        }
        let parks = !table.is_awaited(tag) && table.waiting.has_room_to_park();
        let body = match body {
            Body::Eager { payload, skip }
                if parks && payload.len().saturating_sub(skip) <= MAX_PARKED_LEN =>
            {
                park(&payload, skip)
            }
            body => body,
        };
        let (unexpected, eager) = (matches!(body, Body::Unexpected(_)), matches!(body, Body::Eager { .. }));
        let ended = table.add(UnmatchedMessage { offer, body });
        if self.is_cancelled(call) {
            // The cancellation was processed before the offer was in the table.
            table.cancel(call);
        }
        self.rendezvous.state.store(DUE, Ordering::Relaxed);
        drop(table);
        if let Some(UnmatchedMessage { offer, body }) = ended {
            let eager = matches!(body, Body::Eager { .. });
            drop(body);
            if eager {
                // Dropping the body freed a receive buffer. The sender has ended this call, so no response returns its credit.
                self.return_credit(offer.class, offer.link, executor);
            }
        }
        if !eager {
            // The message holds no receive buffer any more.
            self.return_credit(class, link, executor);
        }
        if unexpected {
            self.respond(call, link, Class::Control, received(), executor);
        }
    }

    /// Processes a regrant: the sender of an offer has granted its bytes on the current link. Grants end with their link, calls do not.
    pub fn take_regrant(&self, call: CallId, pieces: Pieces, link: u16, executor: &impl Executor) {
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        table.regrant(call, &Source { pieces, link });
        self.rendezvous.state.store(DUE, Ordering::Relaxed);
    }

    /// Counts a send, if the maximum is not reached. Call [`Self::leave_send`] when it has ended.
    pub fn enter_send(&self) -> Result<(), SendError> {
        let sends = &self.rendezvous.sends;
        if sends.fetch_add(1, Ordering::Relaxed) >= MAX_SENDS {
            sends.fetch_sub(1, Ordering::Relaxed);
            return Err(SendError::TooManyTransfers { max: MAX_SENDS as usize });
        }
        Ok(())
    }

    /// Ends a send, or one piece of its memory. If its call has no response yet, it counts until then. The memory lent for it is reclaimed
    /// as soon as its call has a response. Until then the peer may read the memory, and the access must not be refused, because a refused access ends some
    /// connections.
    pub fn leave_send(&self, left: LeftSend, executor: &impl Executor) {
        if left.call.is_none() {
            if left.is_counted {
                self.rendezvous.sends.fetch_sub(1, Ordering::Relaxed);
                self.admit_after_freeing(executor);
            }
            if left.lent.is_none() {
                return;
            }
        }
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        table.left.push(left);
        self.rendezvous.state.store(DUE, Ordering::Relaxed);
        drop(table);
        self.move_transfers_now(executor);
    }

    /// Returns the generation of the current or last link, with which grants end.
    pub fn link_generation(&self) -> u16 {
        self.credits[CLASS.index()].link()
    }

    /// Returns the numbers of messages that wait for a receive, of receives that wait for a message, and of transfers in progress.
    pub fn transfers(&self, executor: &impl Executor) -> [usize; 3] {
        let table = self.rendezvous.lock(&self.wanted, executor);
        [table.waiting.len() + table.given_up.len(), table.posted.len(), table.transfers.len()]
    }

    /// Returns whether a turn would make progress with a transfer even if nothing has arrived.
    pub fn is_due(&self) -> bool {
        self.rendezvous.is_due()
    }

    /// Called when a thread stops polling. Wakes the serving thread if a transfer can make progress.
    #[inline]
    pub(super) fn leave_transfers(&self, executor: &impl Executor) {
        if self.rendezvous.is_due() {
            executor.wake_serving_thread(self.peer);
        }
    }

    /// Runs a turn for transfers only, while a caller sleeps on the channels. The caller processes messages itself, but not chunks: if a
    /// chunk completes as soon as it is posted, no event wakes the caller.
    pub(super) fn move_for_sleeper(&self, mut engine: EngineGuard<'_, Q>, executor: &impl Executor) -> usize {
        if !self.rendezvous.is_due() {
            engine.release();
            return 0;
        }
        if engine.phase.is_linked() {
            while let Some(completion) = engine.connection(CLASS).qp.poll_send() {
                let known = engine.completed(completion, Turn::new(self, executor));
                engine.connection(CLASS).failed |= !known;
            }
        }
        let moved = engine.move_rendezvous(Turn::new(self, executor));
        engine.ring_doorbells(self);
        engine.release();
        moved
    }

    /// Makes the holder of the engine process transfers, or this thread if the engine is free. The serving thread does the rest.
    pub fn move_transfers_now(&self, executor: &impl Executor) {
        // Refused if the queue is full. The engine's holder is then awake, and finds the transfers due.
        let _refused = self.submit(Submitted::Move, executor);
        if self.rendezvous.is_due() {
            executor.wake_serving_thread(self.peer);
        }
    }
}

/// Copies the bytes of an eager message, so that it needs no receive buffer.
fn park<L: Payload>(payload: &Arrived<L>, skip: usize) -> Body<L> {
    let mut bytes = vec![0; payload.len().saturating_sub(skip)];
    // This cannot fail, as `bytes` is as long as the payload after `skip`.
    let _whole = payload.copy_to(skip, &mut bytes);
    Body::Unexpected(bytes.into())
}
