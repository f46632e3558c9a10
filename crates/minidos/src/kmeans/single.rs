//! The whole computation in one process, for comparison.

use super::{Centres, Farthest, Partial, Task, combine, equal, nearest};
use crate::data::Points;

/// Progress of a computation, for one process and for many nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The centres still move.
    Moving,
    /// The centres no longer move.
    Settled,
    /// The computation ended at the maximum number of iterations.
    Stopped,
}

impl Progress {
    /// Returns the progress, given the centres before and after iteration `iteration`, counted from 1.
    #[must_use]
    pub fn after(task: &Task, iteration: u32, before: &[f64], after: &[f64]) -> Self {
        if equal(before, after) {
            Self::Settled
        } else if iteration >= task.max_iterations {
            Self::Stopped
        } else {
            Self::Moving
        }
    }
}

/// Result of a computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The centres.
    pub centres: Centres,
    /// Number of iterations.
    pub iterations: u32,
}

/// Runs the whole computation in this thread.
#[must_use]
pub fn run(task: &Task, points: &Points) -> Outcome {
    let mut centres: Centres = task.first_centres().flat_map(|row| points.row(row)).copied().collect();
    for iteration in 1.. {
        let mut farthest = Farthest::NONE;
        let mut partials = Vec::new();
        for block in 0..task.blocks {
            let rows = task.block(block);
            let values = &points.values[rows.start * task.dims..rows.end * task.dims];
            let mut partial = Partial::new(task);
            farthest = farthest.or(partial.take(rows.start, values, &centres));
            partials.push(partial);
        }
        let row = usize::try_from(farthest.row).expect("a row of the data, of which there is at least one");
        let next = combine(task, partials.iter(), points.row(row));
        let progress = Progress::after(task, iteration, &centres, &next);
        centres = next;
        if progress != Progress::Moving {
            return Outcome { centres, iterations: iteration };
        }
    }
    unreachable!("the number of iterations is bounded")
}

impl Outcome {
    /// Returns the share of rows in a cluster where most rows have their label, from 0 to 1; `None` without labels.
    #[must_use]
    pub fn purity(&self, points: &Points) -> Option<f64> {
        let labels = points.labels.as_ref()?;
        let clusters = self.centres.len() / points.dims;
        let mut counts = vec![[0_u32; 256]; clusters];
        for (row, label) in labels.iter().enumerate() {
            counts[nearest(points.row(row), &self.centres).0][usize::from(*label)] += 1;
        }
        let pure: u32 = counts.iter().filter_map(|labels| labels.iter().max()).sum();
        let all: u32 = counts.iter().flatten().sum();
        Some(f64::from(pure) / f64::from(all.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Source;

    #[test]
    fn the_digits_settle_and_most_share_a_cluster_with_equal_digits() {
        let points = Source::Digits.load().unwrap();
        let task = Task::new(points.rows(), points.dims);
        let outcome = run(&task, &points);
        assert!((5..task.max_iterations).contains(&outcome.iterations), "{}", outcome.iterations);
        assert!(outcome.purity(&points).unwrap() > 0.7);
        assert_eq!(run(&task, &points), outcome);
    }

    #[test]
    fn the_number_of_blocks_is_part_of_the_result() {
        let points = Source::Digits.load().unwrap();
        let task = Task::new(points.rows(), points.dims);
        let scaled = |points: &Points| {
            let values = points.values.iter().map(|value| value / 3.0).collect();
            Points { values, ..points.clone() }
        };
        let points = scaled(&points);
        let other = Task { blocks: 7, max_iterations: 3, ..task };
        let task = Task { max_iterations: 3, ..task };
        assert!(
            !equal(&run(&task, &points).centres, &run(&other, &points).centres),
            "the order of additions must matter"
        );
    }

    #[test]
    fn it_ends_after_the_maximum_number_of_iterations() {
        let points = Source::Digits.load().unwrap();
        let task = Task { max_iterations: 2, ..Task::new(points.rows(), points.dims) };
        assert_eq!(run(&task, &points).iterations, 2);
    }
}
