//! Processes whose weights follow their queues: the policy of coscheduling in the BPF scheduler (`struct terms_of_prediction` and
//! `struct prediction_report` of `kernel/scx/pronto_scx.h`).

use core::ops::RangeInclusive;
use core::time::Duration;

use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::weight::Weight;

/// How the weight of a process follows its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictionTerms {
    /// The weight of the past, P of the paper (formula 1).
    pub past: Share,
    /// The largest weight.
    pub most: Weight,
    /// Data to be sent counts, too (PRED); without it received data alone (DYN).
    pub counts_sent: bool,
    /// Time between two samples, one of [`Self::PERIODS`].
    pub period: Duration,
}

/// The samples of a process since its weight follows its queues, and what resulted from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prediction {
    /// Time of the request, since the clock `CLOCK_MONOTONIC` began. After another request, all numbers begin anew.
    pub begun: Duration,
    /// Its frequency.
    pub frequency: Level,
    /// Its weight, in hundredths of the one that its nice value gives.
    pub weight: u32,
    /// Sockets that the last sample has read.
    pub sockets: u64,
    /// Samples.
    pub samples: u64,
    /// Of these, samples with data that was received.
    pub with_received: u64,
    /// Of these, samples with data to be sent.
    pub with_sent: u64,
    /// Changes of the weight.
    pub changes: u64,
    /// Time of the last change, since the clock `CLOCK_MONOTONIC` began; zero before the first.
    pub changed: Duration,
    /// Time for which the samples took a CPU.
    pub worked: Duration,
    /// The longest sample.
    pub longest: Duration,
}

impl PredictionTerms {
    /// Bounds of the time between two samples. The loader refuses others.
    pub const PERIODS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

    /// Bytes of the terms in a request.
    pub(super) const LENGTH: usize = 11;

    /// Returns the bytes, in the byte order of the machine.
    pub(super) fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let period = u32::try_from(self.period.as_micros()).unwrap_or(u32::MAX);
        let most = u16::try_from(self.most.as_hundredths()).unwrap_or(u16::MAX);
        bytes[0] = u8::from(self.counts_sent);
        bytes[1..5].copy_from_slice(&self.past.as_millionths().to_ne_bytes());
        bytes[5..7].copy_from_slice(&most.to_ne_bytes());
        bytes[7..].copy_from_slice(&period.to_ne_bytes());
        bytes
    }

    /// Returns the terms in these bytes, if they are valid.
    pub(super) const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let [sent, p0, p1, p2, p3, m0, m1, t0, t1, t2, t3] = bytes;
        let (past, most) = (u32::from_ne_bytes([p0, p1, p2, p3]), u16::from_ne_bytes([m0, m1]) as u32);
        let period = u32::from_ne_bytes([t0, t1, t2, t3]) as u64;
        let terms = Self {
            past: Share::millionths(past),
            most: Weight::hundredths(most),
            counts_sent: sent == 1,
            period: Duration::from_micros(period),
        };
        let is_valid = sent <= 1 && terms.past.as_millionths() == past && terms.most.as_hundredths() == most;
        if is_valid { Some(terms) } else { None }
    }
}

impl Prediction {
    /// Number of its values.
    pub const NUMBER: usize = 11;

    /// Returns the prediction with these values, in the order of `struct prediction_report`.
    #[must_use]
    pub fn from_values(
        [begun, level, weight, sockets, samples, with_received, with_sent, changes, changed, worked, longest]: [u64;
            Self::NUMBER],
    ) -> Self {
        Self {
            begun: Duration::from_nanos(begun),
            frequency: Level::fixed(level),
            weight: u32::try_from(weight).unwrap_or(u32::MAX),
            sockets,
            samples,
            with_received,
            with_sent,
            changes,
            changed: Duration::from_nanos(changed),
            worked: Duration::from_nanos(worked),
            longest: Duration::from_nanos(longest),
        }
    }

    /// Returns its values, in the same order.
    #[must_use]
    pub fn values(&self) -> [u64; Self::NUMBER] {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        [
            nanos(self.begun),
            self.frequency.as_fixed(),
            self.weight.into(),
            self.sockets,
            self.samples,
            self.with_received,
            self.with_sent,
            self.changes,
            nanos(self.changed),
            nanos(self.worked),
            nanos(self.longest),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_survive_the_socket_and_others_are_refused() {
        let terms = PredictionTerms {
            past: Share::percent(90),
            most: Weight::hundredths(400),
            counts_sent: true,
            period: Duration::from_millis(10),
        };
        let bytes = terms.to_bytes();
        assert_eq!(PredictionTerms::from_bytes(bytes), Some(terms));
        for (place, value) in [(0, 2), (4, 0xff), (6, 0xff)] {
            let mut other = bytes;
            other[place] = value;
            assert_eq!(PredictionTerms::from_bytes(other), None, "byte {place}");
        }
    }

    #[test]
    fn the_values_of_a_prediction_have_an_order() {
        let values = core::array::from_fn(|index| 10 * u64::try_from(index).unwrap());
        let prediction = Prediction::from_values(values);
        assert_eq!((prediction.weight, prediction.longest), (20, Duration::from_nanos(100)));
        assert_eq!(prediction.values(), values);
    }
}
