//! kmeans in steps that can be computed anywhere and combined in one order, so that the result never depends on where.
//!
//! Lloyd's algorithm. Rows are cut into a fixed number of blocks; each block yields a [`Partial`] sum, and the partials
//! are combined in the order of the blocks. Floating-point addition is not associative, so this order is what makes
//! the result of any number of nodes equal to that of one process, bit for bit.

mod partial;
mod single;
mod worker;

use core::ops::Range;

use serde::{Deserialize, Serialize};

pub use partial::{Farthest, Partial};
pub use single::{Outcome, Progress, run};
pub(crate) use worker::{lay_out, work};

/// What is computed.
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
    /// Iterations after which it ends, whether it settled or not.
    pub max_iterations: u32,
}

impl Task {
    /// For so many rows and columns: ten centres (or as many as there are rows), and a number of blocks that does
    /// not depend on the number of nodes.
    #[must_use]
    pub fn new(rows: usize, dims: usize) -> Self {
        Self { rows, dims, clusters: rows.min(CLUSTERS), blocks: BLOCKS, max_iterations: MAX_ITERATIONS }
    }

    /// The rows of a block. Blocks differ by at most one row, and may be empty if there are more blocks than rows.
    #[must_use]
    pub fn block(&self, block: usize) -> Range<usize> {
        let edge = |block: usize| self.rows * block / self.blocks;
        edge(block)..edge(block + 1)
    }

    /// The rows that the centres begin with: the middle of each of as many equal parts as there are clusters.
    pub fn first_centres(&self) -> impl Iterator<Item = usize> {
        let (rows, clusters) = (self.rows, self.clusters);
        (0..clusters).map(move |cluster| rows * (2 * cluster + 1) / (2 * clusters))
    }
}

/// The centres of all clusters, one after the other.
pub type Centres = Vec<f64>;

/// The cluster whose centre is nearest to `row`, and the square of the distance. Of two equal ones the first.
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

/// New centres from all partials in the order of their blocks. A cluster without rows moves to `farthest`.
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

/// Whether two sets of centres are the same, bit for bit.
#[must_use]
pub fn equal(one: &[f64], other: &[f64]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// As many as there are digits.
const CLUSTERS: usize = 10;

/// Enough that eight nodes have four each; few enough that a partial is worth its two pages.
const BLOCKS: usize = 32;

/// The digits settle after about thirty.
const MAX_ITERATIONS: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_all_rows_each_once() {
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
    fn a_cluster_without_rows_moves_to_the_farthest() {
        let task = Task { rows: 2, dims: 1, clusters: 2, blocks: 1, max_iterations: 1 };
        let mut partial = Partial::new(&task);
        partial.take(0, &[1.0, 3.0], &[2.0, 100.0]);
        assert_eq!(combine(&task, [partial].iter(), &[7.0]), [2.0, 7.0]);
    }
}
