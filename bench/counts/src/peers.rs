//! A poll of many peers by a serving thread, of which one is active.

use std::sync::Arc;

use crate::pair::{Ends, Nobody, Still, shm_link};
use anyhow::Context as _;
use pronto_core::fabric::QueuePair;
use pronto_core::session::Session;
use pronto_fabric_shm::ShmQueuePair;
use pronto_progress::{Cost, Engine, Manager, Priority, Sleep, Source, Spec, Trigger};

use crate::count;

/// Number of peers.
const PEERS: usize = 16;
/// Number of polls after which peers without messages are known as idle.
const POLL_BATCH: u32 = 10_000;

/// A peer as a node registers it, without handlers.
struct Peer<Q: QueuePair + 'static> {
    session: Arc<Session<Q>>,
    host: Still<Q>,
}

impl<Q: QueuePair + 'static> Source for Peer<Q> {
    fn poll(&mut self) -> usize {
        self.poll_often(1)
    }

    fn poll_often(&mut self, looks: u32) -> usize {
        let progress = self.session.turn(looks, || false, &mut Nobody, &self.host);
        progress.map_or(0, |progress| progress.moved)
    }
}

/// Counts one poll that finds nothing.
///
/// # Errors
/// There is no memory for the links.
pub(crate) fn run() -> anyhow::Result<()> {
    let manager = Manager::new(Engine::None, Still::<ShmQueuePair>::alone()).context("a manager")?;
    let mut registered = Vec::with_capacity(PEERS);
    for _ in 0..PEERS {
        let ends = Ends::new(Vec::new(), shm_link)?;
        let peer = Peer { session: Arc::clone(&ends.caller), host: Still::alone() };
        let spec =
            Spec { cost: Cost::MemoryOfMany, priority: Priority::High, ..Spec::memory("peer", Sleep::Asked) };
        registered.push((manager.register(spec, peer)?, ends));
    }
    let poll = || assert_eq!(manager.poll(Trigger::Idle), Some(0), "nothing has been sent");
    for _ in 0..POLL_BATCH {
        poll();
    }
    count(&format!("look-shm-{PEERS}-peers"), poll);
    Ok(())
}
