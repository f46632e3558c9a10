//! `sim-speed`: how many events the scheduler simulation handles in a second, and what memory a large cluster takes.

use core::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_sim::cluster::{Cluster, Options};
use pronto_sched_sim::program::Wait;
use pronto_sched_sim::scheduler::Scheduler;
use pronto_sched_sim::scheduler::eevdf::{Eevdf, Preemption};
use pronto_sched_sim::scheduler::linux2::{Linux2, Version};
use pronto_sched_sim::task::TaskOptions;
use pronto_sched_sim::workload::compute::Compute;
use pronto_sched_sim::workload::ping_pong::{self, Pair};
use pronto_sched_sim::workload::sleeper::{self, Sleeper};

use crate::clock;
use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};
use crate::sample::approximate;
use crate::traffic::speed::Speed;

/// The experiment: it runs in one thread, so a rate is one of a core.
#[derive(Debug)]
pub(crate) struct SimSpeed;

impl Experiment for SimSpeed {
    fn name(&self) -> &'static str {
        "sim-speed"
    }

    fn paper(&self) -> Option<&'static str> {
        None
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "events per second of the scheduler simulation, and memory of 10,000 nodes"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "kernel", help: "Only these kernels", values: &KERNELS },
            Axis { column: "nodes", help: "Only clusters of this size", values: &["2", "10000"] },
        ]
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let wanted = |nodes: u32| params.keeps("nodes", &nodes.to_string());
        let cases: Vec<(&'static str, u32)> = [2, 10_000]
            .into_iter()
            .filter(|nodes| wanted(*nodes))
            .flat_map(|nodes| KERNELS.map(|kernel| (kernel, nodes)))
            .filter(|(kernel, _)| params.keeps("kernel", kernel))
            .collect();
        let events = if params.quick { QUICK_EVENTS } else { EVENTS };
        progress.begin(cases.len() as u64 * PARTS);
        let mut report = Report::default();
        let mut rows = Vec::new();
        for (kernel, nodes) in cases {
            rows.push(Row::measure(kernel, nodes, events, progress)?);
        }
        report.claims = claims(&rows);
        report.rows = rows.iter().map(Row::fields).collect();
        report.params = Fields::default().with("threads", 1).with(
            "load",
            "on each node: compute-only, a sleeper (5 of 50 ms), one end of a ping-pong every 10 ms",
        );
        report.note(
            "peak_mib is the peak of this process since its start: it includes earlier rows, if they used more.",
        );
        Ok(report)
    }
}

/// One cluster.
#[derive(Clone, Debug)]
struct Row {
    kernel: &'static str,
    nodes: u32,
    simulated: Nanos,
    events: u64,
    /// Wall-clock time, and CPU time of this thread: on a busy machine only the latter shows the speed of a core.
    seconds: f64,
    cpu_seconds: f64,
    /// Events per second of CPU time.
    speed: Speed,
    peak_mib: u64,
}

/// Returns the CPU time of this thread so far, in seconds.
fn cpu_seconds() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let time = usage.user_time() + usage.system_time();
    Ok(Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0)).as_secs_f64())
}

impl Row {
    /// Runs a cluster until it has handled at least the given number of events.
    fn measure(
        kernel: &'static str,
        nodes: u32,
        events: u64,
        progress: &mut Progress,
    ) -> anyhow::Result<Self> {
        let mut cluster = cluster(kernel, nodes);
        let begun = clock::now();
        let (mut speed, mut computed) = (Speed::default(), 0.0);
        for part in 1..=PARTS {
            progress.step(&format!("{kernel}, {nodes} nodes"));
            let (before, used) = (cluster.events(), cpu_seconds()?);
            while cluster.events() < events * part / PARTS {
                cluster.run_until(cluster.now().after(STEP));
            }
            let used = cpu_seconds()? - used;
            speed.round(cluster.events() - before, Duration::from_secs_f64(used));
            computed += used;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let peak = u64::try_from(getrusage(UsageWho::RUSAGE_SELF)?.max_rss()).unwrap_or(0);
        let (simulated, events) = (cluster.now(), cluster.events());
        let peak_mib = peak / 1024;
        Ok(Self { kernel, nodes, simulated, events, seconds, cpu_seconds: computed, speed, peak_mib })
    }

    fn rate(&self) -> f64 {
        approximate(self.events) / self.cpu_seconds
    }

    fn fields(&self) -> Fields {
        Fields::default()
            .with("kernel", self.kernel)
            .with("nodes", self.nodes)
            .with("simulated_ms", self.simulated.0 / 1_000_000)
            .with("events", self.events)
            .with("seconds", decimals(self.seconds, 2))
            .with("cpu_seconds", decimals(self.cpu_seconds, 2))
            .with("events_per_s", decimals(self.rate(), 0))
            .with("aa", decimals(self.speed.a_to_a(), 2))
            .with("peak_mib", self.peak_mib)
    }
}

/// A cluster in which everybody is busy.
fn cluster(kernel: &str, nodes: u32) -> Cluster {
    let mut cluster = Cluster::new(Options::standard(1));
    let scheduler = || -> Box<dyn Scheduler> {
        match kernel {
            "linux-2.2" => Box::new(Linux2::new(Version::V2_2)),
            "linux-2.4" => Box::new(Linux2::new(Version::V2_4)),
            _ => Box::new(Eevdf::new(1, Preemption::Lazy)),
        }
    };
    let nodes: Vec<_> = (0..nodes).map(|_| cluster.add_node(1, scheduler())).collect();
    let pings = ping_pong::Options {
        bytes: 500,
        pause: Nanos::from_millis(10),
        handling: Nanos::from_micros(30),
        extra: Nanos::ZERO,
        wait: Wait::Block,
        pings: u32::MAX,
    };
    for pair in nodes.chunks_exact(2) {
        Pair::spawn(&mut cluster, [pair[0], pair[1]], pings, TaskOptions::default());
    }
    for node in nodes {
        cluster.spawn(node, TaskOptions::default(), Box::new(Compute::for_ever()));
        let sleeper = Sleeper::new(sleeper::Options::SLEEP_MOSTLY);
        cluster.spawn(node, TaskOptions::default(), Box::new(sleeper));
    }
    cluster
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let slowest = rows.iter().map(Row::rate).reduce(f64::min).map(|rate| Claim {
        id: "SIM1",
        text: "at least a million events a second on one core (the slowest row; machine and load matter)"
            .into(),
        published: 1_000_000.into(),
        measured: decimals(rate, 0),
        holds: rate >= 1e6,
    });
    let most = rows.iter().filter(|row| row.nodes == 10_000).map(|row| row.peak_mib).max();
    let memory = most.map(|peak| Claim {
        id: "SIM2",
        text: "10,000 nodes in less than 4 GiB (peak, MiB)".into(),
        published: 4096.into(),
        measured: peak.into(),
        holds: peak < 4096,
    });
    slowest.into_iter().chain(memory).collect()
}

/// As in the column `kernel`.
const KERNELS: [&str; 3] = ["linux-2.2", "linux-2.4", "eevdf"];

/// Of each row.
const EVENTS: u64 = 10_000_000;
const QUICK_EVENTS: u64 = 3_000_000;

/// Steps of the progress bar for each row.
const PARTS: u64 = 10;

/// Simulated time between two looks at the number of events.
const STEP: Nanos = Nanos::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_cluster_makes_events_on_every_kernel() {
        for kernel in KERNELS {
            let mut cluster = cluster(kernel, 4);
            cluster.run_until(Nanos::from_millis(2_000));
            assert!(cluster.events() > 1_000, "{kernel}: {}", cluster.events());
        }
    }

    #[test]
    fn claims_are_of_the_slowest_and_the_largest() {
        let row = |nodes, seconds, peak_mib| Row {
            kernel: "eevdf",
            nodes,
            simulated: Nanos::ZERO,
            events: 1_000_000,
            seconds,
            cpu_seconds: seconds,
            speed: Speed::default(),
            peak_mib,
        };
        let mut two = row(2, 0.5, 10);
        two.speed.round(3, Duration::from_secs(1));
        two.speed.round(4, Duration::from_secs(1));
        assert_eq!(two.fields().value("aa"), Some(&serde_json::json!(0.75)));
        let found = claims(&[row(2, 0.5, 10), row(10_000, 2.0, 5_000)]);
        let verdicts: Vec<_> = found.iter().map(|claim| (claim.id, claim.holds)).collect();
        assert_eq!(verdicts, [("SIM1", false), ("SIM2", false)]);
        assert_eq!(claims(&[row(2, 0.5, 10)]).len(), 1);
    }
}
