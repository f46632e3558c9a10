//! Durations of one operation, gathered in two ways at once: each alone, and in batches.
//!
//! A clock has a grain (10 ns where this was written), and reading it takes about as long as a cache line needs to
//! get half-way to the next core. So a single timing gives the shape of the distribution, quantised and with one
//! clock reading inside, and a batch of operations between two readings gives the centre without either fault.
//! Every recorder does both, so two things measured by two recorders carry the same instrument and may be divided.
//!
//! # Invariants
//! 1. `singles` holds nanoseconds of one operation each, `batches` picoseconds per operation of one batch each.
//! 2. `batch_ops` operations took `batch_time` in all.

use core::time::Duration;

use hdrhistogram::Histogram;

use crate::clock;

/// What was seen of one operation; all values but `count` in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Operations that were timed one by one; the percentiles are over these.
    pub count: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The median, with one clock reading inside and quantised to the clock's grain.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1,000 took no longer.
    pub p999_ns: u64,
    /// All batch time over all batch operations: without the clock, with every interruption.
    pub mean_ns: f64,
    /// The median over batches of the mean of one batch: without the clock and without rare interruptions.
    pub batch_ns: f64,
    /// A/A: [`a_to_a`] of the rounds' medians; none with less than two rounds.
    pub aa: Option<f64>,
}

/// Gathers the durations of one operation over several rounds.
#[derive(Debug)]
pub struct Recorder {
    singles: Histogram<u64>,
    batches: Histogram<u64>,
    batch_ops: u64,
    batch_time: Duration,
    /// The median of each round's single timings, nanoseconds.
    rounds: Vec<f64>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// An empty recorder.
    #[must_use]
    pub fn new() -> Self {
        let histogram = |highest| {
            Histogram::new_with_max(highest, SIGNIFICANT_DIGITS).expect("the bounds are constants that fit")
        };
        Self {
            singles: histogram(HIGHEST_NS),
            batches: histogram(HIGHEST_NS * 1_000),
            batch_ops: 0,
            batch_time: Duration::ZERO,
            rounds: Vec::new(),
        }
    }

    /// Repeats `op` for about `budget`: after a short warm-up, one half timed singly, one half in batches.
    ///
    /// # Errors
    /// The first error of `op`; what was recorded before it stays.
    pub fn round<E>(&mut self, budget: Duration, mut op: impl FnMut() -> Result<(), E>) -> Result<(), E> {
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

    /// Counts what `record` adds as one round; nothing added is none.
    pub(crate) fn as_round<R>(&mut self, record: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.singles.clone();
        let result = record(self);
        let mut this_round = self.singles.clone();
        this_round.subtract(&before).expect("what was there is still there");
        if !this_round.is_empty() {
            self.rounds.push(approximate(this_round.value_at_quantile(0.5)));
        }
        result
    }

    /// Takes one operation that took `duration`.
    pub fn record_single(&mut self, duration: Duration) {
        self.singles.saturating_record(saturating_u64(duration.as_nanos()));
    }

    /// Takes so many operations that took `duration` each.
    pub fn record_singles(&mut self, duration: Duration, count: u64) {
        self.singles.saturating_record_n(saturating_u64(duration.as_nanos()), count);
    }

    /// Takes a batch of `ops` operations that took `duration` together; an empty batch says nothing.
    pub fn record_batch(&mut self, ops: u32, duration: Duration) {
        if ops == 0 {
            return;
        }
        self.batches.saturating_record(saturating_u64(duration.as_nanos() * 1_000 / u128::from(ops)));
        self.batch_ops += u64::from(ops);
        self.batch_time += duration;
    }

    /// Adds what another recorder saw of the same thing, but for its rounds: recorders that are added were at work at the same time,
    /// or for one round of this one.
    pub fn add(&mut self, other: &Self) {
        self.singles.add(&other.singles).expect("all recorders have the same range");
        self.batches.add(&other.batches).expect("all recorders have the same range");
        self.batch_ops += other.batch_ops;
        self.batch_time += other.batch_time;
    }

    /// Operations that were recorded, singly or in batches.
    pub(crate) fn operations(&self) -> u64 {
        self.singles.len() + self.batch_ops
    }

    /// What was recorded so far; all zero if nothing was.
    #[must_use]
    pub fn sample(&self) -> Sample {
        if self.singles.is_empty() {
            return Sample::default();
        }
        let batch_ns = approximate(self.batches.value_at_quantile(0.5)) / 1e3;
        let mean_ns = self.batch_time.as_secs_f64() * 1e9 / approximate(self.batch_ops.max(1));
        Sample {
            count: self.singles.len(),
            min_ns: self.singles.min(),
            p50_ns: self.singles.value_at_quantile(0.5),
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

    /// As many operations as fill `BATCH_TIME` at the median seen so far.
    fn batch_len(&self) -> u32 {
        let p50 = u128::from(self.singles.value_at_quantile(0.5).max(1));
        let ops = (BATCH_TIME.as_nanos() / p50).clamp(1, u128::from(MAX_BATCH_OPS));
        u32::try_from(ops).expect("clamped to MAX_BATCH_OPS")
    }
}

/// The middle value, or the mean of the two in the middle; not a number of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// A/A: the median of the even of these rounds by that of the odd ones. Both halves measured the same thing, so that it is 1 but for
/// noise. Not a number with less than two rounds.
pub(crate) fn a_to_a(rounds: &[f64]) -> f64 {
    let half = |first: usize| median(rounds.iter().copied().skip(first).step_by(2).collect());
    half(0) / half(1)
}

/// A count as a floating-point number; exact below 2^53, which is three months in nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "statistics need 3 digits, this keeps 15")]
pub(crate) fn approximate(count: u64) -> f64 {
    count as f64
}

fn saturating_u64(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Values below 2,048 are exact, larger ones to one in a thousand.
const SIGNIFICANT_DIGITS: u8 = 3;

/// A minute; longer operations are recorded as this.
const HIGHEST_NS: u64 = 60_000_000_000;

/// Enough to fill caches and to have the partner's thread running before the first timing.
const WARM_UP_OPS: u32 = 32;

/// Long against the clock's grain, short against a scheduler's time slice, so that most batches are undisturbed.
const BATCH_TIME: Duration = Duration::from_micros(100);

/// Bounds a batch of operations that are shorter than the clock's grain.
const MAX_BATCH_OPS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use core::convert::Infallible;

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
    fn values_beyond_the_range_are_kept_at_its_end() {
        let mut recorder = Recorder::new();
        recorder.record_single(Duration::from_secs(3_600));
        assert!(recorder.sample().p50_ns >= HIGHEST_NS);
        recorder.record_batch(0, Duration::from_secs(1));
        assert_eq!(recorder.batch_ops, 0);
    }

    #[test]
    fn nothing_recorded_is_all_zero() {
        assert_eq!(Recorder::new().sample(), Sample::default());
    }

    #[test]
    fn a_round_times_singles_and_batches_and_counts_every_operation() {
        let mut recorder = Recorder::new();
        let mut ops = 0_u64;
        let Ok(()) = recorder.round(Duration::from_millis(4), || {
            ops += 1;
            Ok::<(), Infallible>(())
        });
        assert!(recorder.sample().count > 0);
        assert_eq!(recorder.sample().count + recorder.batch_ops + u64::from(WARM_UP_OPS), ops);
    }

    #[test]
    fn rounds_are_held_against_each_other() {
        let mut recorder = Recorder::new();
        assert_eq!(recorder.sample().aa, None);
        recorder.record_single(Duration::from_nanos(5));
        recorder.rounds = vec![100.0, 200.0, 110.0];
        assert_eq!(recorder.sample().aa, Some(105.0 / 200.0));
        let Ok(()) = recorder.round(Duration::from_millis(2), || Ok::<(), Infallible>(()));
        assert_eq!(recorder.rounds.len(), 4);
    }

    #[test]
    fn what_several_saw_at_once_is_one_round() {
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
