//! Adaptive waits with computing tasks on the same CPUs, under the scheduler of today's kernels, using the evidence of
//! their polls.

use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_sim::cluster::{Cluster, Knows, Options};
use pronto_sched_sim::link::Link;
use pronto_sched_sim::program::{From, Op, Program, Step, Wait};
use pronto_sched_sim::record::Record;
use pronto_sched_sim::scheduler::eevdf::{Eevdf, Preemption};
use pronto_sched_sim::task::TaskOptions;
use pronto_sched_sim::workload::compute::Compute;
use pronto_sched_sim::workload::ping_pong::{self, PORT, Ponger, ROUND_TRIP};

const WAKE_UP: Nanos = Nanos::from_micros(20);
const CALLS: u32 = 20_000;

/// Calls, and computes from call to call.
#[derive(Debug)]
struct Caller {
    wait: Wait,
    gap: Nanos,
    left: u32,
    called: Option<Nanos>,
    computes: bool,
}

impl Program for Caller {
    fn next(&mut self, step: &mut Step<'_>) -> Op {
        if core::mem::take(&mut self.computes) {
            return Op::Compute(self.gap);
        }
        match self.called {
            None if self.left == 0 => Op::Exit,
            None => {
                self.left -= 1;
                self.called = Some(step.now);
                Op::Send { port: PORT, bytes: 32, tag: u64::from(self.left == 0) }
            }
            Some(at) if step.received.is_some() => {
                let value = step.now.since(at).0;
                step.records.add(Record { at: step.now, task: step.me, series: ROUND_TRIP, value });
                (self.called, self.computes) = (None, true);
                self.next(step)
            }
            Some(_) => Op::Receive { from: From::Port(PORT), wait: self.wait.into() },
        }
    }
}

/// Of round trips, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Seen {
    p50: u64,
    p99: u64,
}

/// Runs a caller and a service with a CPU each, and `beside` computing tasks on each CPU.
fn run(wait: Wait, knows: Knows, gap: Nanos, beside: usize) -> Seen {
    let link = Link { latency: Nanos::from_micros(1), bandwidth: 10_000_000_000 / 8, ..Link::ETHERNET_100 };
    let switch = Nanos::from_micros(2);
    let options = Options { link, switch, wake_up: WAKE_UP, knows, ..Options::standard(3) };
    let mut cluster = Cluster::new(options);
    let nodes = [0, 1].map(|_| cluster.add_node(1, Box::new(Eevdf::new(1, Preemption::Lazy))));
    for node in nodes {
        for _ in 0..beside {
            cluster.spawn(node, TaskOptions::default(), Box::new(Compute::for_ever()));
        }
    }
    let handling = Nanos::from_micros(3);
    let service = ping_pong::Options {
        bytes: 32,
        pause: Nanos::ZERO,
        handling,
        extra: Nanos::ZERO,
        wait,
        pings: CALLS,
    };
    let caller = Caller { wait, gap, left: CALLS, called: None, computes: false };
    let caller = cluster.spawn(nodes[0], TaskOptions::default(), Box::new(caller));
    let service = cluster.spawn(nodes[1], TaskOptions::default(), Box::new(Ponger::new(service, PORT)));
    cluster.connect(caller, service);
    while cluster.task(caller).usage().ended.is_none() {
        assert!(cluster.now() < Nanos::from_millis(400_000), "it ends");
        cluster.run_until(cluster.now().after(Nanos::from_millis(100)));
    }
    let mut seen: Vec<u64> = cluster.records().of(caller, ROUND_TRIP).collect();
    seen.sort_unstable();
    Seen { p50: seen[seen.len() / 2], p99: seen[seen.len() * 99 / 100] }
}

const GAPS: [u64; 7] = [1, 5, 10, 15, 30, 100, 1_000];

#[test]
fn under_contention_its_slowest_calls_are_as_fast_as_sleeping_ones() {
    let ratio = |knows, gap| {
        let gap = Nanos::from_micros(gap);
        let block = run(Wait::Block, Knows::Nothing, gap, 2);
        let adaptive = run(Wait::Adaptive, knows, gap, 2);
        println!("{knows:?}, {gap:?}: {adaptive:?} by {block:?}");
        // In hundredths.
        adaptive.p99 * 100 / block.p99
    };
    for gap in GAPS {
        assert!(ratio(Knows::Polls, gap) <= 115, "{gap} us");
    }
    assert!(ratio(Knows::Nothing, 13) > 115, "ignoring the evidence of polls costs time");
}

#[test]
fn alone_it_polls_as_without_evidence() {
    for gap in GAPS.map(Nanos::from_micros) {
        let [nothing, polls] = [Knows::Nothing, Knows::Polls].map(|knows| run(Wait::Adaptive, knows, gap, 0));
        assert_eq!((polls.p50, polls.p99), (nothing.p50, nothing.p99), "{gap:?}");
    }
    let short = Nanos::from_micros(GAPS[0]);
    let [spin, polls] = [Wait::Spin, Wait::Adaptive].map(|wait| run(wait, Knows::Polls, short, 0).p50);
    assert_eq!(polls, spin);
}
