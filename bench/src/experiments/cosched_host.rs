//! `cosched-host` and `cosched-lab`: real IS and MG on two nodes of this host, or on four of the lab, with local tasks, under the policies
//! of the coscheduler.
//!
//! Each node has a CPU and a network namespace. The link has the paper's rate. All policies take turns within each round, so that a noisy
//! minute affects them alike. Static weights show what a share of the CPU does without prediction: from them the time is interpolated that
//! a job would take with the share that a policy gave it.

use core::cmp::Ordering;

use anyhow::{Context as _, ensure};
use nix::unistd::geteuid;
use pronto_coschedule::settings::{Policy, Settings};
use pronto_coschedule::status::Status;
use pronto_sched_policy::policy::weight::Weight;

use crate::claim::{Claim, Verdict};
use crate::cosched::bed::{RATE, TestBed};
use crate::cosched::job::{Job, Library, Programs};
use crate::cosched::local::{LocalTask, Work};
use crate::cosched::nodes::{Coscheduled, PERIOD, Rules};
use crate::cosched::rank::{App, Class, Ran};
use crate::cosched::turns;
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::interval::{self, Interval};
use crate::lab::Lab;
use crate::params::{Axis, Choice as _, choices, numbers};
use crate::placement::Cpu;
use crate::report::{Fields, Report, decimals};
use crate::sample::approximate;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "cosched-host",
    question: "Does coscheduling shorten real parallel jobs, beyond what their share of the CPU does?",
    takes: [3_600, 60],
    paper: Some("coscheduling"),
    figure: Some("fig. 2, fig. 4"),
    about: "IS and MG on two nodes of this host with local tasks: time under each policy, compared with no policy and with static weights",
    axes: &[
        Axis::new("library", "Only jobs over these libraries", Library::NAMES),
        Axis::new("app", "Only these jobs", App::NAMES),
        Axis::new("class", "Only jobs of this size", Class::NAMES),
        Axis::new("tasks", "Only with this number of local tasks on each node", &TASK_NAMES),
        Axis::new("policy", "Only these policies", Scheme::NAMES),
    ],
    examples: &[
        ("--library pronto --app is --tasks 3", "one cell of the paper's figure 2"),
        ("--library mpi,mpi-polling", "unmodified programs over Open MPI"),
    ],
    cpus: Cpus::Two,
    rounds: [Rounds::new(10, 0), Rounds::new(3, 0)],
    without_aa: Some("the policy linux-again is the same as linux, and its ratio shows the noise"),
    claims: &["S19-host", "S24-host", "S19-share", "S14-host"],
    run,
    ..Experiment::DEFAULT
};

/// `cosched-lab`: four nodes in a machine whose clock counts instructions, so that other load of this host does not matter.
pub(crate) const IN_LAB: Experiment = Experiment {
    name: "cosched-lab",
    question: "Does coscheduling shorten real parallel jobs on four nodes?",
    takes: [7_200, 1_200],
    about: "IS and MG on four nodes of a machine of the lab with local tasks: time under each policy, compared with no policy and with static weights",
    axes: &[
        Axis::new("app", "Only these jobs", App::NAMES),
        Axis::new("class", "Only jobs of this size", Class::NAMES),
        Axis::new("tasks", "Only with this number of local tasks on each node", &TASK_NAMES),
        Axis::new("policy", "Only these policies", Scheme::NAMES),
    ],
    examples: &[("--app is --tasks 3", "one cell of the paper's figure 2")],
    claims: &[],
    lab: |params| {
        let limit = if params.quick { 3_600 } else { 6 * 3_600 };
        Ok(Some(Lab { cpus: 4, virtual_time: true, verbs: false, module: None, bpf: None, limit }))
    },
    run: run_in_lab,
    ..EXPERIMENT
};

/// The paper's delay of a message (section 4), as tc(8) writes it.
const DELAY: &str = "100us";

numbers! {
    /// Local tasks on each node.
    TASKS: usize, TASK_NAMES = 0, 3, 5
}

choices! {
    /// A policy, or a static weight.
    enum Scheme {
        /// None, LINUX of the paper.
        Linux = "linux",
        /// Again, to show the noise.
        LinuxAgain = "linux-again",
        /// DYN of the paper.
        Dynamic = "dyn",
        /// PRED of the paper.
        Predictive = "pred",
        /// Ours: PRED with pressure carried between nodes.
        Carried = "carried",
        /// A weight of 1.25.
        Low = "static-125",
        /// A weight of 2.
        Middle = "static-200",
        /// A weight of 4, the largest that the policies give.
        High = "static-400",
    }
}

impl Scheme {
    /// Returns the rules; `None` without a coscheduler.
    const fn rules(self) -> Option<Rules> {
        let (policy, most) = match self {
            Self::Linux | Self::LinuxAgain => return None,
            Self::Dynamic => (Policy::Dynamic, Settings::MOST),
            Self::Predictive => (Policy::Predictive, Settings::MOST),
            Self::Carried => (Policy::Carried, Settings::MOST),
            Self::Low => (Policy::Static, Weight::hundredths(125)),
            Self::Middle => (Policy::Static, Weight::hundredths(200)),
            Self::High => (Policy::Static, Settings::MOST),
        };
        Some(Rules { policy, past: Settings::PAST, most })
    }

    /// Returns whether the weight depends on queues.
    const fn is_adaptive(self) -> bool {
        matches!(self, Self::Dynamic | Self::Predictive | Self::Carried)
    }

    /// Returns whether the weight does not depend on queues.
    const fn is_fixed(self) -> bool {
        matches!(self, Self::Linux | Self::Low | Self::Middle | Self::High)
    }
}

/// A job with a number of local tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    library: Library,
    app: App,
    tasks: usize,
}

/// A run of a job.
#[derive(Clone, Copy, Debug)]
struct Timed {
    seconds: f64,
    /// Share of the nodes' CPUs that the job got, from 0 to 1.
    share: f64,
    /// Work of the local tasks meanwhile.
    local: Work,
    samples: [u64; 3],
    /// Periods of the coschedulers, and changes of weights in them.
    periods: u64,
    changes: u64,
}

/// The runs of a cell under one policy, by round; `None` for a void one.
struct Column {
    cell: Cell,
    scheme: Scheme,
    runs: Vec<Option<Timed>>,
}

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    if !geteuid().is_root() {
        report.note("skipped: network namespaces need root");
        return Ok(report);
    }
    let bed = match TestBed::on(&[run.cpus.caller, run.cpus.server], None) {
        Ok(bed) => bed,
        Err(error) => {
            report.note(format!("skipped: no test bed: {error:#}"));
            return Ok(report);
        }
    };
    let mut libraries = Library::kept(run.params, "library");
    let mut class = Class::W;
    if run.params.quick {
        class = Class::S;
        if libraries.len() == Library::NAMES.len() {
            libraries = vec![Library::Pronto];
            report.note("a short run is over Pronto; --library names others");
        }
    }
    let columns = measure_all(run, &bed, libraries, class, &mut report)?;
    report.claims = claims(&columns);
    Ok(report)
}

fn run_in_lab(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let cpus: Vec<_> = (0..4).map(Cpu).collect();
    let bed = TestBed::on(&cpus, Some(DELAY))?;
    let (turn, slice) = (turns::length(&cpus)?, turns::slice()?);
    let micros = |time: core::time::Duration| time.as_secs_f64() * 1e6;
    report.note(format!(
        "The CPUs of the machine run in turns of {:.0} us; the scheduler's slice is {:.0} us.",
        micros(turn),
        micros(slice)
    ));
    // The lab has no MPI.
    measure_all(run, &bed, vec![Library::Pronto], Class::S, &mut report)?;
    if turn > slice / 2 {
        report.note(
            "void: a turn is longer than half of a slice, so the order of processes is that of the emulator",
        );
    }
    Ok(report)
}

/// Measures the selected cells on a test bed, and reports them. The jobs have `class` unless one is selected.
fn measure_all(
    run: &mut Run<'_>,
    bed: &TestBed,
    mut libraries: Vec<Library>,
    class: Class,
    report: &mut Report,
) -> anyhow::Result<Vec<Column>> {
    let quick = run.params.quick;
    let class = match Class::kept(run.params, "class")[..] {
        [class] => class,
        _ => class,
    };
    let tasks = run.params.kept("tasks", TASKS.into_iter().zip(TASK_NAMES), |tasks| tasks.1);
    let tasks: Vec<_> =
        tasks.into_iter().map(|(tasks, _)| tasks).filter(|tasks| !quick || *tasks == 3).collect();
    let programs = Programs::build(&libraries).unwrap_or_else(|error| {
        report.note(format!("skipped: Open MPI: {error:#}"));
        libraries.retain(|library| *library == Library::Pronto);
        Programs::default()
    });
    let apps = App::kept(run.params, "app");
    let schemes = Scheme::kept(run.params, "policy");
    let mut cells = Vec::new();
    for library in libraries {
        for app in &apps {
            // Of Open MPI one number of local tasks is enough, unless others are named.
            let tasks =
                tasks.iter().filter(|count| library == Library::Pronto || **count == 3 || tasks.len() == 1);
            cells.extend(tasks.map(|tasks| Cell { library, app: *app, tasks: *tasks }));
        }
    }
    run.progress.begin((cells.len() * schemes.len()) as u64 * u64::from(run.rounds));
    let mut columns = Vec::new();
    for cell in cells {
        columns.extend(measure(run, bed, &programs, cell, class, &schemes)?);
    }
    report.params = run
        .fields()
        .with("class", class.name())
        .with("rate", RATE)
        .with("period_ms", PERIOD.as_secs_f64() * 1e3)
        .with("past", f64::from(Settings::PAST.as_millionths()) / 1e6)
        .with("max_weight", Settings::MOST.as_hundredths())
        .with("ratio", "time divided by that of linux in the same round; with half of its 99 % interval")
        .with(
            "beyond_share",
            "time divided by that with the same share of the CPU by a static weight, interpolated",
        );
    report.rows = columns.iter().map(|column| row(column, &columns)).collect();
    Ok(columns)
}

/// Measures a cell: all policies take turns in each round, and begin with another one each time.
fn measure(
    run: &mut Run<'_>,
    bed: &TestBed,
    programs: &Programs,
    cell: Cell,
    class: Class,
    schemes: &[Scheme],
) -> anyhow::Result<Vec<Column>> {
    let mut local = Vec::new();
    for node in bed.nodes() {
        for _ in 0..cell.tasks {
            local.push(LocalTask::start(node.cpu)?);
        }
    }
    let mut columns: Vec<_> =
        schemes.iter().map(|scheme| Column { cell, scheme: *scheme, runs: Vec::new() }).collect();
    for round in 0..run.rounds as usize {
        for at in 0..columns.len() {
            let column = (round + at) % schemes.len();
            let column = &mut columns[column];
            run.progress.step(&column.name());
            let job = Job::start(bed, programs, cell.library, cell.app, class)?;
            let timed = once(bed, job, column.scheme, &mut local).context(column.name())?;
            column.runs.push(timed);
        }
    }
    Ok(columns)
}

/// Runs a job. `None` if the run is void, because pages were read from a disk, or a policy changed no weight.
fn once(bed: &TestBed, job: Job, scheme: Scheme, local: &mut [LocalTask]) -> anyhow::Result<Option<Timed>> {
    let places: Vec<_> = bed.nodes().iter().map(|node| node.cpu).zip(job.processes()).collect();
    let coscheduled = scheme.rules().map(|rules| Coscheduled::start(rules, &places)).transpose()?;
    let work = |local: &mut [LocalTask]| {
        local.iter_mut().try_fold(Work::default(), |sum, task| anyhow::Ok(sum.plus(task.work()?)))
    };
    let before = work(local)?;
    let ranks = job.run()?;
    let after = work(local)?;
    let status = coscheduled.map(Coscheduled::end).transpose()?.unwrap_or_default();
    ensure!(ranks.iter().all(|ran| ran.verified), "the job has a wrong result");
    let timed = timed(&ranks, after.since(before), &status);
    let is_void =
        ranks.iter().any(|ran| ran.major_faults > 0) || (scheme.is_adaptive() && timed.changes == 0);
    Ok((!is_void).then_some(timed))
}

fn timed(ranks: &[Ran], local: Work, status: &[Status]) -> Timed {
    let seconds = ranks.iter().map(|ran| ran.seconds).fold(0.0, f64::max);
    let cpu: f64 = ranks.iter().map(|ran| ran.cpu_seconds).sum();
    let sum = |field: fn(&Status) -> u64| status.iter().map(field).sum();
    Timed {
        seconds,
        share: cpu / (seconds * approximate(ranks.len() as u64)),
        local,
        samples: [
            sum(|status| status.samples),
            sum(|status| status.with_received),
            sum(|status| status.with_sent),
        ],
        periods: sum(|status| status.ticks),
        changes: sum(|status| status.changes),
    }
}

impl Column {
    fn name(&self) -> String {
        let Cell { library, app, tasks } = self.cell;
        let library = if library == Library::Pronto { String::new() } else { format!("{}/", library.name()) };
        format!("{library}{}/{tasks}/{}", app.name(), self.scheme.name())
    }

    fn valid(&self) -> impl Iterator<Item = &Timed> {
        self.runs.iter().flatten()
    }

    fn mean(&self, value: impl Fn(&Timed) -> f64) -> f64 {
        let values: Vec<_> = self.valid().map(value).collect();
        values.iter().sum::<f64>() / approximate(values.len() as u64)
    }

    /// Returns the ratios of a value to that of another column in the same round.
    fn ratios(&self, other: &Self, value: impl Fn(&Timed) -> f64) -> Vec<f64> {
        let pairs = self.runs.iter().zip(&other.runs);
        pairs.filter_map(|(own, other)| Some(value(own.as_ref()?) / value(other.as_ref()?))).collect()
    }
}

fn of(columns: &[Column], cell: Cell, scheme: Scheme) -> Option<&Column> {
    columns.iter().find(|column| column.cell == cell && column.scheme == scheme)
}

/// Returns the time under a policy divided by that under no policy, in each round.
fn against_linux(column: &Column, columns: &[Column]) -> Option<Interval> {
    let linux = of(columns, column.cell, Scheme::Linux)?;
    (column.scheme != Scheme::Linux).then(|| Interval::of(&column.ratios(linux, |run| run.seconds)))
}

/// Returns the time divided by that of a static weight with the same share of the CPU, in each round.
fn beyond_share(column: &Column, columns: &[Column]) -> Option<Interval> {
    if column.scheme.is_fixed() {
        return None;
    }
    let fixed: Vec<_> =
        columns.iter().filter(|other| other.cell == column.cell && other.scheme.is_fixed()).collect();
    let in_round = |round: usize| {
        let own = column.runs[round].as_ref()?;
        let points: Option<Vec<_>> = fixed
            .iter()
            .map(|other| other.runs.get(round)?.as_ref().map(|run| (run.share, run.seconds)))
            .collect();
        Some(own.seconds / interpolated(points?, own.share)?)
    };
    let ratios: Vec<_> = (0..column.runs.len()).filter_map(in_round).collect();
    (!ratios.is_empty()).then(|| Interval::of(&ratios))
}

/// Returns the time at a share of the CPU, from points of share and time: by the line of least squares through their logarithms, because
/// time is about proportional to a power of the share. `None` with fewer than two different shares.
fn interpolated(points: Vec<(f64, f64)>, share: f64) -> Option<f64> {
    let logarithms: Vec<_> = points.into_iter().map(|(share, seconds)| (share.ln(), seconds.ln())).collect();
    let count = approximate(logarithms.len() as u64);
    let mean = |value: fn(&(f64, f64)) -> f64| logarithms.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = logarithms.iter().map(|point| (point.0 - x).powi(2)).sum();
    let slope = logarithms.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
    (spread > 1e-9).then(|| (slope * (share.ln() - x) + y).exp())
}

/// Returns the work of local tasks per CPU time divided by that under no policy.
fn local_work(column: &Column, columns: &[Column]) -> Option<Interval> {
    let linux = of(columns, column.cell, Scheme::Linux)?;
    (column.cell.tasks > 0 && column.scheme != Scheme::Linux)
        .then(|| Interval::of(&column.ratios(linux, |run| run.local.rate())))
}

fn row(column: &Column, columns: &[Column]) -> Fields {
    let text = |interval: Option<Interval>| {
        interval.map(|interval| format!("{:.3} ± {:.3}", interval.mean, interval.error))
    };
    let percent = |part: usize| {
        let [samples, ..] = column
            .valid()
            .fold([0; 3], |sum: [u64; 3], run| core::array::from_fn(|at| sum[at] + run.samples[at]));
        let parts: u64 = column.valid().map(|run| run.samples[part]).sum();
        approximate(parts) * 100.0 / approximate(samples.max(1))
    };
    let void = column.runs.iter().filter(|run| run.is_none()).count();
    let changed = column.mean(|run| approximate(run.changes) * 100.0 / approximate(run.periods.max(1)));
    Fields::default()
        .with("library", column.cell.library.name())
        .with("app", column.cell.app.name())
        .with("tasks", column.cell.tasks)
        .with("policy", column.scheme.name())
        .with("seconds", decimals(column.mean(|run| run.seconds), 3))
        .with("ratio", text(against_linux(column, columns)))
        .with("share", decimals(column.mean(|run| run.share), 3))
        .with("beyond_share", text(beyond_share(column, columns)))
        .with("local_work", text(local_work(column, columns)))
        .with("received_percent", decimals(percent(1), 1))
        .with("sent_percent", decimals(percent(2), 1))
        .with("changed_percent", decimals(changed, 1))
        .with("void", void)
}

/// Smallest work of local tasks per CPU time, of that without a policy. Chosen by us; no source.
const LOCAL_WORK: f64 = 0.95;

/// Policies that are judged.
const JUDGED: [Scheme; 3] = [Scheme::Dynamic, Scheme::Predictive, Scheme::Carried];

fn claims(columns: &[Column]) -> Vec<Claim> {
    let is_loaded = |column: &&Column| column.cell.tasks >= 3;
    let loaded = |scheme: Scheme| {
        let over_pronto = |column: &&Column| column.cell.library == Library::Pronto;
        columns.iter().filter(move |column| column.scheme == scheme).filter(is_loaded).filter(over_pronto)
    };
    let listed = |values: &[(String, Interval)]| {
        let each = values
            .iter()
            .map(|(name, interval)| format!("{name} {:.3} ± {:.3}", interval.mean, interval.error));
        each.collect::<Vec<_>>().join(", ")
    };
    let judge = |id, values: Vec<(String, Interval)>| {
        let sides: Vec<_> = values.iter().map(|(_, interval)| interval.side_of(1.0)).collect();
        let verdict = interval::verdict(Ordering::Less, &sides);
        Claim::new(id, "by job, local tasks and policy", listed(&values), verdict)
    };
    let paper = [Scheme::Dynamic, Scheme::Predictive].into_iter().flat_map(loaded);
    let paper: Vec<_> =
        paper.filter_map(|column| Some((column.name(), against_linux(column, columns)?))).collect();
    let beyond = JUDGED.into_iter().flat_map(loaded);
    let beyond: Vec<_> =
        beyond.filter_map(|column| Some((column.name(), beyond_share(column, columns)?))).collect();
    let local = JUDGED.into_iter().flat_map(loaded);
    let local: Vec<_> =
        local.filter_map(|column| Some((column.name(), local_work(column, columns)?))).collect();
    let mut claims = Vec::new();
    if !paper.is_empty() {
        claims.push(judge("S19-host", paper));
    }
    if !local.is_empty() {
        let least = local.iter().map(|(_, interval)| interval.mean).fold(f64::INFINITY, f64::min);
        let verdict = Verdict::from(least >= LOCAL_WORK);
        claims.push(Claim::new("S24-host", listed(&local), decimals(least, 3), verdict).bar(LOCAL_WORK));
    }
    if !beyond.is_empty() {
        claims.push(judge("S19-share", beyond));
    }
    let over_mpi = columns
        .iter()
        .filter(is_loaded)
        .filter(|column| column.cell.library != Library::Pronto && column.scheme.is_adaptive());
    let over_mpi: Vec<_> =
        over_mpi.filter_map(|column| Some((column.name(), against_linux(column, columns)?))).collect();
    if !over_mpi.is_empty() {
        claims.push(judge("S14-host", over_mpi));
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Cell = Cell { library: Library::Pronto, app: App::Is, tasks: 3 };

    /// A column whose runs take `seconds`, with a share of the CPU and a rate of local work.
    fn column(scheme: Scheme, seconds: f64, share: f64, units: u64) -> Column {
        let run = |round: u32| {
            let noise = 1.0 + f64::from(round % 2) * 1e-3;
            let local = Work { units, cpu_ns: 1_000_000_000 };
            Some(Timed {
                seconds: seconds * noise,
                share,
                local,
                samples: [100, 10, 5],
                periods: 100,
                changes: 3,
            })
        };
        Column { cell: CELL, scheme, runs: (0..10).map(run).collect() }
    }

    /// Static weights with which the time is inversely proportional to the share.
    fn fixed() -> Vec<Column> {
        [(Scheme::Linux, 0.2), (Scheme::Low, 0.25), (Scheme::Middle, 0.4), (Scheme::High, 0.5)]
            .map(|(scheme, share)| column(scheme, 1.0 / share, share, 1_000))
            .into()
    }

    fn verdicts(mut columns: Vec<Column>) -> Vec<Verdict> {
        columns.extend(fixed());
        claims(&columns).iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn a_time_is_interpolated_between_the_static_weights() {
        let columns = fixed();
        let points: Vec<_> = columns
            .iter()
            .map(|column| (column.mean(|run| run.share), 1.0 / column.mean(|run| run.share)))
            .collect();
        assert!((interpolated(points, 0.3).unwrap() - 1.0 / 0.3).abs() < 1e-6);
        assert_eq!(interpolated(vec![(0.2, 5.0), (0.2, 5.1)], 0.3), None);
    }

    #[test]
    fn the_statements_can_fail() {
        let holds = Verdict::Holds;
        // Shorter than without a policy, and than with the same share by a static weight; local tasks are not disturbed.
        let better = |scheme| column(scheme, 0.9 / 0.3, 0.3, 1_000);
        assert_eq!(verdicts(vec![better(Scheme::Dynamic), better(Scheme::Predictive)]), [holds; 3]);
        // Shorter only because of the share.
        let bought = |scheme| column(scheme, 1.1 / 0.3, 0.3, 1_000);
        let found = verdicts(vec![bought(Scheme::Dynamic), bought(Scheme::Predictive)]);
        assert_eq!(found, [holds, holds, Verdict::DoesNotHold]);
        // Longer, and local tasks lose.
        let worse = |scheme| column(scheme, 6.0, 0.3, 900);
        let found = verdicts(vec![worse(Scheme::Dynamic), worse(Scheme::Predictive)]);
        assert_eq!(found, [Verdict::DoesNotHold; 3]);
    }

    #[test]
    fn unmodified_programs_are_judged_apart() {
        let over_mpi = |scheme, seconds| {
            let mut column = column(scheme, seconds, 0.3, 1_000);
            column.cell.library = Library::MpiYields;
            column
        };
        let found = |carried: f64| {
            let columns = [over_mpi(Scheme::Linux, 5.0), over_mpi(Scheme::Carried, carried)];
            claims(&columns).iter().map(|claim| (claim.id, claim.verdict)).collect::<Vec<_>>()
        };
        assert_eq!(found(4.5), [("S14-host", Verdict::Holds)]);
        assert_eq!(found(5.5), [("S14-host", Verdict::DoesNotHold)]);
    }

    #[test]
    fn void_runs_are_left_out() {
        let mut own = column(Scheme::Predictive, 2.0, 0.3, 1_000);
        own.runs[0] = None;
        assert_eq!(own.ratios(&column(Scheme::Linux, 4.0, 0.2, 1_000), |run| run.seconds).len(), 9);
    }
}
