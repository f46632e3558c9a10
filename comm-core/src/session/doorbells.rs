//! Doorbells: when what was posted is handed to the transport, and that messages share one.
//!
//! One turn of the engine rings once for all that it posted, a holder of the engine once for all that others submitted meanwhile. A
//! thread that starts several calls would ring for each; [`Session::hold_doorbells`] lets it ring once for all of them. Over TCP a
//! doorbell is a write, over verbs the posting of a list, over shared memory a look whether the peer sleeps.

use pronto_sync::atomic::Ordering;
use pronto_wire::Class;

use super::Session;
use super::engine::Engine;
use super::link::Unrung;
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
    #[inline]
    pub(super) fn ring_doorbells(&mut self, session: &Session<Q>) {
        self.ring(Class::Control, session);
        self.ring(Class::Bulk, session);
    }

    /// Rings the doorbell of one connection, if something was posted since the last time.
    #[inline]
    pub(super) fn ring(&mut self, class: Class, session: &Session<Q>) {
        let Some(link) = &mut self.link else { return };
        let lane = &mut link.lanes[class.index()];
        if lane.unrung == Unrung::Nothing {
            return;
        }
        let rung = match core::mem::replace(&mut lane.unrung, Unrung::Nothing) {
            Unrung::Nothing => Ok(()),
            Unrung::Unsolicited => lane.qp.ring_doorbell_unsolicited(),
            Unrung::Solicited => lane.qp.ring_doorbell(),
        };
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
        }
    }
}

impl<Q: QueuePair> Session<Q> {
    /// From now on no doorbell is rung for messages that are posted, until [`Self::release_doorbells`]; a turn of the engine, or a wait,
    /// rings all the same.
    pub fn hold_doorbells(&self) {
        self.held_doorbells.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a hold, and rings for all that was posted meanwhile.
    pub fn release_doorbells(&self, executor: &impl Executor) {
        self.held_doorbells.fetch_sub(1, Ordering::Relaxed);
        self.ring_held(executor);
    }

    /// Before a wait: what it waits for may not have left.
    #[inline]
    pub(super) fn ring_if_held(&self, executor: &impl Executor) {
        if self.held_doorbells.load(Ordering::Relaxed) != 0 {
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
