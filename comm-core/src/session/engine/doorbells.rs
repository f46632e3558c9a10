//! Doorbells: the times at which the engine passes posted messages to the transport.
//!
//! A turn rings one doorbell for all messages that it posted. A holder of the engine rings one for all messages that others submitted.

use pronto_wire::{CallId, Class};

use super::Engine;
use crate::executor::Executor;
use crate::fabric::{DoorbellEvent, QueuePair};
use crate::session::connection::Connection;
use crate::session::doorbells::{Doorbells, PendingDoorbell};
use crate::session::shared::{Shared, Turn};
use crate::session::stream::Step;

impl<Q: QueuePair> Engine<Q> {
    /// Rings the doorbells of all posted messages, including held ones.
    #[inline]
    pub(in crate::session) fn ring_doorbells(&mut self, shared: &Shared<Q::Lease>) {
        for class in Class::ALL {
            self.ring_pending(class, shared);
        }
    }

    /// Called at the end of a turn. Rings the doorbells of the messages that the turn has posted. If it has posted none, held messages stay
    /// held.
    #[inline]
    pub(in crate::session) fn ring_if_due(&mut self, shared: &Shared<Q::Lease>) {
        self.ring(Class::Control, shared);
        self.ring(Class::Bulk, shared);
    }

    /// Rings the doorbell of one connection if any message that is not held was posted since the last doorbell. It covers held messages,
    /// too.
    #[inline]
    pub(in crate::session) fn ring(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        let Some(link) = self.phase.link_mut() else { return };
        if link.connections[class.index()].pending.is_due() {
            self.ring_pending(class, shared);
        }
    }

    /// Rings the doorbell of one connection if any message was posted since the last doorbell, even if all of them are held.
    #[inline]
    pub(in crate::session) fn ring_pending(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        let Some(link) = self.phase.link_mut() else { return };
        let connection = &mut link.connections[class.index()];
        let pending = core::mem::replace(&mut connection.pending, PendingDoorbell::NOTHING);
        if pending == PendingDoorbell::NOTHING {
            return;
        }
        if connection.stream.holds() {
            connection.stream.was_rung();
            shared.holds.set_stream(class, false);
        }
        let event = if pending.wakes() { DoorbellEvent::Solicited } else { DoorbellEvent::Unsolicited };
        let rung = connection.qp.ring_doorbell(event);
        // If the doorbell fails, the queue pair is dead. The next poll reports that.
        connection.failed |= rung.is_err();
        shared.stats.doorbells.add_alone(1);
    }

    /// Called after each of several messages. Rings only if each message rings its own doorbell.
    #[inline(always)]
    pub(in crate::session) fn ring_if_per_message(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        if self.limits.doorbells == Doorbells::PerMessage {
            self.ring(class, shared);
        }
    }

    /// Called after a sender's message. Rings, unless a thread holds doorbells.
    #[inline]
    pub(in crate::session) fn ring_for_sender(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        // SYNC: exact for a hold of the same thread. A hold of another thread may or may not delay this message.
        if !shared.holds.by_threads() || self.limits.doorbells == Doorbells::PerMessage {
            self.ring(class, shared);
        } else {
            self.hold_back(class);
        }
    }

    /// Called after a notification with a payload of `len` bytes. Rings, unless the notification is one of a stream or a thread holds
    /// doorbells.
    #[inline]
    pub(in crate::session) fn ring_for_notification(
        &mut self,
        class: Class,
        len: usize,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) {
        let Some(link) = self.phase.link_mut() else { return };
        let connection = &mut link.connections[class.index()];
        if connection.qp.capabilities().visible_when_posted
            || self.limits.doorbells == Doorbells::PerMessage
            || turn.shared.holds.by_threads()
        {
            return self.ring_for_sender(class, turn.shared);
        }
        if !connection.pending.is_due() {
            return;
        }
        let window = connection.peer_granted;
        let is_held = match connection.stream.posted(turn.executor.now(), len, window) {
            Step::Ring => false,
            Step::Hold => true,
            Step::Begin => {
                // Before the serving thread is woken, which looks for holds.
                turn.shared.holds.set_stream(class, true);
                turn.executor.ring_soon(turn.shared.peer)
            }
        };
        if is_held {
            self.hold_back(class);
        } else {
            self.ring_pending(class, turn.shared);
            self.connection(class).stream.ended(turn.executor.now());
        }
    }

    /// Rings the doorbells of held notifications.
    #[cold]
    pub(in crate::session) fn ring_streams(&mut self, shared: &Shared<Q::Lease>) {
        for class in Class::ALL {
            if self.phase.link().is_some_and(|link| link.connections[class.index()].stream.holds()) {
                self.ring_pending(class, shared);
            }
            // The link that held them may be gone.
            shared.holds.set_stream(class, false);
        }
    }

    /// Marks the messages posted since the last doorbell as held.
    fn hold_back(&mut self, class: Class) {
        let latest = self.calls.requests_posted();
        let Some(link) = self.phase.link_mut() else { return };
        let connection = &mut link.connections[class.index()];
        if connection.pending.is_due() {
            if !connection.pending.is_held() {
                connection.held_from = latest;
            }
            connection.pending = PendingDoorbell::HELD_BACK;
        }
    }

    /// Called before a wait for a call. Rings if the call's request is held, or if at least half of all open calls are held: the peer then
    /// has work while this side processes earlier replies.
    #[cold]
    pub(in crate::session) fn ring_for_waiter(&mut self, call: CallId, shared: &Shared<Q::Lease>) {
        let Some(link) = self.phase.link() else { return };
        // For any call that is not a posted request, `order` is the maximum, so that any held message is rung.
        let order = self.calls.order(call);
        let calls = u64::from(shared.calls.in_use());
        let is_wanted = |connection: &Connection<Q>| {
            let held = self.calls.requests_posted() + 1 - connection.held_from;
            connection.pending.is_held()
                && (order >= connection.held_from || held * 2 >= calls || connection.stream.holds())
        };
        if link.connections.iter().any(is_wanted) {
            self.ring_doorbells(shared);
        }
    }
}
