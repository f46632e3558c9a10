//! `cosched-host` and `cosched-lab`: real IS and MG, and a master with slaves, on two nodes of this host, or on four of the lab, with local tasks, under the policies
//! of the coscheduler.
//!
//! Each node has a CPU and a network namespace. The link has the paper's rate. All policies take turns within each round, so that a noisy
//! minute affects them alike. Static weights show what a share of the CPU does without prediction: from them the time is interpolated that
//! a job would take with the share that a policy gave it. The paper's figure 3 has IS and MG at the same time.

mod claims;
mod column;

use anyhow::{Context as _, ensure};
use nix::unistd::geteuid;
use pronto_coschedule::settings::{Policy, Settings};
use pronto_coschedule::status::Status;
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::weight::Weight;

use crate::claim::Verdict;
use crate::cosched::bed::{RATE, TestBed};
use crate::cosched::job::{Job, Library, Programs};
use crate::cosched::local::{LocalTask, Work};
use crate::cosched::nodes::{Coscheduled, Means, PERIOD, Rules};
use crate::cosched::rank::{App, Class, Ran};
use crate::cosched::turns;
use crate::expedite::scheduler::Scheduler;
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::interval::Interval;
use crate::lab::{self, Lab};
use crate::params::{Axis, Choice as _, Params, choices, numbers};
use crate::placement::Cpu;
use crate::report::{Fields, Report, decimals};
use crate::sample::approximate;

use claims::{HOST, LAB};
use column::{Column, against_linux, beyond_share, local_work};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "cosched-host",
    question: "Does coscheduling shorten real parallel jobs, beyond what their share of the CPU does?",
    takes: [7_200, 60],
    paper: Some("coscheduling"),
    figure: Some("fig. 2, fig. 3, fig. 4"),
    about: "IS, MG, and a master with slaves on two nodes of this host with local tasks: time under each policy, compared with no policy and with static weights",
    axes: &[
        Axis::new("library", "Only jobs over these libraries", Library::NAMES),
        Axis::new("app", "Only these jobs", App::NAMES),
        Axis::new(
            "run",
            "Jobs alone, or IS and MG together whatever app is; alone if not given",
            Company::NAMES,
        ),
        Axis::new("class", "Only jobs of this size", Class::NAMES),
        Axis::new("tasks", "Only with this number of local tasks on each node", &TASK_NAMES),
        Axis::new("policy", "Only these policies", Scheme::NAMES),
    ],
    examples: &[
        ("--library pronto --app is --tasks 3", "one cell of the paper's figure 2"),
        ("--library mpi,mpi-polling", "unmodified programs over Open MPI"),
        ("--run together --tasks 3", "IS and MG at the same time, as in the paper's figure 3"),
    ],
    cpus: Cpus::Two,
    rounds: [Rounds::new(10, 0), Rounds::new(3, 0)],
    without_aa: Some("the policy linux-again is the same as linux, and its ratio shows the noise"),
    claims: &["S19-host", "S22-host", "S24-host", "S19-share", "S14-host", "S26a-host", "S26b-host"],
    run,
    ..Experiment::DEFAULT
};

/// `cosched-lab`: four nodes in a machine whose clock counts instructions, so that other load of this host does not matter.
pub(crate) const IN_LAB: Experiment = Experiment {
    name: "cosched-lab",
    question: "Does coscheduling shorten real parallel jobs on four nodes?",
    takes: [7_200, 1_200],
    about: "IS, MG, and a master with slaves on four nodes of a machine of the lab with local tasks: time under each policy, compared with no policy and with static weights",
    axes: &[
        Axis::new("app", "Only these jobs", App::NAMES),
        Axis::new(
            "run",
            "Jobs alone, or IS and MG together whatever app is; alone if not given",
            Company::NAMES,
        ),
        Axis::new("class", "Only jobs of this size", Class::NAMES),
        Axis::new("tasks", "Only with this number of local tasks on each node", &TASK_NAMES),
        Axis::new("policy", "Only these policies", Scheme::NAMES),
        Axis::new("actuator", "The means by which processes get weights; nice if not given", Means::NAMES),
    ],
    examples: &[
        (
            "--app is --class w --tasks 3",
            "one cell of the paper's figure 2, with queues that change weights; some 15 min a round",
        ),
        (
            "--app is --actuator nice,scx,kernel --policy linux,pred,carried",
            "nice values, weights of the BPF scheduler, and decisions in it (without carried)",
        ),
    ],
    claims: &[
        "S19-lab",
        "S22-lab",
        "S24-lab",
        "S19-lab-share",
        "S26a-lab",
        "S26b-lab",
        "S13-lab",
        "S13-lab-kernel",
    ],
    lab: |params| {
        let limit = if params.quick { 3_600 } else { 6 * 3_600 };
        Ok(Some(Lab { cpus: 4, virtual_time: true, bpf: &["kernel/scx"], limit, ..Lab::PLAIN }))
    },
    run: run_in_lab,
    ..EXPERIMENT
};

/// Values of P that are near 0 and near 1, as in the simulation.
const NEAR_0: Share = Share::percent(1);
const NEAR_1: Share = Share::percent(99);

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
        /// DYN with P near 0, which is 0.9 in the other rows.
        DynamicPresent = "dyn-0",
        /// DYN with P near 1.
        DynamicPast = "dyn-1",
        /// PRED of the paper.
        Predictive = "pred",
        /// PRED with P near 0.
        PredictivePresent = "pred-0",
        /// PRED with P near 1.
        PredictivePast = "pred-1",
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
    const fn rules(self, actuator: Means) -> Option<Rules> {
        let policy = match self {
            Self::Linux | Self::LinuxAgain => return None,
            Self::Dynamic | Self::DynamicPresent | Self::DynamicPast => Policy::Dynamic,
            Self::Predictive | Self::PredictivePresent | Self::PredictivePast => Policy::Predictive,
            Self::Carried => Policy::Carried,
            Self::Low | Self::Middle | Self::High => Policy::Static,
        };
        let past = match self {
            Self::DynamicPresent | Self::PredictivePresent => NEAR_0,
            Self::DynamicPast | Self::PredictivePast => NEAR_1,
            _ => Settings::PAST,
        };
        let most = match self {
            Self::Low => Weight::hundredths(125),
            Self::Middle => Weight::hundredths(200),
            _ => Settings::MOST,
        };
        Some(Rules { policy, past, most, actuator })
    }

    /// Returns whether a job is measured with it. The paper shows that P matters to a master with slaves, so other jobs have one P, unless
    /// the user names a policy.
    fn suits(self, app: App, is_named: bool) -> bool {
        let has_other_past = self.rules(Means::Nice).is_some_and(|rules| rules.past != Settings::PAST);
        is_named || app == App::MasterSlave || !has_other_past
    }

    /// Returns whether the weight depends on queues.
    fn is_adaptive(self) -> bool {
        self.rules(Means::Nice).is_some_and(|rules| rules.policy != Policy::Static)
    }

    /// Returns whether the weight does not depend on queues.
    const fn is_fixed(self) -> bool {
        matches!(self, Self::Linux | Self::Low | Self::Middle | Self::High)
    }
}

choices! {
    /// The jobs that run at a time.
    enum Company {
        /// One.
        Alone = "alone",
        /// IS and MG, which begin together; the longer one goes on alone.
        Together = "together",
    }
}

/// A job with a number of local tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    library: Library,
    app: App,
    company: Company,
    tasks: usize,
    actuator: Means,
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
    report.claims = claims::all(&columns, &HOST);
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
    let columns = measure_all(run, &bed, vec![Library::Pronto], Class::S, &mut report)?;
    report.claims = claims::all(&columns, &LAB);
    if turn > slice / 2 {
        report.note(
            "void: a turn is longer than half of a slice, so the order of processes is that of the emulator",
        );
        report.claims.iter_mut().for_each(|claim| claim.verdict = Verdict::NotResolvable);
    }
    Ok(report)
}

/// Returns the selected jobs, each with its company.
fn kinds(params: &Params) -> Vec<(App, Company)> {
    let companies =
        if params.has_choice("run") { Company::kept(params, "run") } else { vec![Company::Alone] };
    let kinds = companies.into_iter().flat_map(|company| {
        let apps = match company {
            Company::Alone => App::kept(params, "app"),
            // The column of MG comes with that of IS.
            Company::Together => vec![App::Is],
        };
        apps.into_iter().map(move |app| (app, company))
    });
    kinds.collect()
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
    let schemes = Scheme::kept(run.params, "policy");
    let actuators = if run.params.has_choice("actuator") {
        Means::kept(run.params, "actuator")
    } else {
        vec![Means::Nice]
    };
    let mut cells = Vec::new();
    for library in libraries {
        for (app, company) in kinds(run.params) {
            // Of Open MPI one number of local tasks is enough, unless others are named.
            let tasks =
                tasks.iter().filter(|count| library == Library::Pronto || **count == 3 || tasks.len() == 1);
            for tasks in tasks {
                let cell =
                    |actuator: &Means| Cell { library, app, company, tasks: *tasks, actuator: *actuator };
                cells.extend(actuators.iter().map(cell));
            }
        }
    }
    let is_named = run.params.has_choice("policy");
    let schemes_of = |cell: Cell| {
        let is_possible = |scheme: &Scheme| *scheme != Scheme::Carried || cell.actuator != Means::Kernel;
        let suiting = schemes.iter().copied().filter(|scheme| scheme.suits(cell.app, is_named));
        suiting.filter(is_possible).collect::<Vec<_>>()
    };
    let steps: usize = cells.iter().map(|cell| schemes_of(*cell).len()).sum();
    run.progress.begin(steps as u64 * u64::from(run.rounds));
    let scheduler = actuators
        .iter()
        .any(|means| means.needs_scheduler())
        .then(|| Scheduler::start(&lab::bpf("scx")?))
        .transpose()?;
    let mut columns = Vec::new();
    for cell in cells {
        let loaded = scheduler.as_ref().filter(|_| cell.actuator.needs_scheduler());
        loaded.map_or(Ok(()), Scheduler::load)?;
        columns.extend(measure(run, bed, &programs, cell, class, &schemes_of(cell))?);
        loaded.map_or(Ok(()), Scheduler::unload)?;
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
    // The jobs of a run, with the columns of each.
    let jobs = cell.jobs();
    let mut columns: Vec<Vec<_>> = jobs
        .iter()
        .map(|job| {
            schemes.iter().map(|scheme| Column { cell: *job, scheme: *scheme, runs: Vec::new() }).collect()
        })
        .collect();
    for round in 0..run.rounds as usize {
        for at in 0..schemes.len() {
            let at = (round + at) % schemes.len();
            run.progress.step(&columns[0][at].name());
            let started: Vec<_> = jobs
                .iter()
                .map(|job| Job::start(bed, programs, job.library, job.app, class))
                .collect::<anyhow::Result<_>>()?;
            let timed = once(bed, &jobs, started, schemes[at], &mut local).context(columns[0][at].name())?;
            columns.iter_mut().zip(timed).for_each(|(columns, timed)| columns[at].runs.push(timed));
        }
    }
    Ok(columns.into_iter().flatten().collect())
}

/// Runs jobs at the same time. `None` for a run that is void, because pages were read from a disk, or a policy changed no weight.
fn once(
    bed: &TestBed,
    cells: &[Cell],
    jobs: Vec<Job>,
    scheme: Scheme,
    local: &mut [LocalTask],
) -> anyhow::Result<Vec<Option<Timed>>> {
    let mut nodes: Vec<_> = bed.nodes().iter().map(|node| (node.cpu, Vec::new())).collect();
    for (cell, job) in cells.iter().zip(&jobs) {
        for (place, process) in cell.app.places(nodes.len()).into_iter().zip(job.processes()) {
            nodes[place].1.push(process);
        }
    }
    let actuator = cells.first().map_or(Means::Nice, |cell| cell.actuator);
    let coscheduled = scheme.rules(actuator).map(|rules| Coscheduled::start(rules, &nodes)).transpose()?;
    let work = |local: &mut [LocalTask]| {
        local.iter_mut().try_fold(Work::default(), |sum, task| anyhow::Ok(sum.plus(task.work()?)))
    };
    let before = work(local)?;
    let ran = std::thread::scope(|scope| {
        let running: Vec<_> = jobs.into_iter().map(|job| scope.spawn(|| job.run())).collect();
        running.into_iter().map(|job| job.join().expect("no panic")).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let after = work(local)?;
    let status = coscheduled.map(Coscheduled::end).transpose()?.unwrap_or_default();
    let results = ran.iter().map(|ranks| {
        ensure!(ranks.iter().all(|ran| ran.verified), "the job has a wrong result");
        let timed = timed(ranks, bed.nodes().len(), after.since(before), &status);
        let is_void =
            ranks.iter().any(|ran| ran.major_faults > 0) || (scheme.is_adaptive() && timed.changes == 0);
        Ok((!is_void).then_some(timed))
    });
    results.collect()
}

impl Cell {
    /// Returns the cells of the jobs that run together with this one.
    fn jobs(self) -> Vec<Self> {
        match self.company {
            Company::Alone => vec![self],
            Company::Together => [App::Is, App::Mg].map(|app| Self { app, ..self }).to_vec(),
        }
    }
}

fn timed(ranks: &[Ran], nodes: usize, local: Work, status: &[Status]) -> Timed {
    let seconds = ranks.iter().map(|ran| ran.seconds).fold(0.0, f64::max);
    let cpu: f64 = ranks.iter().map(|ran| ran.cpu_seconds).sum();
    let sum = |field: fn(&Status) -> u64| status.iter().map(field).sum();
    Timed {
        seconds,
        share: cpu / (seconds * approximate(nodes as u64)),
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
        .with("run", column.cell.company.name())
        .with("tasks", column.cell.tasks)
        .with("actuator", column.cell.actuator.name())
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
