//! Arming of the fabric while the serving thread sleeps; see [`Arming`](crate::wait::arming).

use pronto_sync::atomic::{Ordering, fence};

use super::Engine;
use crate::fabric::Armed;
use crate::fabric::QueuePair;
use crate::session::shared::Shared;

impl<Q: QueuePair> Engine<Q> {
    /// Arms the fabric for the events that must wake the sleeping serving thread. Returns false and does nothing while a caller sleeps in
    /// the channel, because that caller then processes all events.
    pub(in crate::session) fn arm_for_server(&mut self, shared: &Shared<Q::Lease>) -> bool {
        if shared.role.holder_is_asleep() {
            return false;
        }
        let open = u32::from(shared.calls.in_use());
        // SYNC: a waiter leaves `waiters` before its slot is freed; pairs with the Release that frees the slot. Otherwise a waiter that
        // has left could hide the call of a future.
        fence(Ordering::Acquire);
        let unattended = open > shared.arming.waiters();
        if !unattended {
            shared.arming.set_listened(false);
        }
        let requested = shared.arming.takes_request();
        // Tasks that wait for room do not poll either, and the response that frees it may be one for which no thread waits.
        let unattended =
            requested || unattended && shared.arming.has_listened() || shared.wanted.wants_room();
        self.arm(if unattended || !self.backlog.is_clear() { Armed::All } else { Armed::Solicited }, shared);
        true
    }
}
