//! `expedite-late`: the share of pings that are a millisecond late, from enough pings to see rare ones; on one CPU, where virtual time
//! has no quantum.
//!
//! Two CPUs take turns under virtual time, and a turn can last for a millisecond or two: that looks like a late ping
//! (docs/measuring.md). Here the sender shares the handler's CPU. It is real-time above every handler, so it is never
//! late itself, and it sleeps immediately for the reply.

use core::time::Duration;

use super::pings::{ENOUGH, RARE, SLEEPERS};
use super::trial::{Traffic, Trial, p90_ratio};
use super::{IN_THE_LAB, SETTING, described, lab};
use crate::claim::Claim;
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
    lab: |params| Ok(Some(Lab { cpus: 1, ..lab(params.quick) })),
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
    let machine = Machine::with_one_cpu()?;
    let settings = Setting::kept(run.params, "setting");
    let works = TRANSPORTS
        .iter()
        .filter(|bars| run.params.keeps("transport", bars.transport.name()))
        .flat_map(|bars| settings.iter().map(|setting| Work::one(bars.transport, *setting)));
    let trials = Trial::start_all(works, &mut report)?;
    let (with_hogs, with_sleepers) = if run.params.quick { QUICK } else { FULL };
    let mut bench = Bench { machine, trials };

    let mut loads = Load::start_all(Kind::Compute, HOGS, 0)?;
    report.rows = bench.rows(run, "hogs", &mut loads, with_hogs)?;
    report.claims.extend(bench.claims(|bars, trials| hogs_claims(bars, trials, run.rounds)));

    loads.truncate(1);
    let sleepers = bench.sleepers(run, &mut loads, &mut report)?;
    report.rows.extend(bench.rows(run, "sleepers", &mut loads, with_sleepers)?);
    report.claims.extend(bench.claims(|bars, trials| vec![rare(bars, trials, sleepers)]));
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
        let machine = &self.machine;
        run.in_turns(&mut self.trials, label, |trial, _| trial.round(machine, loads, traffic))?;
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

fn hogs_claims(bars: &Bars, [off, module, fifo]: [&Trial; 3], rounds: u32) -> Vec<Claim> {
    let text =
        |what: String| format!("{}, {HOGS} computing processes: flagged, {what}", bars.transport.name());
    let least = bars.least_to_off;
    let to_fifo = format!("p90 is at most {MOST_TO_FIFO} of always-FIFO's (median of {rounds} rounds)");
    let to_off = format!("p90 is at least {least} times better than without (median of {rounds} rounds)");
    let tail = format!(
        "p99 is at most {MOST_TAIL} of always-FIFO's: {:.0} us and {:.0} us, {:.0} us without",
        module.p99(),
        fifo.p99(),
        off.p99()
    );
    vec![
        Claim::at_most(bars.claims[0], text(to_fifo), MOST_TO_FIFO, p90_ratio(module, fifo), 2),
        Claim::at_least(bars.claims[1], text(to_off), least, p90_ratio(off, module), 1),
        Claim::at_most(bars.claims[2], text(tail), MOST_TAIL, module.p99() / fifo.p99(), 2),
    ]
}

fn rare(bars: &Bars, [off, module, fifo]: [&Trial; 3], sleepers: usize) -> Claim {
    let [off, late, fifo] = [off, module, fifo].map(|trial| trial.late(|_| true));
    let why = if off < ENOUGH { "; fewer than 5 % are late without, so this says little" } else { "" };
    let text = format!(
        "{}: with Expedite none of {} pings are late with {sleepers} sleepers ({:.1} % are late without it): at most always-FIFO's share ({fifo:.4}) plus 3 in 10,000{why}",
        bars.transport.name(),
        module.pings(|_| true).operations(),
        100.0 * off
    );
    Claim::new(bars.claims[3], text, decimals(late, 4), off >= ENOUGH && late <= fifo + RARE)
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
}
