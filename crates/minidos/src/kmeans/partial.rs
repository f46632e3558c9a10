//! The contribution of one block of rows to an iteration.

use super::{Task, nearest};

/// Sums of the rows of one block by cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    /// Sum of the rows of each cluster, one after the other.
    pub sums: Vec<f64>,
    /// Number of rows of each cluster.
    pub counts: Vec<u32>,
}

/// The row that lies farthest from its centre. All tasks update it under a lock. Their order makes no difference, because ties
/// go to the first row in the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Farthest {
    /// Square of the distance.
    pub distance: f64,
    /// The row.
    pub row: u64,
}

impl Farthest {
    /// Initial value, nearer than any row.
    pub const NONE: Self = Self { distance: -1.0, row: u64::MAX };

    /// Returns the farther of two rows.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let farther = other.distance > self.distance;
        let first = other.distance.to_bits() == self.distance.to_bits() && other.row < self.row;
        if farther || first { other } else { self }
    }
}

impl Partial {
    /// Creates a sum of no rows.
    #[must_use]
    pub fn new(task: &Task) -> Self {
        Self { sums: vec![0.0; task.clusters * task.dims], counts: vec![0; task.clusters] }
    }

    /// Adds rows, starting with row number `first`. Returns the one that lies farthest from its centre.
    pub fn take(&mut self, first: usize, rows: &[f64], centres: &[f64]) -> Farthest {
        let dims = self.sums.len() / self.counts.len();
        let mut farthest = Farthest::NONE;
        for (number, row) in (first..).zip(rows.chunks_exact(dims)) {
            let (cluster, distance) = nearest(row, centres);
            farthest = farthest.or(Farthest { distance, row: number as u64 });
            self.counts[cluster] += 1;
            let sums = &mut self.sums[cluster * dims..(cluster + 1) * dims];
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        farthest
    }

    /// Adds another partial to this one.
    pub fn add(&mut self, other: &Self) {
        self.sums.iter_mut().zip(&other.sums).for_each(|(sum, value)| *sum += value);
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, value)| *count += value);
    }

    /// Returns the number of bytes that [`Partial::to_bytes`] makes.
    #[must_use]
    pub fn len(task: &Task) -> usize {
        task.clusters * task.dims * 8 + task.clusters * 4
    }

    /// Encodes the partial for shared memory.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let sums = self.sums.iter().flat_map(|sum| sum.to_le_bytes());
        sums.chain(self.counts.iter().flat_map(|count| count.to_le_bytes())).collect()
    }

    /// Decodes a partial from shared memory; `bytes` has the length [`Partial::len`].
    #[must_use]
    pub fn from_bytes(task: &Task, bytes: &[u8]) -> Self {
        let (sums, counts) = bytes.split_at((task.clusters * task.dims * 8).min(bytes.len()));
        let sums = sums.as_chunks().0.iter().map(|sum| f64::from_le_bytes(*sum)).collect();
        let counts = counts.as_chunks().0.iter().map(|count| u32::from_le_bytes(*count)).collect();
        Self { sums, counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        let task = Task { rows: 3, dims: 2, clusters: 2, blocks: 1, max_iterations: 1 };
        let mut partial = Partial::new(&task);
        partial.take(0, &[1.0, 2.0, 9.5, -8.0, 1.5, 2.5], &[1.0, 2.0, 9.0, -9.0]);
        assert_eq!(partial.counts, [2, 1]);
        let bytes = partial.to_bytes();
        assert_eq!(bytes.len(), Partial::len(&task));
        assert_eq!(Partial::from_bytes(&task, &bytes), partial);
    }

    #[test]
    fn the_farthest_row_does_not_depend_on_the_order() {
        let rows = [(1.0, 4), (3.0, 9), (3.0, 2), (0.0, 0)];
        let rows = rows.map(|(distance, row)| Farthest { distance, row });
        let forth = rows.into_iter().fold(Farthest::NONE, Farthest::or);
        let back = rows.into_iter().rev().fold(Farthest::NONE, Farthest::or);
        assert_eq!((forth, back), (rows[2], rows[2]));
        assert_eq!(Farthest::NONE.or(rows[3]), rows[3]);
    }
}
