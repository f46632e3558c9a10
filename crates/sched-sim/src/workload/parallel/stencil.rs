//! A grid over a square of nodes, for clusters of any size: each task computes its part, then exchanges borders with its four
//! neighbours. The part of a task is always the same, so alone the job takes as long on any number of nodes.

use pronto_sched_policy::policy::time::Nanos;

use super::{Job, Terms};
use crate::cluster::Cluster;
use crate::id::NodeId;

/// Work of a task in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grain {
    /// Computing.
    pub compute: Nanos,
    /// Bytes of one border.
    pub bytes: u32,
}

/// Spawns it; the number of nodes is a square of at least 2 x 2.
///
/// # Panics
/// Panics if the number of nodes is anything else.
pub fn spawn(cluster: &mut Cluster, nodes: &[NodeId], grain: Grain, terms: &Terms) -> Job {
    let side = nodes.len().isqrt();
    assert!(side > 1 && side * side == nodes.len(), "a stencil runs on 4, 9, 16, ... tasks");
    let beside = move |rank: usize, (down, right): (usize, usize)| {
        (rank / side + down) % side * side + (rank % side + right) % side
    };
    let ways = [(0, 1), (1, 0), (0, side - 1), (side - 1, 0)];
    let neighbours = |rank: usize| {
        let mut peers: Vec<_> = ways.iter().map(|way| beside(rank, *way)).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    };
    Job::spawn(cluster, nodes, terms, neighbours, |steps| {
        let me = steps.rank();
        steps.compute(grain.compute);
        for (to, from) in [(0, 2), (2, 0), (1, 3), (3, 1)] {
            steps.exchange(beside(me, ways[to]), beside(me, ways[from]), grain.bytes.into());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::Rounds;
    use super::*;
    use crate::cluster::Options;
    use crate::program::Wait;
    use crate::scheduler::linux2::{Linux2, Version};
    use crate::task::TaskOptions;

    #[test]
    fn alone_it_takes_as_long_on_any_number_of_nodes() {
        let grain = Grain { compute: Nanos::from_millis(5), bytes: 4096 };
        let took = [4, 9, 64].map(|count| {
            let mut cluster = Cluster::new(Options::standard(1));
            let nodes: Vec<_> =
                (0..count).map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_2)))).collect();
            let terms = Terms { wait: Wait::Block, rounds: Rounds::Times(20), tasks: TaskOptions::default() };
            let job = spawn(&mut cluster, &nodes, grain, &terms);
            assert!(cluster.run_to_end(Nanos::from_millis(10_000)).is_some());
            job.ended(&cluster).unwrap().0 / 1_000_000
        });
        assert!(took.iter().all(|ms| (130..140).contains(ms)), "{took:?}");
        assert!(took.iter().all(|ms| ms.abs_diff(took[0]) <= 1), "{took:?}");
    }
}
