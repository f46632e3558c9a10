//! The announcements of peers that rest, as those of a real node's sources: the serving thread leaves an idle peer armed, and neither polls
//! nor disarms it until its channel has an event or another thread rouses it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use pronto_wire::NodeId;

use super::node::lock;

/// Which peers of a node rest, and which of them have to be roused.
#[derive(Debug)]
pub(super) struct Announcements {
    rests: BTreeMap<NodeId, AtomicBool>,
    roused: Mutex<Vec<NodeId>>,
    /// Number of times that a peer has begun to rest.
    begun: AtomicU64,
}

impl Announcements {
    pub(super) fn new(peers: impl Iterator<Item = NodeId>) -> Self {
        let rests = peers.map(|peer| (peer, AtomicBool::new(false))).collect();
        Self { rests, roused: Mutex::default(), begun: AtomicU64::new(0) }
    }

    /// Announces that a peer rests, before its last poll.
    pub(super) fn make(&self, peer: NodeId) {
        self.rests[&peer].store(true, Ordering::Relaxed);
        // SYNC: either the last poll finds the work of another thread, or that thread sees the announcement; pairs with the fence in
        // `rouse`.
        fence(Ordering::SeqCst);
    }

    /// Counts a rest, which has begun after its last poll.
    pub(super) fn has_begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of rests.
    pub(super) fn count(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    pub(super) fn withdraw(&self, peer: NodeId) {
        self.rests[&peer].store(false, Ordering::Relaxed);
    }

    /// Requests the end of a peer's rest, for work that its channel does not report.
    pub(super) fn rouse(&self, peer: NodeId) {
        // SYNC: the work of the caller is visible before this look at the announcement.
        fence(Ordering::SeqCst);
        if self.rests[&peer].load(Ordering::Relaxed) {
            lock(&self.roused).push(peer);
        }
    }

    /// Returns whether the rest of a peer has to end.
    pub(super) fn has_roused(&self) -> bool {
        !lock(&self.roused).is_empty()
    }

    /// Returns the peers whose rest has to end.
    pub(super) fn take_roused(&self) -> Vec<NodeId> {
        core::mem::take(&mut lock(&self.roused))
    }
}
