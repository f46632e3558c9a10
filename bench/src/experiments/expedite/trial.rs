//! One trial: a handler in some setting, the delays of its messages, and the concurrent work of the background.

use core::time::Duration;

use crate::clock;
use crate::expedite::{Counters, Handler, Load, Machine, Sample, Setting, Work, ping_all};
use crate::experiment::Run;
use crate::params::Choice as _;
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, a_to_a, approximate};

/// Delay from which a message counts as late (section 4.1: "delays of millisecond-order").
pub(super) const LATE: Duration = Duration::from_millis(1);

/// Twice the time that a node's CPU budget takes to recover from its start, 1.1 s.
const PAID_BACK: Duration = Duration::from_secs(2);

/// A handler, and its measurements so far.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) work: Work,
    handler: Handler,
    /// Delays by round, and within it by connection.
    pub(super) rounds: Vec<Vec<Recorder>>,
    pub(super) counters: Counters,
    /// Work of the background in each round.
    background: Vec<Background>,
}

/// Work of the whole background in a round.
#[derive(Clone, Copy, Debug, Default)]
struct Background {
    elements: f64,
    ran_ns: f64,
    sleeps: f64,
    late_ns: f64,
    seconds: f64,
}

/// Results of a trial that claims are based on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) setting: Setting,
    /// Number of messages.
    pub(super) pings: u64,
    /// Share of late messages.
    pub(super) late: f64,
    pub(super) longest_ms: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    /// Number of granted boosts as a share of the messages.
    pub(super) granted: f64,
    /// Boosted run time per boost.
    pub(super) boost_us: f64,
    /// Boosted time as a share of the CPU.
    pub(super) boosted_share: f64,
}

/// Messages of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    pub(super) count: u32,
    pub(super) interval: Duration,
}

impl Trial {
    /// Returns transport and setting, for the progress.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.work.transport.name(), self.work.setting.name())
    }

    /// Starts a handler for each kind of work. A handler that the machine refuses is noted and skipped.
    pub(super) fn start_all(
        works: impl IntoIterator<Item = Work>,
        report: &mut Report,
    ) -> anyhow::Result<Vec<Self>> {
        let mut trials = Vec::new();
        for work in works {
            match Handler::start(&work)? {
                Ok(handler) => trials.push(Self {
                    work,
                    handler,
                    rounds: Vec::new(),
                    counters: Counters::default(),
                    background: Vec::new(),
                }),
                Err(why) => report.note(format!(
                    "skipped: {} over {}: the system refuses it ({why})",
                    work.setting.name(),
                    work.transport.name()
                )),
            }
        }
        settle(&trials);
        Ok(trials)
    }

    /// Sends one round of messages with this background.
    pub(super) fn round(
        &mut self,
        machine: &Machine,
        loads: &mut [Load],
        traffic: Traffic,
    ) -> anyhow::Result<()> {
        let sample =
            |loads: &mut [Load]| loads.iter_mut().map(Load::sample).collect::<anyhow::Result<Vec<_>>>();
        let counted = machine.counters(self.work.setting)?;
        let before = sample(loads)?;
        let pings = ping_all(&mut self.handler.lines, traffic.count, traffic.interval, machine.sender())?;
        let after = sample(loads)?;
        self.counters.add(&machine.counters(self.work.setting)?.since(&counted));
        self.background.push(Background::of(&before, &after));
        self.rounds.push(pings);
        Ok(())
    }

    /// Sends one round of messages that are not counted.
    pub(super) fn send(&mut self, machine: &Machine, traffic: Traffic) -> anyhow::Result<()> {
        ping_all(&mut self.handler.lines, traffic.count, traffic.interval, machine.sender()).map(drop)
    }

    /// Discards the measurements before the next rows.
    pub(super) fn begin(&mut self) {
        self.rounds.clear();
        self.background.clear();
        self.counters = Counters::default();
    }

    /// Returns the delays of all messages of the connections that `wanted` selects.
    pub(super) fn pings(&self, wanted: impl Fn(usize) -> bool) -> Recorder {
        all(&self.rounds, wanted)
    }

    /// Returns the 90th percentile of the delays of each round, in microseconds.
    pub(super) fn p90_by_round(&self) -> Vec<f64> {
        p90_by_round(&self.rounds, |_| true)
    }

    /// Returns the number of granted boosts as a share of the messages.
    pub(super) fn granted(&self) -> f64 {
        // Each round begins with one uncounted message on each connection.
        let first = (self.rounds.len() * self.handler.lines.len()) as u64;
        approximate(self.counters.boosts()) / approximate((self.pings(|_| true).operations() + first).max(1))
    }

    /// Returns the boosted time as a share of the CPU.
    pub(super) fn boosted_share(&self) -> f64 {
        let seconds: f64 = self.background.iter().map(|round| round.seconds).sum();
        approximate(self.counters.boosted_ns()) / 1e9 / seconds.max(f64::MIN_POSITIVE)
    }

    /// Returns the number of elements that the whole background computed per second, by round.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.background.iter().map(|round| round.elements / round.seconds).collect()
    }

    /// Returns the share of the CPU that the background got by the kernel's accounting, by round.
    pub(super) fn shares(&self) -> Vec<f64> {
        self.background.iter().map(|round| round.ran_ns / 1e9 / round.seconds).collect()
    }

    /// Returns the mean excess of the background's sleeps in microseconds; `None` if it does not sleep.
    pub(super) fn overslept_us(&self) -> Option<f64> {
        let (late, sleeps) = self
            .background
            .iter()
            .fold((0.0, 0.0), |(late, sleeps), round| (late + round.late_ns, sleeps + round.sleeps));
        (sleeps > 0.0).then(|| late / sleeps / 1e3)
    }

    /// Adds the columns of the delays of some connections.
    pub(super) fn columns(&self, row: Fields, wanted: impl Fn(usize) -> bool) -> Fields {
        columns(&self.rounds, row, wanted)
    }

    /// Adds the columns of the module's counters for all connections.
    pub(super) fn counted(&self, row: Fields) -> Fields {
        row.with("boosts", self.counters.boosts()).with("denied", self.counters.denied())
    }

    /// Returns the share of late messages.
    pub(super) fn late(&self, wanted: impl Fn(usize) -> bool) -> f64 {
        self.pings(wanted).share_above(LATE)
    }

    /// Returns the number of late messages.
    pub(super) fn late_count(&self) -> u64 {
        self.pings(|_| true).count_above(LATE)
    }

    /// Returns the results of all connections.
    pub(super) fn seen(&self) -> Seen {
        let pings = self.pings(|_| true);
        let boosts = approximate(self.counters.boosts().max(1));
        Seen {
            setting: self.work.setting,
            pings: pings.operations(),
            late: pings.share_above(LATE),
            longest_ms: us(pings.max_ns()) / 1e3,
            p90_us: us(pings.quantile_ns(0.9)),
            p99_us: us(pings.quantile_ns(0.99)),
            granted: self.granted(),
            boost_us: approximate(self.counters.boosted_ns()) / boosts / 1e3,
            boosted_share: self.boosted_share(),
        }
    }
}

impl Seen {
    /// Returns results of a setting without any message, for tests of claims.
    #[cfg(test)]
    pub(super) const fn nothing(setting: Setting) -> Self {
        Self {
            setting,
            pings: 0,
            late: 0.0,
            longest_ms: 0.0,
            p90_us: 0.0,
            p99_us: 0.0,
            granted: 0.0,
            boost_us: 0.0,
            boosted_share: 0.0,
        }
    }
}

/// Returns the delays of all messages in these rounds of the connections that `wanted` selects.
fn all(rounds: &[Vec<Recorder>], wanted: impl Fn(usize) -> bool) -> Recorder {
    let mut all = Recorder::default();
    for (index, pings) in rounds.iter().flat_map(|round| round.iter().enumerate()) {
        if wanted(index) {
            all.add(pings);
        }
    }
    all
}

fn p90_by_round(rounds: &[Vec<Recorder>], wanted: impl Fn(usize) -> bool) -> Vec<f64> {
    rounds.chunks(1).map(|round| us(all(round, &wanted).quantile_ns(0.9))).collect()
}

/// Adds the columns of delays. A/A is that of p90, on which the claims are based.
fn columns(rounds: &[Vec<Recorder>], row: Fields, wanted: impl Fn(usize) -> bool) -> Fields {
    let delays = all(rounds, &wanted);
    let at = |share| decimals(us(delays.quantile_ns(share)), 1);
    row.with("p50_us", at(0.5))
        .with("p90_us", at(0.9))
        .with("aa", decimals(a_to_a(&p90_by_round(rounds, &wanted)), 2))
        .with("p99_us", at(0.99))
        .with("max_us", decimals(us(delays.max_ns()), 1))
        .with("late", decimals(delays.share_above(LATE), 4))
}

impl Background {
    fn of(before: &[Sample], after: &[Sample]) -> Self {
        let mut all = Self::default();
        for (before, after) in before.iter().zip(after) {
            let Sample { at, elements, sleeps, late, ran } = after.since(before);
            all.elements += approximate(elements);
            all.ran_ns += approximate(ran);
            all.sleeps += approximate(sleeps);
            all.late_ns += approximate(late);
            // The processes report one after the other, so their spans differ by microseconds.
            all.seconds += approximate(at) / 1e9;
        }
        all.seconds /= approximate(after.len().max(1) as u64);
        all
    }
}

/// Sleeps until nodes may become real-time: setting up its links takes a node a tenth of a second of CPU time, and an always real-time
/// node has a budget of a tenth of a CPU.
fn settle(trials: &[Trial]) {
    if trials.iter().any(|trial| trial.work.transport.is_node() && trial.work.setting == Setting::Fifo) {
        clock::sleep_until(clock::now() + PAID_BACK);
    }
}

/// Measures all trials in turns, once per round. Those under the BPF scheduler come last, because it is loaded once for all of their rounds.
pub(super) fn in_turns<'a>(
    run: &mut Run<'_>,
    trials: impl IntoIterator<Item = &'a mut Trial>,
    label: impl Fn(&Trial) -> String,
    machine: &Machine,
    loads: &mut [Load],
    traffic: Traffic,
) -> anyhow::Result<()> {
    let (mut scx, mut others): (Vec<_>, Vec<_>) =
        trials.into_iter().partition(|trial| trial.work.setting == Setting::Scx);
    let mut measure = |trials: &mut [&mut Trial]| {
        run.in_turns(trials, |trial| label(trial), |trial, _| trial.round(machine, loads, traffic))
    };
    measure(&mut others)?;
    if scx.is_empty() { Ok(()) } else { machine.under_scx(|| measure(&mut scx)) }
}

/// Returns the trial of a setting.
pub(super) fn of(trials: &[Trial], setting: Setting) -> Option<&Trial> {
    trials.iter().find(|trial| trial.work.setting == setting)
}

/// Returns the results of a setting.
pub(super) fn seen_of(all: &[Seen], setting: Setting) -> Option<&Seen> {
    all.iter().find(|seen| seen.setting == setting)
}

/// Returns the median; zero without values.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Returns the median ratio of the p90 of two trials, round by round.
pub(super) fn p90_ratio(upper: &Trial, lower: &Trial) -> f64 {
    let (upper, lower) = (upper.p90_by_round(), lower.p90_by_round());
    median(upper.iter().zip(&lower).map(|(upper, lower)| upper / lower))
}

/// Returns the median loss of `less` relative to `more`, round by round: 0.01 is one per cent.
pub(super) fn loss(less: &[f64], more: &[f64]) -> f64 {
    1.0 - median(less.iter().zip(more).map(|(less, more)| less / more))
}

fn us(ns: u64) -> f64 {
    approximate(ns) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_the_median_of_the_rounds() {
        assert!((loss(&[99.0, 50.0, 98.0], &[100.0, 100.0, 100.0]) - 0.02).abs() < 1e-9);
        assert!(median([]).abs() < 1e-9);
    }

    #[test]
    fn rounds_are_compared_connection_by_connection() {
        let round = |times: [u64; 2]| {
            times.map(|us| {
                let mut delays = Recorder::default();
                delays.record_single(Duration::from_micros(us));
                delays
            })
        };
        let rounds = [[10, 900], [20, 900], [12, 900]].map(|times| round(times).into());
        let row = columns(&rounds, Fields::default(), |index| index == 0);
        assert_eq!(row.value("aa"), Some(&serde_json::json!(0.55)));
        assert_eq!(row.value("max_us"), Some(&serde_json::json!(20.0)));
        assert_eq!(
            columns(&rounds[..1], Fields::default(), |_| true).value("aa"),
            Some(&serde_json::Value::Null)
        );
    }

    #[test]
    fn a_background_is_the_sum_of_its_processes() {
        let at = |at, elements, ran| Sample { at, elements, sleeps: 1, late: 0, ran };
        let before = [at(0, 0, 0), at(0, 10, 0)];
        let after = [at(2_000_000_000, 100, 1_000_000_000), at(2_000_000_000, 110, 500_000_000)];
        let all = Background::of(&before, &after);
        assert!((all.elements - 200.0).abs() < 1e-9 && (all.seconds - 2.0).abs() < 1e-9);
        assert!((all.ran_ns - 1.5e9).abs() < 1e-3);
    }
}
