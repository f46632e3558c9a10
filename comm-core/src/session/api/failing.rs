//! A session whose engine's holder panicked: the session ends, and begins anew with an empty engine.
//!
//! The holder may have stopped anywhere, so recovery relies on nothing that the engine knew except the identity of the peer. The calls
//! that other threads wait for are found in the shared call table, which says of each slot whether it is claimed and whether it has ended.
//!
//! # Invariants
//! 1. The lock stays poisoned from the panic to [`Session::fail`], which takes it once: no other thread sees the engine in between.
//! 2. The queue pairs are closed before memory that they may refer to is released.
//! 3. Every slot that is claimed has ended when the lock is given back. Whatever names such a slot afterwards ([`CallTable::is_unended`])
//!    does not end it again.

use pronto_sync::atomic::Ordering;
use pronto_wire::Class;

use super::Session;
use super::entering::EngineGuard;
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
    /// down, and leaves an engine that takes the next link. Returns false, and nothing was done, if the engine is sound or another thread
    /// was first.
    ///
    /// # Panics
    /// If the queue pairs or the sink panic. The engine's lock is poisoned again then.
    pub fn fail(&self, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) -> bool {
        if !self.has_failed() {
            return false;
        }
        let Some(mut engine) = self.engine.take_poisoned() else { return false };
        self.up.store(false, Ordering::Relaxed);
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
        // The requests among these were never posted, and end as such.
        engine.take_submissions(Turn::new(self, executor));
        self.calls.end_claimed(executor);
        drop(remains);
        self.stats.failures.add_alone(1);
        if let Some(LinkInfo { peer, epoch, .. }) = peer {
            sink.event(Event::PeerDown { peer, epoch, cause: DownCause::Panicked });
        }
        engine.release();
        self.look_once_more(executor);
        true
    }

    /// Returns the engine as [`Self::enter`] does, of a session that failed after it was recovered.
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
