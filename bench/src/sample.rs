//! Durations of one operation, collected by two methods: single timings, and batches.
//!
//! A clock has a grain (10 ns on the development machine), and a reading takes about as long as a cache line takes half-way to the next
//! core. Single timings therefore give the shape of the distribution, quantised and with one clock reading inside; a batch of
//! operations between two readings gives the centre without either fault. Every recorder uses both methods, so measurements of two
//! recorders can be divided.
//!
//! # Invariants
//! 1. `singles` holds nanoseconds of one operation each, `batches` picoseconds per operation of one batch each.
//! 2. `batch_ops` operations took `batch_time` in all.

use core::convert::Infallible;
use core::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::{self, nanos};

/// Statistics of one operation; all values except `count` are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Number of operations with single timings, which the percentiles are based on.
    pub(crate) count: u64,
    /// Shortest duration.
    pub(crate) min_ns: u64,
    /// Median of the rounds' medians, with one clock reading inside and quantised to the clock's grain. A round is bounded in time, so a
    /// fast round has more timings than a slow one: the median of all timings would be that of the fast rounds.
    pub(crate) p50_ns: u64,
    /// 99th percentile.
    pub(crate) p99_ns: u64,
    /// 99.9th percentile.
    pub(crate) p999_ns: u64,
    /// Total batch time divided by the number of batch operations: without the clock, with every interruption.
    pub(crate) mean_ns: f64,
    /// Median over batches of the mean of one batch, and of the rounds as for `p50_ns`: without the clock and without rare interruptions.
    pub(crate) batch_ns: f64,
    /// A/A of the rounds' medians ([`a_to_a`]); `None` with less than two rounds.
    pub(crate) aa: Option<f64>,
}

/// Collects the durations of one operation over several rounds.
#[derive(Debug)]
pub(crate) struct Recorder {
    singles: Histogram<u64>,
    batches: Histogram<u64>,
    batch_ops: u64,
    batch_time: Duration,
    /// Median of each round's single timings in nanoseconds.
    rounds: Vec<f64>,
    /// Median of each round's batches in nanoseconds.
    batch_rounds: Vec<f64>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Returns an empty recorder.
    pub(crate) fn new() -> Self {
        let histogram = |highest| {
            Histogram::new_with_max(highest, SIGNIFICANT_DIGITS).expect("the bounds are constants that fit")
        };
        Self {
            singles: histogram(HIGHEST_NS),
            batches: histogram(HIGHEST_NS * 1_000),
            batch_ops: 0,
            batch_time: Duration::ZERO,
            rounds: Vec::new(),
            batch_rounds: Vec::new(),
        }
    }

    /// Repeats `op` for about `budget`: after a short warm-up, one half with single timings, one half in batches.
    pub(crate) fn round<E>(
        &mut self,
        budget: Duration,
        mut op: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.as_round(|recorder| {
            for _ in 0..WARM_UP_OPS {
                op()?;
            }
            let started = clock::now();
            loop {
                let before = clock::now();
                op()?;
                let after = clock::now();
                recorder.record_single(after - before);
                if after - started >= budget / 2 {
                    break;
                }
            }
            let ops = recorder.batch_len();
            while started.elapsed() < budget {
                let before = clock::now();
                for _ in 0..ops {
                    op()?;
                }
                recorder.record_batch(ops, clock::now() - before);
            }
            Ok(())
        })
    }

    /// Repeats an operation that cannot fail for about `budget`, like [`round`](Self::round).
    pub(crate) fn repeat(&mut self, budget: Duration, mut op: impl FnMut()) {
        let Ok(()) = self.round(budget, || {
            op();
            Ok::<(), Infallible>(())
        });
    }

    /// Counts the timings that `record` adds as one round, if there are any.
    pub(crate) fn as_round<R>(&mut self, record: impl FnOnce(&mut Self) -> R) -> R {
        let before = (self.singles.clone(), self.batches.clone());
        let result = record(self);
        self.rounds.extend(median_since(&before.0, &self.singles));
        self.batch_rounds.extend(median_since(&before.1, &self.batches).map(|picoseconds| picoseconds / 1e3));
        result
    }

    /// Records one operation that took `duration`.
    pub(crate) fn record_single(&mut self, duration: Duration) {
        self.singles.saturating_record(nanos(duration));
    }

    /// Records `count` operations that took `duration` each.
    pub(crate) fn record_singles(&mut self, duration: Duration, count: u64) {
        self.singles.saturating_record_n(nanos(duration), count);
    }

    /// Records a batch of `ops` operations that took `duration` together; ignores an empty batch.
    pub(crate) fn record_batch(&mut self, ops: u32, duration: Duration) {
        if ops == 0 {
            return;
        }
        self.batches.saturating_record(saturating_u64(duration.as_nanos() * 1_000 / u128::from(ops)));
        self.batch_ops += u64::from(ops);
        self.batch_time += duration;
    }

    /// Adds the timings of another recorder of the same operation, without its rounds: the other recorder worked concurrently, or for one
    /// round of this one.
    pub(crate) fn add(&mut self, other: &Self) {
        self.singles.add(&other.singles).expect("all recorders have the same range");
        self.batches.add(&other.batches).expect("all recorders have the same range");
        self.batch_ops += other.batch_ops;
        self.batch_time += other.batch_time;
    }

    /// Returns the number of operations recorded singly or in batches.
    pub(crate) fn operations(&self) -> u64 {
        self.singles.len() + self.batch_ops
    }

    /// Returns the duration that `share` of the single timings do not exceed, in nanoseconds.
    pub(crate) fn quantile_ns(&self, share: f64) -> u64 {
        self.singles.value_at_quantile(share)
    }

    /// Returns the longest single timing in nanoseconds.
    pub(crate) fn max_ns(&self) -> u64 {
        self.singles.max()
    }

    /// Returns the share of single timings above `bound`.
    pub(crate) fn share_above(&self, bound: Duration) -> f64 {
        1.0 - self.singles.percentile_below(nanos(bound)) / 100.0
    }

    /// Returns the number of single timings above `bound`.
    pub(crate) fn count_above(&self, bound: Duration) -> u64 {
        self.singles.len() - self.singles.count_between(0, nanos(bound))
    }

    /// Returns the statistics so far; all zero without timings.
    pub(crate) fn sample(&self) -> Sample {
        if self.singles.is_empty() {
            return Sample::default();
        }
        let of_all = |all: &Histogram<u64>| approximate(all.value_at_quantile(0.5));
        let of_rounds = |rounds: &[f64]| (!rounds.is_empty()).then(|| median(rounds.to_vec()));
        let p50_ns = of_rounds(&self.rounds).unwrap_or_else(|| of_all(&self.singles));
        let batch_ns = of_rounds(&self.batch_rounds).unwrap_or_else(|| of_all(&self.batches) / 1e3);
        let mean_ns = self.batch_time.as_secs_f64() * 1e9 / approximate(self.batch_ops.max(1));
        Sample {
            count: self.singles.len(),
            min_ns: self.singles.min(),
            p50_ns: whole(p50_ns),
            p99_ns: self.singles.value_at_quantile(0.99),
            p999_ns: self.singles.value_at_quantile(0.999),
            mean_ns,
            batch_ns,
            aa: self.a_to_a(),
        }
    }

    fn a_to_a(&self) -> Option<f64> {
        (self.rounds.len() >= 2).then(|| a_to_a(&self.rounds))
    }

    /// Returns the number of operations that fill `BATCH_TIME` at the median so far.
    fn batch_len(&self) -> u32 {
        let p50 = u128::from(self.singles.value_at_quantile(0.5).max(1));
        let ops = (BATCH_TIME.as_nanos() / p50).clamp(1, u128::from(MAX_BATCH_OPS));
        u32::try_from(ops).expect("clamped to MAX_BATCH_OPS")
    }
}

/// Returns the median; NaN without values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// Returns the A/A of rounds: the median of the even ones divided by that of the odd ones. Both halves measure the same operation, so it
/// is 1 except for noise. NaN with less than two rounds.
pub(crate) fn a_to_a(rounds: &[f64]) -> f64 {
    let half = |first: usize| median(rounds.iter().copied().skip(first).step_by(2).collect());
    half(0) / half(1)
}

/// Returns a count as a floating-point number; exact below 2^53, which is three months in nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "statistics need 3 digits, this keeps 15")]
pub(crate) fn approximate(count: u64) -> f64 {
    count as f64
}

/// Returns the median of the values that a histogram has in addition to an earlier copy of it; `None` if there are none.
fn median_since(before: &Histogram<u64>, now: &Histogram<u64>) -> Option<f64> {
    let mut since = now.clone();
    since.subtract(before).expect("timings are only added");
    (!since.is_empty()).then(|| approximate(since.value_at_quantile(0.5)))
}

/// Returns the nearest whole number of nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "medians of u64 are not negative and not larger"
)]
fn whole(nanoseconds: f64) -> u64 {
    nanoseconds.round() as u64
}

fn saturating_u64(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Values below 2,048 are exact, larger ones to one in a thousand.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Longest recorded duration, a minute.
const HIGHEST_NS: u64 = 60_000_000_000;

/// Enough to fill caches and to start the partner's thread before the first timing.
const WARM_UP_OPS: u32 = 32;

/// Long compared with the clock's grain, short compared with a scheduler's time slice, so that most batches are undisturbed.
const BATCH_TIME: Duration = Duration::from_micros(100);

/// Largest batch, for operations that are shorter than the clock's grain.
const MAX_BATCH_OPS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_recorded_values() {
        let mut recorder = Recorder::new();
        for ns in (1..=1_000).rev() {
            recorder.record_single(Duration::from_nanos(ns));
        }
        let sample = recorder.sample();
        assert_eq!((sample.count, sample.min_ns), (1_000, 1));
        assert_eq!((sample.p50_ns, sample.p99_ns, sample.p999_ns), (500, 990, 999));
    }

    #[test]
    fn one_slow_batch_moves_the_mean_and_not_the_batch_median() {
        let mut recorder = Recorder::new();
        recorder.record_single(Duration::from_nanos(100));
        for _ in 0..9 {
            recorder.record_batch(10, Duration::from_nanos(1_234));
        }
        recorder.record_batch(10, Duration::from_nanos(101_234));
        let sample = recorder.sample();
        assert!((sample.batch_ns - 123.4).abs() < 0.2, "{sample:?}");
        assert!((sample.mean_ns - 1_123.4).abs() < 0.2, "{sample:?}");
    }

    #[test]
    fn a_fast_round_counts_as_one_although_it_has_most_timings() {
        let mut recorder = Recorder::new();
        for round in 0..10 {
            let (ns, count) = if round == 4 { (200, 100_000) } else { (2_000, 100) };
            recorder.as_round(|recorder| {
                recorder.record_singles(Duration::from_nanos(ns), count);
                for _ in 0..count {
                    recorder.record_batch(10, Duration::from_nanos(10 * ns));
                }
            });
        }
        let sample = recorder.sample();
        assert_eq!(sample.p50_ns, 2_000);
        assert!((sample.batch_ns - 2_000.0).abs() < 10.0, "{sample:?}");
    }

    #[test]
    fn two_recorders_together_are_one() {
        let [mut one, mut two] = [1_u64, 3].map(|ns| {
            let mut recorder = Recorder::new();
            recorder.record_single(Duration::from_nanos(ns));
            recorder.record_batch(2, Duration::from_nanos(2 * ns));
            recorder
        });
        two.record_single(Duration::from_nanos(3));
        one.add(&two);
        assert_eq!(one.operations(), 7);
        let sample = one.sample();
        assert_eq!((sample.count, sample.min_ns, sample.p50_ns), (3, 1, 3));
        assert!((sample.mean_ns - 2.0).abs() < 1e-9, "{sample:?}");
    }

    #[test]
    fn a_share_counts_longer_timings() {
        let mut recorder = Recorder::new();
        for ns in [10, 20, 2_000_000, 3_000_000] {
            recorder.record_single(Duration::from_nanos(ns));
        }
        assert!((recorder.share_above(Duration::from_millis(1)) - 0.5).abs() < 1e-9);
        assert_eq!(recorder.count_above(Duration::from_millis(1)), 2);
    }

    #[test]
    fn values_beyond_the_range_are_kept_at_its_end() {
        let mut recorder = Recorder::new();
        recorder.record_single(Duration::from_secs(3_600));
        assert!(recorder.sample().p50_ns >= HIGHEST_NS);
        recorder.record_batch(0, Duration::from_secs(1));
        assert_eq!(recorder.batch_ops, 0);
    }

    #[test]
    fn an_empty_recorder_is_all_zero() {
        assert_eq!(Recorder::new().sample(), Sample::default());
    }

    #[test]
    fn a_round_times_singles_and_batches_and_counts_every_operation() {
        let mut recorder = Recorder::new();
        let mut ops = 0_u64;
        recorder.repeat(Duration::from_millis(4), || ops += 1);
        assert!(recorder.sample().count > 0);
        assert_eq!(recorder.sample().count + recorder.batch_ops + u64::from(WARM_UP_OPS), ops);
    }

    #[test]
    fn even_and_odd_rounds_are_compared() {
        let mut recorder = Recorder::new();
        assert_eq!(recorder.sample().aa, None);
        recorder.record_single(Duration::from_nanos(5));
        recorder.rounds = vec![100.0, 200.0, 110.0];
        assert_eq!(recorder.sample().aa, Some(105.0 / 200.0));
        recorder.repeat(Duration::from_millis(2), || ());
        assert_eq!(recorder.rounds.len(), 4);
    }

    #[test]
    fn concurrent_recorders_form_one_round() {
        let of = |ns| {
            let mut recorder = Recorder::new();
            recorder.as_round(|recorder| recorder.record_single(Duration::from_nanos(ns)));
            recorder
        };
        let mut all = Recorder::new();
        for round in [[100, 300, 300], [600, 600, 100]] {
            all.as_round(|all| round.iter().for_each(|ns| all.add(&of(*ns))));
        }
        all.as_round(|_| ());
        assert_eq!((all.rounds.as_slice(), all.sample().aa), (&[300.0, 600.0][..], Some(0.5)));
    }

    #[test]
    fn the_first_error_ends_a_round() {
        let mut left = 40;
        let result = Recorder::new().round(Duration::from_secs(5), || {
            left -= 1;
            if left == 0 { Err("broken") } else { Ok(()) }
        });
        assert_eq!((result, left), (Err("broken"), 0));
    }
}
