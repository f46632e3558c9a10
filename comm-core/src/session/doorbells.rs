//! Doorbells: when what was posted is handed to the transport, and that messages share one.
//!
//! One turn of the engine rings once for all that it posted, a holder of the engine once for all that others submitted meanwhile. A
//! thread that starts several calls would ring for each; [`Session::hold_doorbells`] lets it ring once for all of them. Over TCP a
//! doorbell is a write, over verbs the posting of a list, over shared memory a look whether the peer sleeps.

use pronto_sync::atomic::Ordering;
use pronto_wire::{CallId, Class};

use super::Session;
use super::engine::Engine;
use super::link::{Lane, Unrung};
use crate::executor::Executor;
use crate::fabric::QueuePair;

/// Whether messages to one peer share doorbells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbells {
    /// All that is posted together.
    #[default]
    Shared,
    /// None: for comparison, and for networks that prefer it so.
    PerMessage,
}

impl<Q: QueuePair> Engine<Q> {
    /// Rings for everything that was posted, held back or not.
    #[inline]
    pub(super) fn ring_doorbells(&mut self, session: &Session<Q>) {
        for class in Class::ALL {
            self.ring_out(class, session);
        }
    }

    /// At the end of a turn: rings for what it has posted itself. Where that is nothing, what senders hold back stays.
    #[inline]
    pub(super) fn ring_due(&mut self, session: &Session<Q>) {
        self.ring(Class::Control, session);
        self.ring(Class::Bulk, session);
    }

    /// Rings the doorbell of one connection, if something was posted since the last time that is not held back. It is rung for
    /// everything, then.
    #[inline]
    pub(super) fn ring(&mut self, class: Class, session: &Session<Q>) {
        let Some(link) = self.phase.link_mut() else { return };
        if link.lanes[class.index()].unrung.is_due() {
            self.ring_out(class, session);
        }
    }

    /// The same, also if all of it is held back.
    #[inline]
    pub(super) fn ring_out(&mut self, class: Class, session: &Session<Q>) {
        let Some(link) = self.phase.link_mut() else { return };
        let lane = &mut link.lanes[class.index()];
        let unrung = core::mem::replace(&mut lane.unrung, Unrung::NOTHING);
        if unrung == Unrung::NOTHING {
            return;
        }
        let rung = if unrung.wakes() { lane.qp.ring_doorbell() } else { lane.qp.ring_doorbell_unsolicited() };
        // A doorbell that fails leaves a dead queue pair, which the next poll reports.
        lane.failed |= rung.is_err();
        session.stats.doorbells.add_alone(1);
    }

    /// After one message of several.
    #[inline(always)]
    pub(super) fn ring_between(&mut self, class: Class, session: &Session<Q>) {
        if self.limits.doorbells == Doorbells::PerMessage {
            self.ring(class, session);
        }
    }

    /// After a sender's message.
    #[inline]
    pub(super) fn ring_for_sender(&mut self, class: Class, session: &Session<Q>) {
        // SYNC: a hold of the same thread; one of another thread delays this message, or does not.
        if session.held_doorbells.load(Ordering::Relaxed) == 0
            || self.limits.doorbells == Doorbells::PerMessage
        {
            self.ring(class, session);
        } else {
            self.hold_back(class);
        }
    }

    /// What was posted stays until somebody rings for it.
    fn hold_back(&mut self, class: Class) {
        let latest = self.calls.requests_posted();
        let Some(link) = self.phase.link_mut() else { return };
        let lane = &mut link.lanes[class.index()];
        if lane.unrung.is_due() {
            if !lane.unrung.is_held() {
                lane.held_from = latest;
            }
            lane.unrung = Unrung::HELD_BACK;
        }
    }

    /// Before a wait for a call: rings if it has not left, or if at least half of all calls that are open have not, so that the peer
    /// has something to do while this side takes in what it has done.
    #[cold]
    pub(super) fn ring_for_waiter(&mut self, call: CallId, session: &Session<Q>) {
        let Some(link) = self.phase.link() else { return };
        // For anything but a posted request it is unknown whether it has left.
        let order = self.calls.order(call);
        let calls = u64::from(session.calls.in_use());
        let is_wanted = |lane: &Lane<Q>| {
            let held = self.calls.requests_posted() + 1 - lane.held_from;
            lane.unrung.is_held() && (order >= lane.held_from || held * 2 >= calls)
        };
        if link.lanes.iter().any(is_wanted) {
            self.ring_doorbells(session);
        }
    }
}

impl<Q: QueuePair> Session<Q> {
    /// From now on no doorbell is rung for messages that are posted, until [`Self::release_doorbells`]. What is held back leaves all the
    /// same before a thread waits for it, together with what else has to leave, and when time passes.
    pub fn hold_doorbells(&self) {
        self.held_doorbells.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a hold, and rings for all that was posted meanwhile.
    pub fn release_doorbells(&self, executor: &impl Executor) {
        self.held_doorbells.fetch_sub(1, Ordering::Relaxed);
        self.ring_held(executor);
    }

    /// Whether some thread holds doorbells back.
    #[inline]
    pub(super) fn holds_doorbells(&self) -> bool {
        self.held_doorbells.load(Ordering::Relaxed) != 0
    }

    /// Lets everything leave that is held back: before a wait that may be long, and where nothing can be done before something has
    /// been answered.
    #[inline]
    pub fn ring_if_held(&self, executor: &impl Executor) {
        if self.holds_doorbells() {
            self.ring_held(executor);
        }
    }

    #[cold]
    fn ring_held(&self, executor: &impl Executor) {
        // Whoever has the engine drains it, which ends with the doorbells.
        self.wanted.credit();
        self.serve_left(executor);
    }
}
