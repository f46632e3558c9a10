//! Ping-pong: one task sends a message periodically, another sends it back (Expedite, section 4).

use pronto_sched_policy::policy::time::Nanos;

use crate::cluster::Cluster;
use crate::id::{NodeId, PortId, TaskId};
use crate::program::{From, Op, Program, Step, Wait};
use crate::record::Record;
use crate::task::TaskOptions;

/// The series in which pingers record round-trip times, nanoseconds.
pub const ROUND_TRIP: u32 = 0;

/// Parameters of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of a message; "500-byte messages".
    pub bytes: u32,
    /// Sleep between two pings; "ping every 50 milliseconds".
    pub pause: Nanos,
    /// CPU time at either end, between the arrival of a message and the reply.
    pub handling: Nanos,
    /// CPU time of the ponger after each pong ("extra computation", section 4.4).
    pub extra: Nanos,
    /// Wait policy of both ends.
    pub wait: Wait,
    /// Number of pings.
    pub pings: u32,
}

/// The two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Task that pings, and records [`ROUND_TRIP`].
    pub pinger: TaskId,
    /// Task that replies.
    pub ponger: TaskId,
}

/// The only port of either end.
pub const PORT: PortId = PortId(0);

impl Pair {
    /// Spawns a pair, one end on each node.
    pub fn spawn(cluster: &mut Cluster, nodes: [NodeId; 2], options: Options, tasks: TaskOptions) -> Self {
        let pinger = cluster.spawn(nodes[0], tasks, Box::new(Pinger::new(options, PORT)));
        let ponger = cluster.spawn(nodes[1], tasks, Box::new(Ponger::new(options, PORT)));
        cluster.connect(pinger, ponger);
        Self { pinger, ponger }
    }

    /// Flags both ends for the boost.
    pub fn flag(self, cluster: &mut Cluster) {
        cluster.flag(self.pinger, PORT);
        cluster.flag(self.ponger, PORT);
    }
}

/// The program of the pinger.
#[derive(Debug)]
pub struct Pinger {
    options: Options,
    port: PortId,
    left: u32,
    phase: Phase,
    sent_at: Nanos,
}

/// The next step of the pinger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Sleep,
    Send,
    Receive,
    Record,
}

impl Pinger {
    /// Returns a pinger with its connection.
    #[must_use]
    pub const fn new(options: Options, port: PortId) -> Self {
        Self { options, port, left: options.pings, phase: Phase::Sleep, sent_at: Nanos::ZERO }
    }
}

impl Program for Pinger {
    fn next(&mut self, step: &mut Step<'_>) -> Op {
        match self.phase {
            Phase::Sleep => {
                if self.left == 0 {
                    return Op::Exit;
                }
                self.left -= 1;
                self.phase = Phase::Send;
                Op::Sleep(self.options.pause)
            }
            Phase::Send => {
                self.sent_at = step.now;
                self.phase = Phase::Receive;
                Op::Send { port: self.port, bytes: self.options.bytes, tag: u64::from(self.left == 0) }
            }
            Phase::Receive => {
                self.phase = Phase::Record;
                Op::Receive { from: From::Port(self.port), wait: self.options.wait.into() }
            }
            Phase::Record => {
                let value = step.now.since(self.sent_at).0;
                step.records.add(Record { at: step.now, task: step.me, series: ROUND_TRIP, value });
                self.phase = Phase::Sleep;
                Op::Compute(self.options.handling)
            }
        }
    }
}

/// The program of the ponger, which replies until the last ping has come.
#[derive(Debug)]
pub struct Ponger {
    options: Options,
    port: PortId,
    phase: Pong,
    last: bool,
}

/// The next step of the ponger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pong {
    Receive,
    Handle,
    Send,
    Extra,
}

impl Ponger {
    /// Returns a ponger with its connection.
    #[must_use]
    pub const fn new(options: Options, port: PortId) -> Self {
        Self { options, port, phase: Pong::Receive, last: false }
    }
}

impl Program for Ponger {
    fn next(&mut self, step: &mut Step<'_>) -> Op {
        match self.phase {
            Pong::Receive if self.last => Op::Exit,
            Pong::Receive => {
                self.phase = Pong::Handle;
                Op::Receive { from: From::Port(self.port), wait: self.options.wait.into() }
            }
            Pong::Handle => {
                self.last = step.received.is_some_and(|message| message.tag == 1);
                self.phase = Pong::Send;
                Op::Compute(self.options.handling)
            }
            Pong::Send => {
                self.phase = Pong::Extra;
                Op::Send { port: self.port, bytes: self.options.bytes, tag: 0 }
            }
            Pong::Extra => {
                self.phase = Pong::Receive;
                Op::Compute(self.options.extra)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster;
    use crate::link::Link;
    use crate::scheduler::linux2::{Linux2, Version};

    const OPTIONS: Options = Options {
        bytes: 500,
        pause: Nanos::from_millis(50),
        handling: Nanos::from_micros(10),
        extra: Nanos::ZERO,
        wait: Wait::Block,
        pings: 20,
    };

    fn round_trips(seed: u64, wait: Wait) -> (Vec<u64>, u64) {
        let mut cluster = Cluster::new(cluster::Options::standard(seed));
        let nodes = [0, 1].map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_2))));
        let pair = Pair::spawn(&mut cluster, nodes, Options { wait, ..OPTIONS }, TaskOptions::default());
        assert!(cluster.run_to_end(Nanos::from_millis(10_000)).is_some(), "both end");
        (cluster.records().of(pair.pinger, ROUND_TRIP).collect(), cluster.events())
    }

    #[test]
    fn on_idle_nodes_a_round_trip_is_two_links_and_the_handling_whatever_the_wait() {
        let link = Link::ETHERNET_100;
        let one_way = link.latency.after(link.occupies(500));
        let expected = one_way.times(2).after(OPTIONS.handling).0;
        for wait in [Wait::Block, Wait::Spin, Wait::Adaptive] {
            assert_eq!(round_trips(1, wait).0, [expected; 20], "{wait:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        assert_eq!(round_trips(7, Wait::Block), round_trips(7, Wait::Block));
    }

    /// Returns the CPU time per ping of an adaptive ponger with a computing task on its CPU, in microseconds.
    fn used(knows: cluster::Knows) -> u64 {
        let options = cluster::Options { knows, ..cluster::Options::standard(1) };
        let mut cluster = Cluster::new(options);
        let nodes = [0, 1].map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_4))));
        let pings = Options { wait: Wait::Adaptive, ..OPTIONS };
        let later = TaskOptions { starts: Nanos::from_millis(100), ..TaskOptions::default() };
        let pair = Pair::spawn(&mut cluster, nodes, pings, later);
        let compute = crate::workload::compute::Compute::for_ever();
        cluster.spawn(nodes[1], TaskOptions::default(), Box::new(compute));
        cluster.run_until(Nanos::from_millis(5_000));
        cluster.task(pair.ponger).usage().ran.0 / 1_000 / u64::from(OPTIONS.pings)
    }

    #[test]
    fn a_task_that_knows_of_contention_does_not_poll() {
        use cluster::Knows::{Load, Nothing};
        assert_eq!(used(Load), 10, "handling alone");
        assert!(used(Nothing) > 12, "it polls until it has learned not to: {} us", used(Nothing));
    }
}
