//! Parallel jobs: one task per node, all doing the same steps, round after round.
//!
//! | module | job | its source |
//! | --- | --- | --- |
//! | [`is`] | NAS IS, sorting integers: each task sends to every other | NPB 2 and 3, `IS/is.c` |
//! | [`mg`] | NAS MG, a multigrid: neighbours exchange faces, of all sizes | NPB 2 and 3, `MG/mg.f` |
//! | [`stencil`] | one grid, for any square number of nodes | the finest level of MG |
//!
//! The coscheduling paper runs IS and MG of 1991's suite under PVM (section 4); the patterns here are those of the suite's
//! later implementation in MPI, whose sources are public. A task of PVM takes in what arrives while it sends, so that two
//! that send to each other do not wait for ever; here both send and receive in turns, [`CHUNK`] by [`CHUNK`].

pub mod is;
pub mod mg;
mod script;
pub mod stencil;

use pronto_sched_policy::policy::time::Nanos;

use crate::cluster::Cluster;
use crate::id::{NodeId, PortId, TaskId};
use crate::program::Wait;
use crate::task::TaskOptions;

use script::Steps;
pub use script::{Rounds, Script};

/// Clock rate of the CPUs of the coscheduling paper: "four 350MHz Pentium II" (section 4).
const CYCLES_PER_SECOND: u64 = 350_000_000;

/// Bytes sent before something is received: half of a socket's buffer (see [`crate::link::Link::buffer`]), so that two
/// tasks that are a chunk apart do not wait for each other.
pub const CHUNK: u32 = 32_768;

/// Options that all tasks of a job have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Wait policy of receives.
    pub wait: Wait,
    /// Number of rounds.
    pub rounds: Rounds,
    /// Options of each task.
    pub tasks: TaskOptions,
}

/// A job that was spawned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its tasks, by rank.
    pub tasks: Vec<TaskId>,
}

impl Job {
    /// Spawns a task per node that does what `steps` says, and connects those ranks that `neighbours` gives.
    fn spawn(
        cluster: &mut Cluster,
        nodes: &[NodeId],
        terms: &Terms,
        neighbours: impl Fn(usize) -> Vec<usize>,
        steps: impl Fn(&mut Steps),
    ) -> Self {
        // Ports are numbered in the order of connecting; that order is known before any task is there.
        let mut ports: Vec<Vec<(usize, PortId)>> = vec![Vec::new(); nodes.len()];
        let mut connections = Vec::new();
        for rank in 0..nodes.len() {
            for peer in neighbours(rank).into_iter().filter(|peer| *peer > rank) {
                connections.push((rank, peer));
                let next = |ports: &[(usize, PortId)]| PortId::at(ports.len());
                let (mine, theirs) = (next(&ports[rank]), next(&ports[peer]));
                ports[rank].push((peer, mine));
                ports[peer].push((rank, theirs));
            }
        }
        let mut tasks = Vec::new();
        for (rank, (node, ports)) in nodes.iter().zip(ports).enumerate() {
            let mut of_rank = Steps::new(rank, ports, terms.wait);
            steps(&mut of_rank);
            let program = Box::new(Script::new(of_rank.done(), terms.rounds));
            tasks.push(cluster.spawn(*node, terms.tasks, program));
        }
        for (a, b) in connections {
            cluster.connect(tasks[a], tasks[b]);
        }
        Self { tasks }
    }

    /// Returns when its last task ended; `None` while any is running.
    #[must_use]
    pub fn ended(&self, cluster: &Cluster) -> Option<Nanos> {
        self.tasks
            .iter()
            .map(|task| cluster.task(*task).usage().ended)
            .try_fold(Nanos::ZERO, |last, ended| ended.map(|ended| last.max(ended)))
    }
}

/// Returns the duration of `count` cycles of a CPU of the paper.
fn cycles(count: u64) -> Nanos {
    Nanos(count.saturating_mul(1_000) / (CYCLES_PER_SECOND / 1_000_000))
}
