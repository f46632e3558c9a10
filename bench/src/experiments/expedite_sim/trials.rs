//! The trials, and the results kept of each run.

use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_sim::paper::expedite::{Boost, Kernel, Phases, PingPong, PingPongOutcome, Scatter, TOP};
use pronto_sched_sim::workload::scatter::Forwarding;

use crate::report::{Fields, decimals};
use crate::sample::approximate;

/// Delay from which a ping is late: "delays of millisecond-order" (section 4.1).
pub(super) const LATE: Nanos = Nanos::from_millis(1);

/// Number of pings of the first seed that are kept for the figures, from the whole run: more could not be distinguished.
const DRAWN: usize = 1_000;

/// One trial, run with every seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// Figure of the paper, or `own`.
    pub(super) figure: &'static str,
    /// Name of the background, for the rows.
    pub(super) background: &'static str,
    pub(super) run: Workload,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Workload {
    PingPong(PingPong),
    Scatter(Scatter),
}

/// Results of one trial.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) trial: Trial,
    /// Summaries by seed, and then by pair or rank.
    pub(super) seeds: Vec<Vec<Summary>>,
    /// Totals by seed.
    pub(super) totals: Vec<Totals>,
    /// Round trips of the first seed in order, by pair, in milliseconds.
    pub(super) drawn: Vec<Vec<f64>>,
}

/// Summary of one pair or rank in one run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    pub(super) mean_us: f64,
    pub(super) longest_us: f64,
    pub(super) late: f64,
}

/// Totals of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) asked: u64,
    pub(super) granted: u64,
    pub(super) compute: f64,
    pub(super) sleepers: f64,
    pub(super) events: u64,
}

/// A number over all seeds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Over {
    pub(super) mean: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Over {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        let (least, most) =
            values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), v| (l.min(*v), m.max(*v)));
        Self { mean: values.iter().sum::<f64>() / approximate(values.len() as u64), least, most }
    }
}

impl Trial {
    pub(super) const fn kernel(&self) -> Kernel {
        match self.run {
            Workload::PingPong(PingPong { kernel, .. }) | Workload::Scatter(Scatter { kernel, .. }) => kernel,
        }
    }

    /// Returns the boost in effect: none if the rule depends on flags and no thread is flagged.
    pub(super) const fn boost(&self) -> Boost {
        match self.run {
            Workload::PingPong(PingPong { boost, .. }) | Workload::Scatter(Scatter { boost, .. }) => boost,
        }
    }

    pub(super) const fn extra(&self) -> Option<Nanos> {
        match self.run {
            Workload::PingPong(trial) => Some(trial.extra),
            Workload::Scatter(_) => None,
        }
    }
}

/// Results kept of one run.
#[derive(Clone, Debug)]
pub(super) struct Once {
    summaries: Vec<Summary>,
    totals: Totals,
    drawn: Vec<Vec<f64>>,
}

impl Trial {
    /// Runs the trial with one seed.
    pub(super) fn once(&self, seed: u64) -> Once {
        match self.run {
            Workload::PingPong(trial) => Once::of_pings(&trial.run(seed)),
            Workload::Scatter(trial) => {
                let outcome = trial.run(seed);
                let rank = |spent: &Vec<u64>| Summary::of(spent.iter().copied());
                let totals = Totals { events: outcome.events, ..Totals::default() };
                Once { summaries: outcome.spent.iter().map(rank).collect(), totals, drawn: Vec::new() }
            }
        }
    }
}

impl Once {
    fn of_pings(outcome: &PingPongOutcome) -> Self {
        let trips = |pair: &Vec<(Nanos, u64)>| Summary::of(pair.iter().map(|(_, took)| *took));
        let drawn = |pair: &Vec<(Nanos, u64)>| {
            let every = pair.len().div_ceil(DRAWN).max(1);
            pair.iter().step_by(every).map(|(_, took)| approximate(*took) / 1e6).collect()
        };
        let &PingPongOutcome { asked, granted, compute_share, sleepers_share, events, .. } = outcome;
        Self {
            summaries: outcome.round_trips.iter().map(trips).collect(),
            totals: Totals { asked, granted, compute: compute_share, sleepers: sleepers_share, events },
            drawn: outcome.round_trips.iter().map(drawn).collect(),
        }
    }
}

impl Measured {
    /// Collects the runs of one trial, in the order of their seeds.
    pub(super) fn new(trial: Trial, runs: impl IntoIterator<Item = Once>) -> Self {
        let mut measured = Self { trial, seeds: Vec::new(), totals: Vec::new(), drawn: Vec::new() };
        for run in runs {
            measured.seeds.push(run.summaries);
            measured.totals.push(run.totals);
            if measured.drawn.is_empty() {
                measured.drawn = run.drawn;
            }
        }
        measured
    }

    /// Returns a number of one pair or rank, over all seeds.
    pub(super) fn over(&self, index: usize, number: impl Fn(&Summary) -> f64) -> Over {
        Over::of(self.seeds.iter().map(|seed| number(&seed[index])))
    }

    /// Returns the share of requested boosts that were granted, over all seeds; `None` if none was requested.
    pub(super) fn kept(&self) -> Option<Over> {
        let asked = self.totals.iter().any(|totals| totals.asked > 0);
        asked.then(|| {
            Over::of(self.totals.iter().map(|t| approximate(t.granted) / approximate(t.asked.max(1))))
        })
    }

    pub(super) fn compute(&self) -> Over {
        Over::of(self.totals.iter().map(|totals| totals.compute))
    }

    pub(super) fn sleepers(&self) -> Over {
        Over::of(self.totals.iter().map(|totals| totals.sleepers))
    }

    pub(super) fn events(&self) -> u64 {
        self.totals.iter().map(|totals| totals.events).sum()
    }

    /// Returns the rows: one for each pair or rank.
    pub(super) fn rows(&self) -> Vec<Fields> {
        let Some(first) = self.seeds.first() else { return Vec::new() };
        let name = |index: usize| match self.trial.run {
            Workload::PingPong(_) => format!("pair {}", index + 1),
            Workload::Scatter(_) => format!("rank {index}"),
        };
        (0..first.len()).map(|index| self.row(index, &name(index))).collect()
    }

    fn row(&self, index: usize, name: &str) -> Fields {
        let mean = self.over(index, |summary| summary.mean_us);
        let late = self.over(index, |summary| summary.late);
        let longest = self.over(index, |summary| summary.longest_us);
        let kept = self.kept().filter(|_| index == 0);
        let ping_pong = matches!(self.trial.run, Workload::PingPong(_));
        let share = |over: Option<Over>| over.map(|over| decimals(over.mean, 4));
        Fields::default()
            .with("figure", self.trial.figure)
            .with("kernel", kernel_name(self.trial.kernel()))
            .with("boost", boost_name(self.trial.boost()))
            .with("background", self.trial.background)
            .with("who", name)
            .with("extra_us", self.trial.extra().map(|extra| extra.0 / 1_000))
            .with("mean_us", decimals(mean.mean, 1))
            .with("mean_least_us", decimals(mean.least, 1))
            .with("mean_most_us", decimals(mean.most, 1))
            .with("longest_us", decimals(longest.most, 1))
            .with("late", share(ping_pong.then_some(late)))
            .with("late_least", ping_pong.then(|| decimals(late.least, 4)))
            .with("late_most", ping_pong.then(|| decimals(late.most, 4)))
            .with("kept", share(kept))
            .with("compute", share(ping_pong.then(|| self.compute())))
            .with("sleepers", share(ping_pong.then(|| self.sleepers())))
    }
}

impl Summary {
    fn of(nanoseconds: impl Iterator<Item = u64>) -> Self {
        let (mut count, mut sum, mut longest, mut late) = (0_u64, 0_u64, 0, 0_u64);
        for value in nanoseconds {
            count += 1;
            sum += value;
            longest = longest.max(value);
            late += u64::from(value >= LATE.0);
        }
        let of_all = |value: u64| approximate(value) / approximate(count.max(1));
        Self { mean_us: of_all(sum) / 1e3, longest_us: approximate(longest) / 1e3, late: of_all(late) }
    }
}

/// Returns the value of the column `boost`.
pub(super) const fn boost_name(boost: Boost) -> &'static str {
    match boost {
        Boost::None => "none",
        Boost::Counter => "counter",
        Boost::Budget => "budget",
        Boost::Sleepers => "sleepers",
        Boost::DynPreempt => "dyn-preempt",
        Boost::OnUnblock => "on-unblock",
    }
}

/// Returns the value of the column `kernel`.
pub(super) const fn kernel_name(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::Linux24 => "linux-2.4",
        Kernel::Eevdf => "eevdf",
        Kernel::EevdfShort => "eevdf-short",
    }
}

/// Computation after each pong in microseconds, of the curve next to figure 5.
pub(super) const EXTRA_US: [u64; 10] = [0, 400, 800, 1_200, 1_600, 2_400, 4_000, 8_000, 12_000, 20_000];

/// Boosts of that curve.
pub(super) const CURVES: [Boost; 4] = [Boost::None, Boost::Counter, Boost::Sleepers, Boost::Budget];

/// Length of each trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    pub(super) seeds: u64,
    /// Number of pings of each pair, with each seed.
    pub(super) pings: u32,
    /// Number of rounds with each seed.
    pub(super) rounds: u32,
}

/// Returns every trial, in the order of the figures.
pub(super) fn all(length: Length) -> Vec<Trial> {
    let base = PingPong::alone(length.pings);
    let compute = PingPong { compute_only: true, ..base };
    let sleepers = PingPong { sleep_mostly: 2, ..compute };
    let ten = PingPong { pairs: 10, flagged: 0, pings: length.pings / 4, ..sleepers };
    let extra = PingPong { extra: Nanos::from_micros(1_600), ..sleepers };
    let with = |boost, trial: PingPong| PingPong { boost, ..trial };
    let ping = |figure, background, trial| Trial { figure, background, run: Workload::PingPong(trial) };
    let mut trials = vec![
        ping("alone", "nothing", base),
        ping("1a", "compute-only", compute),
        ping("1b", SLEEPERS, sleepers),
        ping("1b-anywhere", SLEEPERS, PingPong { phases: Phases::Anywhere, ..sleepers }),
        ping("2a", "compute-only", with(Boost::Counter, compute)),
        ping("2b", SLEEPERS, with(Boost::Counter, sleepers)),
        ping("3a", SLEEPERS, ten),
        ping("3b", SLEEPERS, with(Boost::Counter, PingPong { flagged: 9, ..ten })),
        ping("5", SLEEPERS, extra),
        ping("5", SLEEPERS, with(Boost::Counter, extra)),
        ping("5", SLEEPERS, with(Boost::Sleepers, extra)),
    ];
    for boost in CURVES {
        for us in EXTRA_US {
            let trial = PingPong { extra: Nanos::from_micros(us), ..with(boost, sleepers) };
            trials.push(ping("5-curve", SLEEPERS, trial));
        }
    }
    for boost in [Boost::Budget, Boost::Sleepers, Boost::DynPreempt, Boost::OnUnblock] {
        trials.push(ping("own", SLEEPERS, with(boost, sleepers)));
    }
    for (kernel, boost) in TODAY {
        let on = |trial: PingPong| PingPong { kernel, boost, ..trial };
        trials.push(ping("today", "nothing", on(base)));
        trials.push(ping("today", "compute-only", on(compute)));
        trials.push(ping("today", SLEEPERS, on(sleepers)));
    }
    trials.push(ping("own", "2 sleep-mostly in step", PingPong { phases: Phases::InStep, ..sleepers }));
    trials.extend(scatters(length.rounds));
    trials
}

/// Kernels of today with boosts: unmodified, with a short slice, and with our budget (there is no counter for the counter rule).
const TODAY: [(Kernel, Boost); 3] =
    [(Kernel::Eevdf, Boost::None), (Kernel::EevdfShort, Boost::None), (Kernel::Eevdf, Boost::Budget)];

/// A value of the column `background`.
const SLEEPERS: &str = "compute-only, 2 sleep-mostly";

/// Returns figure 7, its baseline, and the scatters with our budget.
fn scatters(rounds: u32) -> [Trial; 6] {
    let base = Scatter {
        kernel: Kernel::Linux24,
        forwarding: Forwarding::InCalls,
        boost: Boost::None,
        tops: 4,
        top: TOP,
        in_step: false,
        rounds,
    };
    let scatter = |figure, background, trial| Trial { figure, background, run: Workload::Scatter(trial) };
    let handler = Scatter { forwarding: Forwarding::Handler, ..base };
    let flagged = |boost| Scatter { forwarding: Forwarding::FlaggedHandler, boost, ..base };
    [
        scatter("7-unloaded", "nothing", Scatter { tops: 0, ..base }),
        scatter("7a", TOPS, base),
        scatter("7b", TOPS, handler),
        scatter("7c", TOPS, flagged(Boost::Counter)),
        scatter("own", TOPS, flagged(Boost::Budget)),
        scatter("own", "4 top in step on rank 4", Scatter { in_step: true, ..handler }),
    ]
}

/// A value of the column `background`.
const TOPS: &str = "4 top on rank 4";
