//! Links that are being made: of two nodes that dial each other one goes first, and of one node's attempts the newest.
//!
//! # Invariants
//! 1. Of two nodes that dial each other the one with the larger id gets through.
//! 2. At most one accepted attempt of a peer counts: the last one that was greeted well. It takes the place of an earlier
//!    one that is still half made, whose dialler has given it up, or is not who it says it is. One that is settled is about
//!    to be a link, and goes first.
//! 3. An attempt counts until its link is installed: whoever finds no attempt of a peer also finds its link.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use pronto_fabric_shm as shm;
use pronto_fabric_tcp as tcp;
use pronto_wire::{GreetingRefusal, NodeId};

use crate::host::{NodeHost, NodeSession};
use crate::links::NoLink;

/// The attempts of one node.
#[derive(Debug)]
pub(crate) struct Attempts {
    host: Arc<NodeHost>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    dialling: HashSet<NodeId>,
    accepting: HashMap<NodeId, Accepting>,
    /// Number of the attempt that was accepted last.
    last: u64,
}

/// An accepted attempt in the list.
#[derive(Debug)]
struct Accepting {
    number: u64,
    /// None once it is settled.
    canceller: Option<Canceller>,
}

/// What ends a handshake that waits.
#[derive(Debug)]
pub(crate) enum Canceller {
    Shm(shm::Canceller),
    Tcp(tcp::Canceller),
}

/// An attempt of this peer that was greeted well. It is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Attempt {
    attempts: Arc<Attempts>,
    peer: NodeId,
    number: u64,
}

impl Attempts {
    pub(crate) fn new(host: &Arc<NodeHost>) -> Arc<Self> {
        Arc::new(Self { host: Arc::clone(host), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Takes part in a peer's attempt if no other goes first and `judge` finds its greeting good. Only then is an earlier
    /// attempt ended: who cannot greet well ends nothing.
    pub(crate) fn accept<T>(
        self: &Arc<Self>,
        peer: NodeId,
        canceller: Canceller,
        judge: impl FnOnce() -> Result<T, GreetingRefusal>,
    ) -> Result<(T, Attempt), GreetingRefusal> {
        let mut state = self.lock();
        let mine_goes_first = state.dialling.contains(&peer) && self.host.identity.node > peer;
        let settled = state.accepting.get(&peer).is_some_and(|accepting| accepting.canceller.is_none());
        if mine_goes_first || settled {
            return Err(GreetingRefusal::Duplicate);
        }
        let judged = judge()?;
        state.last += 1;
        let number = state.last;
        let earlier = state.accepting.insert(peer, Accepting { number, canceller: Some(canceller) });
        if let Some(canceller) = earlier.and_then(|earlier| earlier.canceller) {
            canceller.cancel();
        }
        drop(state);
        Ok((judged, Attempt { attempts: Arc::clone(self), peer, number }))
    }

    /// Begins an attempt, unless there is one, or there was one that has just led to a link.
    pub(crate) fn may_dial(&self, peer: NodeId, session: &NodeSession) -> bool {
        let mut state = self.lock();
        // In this order: an attempt ends after its link is there.
        !state.accepting.contains_key(&peer)
            && !state.dialling.contains(&peer)
            && !session.is_linked(&*self.host)
            && state.dialling.insert(peer)
    }

    /// The attempt that [`may_dial`](Self::may_dial) began is over.
    pub(crate) fn has_dialled(&self, peer: NodeId) {
        self.lock().dialling.remove(&peer);
        self.host.wake_keeper();
    }
}

impl Attempt {
    /// The end of the handshake. If it made a link, no other attempt takes this one's place any more; if another has taken
    /// it already, there is none.
    pub(crate) fn settle<T>(&self, made: Result<T, NoLink>) -> Result<T, NoLink> {
        let mut state = self.attempts.lock();
        let mine = state.accepting.get_mut(&self.peer).filter(|accepting| accepting.number == self.number);
        let mine = mine.ok_or(NoLink::Superseded)?;
        if made.is_ok() {
            mine.canceller = None;
        }
        made
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.attempts.lock();
        if state.accepting.get(&self.peer).is_some_and(|accepting| accepting.number == self.number) {
            state.accepting.remove(&self.peer);
        }
        drop(state);
        self.attempts.host.wake_keeper();
    }
}

impl Canceller {
    /// Ends the handshake, whatever its thread waits for.
    pub(crate) fn cancel(&self) {
        match self {
            Self::Shm(canceller) => canceller.cancel(),
            Self::Tcp(canceller) => canceller.cancel(),
        }
    }
}
