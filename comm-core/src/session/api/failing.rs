//! Recovery of a session whose engine's holder panicked: the session ends, and begins anew with an empty engine.
//!
//! The holder may have stopped at any point. Therefore recovery uses no data of the engine except the identity of the peer. The calls that
//! other threads wait for are found in the shared call table, which tells whether each slot is claimed and whether its call has ended.
//!
//! # Invariants
//! 1. The lock stays poisoned from the panic to [`Session::fail`], which takes it once: no other thread sees the engine in between.
//! 2. The queue pairs are closed before memory that they may refer to is released.
//! 3. When the lock is released, every claimed slot has ended. Data that names such a slot afterwards does not end it again
//!    ([`CallTable::is_unended`]).

use pronto_sync::atomic::Ordering;
use pronto_wire::Class;

use super::Session;
use super::engine_lock::EngineGuard;
use crate::executor::Executor;
use crate::fabric::Armed;
use crate::fabric::QueuePair;
use crate::session::inbound::Sink;
use crate::session::link::{DownCause, Event, LinkInfo};
use crate::session::shared::Turn;
use crate::wait::back_off::BackOff;

#[cfg(doc)]
use crate::session::CallTable;

impl<Q: QueuePair> Session<Q> {
    /// Returns whether a thread panicked while it held the engine. The session is out of use until [`Self::fail`].
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.engine.is_poisoned()
    }

    /// Ends the session of an engine whose holder panicked: closes the link, ends every open call with `PeerDown`, reports the peer as
    /// down, and leaves an engine that can take the next link. If no holder has panicked, or another thread was first, returns false and
    /// does nothing.
    ///
    /// # Panics
    /// If the queue pairs or the sink panic. The engine's lock is poisoned again then.
    pub fn fail(&self, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) -> bool {
        if !self.has_failed() {
            return false;
        }
        let Some(mut engine) = self.engine.take_poisoned() else { return false };
        self.up.store(false, Ordering::Relaxed);
        self.last_down.set(DownCause::Panicked, executor);
        self.types.replace(&[]);
        let mut remains = engine.renew();
        for class in Class::ALL {
            self.credits[class.index()].reset(engine.generation, 0);
        }
        let peer = remains.close();
        for class in Class::ALL {
            let mut back_off = BackOff::default();
            self.rings[class.index()].set(None, || back_off.pause(executor));
        }
        self.arming.set(Armed::Nothing);
        self.rendezvous.fail(&self.wanted, executor);
        // Requests among the submissions were never posted, and end accordingly.
        engine.take_submissions(Turn::new(self, executor));
        self.calls.end_claimed(executor);
        drop(remains);
        self.stats.failures.add_alone(1);
        if let Some(LinkInfo { peer, epoch, .. }) = peer {
            sink.event(Event::PeerDown { peer, epoch, cause: DownCause::Panicked });
        }
        engine.release();
        self.recheck(executor);
        true
    }

    /// Waits for the engine lock like [`Self::enter`], and recovers the session first if it has failed.
    pub(super) fn enter_recovered(
        &self,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<EngineGuard<'_, Q>> {
        loop {
            self.fail(sink, executor);
            let engine = self.enter(executor);
            if engine.is_some() || !self.has_failed() {
                return engine;
            }
        }
    }
}
