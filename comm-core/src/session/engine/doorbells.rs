//! When the engine hands posted messages to the transport.
//!
//! A turn rings once for everything that it posted, a holder of the engine once for everything that others submitted meanwhile.

use pronto_sync::atomic::Ordering;
use pronto_wire::{CallId, Class};

use super::Engine;
use crate::fabric::{DoorbellEvent, QueuePair};
use crate::session::doorbells::{Doorbells, PendingDoorbell};
use crate::session::lane::Lane;
use crate::session::shared::Shared;

impl<Q: QueuePair> Engine<Q> {
    /// Rings for everything that was posted, held back or not.
    #[inline]
    pub(in crate::session) fn ring_doorbells(&mut self, shared: &Shared<Q::Lease>) {
        for class in Class::ALL {
            self.ring_pending(class, shared);
        }
    }

    /// At the end of a turn: rings for what it has posted itself. Where that is nothing, what senders hold back stays.
    #[inline]
    pub(in crate::session) fn ring_if_due(&mut self, shared: &Shared<Q::Lease>) {
        self.ring(Class::Control, shared);
        self.ring(Class::Bulk, shared);
    }

    /// Rings the doorbell of one connection, if something was posted since the last time that is not held back. It is rung for
    /// everything, then.
    #[inline]
    pub(in crate::session) fn ring(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        let Some(link) = self.phase.link_mut() else { return };
        if link.lanes[class.index()].pending.is_due() {
            self.ring_pending(class, shared);
        }
    }

    /// The same, also if all of it is held back.
    #[inline]
    pub(in crate::session) fn ring_pending(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        let Some(link) = self.phase.link_mut() else { return };
        let lane = &mut link.lanes[class.index()];
        let pending = core::mem::replace(&mut lane.pending, PendingDoorbell::NOTHING);
        if pending == PendingDoorbell::NOTHING {
            return;
        }
        let event = if pending.wakes() { DoorbellEvent::Solicited } else { DoorbellEvent::Unsolicited };
        let rung = lane.qp.ring_doorbell(event);
        // A doorbell that fails leaves a dead queue pair, which the next poll reports.
        lane.failed |= rung.is_err();
        shared.stats.doorbells.add_alone(1);
    }

    /// After one message of several.
    #[inline(always)]
    pub(in crate::session) fn ring_if_per_message(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        if self.limits.doorbells == Doorbells::PerMessage {
            self.ring(class, shared);
        }
    }

    /// After a sender's message.
    #[inline]
    pub(in crate::session) fn ring_for_sender(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        // SYNC: a hold of the same thread; one of another thread delays this message, or does not.
        if shared.held_doorbells.load(Ordering::Relaxed) == 0
            || self.limits.doorbells == Doorbells::PerMessage
        {
            self.ring(class, shared);
        } else {
            self.hold_back(class);
        }
    }

    /// What was posted stays until somebody rings for it.
    fn hold_back(&mut self, class: Class) {
        let latest = self.calls.requests_posted();
        let Some(link) = self.phase.link_mut() else { return };
        let lane = &mut link.lanes[class.index()];
        if lane.pending.is_due() {
            if !lane.pending.is_held() {
                lane.held_from = latest;
            }
            lane.pending = PendingDoorbell::HELD_BACK;
        }
    }

    /// Before a wait for a call: rings if it has not left, or if at least half of all calls that are open have not, so that the peer
    /// has something to do while this side takes in what it has done.
    #[cold]
    pub(in crate::session) fn ring_for_waiter(&mut self, call: CallId, shared: &Shared<Q::Lease>) {
        let Some(link) = self.phase.link() else { return };
        // For anything but a posted request it is unknown whether it has left.
        let order = self.calls.order(call);
        let calls = u64::from(shared.calls.in_use());
        let is_wanted = |lane: &Lane<Q>| {
            let held = self.calls.requests_posted() + 1 - lane.held_from;
            lane.pending.is_held() && (order >= lane.held_from || held * 2 >= calls)
        };
        if link.lanes.iter().any(is_wanted) {
            self.ring_doorbells(shared);
        }
    }
}
