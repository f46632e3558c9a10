//! `expedite-late`: the share of pings that are a millisecond late, from enough pings to see rare ones; on one CPU, where virtual time
//! has no quantum.
//!
//! Two CPUs take turns under virtual time, and a turn can last for a millisecond or two: that looks like a late ping
//! (docs/measuring.md). Here the sender shares the handler's CPU. It is real-time above every handler, so it is never
//! late itself, and it sleeps immediately for the reply.

use core::time::Duration;

use super::pings::{ENOUGH, RARE, SLEEPERS};
use super::trial::{Seen, Traffic, Trial, in_turns, p90_ratio};
use super::{IN_THE_LAB, SETTING, described, lab_with_scx};
use crate::claim::{Claim, Verdict};
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::{Experiment, Run};
use crate::lab::Lab;
use crate::params::{Axis, Choice as _};
use crate::report::{Fields, Report, decimals};

/// Channels that handlers wait on: bare, so that only the kernel is between sender and handler.
const TRANSPORTS: [Bars; 2] = [
    Bars {
        transport: Transport::Unix,
        least_to_off: 15.0,
        claims: ["unix-one-fifo", "unix-one-off", "unix-one-p99", "unix-rare"],
    },
    Bars {
        transport: Transport::BareTcp,
        least_to_off: 10.0,
        claims: ["tcp-one-fifo", "tcp-one-off", "tcp-one-p99", "X25-rare"],
    },
];

/// Number of computing processes in the rows `hogs`.
const HOGS: usize = 6;

/// Our own bounds: the most that p90 and p99 with the module may be of always-FIFO's.
const MOST_TO_FIFO: f64 = 1.6;
const MOST_TAIL: f64 = 1.3;

const INTERVAL: Duration = Duration::from_millis(5);

/// Pings without a boost that show whether there are enough sleepers.
const PROBE: Traffic = Traffic { count: 200, interval: INTERVAL };

/// Messages of each round with computing processes, and with sleepers.
const FULL: (u32, u32) = (400, 2_000);
const QUICK: (u32, u32) = (40, 40);

/// Bars of a transport.
struct Bars {
    transport: Transport,
    /// Least factor by which p90 must be better than without a boost.
    least_to_off: f64,
    claims: [&'static str; 4],
}

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "expedite-late",
    question: "How rare are late pings with the flag, on one CPU?",
    takes: [10800, 180],
    figure: Some("Fig. 2"),
    about: "handlers on one CPU, where virtual time has no quantum: p90 and p99 while processes compute, late pings of 10,000 with sleep-mostly processes",
    axes: &[Axis::new("transport", "Only handlers that wait on this", &["unix", "tcp-bare"]), SETTING],
    lab: |params| Ok(Some(Lab { cpus: 1, ..lab_with_scx(params.quick) })),
    claims: &[
        "unix-one-fifo",
        "unix-one-off",
        "unix-one-p99",
        "unix-rare",
        "tcp-one-fifo",
        "tcp-one-off",
        "tcp-one-p99",
        "X25-rare",
    ],
    run,
    ..IN_THE_LAB
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let mut machine = Machine::with_one_cpu()?;
    let settings = machine.settings(run.params, Setting::ALL, &mut report)?;
    let works = TRANSPORTS
        .iter()
        .filter(|bars| run.params.keeps("transport", bars.transport.name()))
        .flat_map(|bars| settings.iter().map(|setting| Work::one(bars.transport, *setting)));
    let trials = Trial::start_all(works, &mut report)?;
    let (with_hogs, with_sleepers) = if run.params.quick { QUICK } else { FULL };
    let mut bench = Bench { machine, trials };

    let mut loads = Load::start_all(Kind::Compute, HOGS, 0)?;
    report.rows = bench.rows(run, "hogs", &mut loads, with_hogs)?;
    report.claims.extend(bench.claims(|bars, trials @ [off, module, fifo]| {
        let (to_fifo, to_off) = (p90_ratio(module, fifo), p90_ratio(off, module));
        hogs_claims(bars, trials.map(Trial::seen).each_ref(), to_fifo, to_off)
    }));

    loads.truncate(1);
    let sleepers = bench.sleepers(run, &mut loads, &mut report)?;
    report.rows.extend(bench.rows(run, "sleepers", &mut loads, with_sleepers)?);
    report
        .claims
        .extend(bench.claims(|bars, trials| vec![rare(bars, trials.map(Trial::seen).each_ref(), sleepers)]));
    report.params = described(run, Traffic { count: with_sleepers, interval: INTERVAL })
        .with("messages_beside_hogs", with_hogs * run.rounds)
        .with("hogs", HOGS)
        .with("sleepers", sleepers);
    Ok(report)
}

/// The machine and its handlers.
struct Bench {
    machine: Machine,
    trials: Vec<Trial>,
}

impl Bench {
    /// Measures all trials in turns with this background.
    fn rows(
        &mut self,
        run: &mut Run<'_>,
        background: &str,
        loads: &mut [Load],
        count: u32,
    ) -> anyhow::Result<Vec<Fields>> {
        let traffic = Traffic { count, interval: INTERVAL };
        run.begin(self.trials.len());
        self.trials.iter_mut().for_each(Trial::begin);
        let label = |trial: &Trial| format!("{} with {background}", trial.label());
        in_turns(run, &mut self.trials, label, &self.machine, loads, traffic)?;
        Ok(self.trials.iter().map(|trial| row(trial, background)).collect())
    }

    /// Starts processes that mostly sleep until enough pings are late without a boost. Returns their number.
    fn sleepers(
        &self,
        run: &mut Run<'_>,
        loads: &mut Vec<Load>,
        report: &mut Report,
    ) -> anyhow::Result<usize> {
        let mut probe = Trial::start_all([Work::one(Transport::BareTcp, Setting::Off)], report)?;
        run.progress.begin(SLEEPERS.len() as u64);
        for sleepers in SLEEPERS {
            run.progress.step(&format!("searching for late pings with {sleepers} sleepers"));
            loads.extend(Load::start_all(Kind::Sleep, sleepers + 1 - loads.len(), 0)?);
            for trial in &mut probe {
                trial.begin();
                trial.round(&self.machine, loads, PROBE)?;
                if trial.late(|_| true) >= ENOUGH {
                    return Ok(sleepers);
                }
            }
        }
        Ok(loads.len() - 1)
    }

    /// Evaluates the claims about each transport, from its trials without a boost, flagged and always FIFO.
    fn claims(&self, claims: impl Fn(&Bars, [&Trial; 3]) -> Vec<Claim>) -> Vec<Claim> {
        let of = |bars: &Bars| {
            let those = || self.trials.iter().filter(|trial| trial.work.transport == bars.transport);
            let with = |setting| those().find(|trial| trial.work.setting == setting);
            Some(claims(bars, [with(Setting::Off)?, with(Setting::Module)?, with(Setting::Fifo)?]))
        };
        TRANSPORTS.iter().filter_map(of).flatten().collect()
    }
}

fn row(trial: &Trial, background: &str) -> Fields {
    let row = Fields::default()
        .with("transport", trial.work.transport.name())
        .with("background", background)
        .with("setting", trial.work.setting.name());
    trial.counted(trial.columns(row, |_| true).with("late_pings", trial.late_count()))
}

/// Judges the results next to computing processes, in which the median ratio of p90 by rounds is `to_fifo` to always-FIFO, and `to_off`
/// from no boost.
fn hogs_claims(bars: &Bars, [off, module, fifo]: [&Seen; 3], to_fifo: f64, to_off: f64) -> Vec<Claim> {
    let tail = format!("{:.0} us and {:.0} us; {:.0} us without", module.p99_us, fifo.p99_us, off.p99_us);
    let [id_fifo, id_off, id_tail, _] = bars.claims;
    vec![
        Claim::at_most(id_fifo, "median of the rounds", MOST_TO_FIFO, to_fifo, 2),
        Claim::at_least(id_off, "median of the rounds", bars.least_to_off, to_off, 1),
        Claim::at_most(id_tail, tail, MOST_TAIL, module.p99_us / fifo.p99_us, 2),
    ]
}

fn rare(bars: &Bars, [off, module, fifo]: [&Seen; 3], sleepers: usize) -> Claim {
    let bar = fifo.late + RARE;
    let (verdict, why) = if off.late >= ENOUGH {
        (Verdict::from(module.late <= bar), "")
    } else {
        (Verdict::NotResolvable, ", too few to show an effect")
    };
    let detail = format!(
        "{} pings with {sleepers} sleepers; always-FIFO has {:.4}; {:.1} % are late without{why}",
        module.pings,
        fifo.late,
        100.0 * off.late
    );
    Claim::new(bars.claims[3], detail, decimals(module.late, 4), verdict).bar(decimals(bar, 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;

    #[test]
    fn the_lab_has_one_cpu() {
        let lab = (EXPERIMENT.lab)(&Params::new()).unwrap().unwrap();
        assert_eq!((lab.cpus, lab.virtual_time, lab.module), (1, true, Some("kernel/expedite")));
    }

    #[test]
    fn each_bar_can_be_missed() {
        let [off, module, fifo] = [Setting::Off, Setting::Module, Setting::Fifo].map(Seen::nothing);
        let fifo = Seen { p99_us: 50.0, ..fifo };
        let judged = |p99_us, to_fifo, to_off| {
            let claims =
                hogs_claims(&TRANSPORTS[1], [&off, &Seen { p99_us, ..module }, &fifo], to_fifo, to_off);
            claims.into_iter().filter(|claim| !claim.holds()).map(|claim| claim.id).collect::<Vec<_>>()
        };
        assert!(judged(60.0, 1.1, 40.0).is_empty());
        assert_eq!(judged(90.0, 1.1, 40.0), ["tcp-one-p99"]);
        assert_eq!(judged(60.0, 2.0, 5.0), ["tcp-one-fifo", "tcp-one-off"]);
    }

    #[test]
    fn rare_late_pings_are_judged_if_there_are_late_ones_without_a_boost() {
        let [off, module, fifo] = [Setting::Off, Setting::Module, Setting::Fifo].map(Seen::nothing);
        let judged = |before, late| {
            let seen = [&Seen { late: before, ..off }, &Seen { late, ..module }, &fifo];
            rare(&TRANSPORTS[1], seen, 8).verdict
        };
        assert_eq!(judged(0.1, 0.0), Verdict::Holds);
        assert_eq!(judged(0.1, 0.001), Verdict::DoesNotHold);
        assert_eq!(judged(0.01, 0.0), Verdict::NotResolvable);
    }
}
