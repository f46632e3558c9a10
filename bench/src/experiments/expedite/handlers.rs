//! `expedite-handler`: our own sleeping handler over each transport, with computing processes in the background.

use core::time::Duration;

use super::conditions::Conditions;
use super::trial::{Traffic, Trial, in_turns, p90_ratio};
use super::{IN_THE_LAB, PLACE, PREEMPT, SETTING, described};
use crate::claim::Claim;
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::{Experiment, Run};
use crate::floor;
use crate::lab::Lab;
use crate::params::{Axis, Choice as _, Params, numbers};
use crate::placement::{Cpu, CpuPair};
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, approximate};

const TRANSPORTS: [Transport; 3] = [Transport::Shm, Transport::Unix, Transport::Tcp];

numbers!(
    /// Numbers of computing processes.
    HOGS: usize, HOG_NAMES = 2, 6, 20
);

/// Number of computing processes in a quick run.
const QUICK_HOGS: usize = 6;

const INTERVAL: Duration = Duration::from_millis(5);
/// Measuring time of each of the two wake-ups.
const FLOOR: Duration = Duration::from_millis(20);

/// A transport, its smallest improvement over no boost, and the ids of its claims.
type Bar = (Transport, f64, [&'static str; 2]);

/// Our own bounds: the largest ratio of the module to always-FIFO, and the smallest improvement over no boost.
const MOST_TO_FIFO: f64 = 1.6;
const LEAST_TO_OFF: [Bar; 3] = [
    (Transport::Shm, 10.0, ["shm-fifo", "shm-off"]),
    (Transport::Unix, 15.0, ["unix-fifo", "unix-off"]),
    (Transport::Tcp, 10.0, ["tcp-fifo", "tcp-off"]),
];

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "expedite-handler",
    question: "Is a flagged handler as quick as a real-time one?",
    takes: [16200, 400],
    about: "time that a message waits for a sleeping handler while other processes compute, by boost of the handler",
    axes: &[
        Axis::new("transport", "Only handlers that wait on this", &["shm", "unix", "tcp"]),
        SETTING,
        PREEMPT,
        PLACE,
        Axis::new("hogs", "Only these numbers of computing processes", &HOG_NAMES),
    ],
    lab,
    claims: &["shm-fifo", "shm-off", "unix-fifo", "unix-off", "tcp-fifo", "tcp-off"],
    run,
    ..IN_THE_LAB
};

fn lab(params: &Params) -> anyhow::Result<Option<Lab>> {
    anyhow::ensure!(
        !cells(params).is_empty(),
        "--quick measures only {QUICK_HOGS} hogs: omit --quick for the others"
    );
    let lab = super::lab_with_scx(params.quick);
    Ok(Some(Lab { limit: 2 * lab.limit, ..lab }))
}

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let mut report = Report::default();
    report.note("skipped: verbs: the handler's and the sender's node run in one network namespace here");
    let [futex, eventfd] = wake_ups()?;
    let mut machine = Machine::prepare()?;
    let settings = machine.settings(params, Setting::ALL, &mut report)?;
    let works = params
        .kept("transport", TRANSPORTS, |transport| transport.name())
        .into_iter()
        .flat_map(|transport| settings.iter().map(move |setting| Work::one(transport, *setting)));
    let mut trials = Trial::start_all(works, &mut report)?;
    let traffic = Traffic { count: if params.quick { 40 } else { 400 }, interval: INTERVAL };
    let cells = cells(params);
    let is_measured =
        |trial: &Trial, conditions: Conditions| !params.quick || conditions.compares(trial.work.setting);
    let count = |(conditions, _): &(Conditions, usize)| {
        trials.iter().filter(|trial| is_measured(trial, *conditions)).count()
    };
    run.begin(cells.iter().map(count).sum());
    let mut loads = Vec::new();
    for (conditions, hogs) in cells {
        conditions.apply(&mut machine)?;
        loads.truncate(hogs);
        loads.extend(Load::start_all(Kind::Compute, hogs - loads.len(), 0)?);
        trials.iter_mut().for_each(Trial::begin);
        let label = |trial: &Trial| format!("{} {} {hogs} hogs", trial.label(), conditions.label());
        let those = trials.iter_mut().filter(|trial| is_measured(trial, conditions));
        in_turns(run, those, label, &machine, &mut loads, traffic)?;
        let those = trials.iter().filter(|trial| is_measured(trial, conditions));
        report.rows.extend(those.map(|trial| row(trial, conditions, hogs)));
        if (conditions, hogs) == (Conditions::USUAL, QUICK_HOGS) {
            report.claims.extend(bars(&trials));
        }
    }
    report.params = described(run, traffic)
        .with("futex_rtt_us", decimals(futex, 1))
        .with("eventfd_rtt_us", decimals(eventfd, 1));
    Ok(report)
}

/// Returns the selected conditions and numbers of hogs, six hogs first among those with equal conditions.
fn cells(params: &Params) -> Vec<(Conditions, usize)> {
    let mut hogs = params.kept("hogs", HOGS, usize::to_string);
    hogs.retain(|hogs| !params.quick || *hogs == QUICK_HOGS);
    hogs.sort_by_key(|hogs| *hogs != QUICK_HOGS);
    let all = Conditions::kept(params).into_iter();
    all.flat_map(|conditions| hogs.iter().map(move |hogs| (conditions, *hogs))).collect()
}

/// Returns the round-trip time of two threads that wake each other, by a futex and by an eventfd, in microseconds: the price of
/// sleeping on a descriptor for a thread that requests a boost.
fn wake_ups() -> anyhow::Result<[f64; 2]> {
    let cpus = CpuPair { caller: Cpu(1), server: Cpu(0) };
    let mut both = [Recorder::new(), Recorder::new()];
    let [futex, eventfd] = &mut both;
    floor::futex(cpus, FLOOR, futex)?;
    floor::eventfd(cpus, FLOOR, eventfd)?;
    Ok(both.map(|recorder| approximate(recorder.sample().p50_ns) / 1e3))
}

fn row(trial: &Trial, conditions: Conditions, hogs: usize) -> Fields {
    let row = Fields::default()
        .with("transport", trial.work.transport.name())
        .with("setting", trial.work.setting.name());
    trial.counted(trial.columns(conditions.columns(row).with("hogs", hogs), |_| true))
}

/// Evaluates the bounds that we set ourselves.
fn bars(trials: &[Trial]) -> Vec<Claim> {
    LEAST_TO_OFF
        .iter()
        .flat_map(|bar| {
            let of = |setting| {
                let mut those = trials.iter().filter(|trial| trial.work.transport == bar.0);
                those.find(|trial| trial.work.setting == setting)
            };
            let Some(flagged) = of(Setting::Module) else { return Vec::new() };
            let to_fifo = of(Setting::Fifo).map(|fifo| p90_ratio(flagged, fifo));
            judged(bar, to_fifo, of(Setting::Off).map(|off| p90_ratio(off, flagged)))
        })
        .collect()
}

/// Judges the median ratios of p90 by rounds: to always-FIFO, and from no boost.
fn judged((_, least, [id_fifo, id_off]): &Bar, to_fifo: Option<f64>, to_off: Option<f64>) -> Vec<Claim> {
    let detail = "six computing processes; median of the rounds";
    let to_fifo = to_fifo.map(|ratio| Claim::at_most(id_fifo, detail, MOST_TO_FIFO, ratio, 2));
    let to_off = to_off.map(|ratio| Claim::at_least(id_off, detail, *least, ratio, 1));
    to_fifo.into_iter().chain(to_off).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_six_hogs() {
        let mut params = Params::new();
        assert_eq!(cells(&params).len(), 9);
        assert_eq!(cells(&params)[0], (Conditions::USUAL, 6));
        params.quick = true;
        let cells_of_quick = cells(&params);
        assert!(cells_of_quick.len() == 3 && cells_of_quick.iter().all(|(_, hogs)| *hogs == 6));
        params.choose("hogs", vec!["20".into()]);
        assert!(cells(&params).is_empty());
    }

    #[test]
    fn each_bar_can_be_missed() {
        let ids = |claims: Vec<Claim>, holding| {
            let those = claims.into_iter().filter(|claim| claim.holds() == holding);
            those.map(|claim| claim.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(judged(&LEAST_TO_OFF[0], Some(1.2), Some(40.0)), true), ["shm-fifo", "shm-off"]);
        assert_eq!(ids(judged(&LEAST_TO_OFF[0], Some(2.0), Some(5.0)), false), ["shm-fifo", "shm-off"]);
        assert!(judged(&LEAST_TO_OFF[0], None, None).is_empty());
    }

    #[test]
    fn the_lab_has_the_module() {
        let lab = (EXPERIMENT.lab)(&Params::new()).unwrap().unwrap();
        assert_eq!((lab.cpus, lab.virtual_time, lab.module), (2, true, Some("kernel/expedite")));
    }
}
