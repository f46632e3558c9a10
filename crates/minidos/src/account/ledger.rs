//! Counts, bytes and latencies by message type.

use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::messages::Kind;

/// What one node saw of one message type; sums over nodes have the same form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeTraffic {
    /// Sent.
    pub sent: u64,
    /// Received, each once.
    pub received: u64,
    /// Bytes of the payloads sent.
    pub bytes: u64,
    /// Of the messages sent, those whose payload was under 100 bytes, as the paper counts small ones.
    pub under_100: u64,
    /// Of the bytes sent, those in payloads of more than a kibibyte.
    pub large_bytes: u64,
    /// Latencies in nanoseconds, and how many were like that: for a request the round trip that it began, for an answer
    /// the round trip that it ended, for a notification the time until the sender could go on.
    pub latencies: Vec<(u64, u64)>,
}

/// What one node, or all of them, saw of every message type, in the order of [`Kind::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic(pub Vec<TypeTraffic>);

impl Default for Traffic {
    fn default() -> Self {
        Self(vec![TypeTraffic::default(); Kind::ALL.len()])
    }
}

impl Traffic {
    /// What was seen of one type; nothing if this came from elsewhere and is too short.
    #[must_use]
    pub fn of(&self, kind: Kind) -> TypeTraffic {
        self.0.get(kind.index()).cloned().unwrap_or_default()
    }

    /// Adds what another node saw.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            sum.sent += more.sent;
            sum.received += more.received;
            sum.bytes += more.bytes;
            sum.under_100 += more.under_100;
            sum.large_bytes += more.large_bytes;
            sum.latencies.extend_from_slice(&more.latencies);
        }
    }
}

impl TypeTraffic {
    /// The latency, nanoseconds, that so large a share of all did not exceed; `None` if none was measured.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let mut histogram = new_histogram();
        for (nanoseconds, count) in &self.latencies {
            histogram.saturating_record_n(*nanoseconds, *count);
        }
        (!histogram.is_empty()).then(|| histogram.value_at_quantile(share))
    }
}

/// Where a node writes down its messages; each type has a page of its own, so that types do not wait for each other.
#[derive(Debug)]
pub struct Ledger(Vec<Mutex<Page>>);

#[derive(Debug)]
struct Page {
    traffic: TypeTraffic,
    latencies: Histogram<u64>,
}

impl Default for Ledger {
    fn default() -> Self {
        let page = || Mutex::new(Page { traffic: TypeTraffic::default(), latencies: new_histogram() });
        Self(Kind::ALL.iter().map(|_| page()).collect())
    }
}

impl Ledger {
    /// A message of so many bytes was sent.
    pub fn sent(&self, kind: Kind, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.page(kind, |page| {
            page.traffic.sent += 1;
            page.traffic.bytes += bytes;
            page.traffic.under_100 += u64::from(bytes < SMALL);
            page.traffic.large_bytes += if bytes > LARGE { bytes } else { 0 };
        });
    }

    /// A message was received.
    pub fn received(&self, kind: Kind) {
        self.page(kind, |page| page.traffic.received += 1);
    }

    /// A round trip, or a send, took so long.
    pub fn took(&self, kind: Kind, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.page(kind, |page| page.latencies.saturating_record(nanoseconds));
    }

    /// How many messages of each type were sent and received so far.
    #[must_use]
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let count = |kind: &Kind| self.page(*kind, |page| (page.traffic.sent, page.traffic.received));
        Kind::ALL.iter().map(count).collect()
    }

    /// Everything written down so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let copy = |page: &mut Page| {
            let latencies = page.latencies.iter_recorded();
            let latencies = latencies.map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
            TypeTraffic { latencies, ..page.traffic.clone() }
        };
        Traffic(Kind::ALL.iter().map(|kind| self.page(*kind, copy)).collect())
    }

    fn page<R>(&self, kind: Kind, edit: impl FnOnce(&mut Page) -> R) -> R {
        // Numbers are whole at every moment: whoever panicked while counting left them so.
        edit(&mut self.0[kind.index()].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_max(HIGHEST_NS, SIGNIFICANT_DIGITS).expect("the bounds are constants that fit")
}

/// "Small messages, smaller than a hundred bytes": Kim 2021, section 3.1.
const SMALL: u64 = 100;

/// The paper's large messages are pages and the like; anything above a kibibyte is.
const LARGE: u64 = 1024;

/// A minute; longer ones are recorded as this.
const HIGHEST_NS: u64 = 60_000_000_000;

/// Steps of under one in a hundred.
const SIGNIFICANT_DIGITS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_in_the_classes_of_the_paper() {
        let ledger = Ledger::default();
        for bytes in [99, 100, 1_024, 4_130] {
            ledger.sent(Kind::RemotePageResponse, bytes);
        }
        let traffic = ledger.traffic().of(Kind::RemotePageResponse);
        assert_eq!((traffic.sent, traffic.bytes), (4, 5_353));
        assert_eq!((traffic.under_100, traffic.large_bytes), (1, 4_130));
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
