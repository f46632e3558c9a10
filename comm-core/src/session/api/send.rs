//! Sending requests and notifications, and cancelling calls.

use pronto_wire::{CallId, Class, InlinePayload, Kind};

use super::Session;
use crate::executor::Executor;
use crate::fabric::{Gather, QueuePair};
use crate::session::credit::Credit;
use crate::session::engine::{Engine, NoCredit};
use crate::session::outgoing::{Carrier, Outgoing, OutgoingPayload};
use crate::session::peer_types::{TypeKey, TypeLookup};
use crate::session::send_error::SendError;
use crate::session::shared::Turn;
use crate::session::spec::{CallSpec, timeout_us};
use crate::time::Nanos;

impl<Q: QueuePair> Session<Q> {
    /// Sends a request and returns the call's slot. Wait with [`Self::wait`], poll, or register a waker.
    pub fn call(
        &self,
        spec: &CallSpec,
        payload: OutgoingPayload,
        executor: &impl Executor,
    ) -> Result<CallId, SendError> {
        let type_id = self.type_of(&spec.key, executor)?;
        self.call_later(spec, type_id, payload, None, executor)
    }

    /// Sends a request that names a grant of `link`. If another link carries it, the request is marked as resent, because the grant has
    /// ended with its link.
    pub fn call_with_grant(
        &self,
        spec: &CallSpec,
        payload: OutgoingPayload,
        link: u16,
        executor: &impl Executor,
    ) -> Result<CallId, SendError> {
        let type_id = self.type_of(&spec.key, executor)?;
        self.call_later(spec, type_id, payload, Some(link), executor)
    }

    /// Sends a request with an inline payload, like [`Self::call`].
    #[inline]
    pub fn call_small(
        &self,
        spec: &CallSpec,
        payload: &InlinePayload,
        executor: &impl Executor,
    ) -> Result<CallId, SendError> {
        let type_id = self.type_of(&spec.key, executor)?;
        match self.call_if_free(spec, type_id, payload, executor) {
            Some(call) => Ok(call),
            None => self.call_later(spec, type_id, OutgoingPayload::Inline(*payload), None, executor),
        }
    }

    fn call_later(
        &self,
        spec: &CallSpec,
        type_id: pronto_wire::TypeId,
        payload: OutgoingPayload,
        granted_on: Option<u16>,
        executor: &impl Executor,
    ) -> Result<CallId, SendError> {
        let call = self.claim(executor)?;
        let credit =
            self.credit_for(call, spec.class, executor).inspect_err(|_| self.unclaim(call, executor))?;
        let deadline_us = timeout_us(spec.timeout);
        let resent = granted_on.is_some_and(|link| link != credit.link);
        let kind = Kind::Request { call, type_id, service: spec.key.service, resent, deadline_us };
        let outgoing = Outgoing {
            class: spec.class,
            link: credit.link,
            kind,
            payload,
            carrier: Carrier::AnyLink,
            completes: None,
            timeout: spec.timeout,
        };
        self.send(outgoing, executor).inspect_err(|_| {
            self.put_back(spec.class, credit, executor);
            self.unclaim(call, executor);
        })?;
        Ok(call)
    }

    /// Sends a notification and does not wait.
    pub fn notify(
        &self,
        key: &TypeKey,
        class: Class,
        payload: OutgoingPayload,
        executor: &impl Executor,
    ) -> Result<(), SendError> {
        self.notification(key, class, payload, (None, None), executor)
    }

    /// Sends a notification whose payload the provider copies. Returns `Ok(false)` if another reason than a missing credit prevents this
    /// at present: nothing was sent, and [`Session::notify`] posts it or returns the reason.
    ///
    /// # Errors
    /// [`SendError::NoCredit`] if the peer's window is used up.
    #[inline]
    pub fn notify_fast(
        &self,
        key: &TypeKey,
        class: Class,
        payload: Gather<'_>,
        executor: &impl Executor,
    ) -> Result<bool, SendError> {
        let TypeLookup::As(type_id) = self.types.find(key) else { return Ok(false) };
        let turn = Turn::new(self, executor);
        let post =
            |engine: &mut Engine<Q>| Some(engine.notify_small((type_id, key.service), class, payload, turn));
        self.in_free_engine(executor, post)
            .unwrap_or(Ok(false))
            .map_err(|NoCredit| self.no_credit(class, executor))
    }

    /// Sends a notification that names a grant of `link`. No other link carries it, because the grant ends with its link: if the link is
    /// lost before it is posted, the notification is dropped, and the caller grants again on the next link.
    ///
    /// # Errors
    /// The errors of [`Self::notify`]; also [`SendError::NotConnected`] if `link` is not the current link any more.
    pub fn notify_with_grant(
        &self,
        key: &TypeKey,
        class: Class,
        payload: OutgoingPayload,
        link: u16,
        executor: &impl Executor,
    ) -> Result<(), SendError> {
        self.notification(key, class, payload, (Some(link), None), executor)
    }

    /// Sends a notification synchronously. The returned slot ends with [`End::Done`](crate::session::End::Done) when the buffer may be
    /// reused; wait for it with [`Self::wait_for_send`].
    pub fn notify_sync(
        &self,
        key: &TypeKey,
        class: Class,
        payload: OutgoingPayload,
        executor: &impl Executor,
    ) -> Result<CallId, SendError> {
        let slot = self.claim(executor)?;
        match self.notification(key, class, payload, (None, Some(slot)), executor) {
            Ok(()) => Ok(slot),
            Err(refused) => {
                self.unclaim(slot, executor);
                Err(refused)
            }
        }
    }

    fn notification(
        &self,
        key: &TypeKey,
        class: Class,
        payload: OutgoingPayload,
        (granted_on, completes): (Option<u16>, Option<CallId>),
        executor: &impl Executor,
    ) -> Result<(), SendError> {
        let type_id = self.type_of(key, executor)?;
        let credit = match completes {
            Some(slot) => self.credit_for(slot, class, executor)?,
            None => self.credit(class, executor)?,
        };
        let carrier = match granted_on {
            None => Carrier::AnyLink,
            Some(link) if link == credit.link => Carrier::SameLink,
            Some(_) => {
                self.put_back(class, credit, executor);
                return Err(SendError::NotConnected { peer: self.peer });
            }
        };
        let (link, timeout) = (credit.link, Nanos::NEVER);
        let kind = Kind::Notification { type_id, service: key.service };
        let outgoing = Outgoing { class, link, kind, payload, carrier, completes, timeout };
        self.send(outgoing, executor).inspect_err(|_| self.put_back(class, credit, executor))
    }

    /// Takes a credit for the message whose end this slot gets.
    fn credit_for(&self, slot: CallId, class: Class, executor: &impl Executor) -> Result<Credit, SendError> {
        let credit = self.credit(class, executor)?;
        if self.calls.has_ended(slot) {
            // The session failed after the slot was claimed, and the credit may belong to its next link.
            self.put_back(class, credit, executor);
            return Err(SendError::NotConnected { peer: self.peer });
        }
        Ok(credit)
    }

    /// Stops waiting for a call, and sends a cancellation if the callee may still execute it.
    pub fn abandon(&self, call: CallId, class: Class, executor: &impl Executor) {
        if self.calls.is_unleft(call) && self.calls.leave(call) {
            let kind = Kind::Cancel { call };
            let payload = OutgoingPayload::EMPTY;
            let outgoing = Outgoing {
                class,
                link: 0,
                kind,
                payload,
                carrier: Carrier::AnyLink,
                completes: None,
                timeout: Nanos::NEVER,
            };
            // If there is no room for it, the next tick finds that the waiter has left.
            let _refused = self.send(outgoing, executor);
        }
        // The call may have ended before, so that its slot is free now.
        self.slot_was_freed(executor);
    }

    /// Stops waiting for a synchronous send. Its slot is freed after its completion.
    pub fn abandon_send(&self, slot: CallId, executor: &impl Executor) {
        self.calls.leave(slot);
        self.slot_was_freed(executor);
    }

    /// Sends a request with an inline payload on the fast path. Returns `None` if the engine is busy or the request must take another path.
    #[inline]
    fn call_if_free(
        &self,
        spec: &CallSpec,
        type_id: pronto_wire::TypeId,
        payload: &InlinePayload,
        executor: &impl Executor,
    ) -> Option<CallId> {
        let payload = Gather::Inline(payload);
        self.in_free_engine(executor, |engine| engine.call_small(spec, type_id, payload, self))
    }
}
