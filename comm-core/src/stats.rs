//! Counters of a session. They are written rarely or by one thread at a time; any thread may read them.

use pronto_sync::atomic::{AtomicU64, Ordering};

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds `n` without an atomic read-modify-write. For counters that only the engine's holder writes.
    pub(crate) fn add_alone(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Returns the count.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a session, since it was created.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl Stats {
            /// Returns every counter with its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.count()),)*].into_iter()
            }
        }
    };
}

stats! {
    /// Messages posted, of any kind, including heartbeats and credit returns.
    messages_sent,
    /// Messages received, of any kind, including heartbeats and credit returns.
    messages_received,
    /// Doorbells rung. Over TCP each is usually one write. A doorbell that several messages share counts once.
    doorbells,
    /// Payload bytes posted.
    bytes_sent,
    /// Payload bytes received.
    bytes_received,
    /// Bytes of the program's own memory that were copied when they were sent by reference, because the peer cannot
    /// read them, or because that was not known yet.
    bytes_copied,
    /// Requests that arrived twice and were executed once.
    duplicates_dropped,
    /// Replies sent again from the reply cache.
    replies_resent,
    /// Requests sent again on a new link.
    requests_resent,
    /// Replies that arrived after their calls had ended.
    stale_replies,
    /// Replies dropped because there was no link.
    replies_lost,
    /// Notifications that were in flight when a link broke, and did not arrive.
    notifications_lost,
    /// Links that broke. Does not include links that ended because one of the two nodes shut down.
    links_lost,
    /// Links that resumed a session, after a loss or a pause.
    links_resumed,
    /// Idle links that ended in agreement with the peer.
    links_paused,
    /// Peers disconnected for breaking the rules.
    corrupt_peers,
    /// Requests and notifications of types that the peer may not use. None was given to a handler.
    not_permitted,
    /// Panics of this node while it served the peer. Each ended the session.
    failures,
    /// Messages that waited for room in the fabric's send queue.
    backlogged,
    /// Lost wake-ups: waits that only the safety-net timeout ended. Must stay 0.
    lost_wake_ups,
    /// Handovers of the poller role to a sleeping waiter.
    handovers,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn counters_are_listed_with_their_names_and_counts() {
        let stats = Stats::default();
        stats.links_lost.add(2);
        stats.links_lost.add(1);
        stats.lost_wake_ups.add_alone(5);
        stats.lost_wake_ups.add_alone(2);
        let counted: Vec<_> = stats.each().filter(|(_, count)| *count != 0).collect();
        assert_eq!(counted, [("links_lost", 3), ("lost_wake_ups", 7)]);
    }
}
