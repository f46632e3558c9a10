//! NAS IS, integer sort: rank keys by buckets; every task sends a part of its keys to every other.
//!
//! Per iteration (NPB 3.3, `IS/is.c: rank()`): count own keys into 1024 buckets and sort them there; sum the bucket
//! sizes over all tasks (`MPI_Allreduce` of 1024 + 5 integers); tell each task how many keys it gets (`MPI_Alltoall` of
//! an integer); send them (`MPI_Alltoallv` of 4-byte keys; keys are random, so each task gets about the same from
//! each); rank the received keys. Sums use recursive doubling. All-to-all exchanges take as many steps as there are
//! other tasks.

use super::{Job, Rounds, Steps, Terms, cycles};
use crate::cluster::Cluster;
use crate::id::NodeId;

/// The size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Keys of all tasks.
    pub keys: u64,
    /// Iterations.
    pub iterations: u32,
}

impl Class {
    /// Class A: 2^23 keys below 2^19, 10 iterations (NPB 1, table 2.2; `is.c`).
    pub const A: Self = Self { keys: 1 << 23, iterations: 10 };
    /// Class S: 2^16 keys, 10 iterations.
    pub const S: Self = Self { keys: 1 << 16, iterations: 10 };
}

/// `NUM_BUCKETS + TEST_ARRAY_SIZE` integers of 4 bytes.
const SUMMED: u64 = (1024 + 5) * 4;

/// Bytes of a key, and of a count.
const INTEGER: u64 = 4;

/// Cycles per key and iteration before the exchange (count, scatter); [`AFTER`] covers the work after it (populate,
/// accumulate). Chosen by us: each of five passes takes a read or write that mostly hits the second-level cache, about
/// 20 cycles on a Pentium II.
const BEFORE: u64 = 40;
/// Cycles per key and iteration after the exchange; [`BEFORE`] gives the reason.
const AFTER: u64 = 60;

/// Spawns it; the number of nodes is a power of two, and at least two. `terms.rounds` counts whole runs.
///
/// # Panics
/// Panics if the number of nodes is anything else.
pub fn spawn(cluster: &mut Cluster, nodes: &[NodeId], class: Class, terms: &Terms) -> Job {
    let ranks = nodes.len();
    assert!(ranks.is_power_of_two() && ranks > 1, "IS runs on 2, 4, 8, ... tasks");
    let keys = class.keys / ranks as u64;
    let others = |rank: usize| (0..ranks).filter(|peer| *peer != rank).collect();
    Job::spawn(cluster, nodes, &per_iteration(terms, class.iterations), others, |steps| {
        let me = steps.rank();
        steps.compute(cycles(keys * BEFORE));
        let mut distance = 1;
        while distance < ranks {
            steps.exchange(me ^ distance, me ^ distance, SUMMED);
            distance *= 2;
        }
        for bytes in [INTEGER, keys / ranks as u64 * INTEGER] {
            all_to_all(steps, ranks, bytes);
        }
        steps.compute(cycles(keys * AFTER));
    })
}

/// Adds an exchange in which each rank sends `bytes` to every other.
fn all_to_all(steps: &mut Steps, ranks: usize, bytes: u64) {
    let me = steps.rank();
    for distance in 1..ranks {
        steps.exchange((me + distance) % ranks, (me + ranks - distance) % ranks, bytes);
    }
}

/// Runs as rounds of iterations.
pub(super) fn per_iteration(terms: &Terms, iterations: u32) -> Terms {
    let rounds = match terms.rounds {
        Rounds::Times(runs) => Rounds::Times(runs.saturating_mul(iterations)),
        Rounds::Endless => Rounds::Endless,
    };
    Terms { rounds, ..*terms }
}

#[cfg(test)]
mod tests {
    use pronto_sched_policy::policy::time::Nanos;

    use super::*;
    use crate::cluster::Options;
    use crate::program::Wait;
    use crate::scheduler::linux2::{Linux2, Version};
    use crate::task::TaskOptions;

    #[test]
    fn alone_it_takes_its_computing_and_the_transfer_of_its_keys() {
        let mut cluster = Cluster::new(Options::standard(1));
        let nodes = [0; 4].map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_2))));
        let terms = Terms { wait: Wait::Block, rounds: Rounds::Times(1), tasks: TaskOptions::default() };
        let job = spawn(&mut cluster, &nodes, Class::A, &terms);
        assert!(cluster.run_to_end(Nanos::from_millis(100_000)).is_some());
        let took = job.ended(&cluster).unwrap().0 / 1_000_000;
        // 2^21 keys of 100 cycles, and three quarters of them in 4096-byte fragments with 198 bytes of headers.
        let computing = 10 * (1 << 21) * 100 / 350_000;
        let line = 10 * 3 * (1 << 21) * (4096 + 198) / 4096 / 12_500;
        assert!(took > computing + line, "{took} ms, computing {computing}, line {line}");
        assert!(took < (computing + line) * 12 / 10, "{took} ms, computing {computing}, line {line}");
    }
}
