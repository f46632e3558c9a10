//! The cut of the cube into boxes. NPB's rule: of the bits of the number of ranks, a third (rounded down) cuts along x, half of the others
//! (rounded down) along y, and the rest along z.

use super::grid::Extents;
use crate::comm::Rank;

/// The boxes of all ranks, and the place of this one. Ranks count along x first, then y, then z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    /// Boxes along each axis.
    boxes: [usize; 3],
    /// Position of the own box.
    place: [usize; 3],
}

impl Partition {
    /// Returns the place of `rank` among `size` ranks.
    ///
    /// # Panics
    /// Panics if the number is not 1, 2, 4 or 8: with more ranks, the coarsest grid has fewer points than ranks.
    pub(super) fn new(rank: Rank, size: usize) -> Self {
        assert!(size.is_power_of_two() && size <= 8, "MG runs on 1, 2, 4 or 8 ranks");
        let bits = size.ilog2();
        let x = bits / 3;
        let y = (bits - x) / 2;
        let boxes = [1 << x, 1 << y, 1 << (bits - x - y)];
        let place = [rank.0 % boxes[0], rank.0 / boxes[0] % boxes[1], rank.0 / (boxes[0] * boxes[1])];
        Self { boxes, place }
    }

    /// Returns the own points of a cube with `points` along each axis.
    pub(super) fn extents(self, points: usize) -> Extents {
        self.boxes.map(|boxes| points / boxes)
    }

    /// Returns the coordinates of the first own point in a cube with `points` along each axis.
    pub(super) fn origin(self, points: usize) -> [usize; 3] {
        let extents = self.extents(points);
        core::array::from_fn(|axis| self.place[axis] * extents[axis])
    }

    /// Returns the ranks below and above this one along an axis, or `None` if the box is its own neighbour.
    pub(super) fn neighbours(self, axis: usize) -> Option<[Rank; 2]> {
        let count = self.boxes[axis];
        let at = |distance: usize| {
            let mut place = self.place;
            place[axis] = (place[axis] + distance) % count;
            Rank((place[2] * self.boxes[1] + place[1]) * self.boxes[0] + place[0])
        };
        (count > 1).then(|| [at(count - 1), at(1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_follows_the_rule() {
        let boxes = [1, 2, 4, 8].map(|size| Partition::new(Rank(0), size).boxes);
        assert_eq!(boxes, [[1, 1, 1], [1, 1, 2], [1, 2, 2], [2, 2, 2]]);
        assert_eq!(Partition::new(Rank(3), 4).origin(32), [0, 16, 16]);
        assert_eq!(Partition::new(Rank(5), 8).origin(32), [16, 0, 16]);
    }

    #[test]
    fn neighbours_are_mutual() {
        for size in [2, 4, 8] {
            for (rank, axis) in (0..size).flat_map(|rank| [0, 1, 2].map(|axis| (rank, axis))) {
                let Some([below, above]) = Partition::new(Rank(rank), size).neighbours(axis) else {
                    continue;
                };
                assert_ne!(above, Rank(rank));
                assert_eq!(Partition::new(above, size).neighbours(axis).unwrap()[0], Rank(rank));
                assert_eq!(Partition::new(below, size).neighbours(axis).unwrap()[1], Rank(rank));
            }
        }
    }
}
