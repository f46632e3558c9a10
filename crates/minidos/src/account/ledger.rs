//! Counts, bytes and latencies by message type.

use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::lengths::Lengths;
use crate::messages::Kind;

/// Traffic of one message type at one node; sums over nodes have the same form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeTraffic {
    /// Messages sent.
    pub sent: u64,
    /// Messages received, without duplicates.
    pub received: u64,
    /// Payload bytes sent.
    pub bytes: u64,
    /// Payload lengths of the messages sent.
    pub lengths: Lengths,
    /// Latencies: pairs of nanoseconds and count. For a request the round trip that it began, for a reply the round trip that
    /// it ended, for a notification the time until the sender could continue.
    pub latencies: Vec<(u64, u64)>,
}

/// Traffic of every message type at one node or all nodes, in the order of [`Kind::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic(pub Vec<TypeTraffic>);

impl Default for Traffic {
    fn default() -> Self {
        Self(vec![TypeTraffic::default(); Kind::ALL.len()])
    }
}

impl Traffic {
    /// Returns the traffic of one type; zero if the list came from elsewhere and is too short.
    #[must_use]
    pub fn of(&self, kind: Kind) -> TypeTraffic {
        self.0.get(kind.index()).cloned().unwrap_or_default()
    }

    /// Adds the traffic of another node.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            sum.sent += more.sent;
            sum.received += more.received;
            sum.bytes += more.bytes;
            sum.lengths.add(&more.lengths);
            sum.latencies.extend_from_slice(&more.latencies);
        }
    }
}

impl TypeTraffic {
    /// Returns the latency in nanoseconds that a share of `share` did not exceed; `None` if none was measured.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let mut histogram = new_histogram();
        for (nanoseconds, count) in &self.latencies {
            histogram.saturating_record_n(*nanoseconds, *count);
        }
        (!histogram.is_empty()).then(|| histogram.value_at_quantile(share))
    }
}

/// Counters of a node's messages. Each type has its own lock, so that types do not wait for each other.
#[derive(Debug)]
pub struct Ledger(Vec<Mutex<Entry>>);

#[derive(Debug)]
struct Entry {
    traffic: TypeTraffic,
    latencies: Histogram<u64>,
}

impl Default for Ledger {
    fn default() -> Self {
        let entry = || Mutex::new(Entry { traffic: TypeTraffic::default(), latencies: new_histogram() });
        Self(Kind::ALL.iter().map(|_| entry()).collect())
    }
}

impl Ledger {
    /// Counts a sent message with a payload of `bytes` bytes.
    pub fn sent(&self, kind: Kind, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.entry(kind, |entry| {
            entry.traffic.sent += 1;
            entry.traffic.bytes += bytes;
            entry.traffic.lengths.count(bytes);
        });
    }

    /// Counts a received message.
    pub fn received(&self, kind: Kind) {
        self.entry(kind, |entry| entry.traffic.received += 1);
    }

    /// Records the duration of a round trip or a send.
    pub fn took(&self, kind: Kind, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.entry(kind, |entry| entry.latencies.saturating_record(nanoseconds));
    }

    /// Returns the numbers of messages sent and received so far, by type.
    #[must_use]
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let count = |kind: &Kind| self.entry(*kind, |entry| (entry.traffic.sent, entry.traffic.received));
        Kind::ALL.iter().map(count).collect()
    }

    /// Returns all counts and latencies so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let copy = |entry: &mut Entry| {
            let latencies = entry.latencies.iter_recorded();
            let latencies = latencies.map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
            TypeTraffic { latencies, ..entry.traffic.clone() }
        };
        Traffic(Kind::ALL.iter().map(|kind| self.entry(*kind, copy)).collect())
    }

    fn entry<R>(&self, kind: Kind, edit: impl FnOnce(&mut Entry) -> R) -> R {
        // A panic while counting leaves consistent numbers, so a poisoned lock is usable.
        edit(&mut self.0[kind.index()].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_max(HIGHEST_NS, SIGNIFICANT_DIGITS).expect("the bounds are constants that fit")
}

/// One minute; longer latencies are recorded as one minute.
const HIGHEST_NS: u64 = 60_000_000_000;

/// Two digits: the error is below 1 %.
const SIGNIFICANT_DIGITS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sent_message_counts_once_with_its_length() {
        let ledger = Ledger::default();
        for bytes in [99, 4_130, 99] {
            ledger.sent(Kind::RemotePageResponse, bytes);
        }
        let traffic = ledger.traffic().of(Kind::RemotePageResponse);
        assert_eq!((traffic.sent, traffic.bytes), (3, 4_328));
        assert_eq!(traffic.lengths, [(99, 2), (4_130, 1)].into_iter().collect());
    }

    #[test]
    fn latencies_of_several_nodes_become_one_distribution() {
        let mut sum = Traffic::default();
        for node in 0..2_u64 {
            let ledger = Ledger::default();
            for step in 1..=50 {
                ledger.took(Kind::FutexRequest, Duration::from_micros(node * 50 + step));
            }
            sum.add(&ledger.traffic());
        }
        let futex = sum.of(Kind::FutexRequest);
        let about = |share, microseconds: u64| {
            let measured = futex.quantile(share).unwrap();
            assert!(measured.abs_diff(microseconds * 1_000) <= microseconds * 10, "{measured}");
        };
        about(0.5, 50);
        about(0.99, 99);
        assert_eq!(sum.of(Kind::Signal).quantile(0.5), None);
    }
}
