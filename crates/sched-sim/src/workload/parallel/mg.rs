//! NAS MG, multigrid: a V-cycle over grids from fine to coarse and back; neighbours exchange the faces of their parts.
//!
//! Per iteration (NPB 3.3, `MG/mg.f: mg3P`, and the residual after it): on the finest grid, on the way up, `resid`, `psinv`
//! and the last `resid`; on each grid between, `rprj3` on the way down and `resid`, `psinv` on the way up; on the
//! coarsest `rprj3` and `psinv`. Each of these ends with `comm3`: for each axis that is divided, faces go to both
//! neighbours. Tasks are divided over the axes as `setup` does: 4 are 1 x 2 x 2.

use pronto_sched_policy::policy::time::Nanos;

use super::is::per_iteration;
use super::{Job, Steps, Terms, cycles};
use crate::cluster::Cluster;
use crate::id::NodeId;

/// The size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// The finest grid has 2 to this many points in each direction.
    pub levels: u32,
    /// Iterations.
    pub iterations: u32,
    /// Computing as a multiple of that of the benchmark.
    pub computing: u64,
}

impl Class {
    /// Class A: 256^3 points, 4 iterations (NPB 1, table 2.2; `npbparams.h`).
    pub const A: Self = Self { levels: 8, iterations: 4, computing: 1 };
    /// Stands for the paper's class T, which no published suite has and which communicates less than class A (section 4.1): the
    /// exchanges of 32^3 points, and between them as much computing as in class A. Chosen by us; no source.
    pub const T: Self = Self { levels: 5, computing: 1 << (3 * (Self::A.levels - 5)), ..Self::A };
    /// Class S with the paper's 600 iterations instead of 4: the only published class below A that the suite of 1991 has, too. It
    /// communicates more often than class A.
    pub const S: Self = Self { levels: 5, iterations: 600, computing: 1 };
}

/// Operations per point of the finest grid and iteration, as the benchmark itself counts them (`mg.f`: 58).
const OPERATIONS: u64 = 58;

/// Cycles per operation. Chosen by us: 58 million operations per second, which a Pentium II of this clock rate reaches
/// on long vectors in memory.
const CYCLES: u64 = 6;

/// Bytes of a number.
const REAL: u64 = 8;

/// Returns how tasks are divided over the axes (`mg.f: setup`): thirds of the logarithm, the remainder to the later
/// axes.
fn division(ranks: usize) -> [usize; 3] {
    let all = ranks.ilog2();
    let first = all / 3;
    let second = (all - first) / 2;
    [1 << first, 1 << second, 1 << (all - first - second)]
}

/// Spawns it; the number of nodes is a power of two of at most one task per point of the coarsest grid. `terms.rounds`
/// counts whole runs.
///
/// # Panics
/// Panics if the number of nodes is anything else.
pub fn spawn(cluster: &mut Cluster, nodes: &[NodeId], class: Class, terms: &Terms) -> Job {
    let ranks = nodes.len();
    let parts = division(ranks.max(1));
    assert!(
        ranks.is_power_of_two() && parts.iter().all(|parts| *parts <= 2),
        "MG here runs on 1, 2, 4 or 8 tasks"
    );
    let neighbours = |rank: usize| {
        let mut peers: Vec<_> =
            (0..3).flat_map(|axis| [1, -1].map(|by| neighbour_of(rank, parts, axis, by))).collect();
        peers.sort_unstable();
        peers.dedup();
        peers.retain(|peer| *peer != rank);
        peers
    };
    Job::spawn(cluster, nodes, &per_iteration(terms, class.iterations), neighbours, |steps| {
        v_cycle(steps, parts, class);
    })
}

/// Adds one iteration.
fn v_cycle(steps: &mut Steps, parts: [usize; 3], class: Class) {
    let ranks: usize = parts.iter().product();
    let points = |level: u32| 1_u64 << (3 * level);
    let visits = |level: u32| if level == 1 { 2 } else { 3 };
    let all: u64 = (1..=class.levels).map(|level| visits(level) * points(level)).sum();
    let work = points(class.levels) * OPERATIONS * CYCLES * class.computing / ranks as u64;
    let part = |level: u32| {
        cycles(u64::try_from(u128::from(work) * u128::from(points(level)) / u128::from(all)).unwrap_or(0))
    };
    // An iteration begins where the residual of the last one ended.
    for level in (1..class.levels).rev() {
        visit(steps, parts, level, part(level));
    }
    visit(steps, parts, 1, part(1));
    for level in 2..class.levels {
        visit(steps, parts, level, part(level));
        visit(steps, parts, level, part(level));
    }
    for _ in 0..visits(class.levels) {
        visit(steps, parts, class.levels, part(class.levels));
    }
}

/// Adds one routine on one grid, and its `comm3`.
fn visit(steps: &mut Steps, parts: [usize; 3], level: u32, work: Nanos) {
    steps.compute(work);
    let own = parts.map(|parts| (1_u64 << level) / parts as u64);
    // `give3`: along the second axis a face is as wide as the first with both borders, along the third both have them.
    let faces = [own[1] * own[2], (own[0] + 2) * own[2], (own[0] + 2) * (own[1] + 2)];
    for axis in 0..3 {
        if parts[axis] > 1 {
            let me = steps.rank();
            let (up, down) = (neighbour_of(me, parts, axis, 1), neighbour_of(me, parts, axis, -1));
            steps.exchange(up, down, faces[axis] * REAL);
            steps.exchange(down, up, faces[axis] * REAL);
        }
    }
}

/// Returns the rank next to another along an axis; the grid is periodic.
fn neighbour_of(rank: usize, parts: [usize; 3], axis: usize, by: isize) -> usize {
    let stride: usize = parts[..axis].iter().product();
    let place = rank / stride % parts[axis];
    let next = (place + parts[axis]).wrapping_add_signed(by) % parts[axis];
    rank - place * stride + next * stride
}

#[cfg(test)]
mod tests {
    use super::super::Rounds;
    use super::*;
    use crate::cluster::Options;
    use crate::id::PortId;
    use crate::program::{Op, Wait};
    use crate::scheduler::linux2::{Linux2, Version};
    use crate::task::TaskOptions;

    #[test]
    fn four_tasks_are_one_by_two_by_two() {
        assert_eq!([1, 2, 4, 8].map(division), [[1, 1, 1], [1, 1, 2], [1, 2, 2], [2, 2, 2]]);
        let parts = division(4);
        assert_eq!([0, 1, 2, 3].map(|rank| neighbour_of(rank, parts, 1, 1)), [1, 0, 3, 2]);
        assert_eq!([0, 1, 2, 3].map(|rank| neighbour_of(rank, parts, 2, -1)), [2, 3, 0, 1]);
    }

    #[test]
    fn alone_it_computes_most_of_the_time() {
        let mut cluster = Cluster::new(Options::standard(1));
        let nodes = [0; 4].map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_2))));
        let terms = Terms { wait: Wait::Block, rounds: Rounds::Times(1), tasks: TaskOptions::default() };
        let job = spawn(&mut cluster, &nodes, Class::A, &terms);
        assert!(cluster.run_to_end(Nanos::from_millis(100_000)).is_some());
        let ran = cluster.task(job.tasks[0]).usage().ran;
        let took = job.ended(&cluster).unwrap();
        // 256^3 points, 58 operations of 6 cycles, 4 iterations, a quarter each: 16.7 s.
        assert_eq!(ran.0 / 100_000_000, 166);
        assert!(ran < took && took.0 < ran.0 * 12 / 10, "{ran:?} {took:?}");
    }

    /// Returns the computing of one of four tasks in an iteration, in nanoseconds, and its messages and bytes per second of it.
    fn intensity(class: Class) -> (u64, [u64; 2]) {
        let ports = [1, 2].map(|peer| (peer, PortId::at(peer)));
        let mut steps = Steps::new(0, ports.to_vec(), Wait::Block);
        v_cycle(&mut steps, division(4), class);
        let (mut computing, mut messages, mut sent) = (0, 0, 0);
        for operation in steps.done().iter() {
            match operation {
                Op::Compute(time) => computing += time.0,
                Op::Send { bytes, .. } => {
                    messages += 1;
                    sent += u64::from(*bytes);
                }
                _ => {}
            }
        }
        (computing, [messages, sent].map(|count| count * 1_000_000_000 / computing))
    }

    #[test]
    fn class_t_communicates_less_than_class_a_and_class_s_more_often() {
        let [(as_long, a), (long, t), (_, s)] = [Class::A, Class::T, Class::S].map(intensity);
        assert!(long.abs_diff(as_long) < as_long / 1_000, "{long} {as_long}");
        assert!(
            t[0] * 3 < a[0] && t[1] * 30 < a[1],
            "messages and bytes per second of computing: {t:?} {a:?}"
        );
        assert!(s[0] > 10 * a[0], "{s:?} {a:?}");
    }
}
