//! Control messages: credit returns, the growth of windows, and cancellations of calls.

use pronto_sync::atomic::Ordering;
use pronto_wire::{Class, Kind};

use super::Engine;
use crate::fabric::{FabricError, QueuePair};
use crate::session::connection::Link;
use crate::session::outgoing::{Carrier, Outgoing, OutgoingPayload};
use crate::session::shared::Shared;
use crate::time::Nanos;

impl<Q: QueuePair> Engine<Q> {
    /// Processes a message that carries only credits. Not inlined, to keep it off the path of requests.
    #[inline(never)]
    pub(in crate::session) fn credit_received(&mut self) {
        let alone = self.credits_alone.came(self.solicited);
        self.unawaited = self.unawaited.wrapping_add(usize::from(alone));
    }

    /// Asks the peer for a larger window. Returns `None` if there is no room for the message.
    #[cold]
    pub(in crate::session) fn ask_for_credit(
        &mut self,
        class: Class,
        shared: &Shared<Q::Lease>,
    ) -> Option<()> {
        let asked = self.phase.is_linked() && self.control(class, Kind::CreditRequest, shared);
        asked.then(|| self.ring_pending(class, shared))
    }

    /// Processes a request of the peer for a larger window.
    #[cold]
    pub(in crate::session) fn grant_more(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        let connection = self.connection(class);
        connection.grant_more();
        shared.granted[class.index()].store(connection.granted.into(), Ordering::Relaxed);
    }

    /// Processes a window update of the peer.
    #[cold]
    pub(in crate::session) fn granted(
        &mut self,
        class: Class,
        requests: u16,
        shared: &Shared<Q::Lease>,
    ) -> Result<(), FabricError> {
        let connection = self.connection(class);
        let more = connection.take_window_update(requests)?;
        shared.may_ask[class.index()].store(connection.may_get_more(), Ordering::Relaxed);
        shared.credits[class.index()].give(more);
        Ok(())
    }

    /// Sends a message with the credits to return, if no other message carries them soon, and the window updates that are due.
    #[inline]
    pub(in crate::session) fn give_credit(&mut self, shared: &Shared<Q::Lease>) {
        let Some(Link { connections: [control, bulk], .. }) = self.phase.link() else { return };
        let [returned, returned_bulk] = &shared.returned;
        let (owes, owes_bulk) =
            (control.owes_credit(returned.count()), bulk.owes_credit(returned_bulk.count()));
        if owes {
            self.send_credit(Class::Control, shared);
        }
        if owes_bulk {
            self.send_credit(Class::Bulk, shared);
        }
    }

    /// Sends a message with the credits to return, as a window update if one is due.
    fn send_credit(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        let connection = self.connection(class);
        if !connection.grant_is_due {
            self.control(class, Kind::Credit, shared);
            return;
        }
        let requests = connection.granted;
        if self.control(class, Kind::WindowUpdate { requests }, shared) {
            self.connection(class).grant_is_due = false;
        }
    }

    /// Sends a message without payload. Returns `false` if the peer has no room for it; the caller tries again later.
    pub(in crate::session) fn control(
        &mut self,
        class: Class,
        kind: Kind,
        shared: &Shared<Q::Lease>,
    ) -> bool {
        // Credits, window updates and heartbeats do not wait behind the backlog: its messages may wait for a credit that the peer returns only after
        // it has received one. Cancellations and goodbyes stay behind the requests that they concern.
        let waits = matches!(kind, Kind::Cancel { .. } | Kind::Goodbye) && !self.backlog.is_empty(class);
        if waits {
            return false;
        }
        if !self.connection(class).has_control_credit() {
            self.settle_early(shared);
            if !self.connection(class).has_control_credit() {
                return false;
            }
        }
        let (payload, timeout) = (OutgoingPayload::EMPTY, Nanos::NEVER);
        let outgoing = Outgoing {
            class,
            link: self.generation,
            kind,
            payload,
            carrier: Carrier::AnyLink,
            completes: None,
            timeout,
        };
        self.try_post(outgoing, shared).is_ok()
    }

    /// Sends the cancellations that are due, as far as there is room.
    pub(in crate::session) fn send_cancels(&mut self, shared: &Shared<Q::Lease>) {
        if !self.phase.is_linked() {
            return;
        }
        let mut slot = 0;
        while let Some((call, class)) = self.calls.next_cancel(slot) {
            if !self.control(class, Kind::Cancel { call }, shared) {
                return;
            }
            self.calls.cancel_sent(call);
            slot = call.slot + 1;
        }
    }
}
