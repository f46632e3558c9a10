//! A row of the tables: its setting, the report's values, and the results of all runs.

use core::cmp::Ordering;

use crate::echo::{Provider, Wait};
use crate::interval::Interval;
use crate::params::{Choice as _, choices};
use crate::report::{Fields, decimals};
use crate::sample::median;

use pronto::WaitPolicy;

use super::ping::Buffers;
use super::{Ran, Run, Unit};

/// A line of the report's tables: a number of messages of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Name in the report, as a value of a column.
    pub(crate) name: &'static str,
    /// Number of messages in the report.
    pub(crate) messages: u64,
    /// Length of a message, bytes.
    pub(crate) bytes: u64,
    /// Table 1: the ping-pong alone, seconds.
    pub(crate) alone: f64,
    /// Tables 2 to 4: ping-pong and computation, seconds.
    slept: [f64; 2],
    raised: [f64; 2],
    lowered: [f64; 2],
    polled: [f64; 2],
}

impl Case {
    /// Returns the report's times of ping-pong and computation, in seconds.
    pub(crate) fn published(&self, wait: WaitPolicy, nice: i32) -> Option<[f64; 2]> {
        match (wait, nice) {
            (WaitPolicy::Block, 0) => Some(self.slept),
            (WaitPolicy::Block, -20) => Some(self.raised),
            (WaitPolicy::Block, 19) => Some(self.lowered),
            (WaitPolicy::Spin, 0) => Some(self.polled),
            _ => None,
        }
    }
}

/// The report's computation alone, seconds.
pub(crate) const BURN_S: f64 = 63.1;

pub(crate) const CASES: [Case; 4] = [
    Case {
        name: "1x1m",
        messages: 1,
        bytes: 1 << 20,
        alone: 2.4,
        slept: [2.4, 63.2],
        raised: [60.0, 63.3],
        lowered: [2.4, 63.3],
        polled: [2.6, 63.3],
    },
    Case {
        name: "1x64m",
        messages: 1,
        bytes: 64 << 20,
        alone: 8.0,
        slept: [8.9, 64.1],
        raised: [69.0, 63.7],
        lowered: [8.0, 64.2],
        polled: [8.7, 65.5],
    },
    MANY,
    FEW,
];

/// Many short messages.
pub(crate) const MANY: Case = Case {
    name: "6400x1m",
    messages: 6_400,
    bytes: 1 << 20,
    alone: 41.7,
    slept: [42.0, 63.3],
    raised: [102.0, 63.5],
    lowered: [41.5, 82.7],
    polled: [83.6, 90.5],
};

/// Few long messages with as many bytes.
pub(crate) const FEW: Case = Case {
    name: "100x64m",
    messages: 100,
    bytes: 64 << 20,
    alone: 46.5,
    slept: [47.0, 64.1],
    raised: [107.0, 63.7],
    lowered: [46.6, 64.6],
    polled: [51.8, 80.3],
};

/// A row, with each of its runs.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) provider: Provider,
    pub(crate) wait: Wait,
    pub(crate) nice: i32,
    pub(crate) case: Case,
    /// Number of messages here.
    pub(crate) messages: u64,
    pub(crate) buffers: Buffers,
    pub(crate) runs: Vec<Run>,
    /// Further runs of a judged row.
    pub(crate) units: Vec<Unit>,
}

choices! {
    /// Verdict about the computation that runs with the messages.
    pub(crate) enum NextDoor {
        /// It met both bars.
        Kept = "kept",
        /// It lost more than a bar allows.
        Lost = "lost",
        /// The confidence interval contains a bar.
        NotResolvable = "not resolvable",
    }
}

impl Row {
    /// Adds a run.
    ///
    /// # Errors
    /// If the programs started too far apart for a comparison, as the report demands. A computation of another nice value holds up
    /// the start of a ping-pong on its CPU, so only programs of equal priority have to start together.
    pub(crate) fn add(&mut self, run: Run) -> anyhow::Result<()> {
        let skew = seconds(run.skew_ns);
        let is_void = self.nice == 0 && skew > TOGETHER;
        anyhow::ensure!(
            !is_void,
            "the run is void: its programs started {skew:.3} s apart, more than {TOGETHER} s"
        );
        self.runs.push(run);
        Ok(())
    }

    /// Returns whether the report's conclusion is judged by this row: two programs of equal priority, long communication, and no thread
    /// that polls or pages.
    pub(crate) fn is_judged(&self) -> bool {
        let is_quiet = self.wait.0 != WaitPolicy::Spin && self.buffers == Buffers::Prefaulted;
        is_quiet && self.nice == 0 && self.case.messages > 1
    }

    /// Returns whether further units would not change the verdict about the computation.
    pub(crate) fn is_settled(&self) -> bool {
        self.units.len() >= FEWEST && self.next_door() != Some(NextDoor::NotResolvable)
    }

    pub(crate) fn median(&self, of: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(of).collect())
    }

    /// Returns the difference between the extremes of all runs.
    fn spread(&self, of: impl Fn(&Run) -> f64) -> f64 {
        let values = || self.runs.iter().map(&of);
        values().fold(f64::NEG_INFINITY, f64::max) - values().fold(f64::INFINITY, f64::min)
    }

    /// Returns the time of the ping-pong alone, in seconds.
    pub(crate) fn ping_alone(&self) -> f64 {
        self.median(|run| seconds(run.ping_alone.wall_ns))
    }

    /// Returns the time of the ping-pong with the computation, in seconds.
    pub(crate) fn ping(&self) -> f64 {
        self.median(|run| seconds(run.ping.wall_ns))
    }

    /// Returns the delay of the ping-pong by the computation, in seconds, run by run.
    pub(crate) fn ping_delay(&self) -> f64 {
        self.median(|run| seconds(run.ping.wall_ns) - seconds(run.ping_alone.wall_ns))
    }

    /// Returns the variation of the ping-pong's time alone, as a share of it.
    pub(crate) fn ping_variation(&self) -> f64 {
        self.spread(|run| seconds(run.ping_alone.wall_ns)) / self.ping_alone()
    }

    /// Returns the time of the computation alone, until both CPUs have finished, in seconds.
    pub(crate) fn burn_alone(&self) -> f64 {
        self.median(|run| slower(&run.burn_alone))
    }

    /// Returns the time of the computation with the messages, in seconds.
    pub(crate) fn burn(&self) -> f64 {
        self.median(|run| slower(&run.burn))
    }

    /// Returns the delay of the computation by the messages, in seconds, run by run.
    pub(crate) fn burn_delay(&self) -> f64 {
        self.median(|run| slower(&run.burn) - slower(&run.burn_alone))
    }

    /// Returns the time until ping-pong and computation have finished, in seconds.
    pub(crate) fn makespan(&self) -> f64 {
        self.median(|run| slower(&run.burn).max(seconds(run.ping.wall_ns)))
    }

    /// Returns the computations without and with messages: those of the units, or of the runs if there are no units.
    fn compared(&self) -> Vec<Unit> {
        let of_run = |run: &Run| Unit { alone: run.burn_alone, together: run.burn };
        if self.units.is_empty() { self.runs.iter().map(of_run).collect() } else { self.units.clone() }
    }

    /// Returns the interval of a value of each CPU.
    fn on_cpus(&self, of: impl Fn(Ran, Ran) -> f64) -> [Interval; 2] {
        let compared = self.compared();
        [0, 1].map(|cpu| {
            let values = compared.iter().map(|unit| of(unit.alone[cpu], unit.together[cpu]));
            Interval::of(&values.collect::<Vec<_>>())
        })
    }

    /// Returns the work per second of CPU time as a share of that alone, on the CPU where it is least.
    pub(crate) fn work(&self) -> Interval {
        let [one, other] = self.on_cpus(|alone, together| seconds(alone.cpu_ns) / seconds(together.cpu_ns));
        if one.mean < other.mean { one } else { other }
    }

    /// Returns the part of the computation's time that is explained neither by the computation alone nor by communicating threads, on the
    /// CPU where it is largest.
    pub(crate) fn unexplained(&self) -> Interval {
        let [one, other] = self.on_cpus(|alone, together| {
            let explained = seconds(alone.wall_ns) + seconds(together.other_ns);
            (seconds(together.wall_ns) - explained) / seconds(alone.wall_ns)
        });
        if one.mean > other.mean { one } else { other }
    }

    /// Returns the A/A: the largest difference of the computation alone between even and odd runs, in wall time and in CPU time.
    pub(crate) fn a_to_a(&self) -> f64 {
        let half = |cpu: usize, first: usize, of: fn(&Ran) -> u64| {
            let runs = self.runs.iter().skip(first).step_by(2);
            median(runs.map(|run| seconds(of(&run.burn_alone[cpu]))).collect())
        };
        let differs = |cpu, of| (half(cpu, 0, of) / half(cpu, 1, of) - 1.0).abs();
        let of: [fn(&Ran) -> u64; 2] = [|ran| ran.wall_ns, |ran| ran.cpu_ns];
        [0, 1].into_iter().flat_map(|cpu| of.map(|of| differs(cpu, of))).fold(0.0, f64::max)
    }

    /// Returns the verdict about the computation; `None` if this row is not judged.
    pub(crate) fn next_door(&self) -> Option<NextDoor> {
        let (work, unexplained) = (self.work().side_of(WORK), self.unexplained().side_of(UNEXPLAINED));
        let verdict = match (work, unexplained) {
            (Some(Ordering::Less), _) | (_, Some(Ordering::Greater)) => NextDoor::Lost,
            (Some(_), Some(_)) => NextDoor::Kept,
            _ => NextDoor::NotResolvable,
        };
        self.is_judged().then_some(verdict)
    }

    /// Returns the longest time between the starts of the first and the last of the four processes, in seconds.
    pub(crate) fn skew(&self) -> f64 {
        self.runs.iter().map(|run| seconds(run.skew_ns)).fold(0.0, f64::max)
    }

    pub(crate) fn fields(&self) -> Fields {
        let published = self.case.published(self.wait.0, self.nice);
        let of_report = |part: usize| published.map(|both| both[part]);
        let others = |run: &Run| seconds(run.burn[0].other_ns) + seconds(run.burn[1].other_ns);
        Fields::default()
            .with("provider", self.provider.name())
            .with("wait", self.wait.name())
            .with("nice", self.nice)
            .with("dping", self.case.name)
            .with("buffers", self.buffers.name())
            .with("messages", self.messages)
            .with("runs", self.runs.len())
            .with("dping_alone_s", decimals(self.ping_alone(), 4))
            .with("dping_s", decimals(self.ping(), 4))
            .with("dping_diff_s", decimals(self.ping_delay(), 4))
            .with("dping_spread_s", decimals(self.spread(|run| seconds(run.ping.wall_ns)), 4))
            .with("burn_alone_s", decimals(self.burn_alone(), 4))
            .with("burn_s", decimals(self.burn(), 4))
            .with("burn_diff_s", decimals(self.burn_delay(), 4))
            .with("burn_spread_s", decimals(self.spread(|run| slower(&run.burn)), 4))
            .with("dping_cpu_s", decimals(self.median(others), 4))
            .with("units", self.units.len())
            .with("work_per_cpu", decimals(self.work().mean, 4))
            .with("work_error", decimals(self.work().error, 4))
            .with("unexplained", decimals(self.unexplained().mean, 4))
            .with("unexplained_error", decimals(self.unexplained().error, 4))
            .with("aa", decimals(self.a_to_a(), 4))
            .with("start_skew_s", decimals(self.skew(), 4))
            .with("next_door", self.next_door().map(NextDoor::name))
            .with("paper_dping_alone_s", decimals(self.case.alone, 1))
            .with("paper_dping_s", of_report(0))
            .with("paper_burn_s", of_report(1))
    }
}

fn slower(both: &[Ran; 2]) -> f64 {
    seconds(both[0].wall_ns.max(both[1].wall_ns))
}

fn seconds(ns: u64) -> f64 {
    crate::sample::approximate(ns) / 1e9
}

/// The report's longest time between the starts of the programs, in seconds.
const TOGETHER: f64 = 0.5;
/// Fewest units of a judged row.
const FEWEST: usize = 10;
/// The bar: work per second of CPU time, as a share of that alone. Chosen by us; no source.
pub(crate) const WORK: f64 = 0.99;
/// The bar: unexplained time, as a share. Chosen by us; no source.
pub(crate) const UNEXPLAINED: f64 = 0.01;

#[cfg(test)]
pub(crate) mod tests;
