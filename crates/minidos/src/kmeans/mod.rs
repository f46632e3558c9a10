//! k-means in steps that can be computed anywhere and are combined in one order. The result does not depend on the place.
//!
//! It uses Lloyd's algorithm. Rows are cut into a fixed number of blocks. Each block yields a [`Partial`] sum, and the partials
//! are combined in the order of the blocks. Floating-point addition is not associative, so this order makes the result of any
//! number of nodes equal to that of one process, bit for bit.

mod partial;
mod single;
mod worker;

use core::ops::Range;

use serde::{Deserialize, Serialize};

pub use partial::{Farthest, Partial};
pub use single::{Outcome, Progress, run};
pub(crate) use worker::{create_layout, work};

/// Parameters of a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Rows.
    pub rows: usize,
    /// Numbers per row.
    pub dims: usize,
    /// Centres to find.
    pub clusters: usize,
    /// Blocks that the rows are cut into.
    pub blocks: usize,
    /// Number of iterations after which the computation ends even if the centres still move.
    pub max_iterations: u32,
}

impl Task {
    /// Returns the task for `rows` rows and `dims` columns: ten centres (or fewer, if there are fewer rows), and a number of
    /// blocks that does not depend on the number of nodes.
    #[must_use]
    pub fn new(rows: usize, dims: usize) -> Self {
        Self { rows, dims, clusters: rows.min(CLUSTERS), blocks: BLOCKS, max_iterations: MAX_ITERATIONS }
    }

    /// Returns the rows of a block. Blocks differ by at most one row, and may be empty if there are more blocks than rows.
    #[must_use]
    pub fn block(&self, block: usize) -> Range<usize> {
        let edge = |block: usize| self.rows * block / self.blocks;
        edge(block)..edge(block + 1)
    }

    /// Returns the rows of the initial centres: the middle row of each of `clusters` equal parts.
    pub fn first_centres(&self) -> impl Iterator<Item = usize> {
        let (rows, clusters) = (self.rows, self.clusters);
        (0..clusters).map(move |cluster| rows * (2 * cluster + 1) / (2 * clusters))
    }
}

/// The centres of all clusters, one after the other.
pub type Centres = Vec<f64>;

/// Returns the cluster whose centre is nearest to `row`, and the square of the distance. Ties go to the first cluster.
#[must_use]
pub fn nearest(row: &[f64], centres: &[f64]) -> (usize, f64) {
    let mut best = (0, f64::INFINITY);
    for (cluster, centre) in centres.chunks_exact(row.len()).enumerate() {
        let distance = row.iter().zip(centre).map(|(a, b)| (a - b) * (a - b)).sum();
        if distance < best.1 {
            best = (cluster, distance);
        }
    }
    best
}

/// Computes new centres from all partials in the order of their blocks. A cluster without rows moves to `farthest`.
pub fn combine<'a>(task: &Task, partials: impl Iterator<Item = &'a Partial>, farthest: &[f64]) -> Centres {
    let mut total = Partial::new(task);
    for partial in partials {
        total.add(partial);
    }
    let mut centres = total.sums;
    for (centre, count) in centres.chunks_exact_mut(task.dims).zip(&total.counts) {
        if *count == 0 {
            centre.copy_from_slice(farthest);
        } else {
            let count = f64::from(*count);
            centre.iter_mut().for_each(|value| *value /= count);
        }
    }
    centres
}

/// Returns whether two sets of centres are equal, bit for bit.
#[must_use]
pub fn equal(one: &[f64], other: &[f64]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Maximum number of clusters: the number of digits.
const CLUSTERS: usize = 10;

/// Number of blocks: eight nodes get four each, and a block is large enough to justify the two pages of its partial.
const BLOCKS: usize = 32;

/// Maximum number of iterations. The digits settle after about thirty.
const MAX_ITERATIONS: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_contain_every_row_once() {
        for rows in [1, 31, 32, 33, 1_797] {
            let task = Task::new(rows, 4);
            let all: Vec<usize> = (0..task.blocks).flat_map(|block| task.block(block)).collect();
            assert_eq!(all, (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_of_equally_near_centres_is_taken() {
        assert_eq!(nearest(&[1.0], &[0.0, 2.0, 1.0]), (2, 0.0));
        assert_eq!(nearest(&[1.0], &[0.0, 2.0]), (0, 1.0));
    }

    #[test]
    fn a_cluster_without_rows_moves_to_the_farthest_row() {
        let task = Task { rows: 2, dims: 1, clusters: 2, blocks: 1, max_iterations: 1 };
        let mut partial = Partial::new(&task);
        partial.take(0, &[1.0, 3.0], &[2.0, 100.0]);
        assert_eq!(combine(&task, [partial].iter(), &[7.0]), [2.0, 7.0]);
    }
}
