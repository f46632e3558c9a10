//! `cosched-forms`: the same policy as a daemon and in the kernel: the cost of a period, and the delay of decisions while other processes compute.
//!
//! All forms give weights of the BPF scheduler, so that only the place differs in which queues are read and weights decided. The machine has
//! one CPU, and its clock counts instructions.

use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use anyhow::{Context as _, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use pronto_coschedule::Service;
use pronto_coschedule::actuator::{ActuatorKind, Choice};
use pronto_coschedule::group::Members;
use pronto_coschedule::sensor::Choice as Sensor;
use pronto_coschedule::settings::{Group, Past, Policy, Settings};
use pronto_expedite::process::{raise_descriptor_limit, thread_descriptor};
use pronto_expedite::schedule::{CALLER, Class, schedule};
use pronto_expedite::scx::{PredictionTerms, Scheduler as Connection};
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::weight::Weight;
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use serde_json::Value;

use crate::claim::Claim;
use crate::clock;
use crate::cosched::local::LocalTask;
use crate::expedite::scheduler::Scheduler;
use crate::experiment::{Experiment, Rounds, Run};
use crate::lab::{self, Lab};
use crate::params::{Axis, Choice as _, choices, numbers};
use crate::placement::{Cpu, pin};
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, approximate, median};

/// One process has sockets, of which one is filled now and then.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "cosched-forms",
    question: "Is coscheduling in the kernel cheaper than by a daemon, and are its decisions earlier?",
    takes: [600, 200],
    paper: Some("coscheduling"),
    figure: Some("section 2"),
    about: "PRED as a daemon with sock_diag, as a daemon with a BPF sensor, and in a BPF scheduler: cost of a period; time from data in a queue to the weight, with computing processes",
    axes: &[
        Axis::new("form", "Only these forms", Form::NAMES),
        Axis::new("sockets", "Only with this number of sockets of the process", &SOCKET_NAMES),
        Axis::new("tasks", "Only with this number of computing processes", &TASK_NAMES),
    ],
    rounds: [Rounds::new(5, 0), Rounds::new(2, 0)],
    without_aa: Some("the clock of the machine counts instructions, so equal runs differ by timers only"),
    claims: &["S13-cost", "S13-late"],
    lab: |params| {
        let limit = if params.quick { 1_200 } else { 3_600 };
        let bpf = &["kernel/scx", "kernel/queues"];
        Ok(Some(Lab { cpus: 1, virtual_time: true, bpf, limit, ..Lab::PLAIN }))
    },
    run,
    ..Experiment::DEFAULT
};

choices! {
    /// Where queues are read and weights decided.
    enum Form {
        /// In a daemon that asks sock_diag.
        Diag = "sock_diag",
        /// In a daemon that reads the report of a BPF program.
        Bpf = "bpf",
        /// In the BPF scheduler.
        Kernel = "scx",
    }
}

numbers! {
    /// Sockets of the process.
    SOCKETS: usize, SOCKET_NAMES = 1, 100, 1000
}

numbers! {
    /// Processes that compute.
    TASKS: usize, TASK_NAMES = 0, 3
}

/// Number of sockets and of computing processes that are judged.
const JUDGED_SOCKETS: usize = 100;
const JUDGED_TASKS: usize = 3;

const CPU: Cpu = Cpu(0);

/// Time between two samples.
const PERIOD: Duration = Duration::from_millis(10);

/// Time for which the cost is measured.
const SPAN: Duration = Duration::from_secs(1);

/// Decisions of a round.
const TRIALS: u32 = 20;

/// Class of the thread that fills and empties the queue. The thread of the loader has a lower one.
const WRITER: Class = Class::Fifo(2);

/// Bytes of a message: enough for several steps of a weight.
const MESSAGE: usize = 32 << 10;

/// Longest wait for a decision.
const LIMIT: Duration = Duration::from_secs(5);

/// A form with a number of sockets and of computing processes.
struct Cell {
    form: Form,
    sockets: usize,
    tasks: usize,
    /// Microseconds of CPU time per period, of each round; only without computing processes, because they would interrupt a period.
    costs: Vec<f64>,
    delays: Recorder,
}

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    pin(CPU)?;
    raise_descriptor_limit().context("raising the limit of descriptors")?;
    let sockets = run.params.kept("sockets", SOCKETS.into_iter().zip(SOCKET_NAMES), |sockets| sockets.1);
    let tasks = run.params.kept("tasks", TASKS.into_iter().zip(TASK_NAMES), |tasks| tasks.1);
    let mut cells = Vec::new();
    for (sockets, _) in sockets {
        for (tasks, _) in &tasks {
            let cell =
                |form| Cell { form, sockets, tasks: *tasks, costs: Vec::new(), delays: Recorder::new() };
            cells.extend(Form::kept(run.params, "form").into_iter().map(cell));
        }
    }
    let scheduler = Scheduler::start(&lab::bpf("scx")?)?;
    scheduler.load()?;
    run.progress.begin(cells.len() as u64 * u64::from(run.rounds));
    for _ in 0..run.rounds {
        for cell in &mut cells {
            run.progress.step(&format!("{} {} {}", cell.form.name(), cell.sockets, cell.tasks));
            cell.measure().with_context(|| format!("{} with {} sockets", cell.form.name(), cell.sockets))?;
        }
    }
    scheduler.unload()?;
    let mut report = Report { claims: claims(&cells), ..Report::default() };
    report.rows = cells.iter().map(Cell::fields).collect();
    report.params = run.fields().with("policy", "pred").with("period_ms", PERIOD.as_secs_f64() * 1e3);
    report.note(
        "The thread of the loader, through which daemons set weights, is a real-time one here, which favours the daemons. \
         A cost is the time that the work of a period took, of the daemon and of samples in the kernel; the search for processes and sockets \
         every 100 ms is a part of it, the wake-up of the daemon and the interrupt of the timer are not.",
    );
    Ok(report)
}

impl Cell {
    /// Measures one round.
    fn measure(&mut self) -> anyhow::Result<()> {
        let mut process = Process::start(self.sockets)?;
        if self.tasks == 0 {
            self.costs.push(self.cost(&process)?);
        }
        let decided = Decisions::start(self, &process)?;
        let tasks: Vec<_> = (0..self.tasks).map(|_| LocalTask::start(CPU)).collect::<anyhow::Result<_>>()?;
        schedule(CALLER, WRITER)?;
        let measured = (0..TRIALS).try_for_each(|trial| {
            self.delays.record_single(delay(trial, &mut process, &decided)?);
            Ok(())
        });
        schedule(CALLER, Class::Normal)?;
        drop(tasks);
        decided.end()?;
        measured
    }

    fn settings(&self, process: &Process) -> anyhow::Result<Settings> {
        Ok(Settings {
            policy: Policy::Predictive,
            period: PERIOD,
            past: Past::Fixed(Share::NONE),
            most: Settings::MOST,
            sensor: match self.form {
                Form::Diag => Sensor::SockDiag,
                Form::Bpf => Sensor::Bpf(lab::bpf("queues")?),
                Form::Kernel => Sensor::Scheduler,
            },
            actuator: Choice::Only(ActuatorKind::Scheduler),
            groups: vec![Group { name: "process".into(), members: Members::Family(process.child.id()) }],
            state: process.state.clone(),
        })
    }

    /// Returns the microseconds of CPU time that the work of a period takes.
    fn cost(&self, process: &Process) -> anyhow::Result<f64> {
        let (mut service, _) = Service::begin(self.settings(process)?)?;
        let begun = clock::now();
        while begun.elapsed() < SPAN {
            let problems = service.work();
            ensure!(problems.is_empty(), "{}", problems.join("; "));
            clock::pause(service.pause());
        }
        let status = service.coscheduler().status();
        let seen = u64::try_from(status.sockets)?;
        ensure!(seen >= u64::try_from(self.sockets)?, "only {seen} sockets were seen");
        ensure!(status.ticks > 50, "only {} periods", status.ticks);
        service.end()?;
        Ok(approximate(status.worked_us) / approximate(status.ticks))
    }

    fn fields(&self) -> Fields {
        let cost = (!self.costs.is_empty()).then(|| median(self.costs.clone()));
        let quantile = |share| decimals(approximate(self.delays.quantile_ns(share)) / 1e3, 0);
        let percent = |cost: f64| decimals(cost / PERIOD.as_secs_f64() / 1e4, 3);
        Fields::default()
            .with("form", self.form.name())
            .with("sockets", self.sockets)
            .with("tasks", self.tasks)
            .with("cost_us", cost.map_or(Value::Null, |cost| decimals(cost, 1)))
            .with("cpu_percent", cost.map_or(Value::Null, percent))
            .with("decision_p50_us", quantile(0.5))
            .with("decision_p90_us", quantile(0.9))
            .with("decision_max_us", decimals(approximate(self.delays.max_ns()) / 1e3, 0))
    }
}

/// Fills the queue at some part of a period, waits for the decision, and empties it. Returns how late the decision was.
fn delay(trial: u32, process: &mut Process, decisions: &Decisions) -> anyhow::Result<Duration> {
    clock::pause(PERIOD * 2 + PERIOD * (trial % 10) / 10);
    let filled = clock::shared_ns();
    process.fill()?;
    let decided = decisions.after(filled)?;
    let emptied = clock::shared_ns();
    process.empty()?;
    decisions.after(emptied)?;
    Ok(Duration::from_nanos(decided - filled))
}

/// A process that never reads its connections.
struct Process {
    child: Child,
    /// The ends that are written to, and duplicates of the process's own.
    connections: Vec<(TcpStream, TcpStream)>,
    state: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        let _removed = std::fs::remove_dir_all(&self.state);
    }
}

impl Process {
    fn start(sockets: usize) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let connect = |_| Ok((TcpStream::connect(address)?, listener.accept()?.0));
        let connections: Vec<_> = (0..sockets).map(connect).collect::<std::io::Result<_>>()?;
        let inherit = |flags: FdFlag| {
            connections.iter().try_for_each(|(_, theirs)| fcntl(theirs, FcntlArg::F_SETFD(flags)).map(drop))
        };
        inherit(FdFlag::empty())?;
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        inherit(FdFlag::FD_CLOEXEC)?;
        let child = child.context("starting cat")?;
        let state = std::env::temp_dir().join(format!("pronto-bench-forms-{}", child.id()));
        Ok(Self { child, connections, state })
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        let (ours, _) = self.connections.last_mut().context("a connection")?;
        Ok(ours.write_all(&[1; MESSAGE])?)
    }

    fn empty(&mut self) -> anyhow::Result<()> {
        let (_, theirs) = self.connections.last_mut().context("a connection")?;
        Ok(theirs.read_exact(&mut [0; MESSAGE])?)
    }
}

/// The decisions about a process.
enum Decisions {
    /// Of a daemon: the time of the last one, from the clock that all processes share.
    Daemon { last_ns: Arc<AtomicU64>, stop: Arc<AtomicBool>, thread: JoinHandle<anyhow::Result<()>> },
    /// Of the scheduler, which keeps the time.
    Kernel { connection: Connection, process: u32 },
}

impl Decisions {
    /// Starts the policy, and waits until it runs.
    fn start(cell: &Cell, process: &Process) -> anyhow::Result<Self> {
        let id = process.child.id();
        if cell.form == Form::Kernel {
            let connection = Connection::connect()?;
            let main_thread = thread_descriptor(id.cast_signed())?;
            let terms = PredictionTerms {
                past: Share::NONE,
                most: Settings::MOST,
                counts_sent: true,
                period: PERIOD,
            };
            connection.predict(main_thread.as_fd(), terms)?;
            return Ok(Self::Kernel { connection, process: id });
        }
        let settings = cell.settings(process)?;
        let (last_ns, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (last, stopped) = (Arc::clone(&last_ns), Arc::clone(&stop));
        let (ready, is_ready) = channel();
        let thread = std::thread::spawn(move || {
            let (service, _) = Service::begin(settings)?;
            // The receiver waits for it.
            let _received = ready.send(());
            daemon(service, &last, &stopped)
        });
        if is_ready.recv().is_err() {
            thread.join().expect("no panic")?;
            anyhow::bail!("the daemon has ended");
        }
        Ok(Self::Daemon { last_ns, stop, thread })
    }

    /// Waits for a decision after this time. Returns its time.
    fn after(&self, time: u64) -> anyhow::Result<u64> {
        let begun = clock::now();
        loop {
            let last = self.last()?;
            if last > time {
                return Ok(last);
            }
            ensure!(begun.elapsed() < LIMIT, "data in a queue do not change the weight");
            clock::pause(PERIOD / 4);
        }
    }

    fn last(&self) -> anyhow::Result<u64> {
        Ok(match self {
            Self::Daemon { last_ns, .. } => last_ns.load(Ordering::Relaxed),
            Self::Kernel { connection, process } => {
                let main_thread = thread_descriptor(process.cast_signed())?;
                clock::nanos(connection.prediction(main_thread.as_fd())?.changed)
            }
        })
    }

    fn end(self) -> anyhow::Result<()> {
        if let Self::Daemon { stop, thread, .. } = self {
            stop.store(true, Ordering::Relaxed);
            thread.join().expect("no panic")?;
        }
        Ok(())
    }
}

/// A daemon, which notes the time of each decision.
fn daemon(mut service: Service, last_ns: &AtomicU64, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut weight = Weight::ORDINARY.as_hundredths();
    while !stop.load(Ordering::Relaxed) {
        let problems = service.work();
        let now = clock::shared_ns();
        ensure!(problems.is_empty(), "{}", problems.join("; "));
        let status = service.coscheduler().status();
        if let Some(process) = status.processes.first().filter(|process| process.weight != weight) {
            weight = process.weight;
            last_ns.store(now, Ordering::Relaxed);
        }
        clock::pause(service.pause());
    }
    service.end()?;
    Ok(())
}

/// Smallest ratio of delays that counts as later: half of a period is in each of them. Chosen by us; no source.
const LATER: f64 = 1.1;

/// Compares the better daemon with the scheduler.
fn claims(cells: &[Cell]) -> Vec<Claim> {
    let of = |form, tasks, value: &dyn Fn(&Cell) -> Option<f64>| {
        let is_it = |cell: &&Cell| (cell.form, cell.sockets, cell.tasks) == (form, JUDGED_SOCKETS, tasks);
        cells.iter().find(is_it).and_then(value)
    };
    let ratio = |tasks, value: &dyn Fn(&Cell) -> Option<f64>| {
        let daemon = of(Form::Diag, tasks, value)?.min(of(Form::Bpf, tasks, value)?);
        Some(daemon / of(Form::Kernel, tasks, value)?)
    };
    let cost = ratio(0, &|cell| (!cell.costs.is_empty()).then(|| median(cell.costs.clone())));
    let late = ratio(JUDGED_TASKS, &|cell| Some(approximate(cell.delays.quantile_ns(0.9))));
    let better = "of the better daemon, divided by that of the scheduler; 100 sockets";
    let cost = cost.map(|cost| Claim::at_least("S13-cost", format!("cost {better}"), 1.0, cost, 1));
    let late = late.map(|late| {
        Claim::at_least(
            "S13-late",
            format!("p90 of decisions {better}, three computing processes"),
            LATER,
            late,
            2,
        )
    });
    [cost, late].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(form: Form, cost: f64, delay: u64) -> [Cell; 2] {
        [0, JUDGED_TASKS].map(|tasks| {
            let mut delays = Recorder::new();
            delays.record_single(Duration::from_micros(delay));
            let costs = if tasks == 0 { vec![cost] } else { Vec::new() };
            Cell { form, sockets: JUDGED_SOCKETS, tasks, costs, delays }
        })
    }

    #[test]
    fn the_statements_can_fail() {
        let verdicts = |diag, bpf, kernel: (f64, u64)| {
            let cells = [(Form::Diag, diag), (Form::Bpf, bpf), (Form::Kernel, kernel)];
            let cells: Vec<_> =
                cells.into_iter().flat_map(|(form, (cost, delay))| cell(form, cost, delay)).collect();
            claims(&cells).iter().map(Claim::holds).collect::<Vec<_>>()
        };
        assert_eq!(verdicts((90.0, 9_000), (30.0, 20_000), (20.0, 8_000)), [true, true]);
        assert_eq!(verdicts((90.0, 9_000), (30.0, 20_000), (31.0, 8_500)), [false, false]);
        let daemons = [cell(Form::Diag, 1.0, 1), cell(Form::Bpf, 1.0, 1)];
        assert!(claims(&daemons.into_iter().flatten().collect::<Vec<_>>()).is_empty());
    }
}
