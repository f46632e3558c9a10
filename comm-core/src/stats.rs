//! Counters of a session: written by one thread at a time or rarely, read by anyone.

use pronto_sync::atomic::{AtomicU64, Ordering};

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts `n` more where only the engine's holder counts: no read-modify-write.
    pub(crate) fn add_alone(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// How many so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a session since it was made.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl Stats {
            /// Every counter with its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.count()),)*].into_iter()
            }
        }
    };
}

stats! {
    /// Messages posted, of any kind, heartbeats and returned credits as well.
    messages_sent,
    /// Messages received, of any kind, heartbeats and returned credits as well.
    messages_received,
    /// Doorbells rung: over TCP each is a write, as a rule. Messages that shared one are not counted twice.
    doorbells,
    /// Payload bytes posted.
    bytes_sent,
    /// Payload bytes received.
    bytes_received,
    /// Requests that came twice and were executed once.
    duplicates_dropped,
    /// Replies sent again from the reply cache.
    replies_resent,
    /// Requests sent again on a new link.
    requests_resent,
    /// Replies to calls that had ended.
    stale_replies,
    /// Replies that no link was there for.
    replies_lost,
    /// Notifications that were under way when a link broke and did not arrive.
    notifications_lost,
    /// Links that broke. Not those that ended because one of the two nodes stopped in order.
    links_lost,
    /// Links that carried a session on.
    links_resumed,
    /// Peers disconnected for breaking the rules.
    corrupt_peers,
    /// Panics of this node while it served the peer: each ended the session.
    failures,
    /// Messages that waited for room in the fabric's send queue.
    stalled,
    /// Waits that a timer ended although a wake-up was due: must stay 0.
    rescues,
    /// Sleeping waiters to whom the polling was handed over.
    handovers,
}
