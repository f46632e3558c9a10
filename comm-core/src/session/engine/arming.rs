//! What the fabric is asked for while the serving thread sleeps; see [`Arming`](crate::wait::arming).

use pronto_sync::atomic::{Ordering, fence};

use super::Engine;
use crate::fabric::Armed;
use crate::fabric::QueuePair;
use crate::session::shared::Shared;

impl<Q: QueuePair> Engine<Q> {
    /// Asks for what the sleeping server must be woken for. Returns whether it is the server's business: it is not while a caller
    /// sleeps in the channel.
    pub(in crate::session) fn arm_for_server(&mut self, shared: &Shared<Q::Lease>) -> bool {
        if shared.role.holder_is_asleep() {
            return false;
        }
        let open = u32::from(shared.calls.in_use());
        // SYNC: a waiter leaves the count before its slot is given back; pairs with the release of the slot.
        fence(Ordering::Acquire);
        let unattended = open > shared.arming.waiters();
        if !unattended {
            shared.arming.set_listened(false);
        }
        let requested = shared.arming.takes_request();
        let unattended = requested || unattended && shared.arming.has_listened();
        self.arm(if unattended || !self.backlog.is_clear() { Armed::All } else { Armed::Solicited }, shared);
        true
    }
}
