//! The results of a run, and its verdict.

use core::time::Duration;

use super::options::{Options, Transport};
use crate::account::{Cause, Equation, Faults, Lengths, Totals, Traffic, reconcile};
use crate::control::{Found, NodeReport};
use crate::data::Points;
use crate::kmeans::{Outcome, equal};

/// Raw results of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) single: Outcome,
    pub(super) found: Option<Found>,
    pub(super) nodes: Vec<NodeReport>,
    pub(super) took: Duration,
    pub(super) single_took: Duration,
}

/// Report of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Node processes.
    pub nodes: u16,
    /// Transport of their links: `shm`, `tcp`, `shm+tcp`, or `none` if there is only one node.
    pub transport: String,
    /// Description of the points.
    pub title: String,
    /// Number of points, and of numbers per point.
    pub shape: (usize, usize),
    /// Iterations that the nodes took.
    pub iterations: u32,
    /// Share of points in a cluster where most points have their label; `None` without labels.
    pub purity: Option<f64>,
    /// Time that the nodes took, from the moment when all listened until the last one finished.
    pub took: Duration,
    /// Time that a single process took for the same work.
    pub single_took: Duration,
    /// Messages and causes of all nodes.
    pub totals: Totals,
    /// Messages that were sent and never received.
    pub lost: u64,
    /// Other transmission faults.
    pub faults: Faults,
    /// Whether the centres and the number of iterations equal those of a single process, bit for bit.
    pub result_equal: bool,
    /// Equations between messages and their causes.
    pub equations: Vec<Equation>,
    /// Messages that had to wait for room before they were posted.
    pub waits_for_room: u64,
    /// Counters of the communication layer, of all nodes together.
    pub counters: Vec<(String, u64)>,
}

/// Message sizes in the categories of the paper's Fig. 2, as fractions from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// The share of messages whose payload is under 100 bytes.
    pub messages_under_100: f64,
    /// The share of bytes in payloads of more than a kibibyte.
    pub bytes_over_1k: f64,
}

impl Sizes {
    /// Kim 2021, Fig. 2: k-means on DEX, four nodes.
    pub const PUBLISHED: Self = Self { messages_under_100: 0.744, bytes_over_1k: 0.971 };
}

impl Report {
    pub(super) fn new(options: &Options, points: &Points, run: Run) -> Self {
        let Run { single, found, nodes, took, single_took } = run;
        let mut traffic = Traffic::default();
        let mut causes = vec![0; Cause::ALL.len()];
        let mut faults = Faults::default();
        let mut counters: Vec<(String, u64)> = Vec::new();
        let mut waits_for_room = 0;
        let mut providers = Vec::new();
        for node in nodes {
            traffic.add(&node.traffic);
            causes.iter_mut().zip(node.causes).for_each(|(sum, count)| *sum += count);
            faults.duplicated += node.faults.duplicated;
            faults.out_of_order += node.faults.out_of_order;
            faults.corrupt += node.faults.corrupt;
            waits_for_room += node.waits_for_room;
            providers.extend(node.providers);
            for (name, count) in node.counters {
                match counters.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += count,
                    None => counters.push((name, count)),
                }
            }
        }
        let lost = traffic.0.iter().map(|kind| kind.sent.saturating_sub(kind.received)).sum();
        let found = found.map(|found| Outcome {
            centres: found.centres.into_iter().map(f64::from_bits).collect(),
            iterations: found.iterations,
        });
        let same =
            |found: &Outcome| equal(&found.centres, &single.centres) && found.iterations == single.iterations;
        let totals = Totals { traffic, causes };
        Self {
            nodes: options.nodes,
            transport: transport(options.transport, providers),
            title: options.source.title(),
            shape: (points.rows(), points.dims),
            iterations: found.as_ref().map_or(0, |found| found.iterations),
            purity: found.as_ref().and_then(|found| found.purity(points)),
            took,
            single_took,
            lost,
            faults,
            result_equal: found.as_ref().is_some_and(same),
            equations: reconcile(&totals),
            totals,
            waits_for_room,
            counters,
        }
    }

    /// Returns the number of messages sent.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.totals.traffic.0.iter().map(|kind| kind.sent).sum()
    }

    /// Returns the payload bytes of all messages sent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.totals.traffic.0.iter().map(|kind| kind.bytes).sum()
    }

    /// Returns whether every message has its cause and every cause its message.
    #[must_use]
    pub fn reconciled(&self) -> bool {
        self.equations.iter().all(Equation::holds)
    }

    /// Returns whether all checks of the run succeeded.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.lost == 0 && self.faults == Faults::default() && self.result_equal && self.reconciled()
    }

    /// Returns the payload lengths of all messages sent.
    #[must_use]
    pub fn lengths(&self) -> Lengths {
        let mut sum = Lengths::default();
        self.totals.traffic.0.iter().for_each(|kind| sum.add(&kind.lengths));
        sum
    }

    /// Returns the measured sizes; 0 if there are no messages.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let lengths = self.lengths();
        Sizes { messages_under_100: lengths.small_messages(), bytes_over_1k: lengths.large_bytes() }
    }
}

fn transport(asked: Transport, mut providers: Vec<String>) -> String {
    providers.sort_unstable();
    providers.dedup();
    match (asked, providers.is_empty()) {
        (_, false) => providers.join("+"),
        (Transport::Shm, true) => "shm".to_owned(),
        (Transport::Tcp, true) => "tcp".to_owned(),
        (Transport::Verbs, true) => "verbs".to_owned(),
        (Transport::Auto, true) => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Source;
    use crate::messages::Kind;

    /// Returns the report of a run in which two nodes only announced themselves, after `change` has modified the run.
    fn judge(change: impl FnOnce(&mut Run)) -> Report {
        let node = || {
            let mut report = NodeReport { causes: vec![0; Cause::ALL.len()], ..NodeReport::default() };
            report.causes[Cause::Announced as usize] = 1;
            let met = &mut report.traffic.0[Kind::NodeInfo.index()];
            (met.sent, met.received, met.bytes) = (1, 1, 22);
            met.lengths = [(22, 1)].into_iter().collect();
            report
        };
        let centres = vec![0.5_f64, -0.0];
        let found = Found { centres: centres.iter().map(|value| value.to_bits()).collect(), iterations: 3 };
        let mut run = Run {
            single: Outcome { centres, iterations: 3 },
            found: Some(found),
            nodes: vec![node(), node()],
            took: Duration::ZERO,
            single_took: Duration::ZERO,
        };
        change(&mut run);
        let options = Options {
            nodes: 2,
            transport: Transport::Shm,
            places: Vec::new(),
            source: Source::Digits,
            deadline: Duration::ZERO,
            node_program: ("none".into(), Vec::new()),
        };
        let points = Points { values: vec![0.5, 0.0], dims: 1, labels: None };
        Report::new(&options, &points, run)
    }

    #[test]
    fn a_run_without_faults_is_good() {
        let report = judge(|_| {});
        assert!(report.is_good());
        assert_eq!((report.messages(), report.bytes(), report.sizes().messages_under_100), (2, 44, 1.0));
    }

    #[test]
    fn each_fault_alone_is_seen_and_spoils_the_run() {
        let lost = judge(|run| run.nodes[0].traffic.0[Kind::NodeInfo.index()].received = 0);
        assert_eq!((lost.lost, lost.is_good()), (1, false));
        let duplicated = judge(|run| run.nodes[1].faults.duplicated = 1);
        assert_eq!((duplicated.faults.duplicated, duplicated.is_good()), (1, false));
        let out_of_order = judge(|run| run.nodes[1].faults.out_of_order = 1);
        assert_eq!((out_of_order.faults.out_of_order, out_of_order.is_good()), (1, false));
        let corrupt = judge(|run| run.nodes[1].faults.corrupt = 1);
        assert_eq!((corrupt.faults.corrupt, corrupt.is_good()), (1, false));
        let unreconciled = judge(|run| run.nodes[0].causes[Cause::Slept as usize] = 1);
        assert_eq!((unreconciled.reconciled(), unreconciled.is_good()), (false, false));
    }

    #[test]
    fn equal_means_every_bit_and_every_iteration() {
        let other_sign = judge(|run| run.found.as_mut().unwrap().centres[1] = 0.0_f64.to_bits());
        let one_more = judge(|run| run.found.as_mut().unwrap().iterations = 4);
        let nothing = judge(|run| run.found = None);
        assert!(
            [other_sign, one_more, nothing].iter().all(|report| !report.result_equal && !report.is_good())
        );
    }
}
