//! Arming for a sleep: of the serving thread, and for the answer that a future waits for.

use super::Session;
use crate::executor::Executor;
use crate::fabric::Armed;
use crate::fabric::QueuePair;
use crate::session::engine::RECEIVE_BATCH;
use crate::session::inbound::Sink;
use crate::session::shared::Turn;
use crate::wait::ServingState;

impl<Q: QueuePair> Session<Q> {
    /// Asks the fabric for an event. Poll once more before sleeping.
    pub fn arm(&self) {
        if let Some(mut engine) = self.engine.try_lock() {
            engine.arm(Armed::All, self);
            engine.release();
        }
    }

    /// Takes that back, unless a caller relies on it: the event is then the caller's to take.
    pub fn disarm(&self) {
        if let Some(mut engine) = self.engine.try_lock() {
            if self.role.is_free() {
                engine.disarm([true; 2], self);
            }
            engine.release();
        }
    }

    /// The same for the one who holds the role, and has not slept, or was told of everything that ended the sleep.
    pub(super) fn disarm_as_poller(&self) {
        if let Some(mut engine) = self.engine.try_lock() {
            engine.disarm([false; 2], self);
            engine.release();
        }
    }

    /// The server is about to sleep, or awake again, or polls for good. Before it does sleep, it looks once more at what has arrived.
    pub fn set_serving(&self, state: ServingState, executor: &impl Executor) {
        if let Some(follower) = self.role.set_serving(state) {
            self.wake_follower(follower, executor);
        }
        if matches!(state, ServingState::Sleeping) && self.role.is_free() {
            let _armed = self.with_engine(executor, |engine| {
                engine.note_heard(executor.now());
                let _armed = engine.arm_for_server(self);
            });
        }
    }

    /// A poller has left: if nobody polls any more and the server sleeps, what arrives from now on must wake it.
    pub(super) fn serve_again(&self, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) {
        let nobody = self.role.serving_sleeps() && self.role.is_free();
        if nobody && self.arming.armed() == Armed::Nothing {
            let moved = self.with_engine(executor, |engine| {
                let turn = engine.arm_for_server(self);
                turn.then(|| engine.turn(None, Turn::new(self, executor), &mut || false, sink).moved)
            });
            if moved.flatten().is_some_and(|moved| moved >= RECEIVE_BATCH) {
                // There may be more, and nobody else was told.
                executor.attend();
            }
        }
    }

    /// Has the server hear of a future's answer, also if it sleeps already: nobody polls for the future. Takes in what has arrived,
    /// unless the calling thread must not wait for the engine; then the server does so.
    pub fn listen(&self, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) {
        self.ring_if_held(executor);
        let listening = self.with_engine(executor, |engine| {
            self.arming.set_listened(true);
            if self.role.holder_is_asleep() {
                // A caller sleeps in the channel, armed for everything: the event is its own to take.
                return;
            }
            if self.arming.armed() == Armed::Solicited {
                engine.arm(Armed::All, self);
            }
            engine.turn(None, Turn::new(self, executor), &mut || false, sink);
        });
        if listening.is_none() {
            self.arming.request();
            // SYNC: a server that is about to sleep finds the request when it arms, or is woken and arms again; pairs with the fence
            // between its word and its sources. The other fence is in `attend`.
            executor.attend();
        }
    }
}
