//! The streams of a node, by peer and number.
//!
//! # Invariants
//! 1. A peer has at most `limit` streams here, whichever side opened them.
//! 2. `cancelled` has at most [`CANCELLED`] streams.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use pronto::NodeId;

use crate::error::Refusal;
use crate::frames::{Side, StreamId};
use crate::state::Shared;

/// Streams that were reset before they were opened. A reset passes the request to open if that waits for a worker, so few are held at
/// a time. Chosen by us; no source.
const CANCELLED: usize = 256;

/// A stream of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) peer: NodeId,
    number: u64,
    ours: Side,
}

impl Key {
    pub(crate) const fn of_ours(peer: NodeId, stream: StreamId) -> Self {
        Self { peer, number: stream.number, ours: stream.sender }
    }

    /// Returns the key of a stream whose messages `peer` sends.
    pub(crate) const fn of_peers(peer: NodeId, stream: StreamId) -> Self {
        Self { peer, number: stream.number, ours: stream.sender.other() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    by_key: HashMap<Key, Arc<Shared>>,
    per_peer: HashMap<NodeId, usize>,
    cancelled: VecDeque<Key>,
    next_number: u64,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().expect("no holder panics")
    }

    /// Returns a number for a stream that this node opens.
    pub(crate) fn next_number(&self) -> u64 {
        let mut streams = self.lock();
        streams.next_number += 1;
        streams.next_number
    }

    pub(crate) fn find(&self, key: Key) -> Option<Arc<Shared>> {
        self.lock().by_key.get(&key).cloned()
    }

    /// Adds a stream, unless its peer has `limit` streams already or has cancelled it.
    pub(crate) fn add(&self, key: Key, shared: Arc<Shared>, limit: usize) -> Result<(), Refusal> {
        let mut streams = self.lock();
        if let Some(place) = streams.cancelled.iter().position(|cancelled| *cancelled == key) {
            streams.cancelled.remove(place);
            return Err(Refusal::Cancelled);
        }
        if streams.by_key.contains_key(&key) {
            return Err(Refusal::NumberInUse);
        }
        let count = streams.per_peer.entry(key.peer).or_default();
        if *count >= limit {
            return Err(Refusal::TooManyStreams);
        }
        *count += 1;
        streams.by_key.insert(key, shared);
        Ok(())
    }

    pub(crate) fn remove(&self, key: Key) {
        let mut streams = self.lock();
        if streams.by_key.remove(&key).is_none() {
            return;
        }
        let count = streams.per_peer.get_mut(&key.peer).expect("the peer of a stream is counted");
        *count -= 1;
        if *count == 0 {
            streams.per_peer.remove(&key.peer);
        }
    }

    /// Notes the reset of a stream that is not here: the request to open it may come later.
    pub(crate) fn note_cancelled(&self, key: Key) {
        if key.ours == Side::Opener {
            return;
        }
        let mut streams = self.lock();
        if streams.cancelled.len() == CANCELLED {
            streams.cancelled.pop_front();
        }
        streams.cancelled.push_back(key);
    }

    /// Returns the streams to a peer.
    pub(crate) fn of_peer(&self, peer: NodeId) -> Vec<Arc<Shared>> {
        let streams = self.lock();
        streams
            .by_key
            .iter()
            .filter(|(key, _)| key.peer == peer)
            .map(|(_, shared)| Arc::clone(shared))
            .collect()
    }

    /// Forgets which streams a peer has cancelled. Its next incarnation counts them from the start.
    pub(crate) fn forget_cancelled(&self, peer: NodeId) {
        self.lock().cancelled.retain(|key| key.peer != peer);
    }

    /// Returns the peers that have streams.
    pub(crate) fn peers(&self) -> Vec<NodeId> {
        self.lock().per_peer.keys().copied().collect()
    }
}
