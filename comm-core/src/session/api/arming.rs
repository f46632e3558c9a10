//! Arming for a sleep of the serving thread, and for the response that a future awaits.

use super::Session;
use crate::executor::Executor;
use crate::fabric::Armed;
use crate::fabric::QueuePair;
use crate::session::engine::RECEIVE_BATCH;
use crate::session::inbound::Sink;
use crate::session::shared::Turn;
use crate::wait::ServingState;

impl<Q: QueuePair> Session<Q> {
    /// Arms the fabric for all events, unless another thread holds the engine. Poll once more before sleeping.
    pub fn arm(&self) {
        if let Some(mut engine) = self.engine.try_lock() {
            engine.arm(Armed::All, self);
            engine.release();
        }
    }

    /// Returns whether the serving thread may leave the session armed while it works for others: no call is open, nothing is left to do, and
    /// nothing moves but by an event of a channel, for which the kernel keeps the event until it is consumed. The serving thread polls once
    /// more after it has announced that it does.
    pub fn may_rest(&self) -> bool {
        let is_busy = self.calls.in_use() != 0
            || self.wanted.anything_or_room()
            || self.holds.any()
            || self.rendezvous.is_due()
            || !self.role.is_free();
        if is_busy {
            return false;
        }
        let Some(engine) = self.engine.try_lock() else { return false };
        let rests = !engine.peer_wakes() && engine.is_at_rest(self);
        engine.release();
        rests
    }

    /// Returns whether work is left that no event of a channel reports: submissions, credits to return, held notifications. While there is
    /// any, some thread of the node is awake, or about to wake up.
    pub fn has_work_left(&self) -> bool {
        self.submissions.pending() || self.wanted.wants_credit() || self.holds.streams()
    }

    /// Disarms the fabric after a sleep of the serving thread. Does nothing if a thread holds the poller role, as that thread processes
    /// the event, or if another thread holds the engine.
    pub fn disarm(&self) {
        if let Some(mut engine) = self.engine.try_lock() {
            if self.role.is_free() {
                engine.disarm([true; 2], self);
            }
            engine.release();
        }
    }

    /// Disarms the fabric for the holder of the poller role, which has not slept, or has been notified of every event that ended its sleep.
    pub(super) fn disarm_as_poller(&self) {
        if let Some(mut engine) = self.engine.try_lock() {
            engine.disarm([false; 2], self);
            engine.release();
        }
    }

    /// Sets the state of the serving thread: about to sleep, working, or spinning. A thread that is about to sleep must recheck afterwards.
    pub fn set_serving(&self, state: ServingState, executor: &impl Executor) {
        if let Some(follower) = self.role.set_serving(state) {
            self.wake_follower(follower, executor);
        }
        if matches!(state, ServingState::Sleeping) && self.role.is_free() {
            let _armed = self.with_engine(executor, |engine| {
                engine.note_received(executor.now());
                let _armed = engine.arm_for_server(self);
            });
        }
    }

    /// Called after a poller has left. If no thread polls any more and the serving thread sleeps, arms the fabric to wake it, and polls for
    /// messages that arrived before. The fabric is still armed for this sleep of the serving thread if it is armed for
    /// [`Armed::Solicited`]. If it is armed for [`Armed::All`], the poller has found the end of its own wait between its arming and its
    /// sleep. It has left the messages behind that end, which cause no event either.
    pub(super) fn serve_again(&self, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) {
        let nobody = self.role.serving_sleeps() && self.role.is_free();
        if nobody && (self.arming.armed() != Armed::Solicited || self.arming.takes_owed_recheck()) {
            let moved = self.with_engine(executor, |engine| {
                let turn = engine.arm_for_server(self);
                turn.then(|| engine.turn(None, Turn::new(self, executor), &mut || false, sink).moved)
            });
            if moved.flatten().is_some_and(|moved| moved >= RECEIVE_BATCH) {
                // More messages may be available, and no other thread was notified.
                executor.wake_serving_thread(self.peer);
            }
        }
    }

    /// Arms the fabric so that the response that a future awaits wakes the serving thread, because no thread polls for a future. Also
    /// processes messages that have already arrived. If the calling thread must not wait for the engine, requests both from the serving
    /// thread.
    pub fn listen(&self, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) {
        self.ring_if_held(executor);
        let listening = self.with_engine(executor, |engine| {
            self.arming.set_listened(true);
            if self.role.holder_is_asleep() {
                // A caller sleeps in the channel, armed for all events, and processes them itself.
                return;
            }
            if self.arming.armed() == Armed::Solicited {
                engine.arm(Armed::All, self);
            }
            engine.turn(None, Turn::new(self, executor), &mut || false, sink);
        });
        if listening.is_none() {
            self.arming.request();
            // SYNC: a serving thread that is about to sleep finds the request when it arms, or is woken and arms again; pairs with the
            // fence between its word and its sources. The other fence is in `wake_serving_thread`.
            executor.wake_serving_thread(self.peer);
        }
    }
}
