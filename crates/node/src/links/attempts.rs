//! Attempts to establish links, and the rules that decide between concurrent attempts.
//!
//! # Invariants
//! 1. If two nodes dial each other, the attempt of the node with the larger id wins.
//! 2. At most one accepted attempt of a peer is valid: the last one whose greeting was good. It supersedes an earlier attempt that is
//!    not settled, because the dialler has given that up or is not the node that it claims to be. A settled attempt is about to become a
//!    link, and wins.
//! 3. An attempt exists until its link is installed. A thread that finds no attempt of a peer therefore finds the link of the last one.

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
    /// Number of the last accepted attempt.
    last: u64,
}

/// An accepted attempt in the list.
#[derive(Debug)]
struct Accepting {
    number: u64,
    /// `None` once the attempt is settled.
    canceller: Option<Canceller>,
}

/// Handle that ends a waiting handshake.
#[derive(Debug)]
pub(crate) enum Canceller {
    Shm(shm::Canceller),
    Tcp(tcp::Canceller),
}

/// An accepted attempt of a peer, whose greeting was good. It ends when this is dropped.
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

    /// Accepts a peer's attempt if no other attempt wins and `judge` accepts its greeting. Only then is an earlier attempt ended, so
    /// that a stranger without a good greeting cannot end it.
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

    /// Begins an attempt to dial, unless there is an attempt or a link. Returns whether it did.
    pub(crate) fn may_dial(&self, peer: NodeId, session: &NodeSession) -> bool {
        let mut state = self.lock();
        // The link is checked after the attempts, because an attempt ends after its link is installed.
        !state.accepting.contains_key(&peer)
            && !state.dialling.contains(&peer)
            && !session.is_linked(&*self.host)
            && state.dialling.insert(peer)
    }

    /// Ends the attempt that [`may_dial`](Self::may_dial) began.
    pub(crate) fn has_dialled(&self, peer: NodeId) {
        self.lock().dialling.remove(&peer);
        self.host.wake_links_thread();
    }
}

impl Attempt {
    /// Ends the handshake. If it made a link, no other attempt can supersede this one from now on.
    ///
    /// # Errors
    /// [`NoLink::Superseded`] if another attempt has superseded this one already, or the error in `made`.
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
        self.attempts.host.wake_links_thread();
    }
}

impl Canceller {
    /// Returns the name of the handshake's transport.
    pub(crate) const fn transport(&self) -> &'static str {
        match self {
            Self::Shm(_) => "shm",
            Self::Tcp(_) => "tcp",
        }
    }

    /// Ends the handshake, even if its thread waits.
    pub(crate) fn cancel(&self) {
        match self {
            Self::Shm(canceller) => canceller.cancel(),
            Self::Tcp(canceller) => canceller.cancel(),
        }
    }
}
