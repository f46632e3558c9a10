//! The coschedulers of some nodes: a thread on the CPU of each node, as its daemon would be.
//!
//! Reports travel between the threads of this process. The daemon sends them in messages of Pronto, which takes some tens of microseconds
//! more of a period of ten milliseconds.

use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::Context as _;
use pronto_coschedule::Service;
use pronto_coschedule::actuator::{ActuatorKind, Choice};
use pronto_coschedule::group::Members;
use pronto_coschedule::sensor::Choice as Sensor;
use pronto_coschedule::settings::{Group, Past, Policy, Settings};
use pronto_coschedule::socket::Connection;
use pronto_coschedule::status::Status;
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::weight::Weight;
use pronto_sync::atomic::{AtomicBool, Ordering};

use crate::params::choices;
use crate::placement::{Cpu, pin};

choices! {
    /// The means by which processes get their weights.
    pub(crate) enum Means {
        /// Nice values.
        Nice = "nice",
        /// Weights of the BPF scheduler, which then runs for all processes.
        Scheduler = "scx",
        /// Weights of the BPF scheduler, which also reads the queues and decides.
        Kernel = "kernel",
    }
}

impl Means {
    const fn kind(self) -> ActuatorKind {
        match self {
            Self::Nice => ActuatorKind::Nice,
            Self::Scheduler | Self::Kernel => ActuatorKind::Scheduler,
        }
    }

    /// Returns whether the BPF scheduler runs.
    pub(crate) const fn needs_scheduler(self) -> bool {
        matches!(self, Self::Scheduler | Self::Kernel)
    }

    const fn sensor(self) -> Sensor {
        match self {
            Self::Nice | Self::Scheduler => Sensor::SockDiag,
            Self::Kernel => Sensor::Scheduler,
        }
    }
}

/// The rules of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    pub(crate) past: Share,
    pub(crate) most: Weight,
    pub(crate) actuator: Means,
}

/// Time between two samples.
pub(crate) const PERIOD: Duration = Duration::from_millis(10);

/// Reports from a node to the others.
type Reports = Vec<(Connection, Level)>;

/// Running coschedulers.
#[derive(Debug)]
pub(crate) struct Coscheduled {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<anyhow::Result<Status>>>,
    folders: Vec<PathBuf>,
}

impl Coscheduled {
    /// Starts a coscheduler for each node, on its CPU, with a group for each of its processes.
    pub(crate) fn start(rules: Rules, nodes: &[(Cpu, Vec<u32>)]) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let channels: Vec<(Sender<Reports>, Receiver<Reports>)> = nodes.iter().map(|_| channel()).collect();
        let senders: Vec<_> = channels.iter().map(|(sender, _)| sender.clone()).collect();
        let mut started = Self { stop: Arc::clone(&stop), threads: Vec::new(), folders: Vec::new() };
        for (node, ((cpu, processes), (_, reports))) in nodes.iter().zip(channels).enumerate() {
            let folder =
                std::env::temp_dir().join(format!("pronto-bench-node-{node}-{}", std::process::id()));
            started.folders.push(folder.clone());
            let settings = Settings {
                policy: rules.policy,
                period: PERIOD,
                past: Past::Fixed(rules.past),
                most: rules.most,
                sensor: rules.actuator.sensor(),
                actuator: Choice::Only(rules.actuator.kind()),
                groups: processes.iter().map(group).collect(),
                state: folder,
            };
            let others = senders.iter().enumerate().filter(|(other, _)| *other != node);
            let others: Vec<_> = others.map(|(_, sender)| sender.clone()).collect();
            let (stop, cpu) = (Arc::clone(&stop), *cpu);
            started.threads.push(std::thread::spawn(move || run(settings, cpu, &stop, &others, &reports)));
        }
        Ok(started)
    }

    /// Ends the coschedulers. Returns their state.
    pub(crate) fn end(mut self) -> anyhow::Result<Vec<Status>> {
        self.stop.store(true, Ordering::Relaxed);
        let threads = core::mem::take(&mut self.threads);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    }
}

impl Drop for Coscheduled {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
        for folder in &self.folders {
            let _removed = std::fs::remove_dir_all(folder);
        }
    }
}

fn group(process: &u32) -> Group {
    Group { name: format!("job-{process}"), members: Members::Family(*process) }
}

fn run(
    settings: Settings,
    cpu: Cpu,
    stop: &AtomicBool,
    others: &[Sender<Reports>],
    reports: &Receiver<Reports>,
) -> anyhow::Result<Status> {
    pin(cpu)?;
    let policy = settings.policy;
    let (mut service, _) = Service::begin(settings).context("starting a coscheduler")?;
    while !stop.load(Ordering::Relaxed) {
        while let Ok(received) = reports.try_recv() {
            service.coscheduler().receive(1, received);
        }
        let problems = service.work();
        anyhow::ensure!(problems.is_empty(), "a coscheduler: {}", problems.join("; "));
        if policy == Policy::Carried {
            let reports = service.coscheduler().reports();
            others.iter().for_each(|other| _ = other.send(reports.clone()));
        }
        crate::clock::pause(service.pause());
    }
    Ok(service.end()?.0)
}
