//! The right side: +1 at the ten points with the largest random numbers, -1 at the ten with the smallest, and 0 elsewhere.
//!
//! Point (x, y, z) has number x + n (y + n z) of the random sequence, where n is the number of points along an axis.

use zerocopy::IntoBytes;

use super::grid::Grid;
use super::partition::Partition;
use crate::comm::{Comm, CommError};
use crate::random::{Random, SEED};

/// Points of each sign.
const CHARGES: usize = 10;

/// Candidates of a rank for one sign, best first: the random number, and the index of the point in the sequence, both as f64. The index is
/// less than 2^53.
type Candidates = [[f64; 2]; CHARGES];

/// Sets the right side of a cube with `points` along each axis.
pub(super) fn place(
    comm: &mut impl Comm,
    partition: Partition,
    points: usize,
    grid: &mut Grid,
) -> Result<(), CommError> {
    let own = candidates(partition, points);
    grid.clear();
    for (side, charge) in own.iter().zip([-1.0, 1.0]) {
        for index in best_of_all(comm, side)? {
            let origin = partition.origin(points);
            let [x, y, z] = [index % points, index / points % points, index / (points * points)];
            let at = [x, y, z];
            let local: [Option<usize>; 3] = core::array::from_fn(|axis| {
                at[axis].checked_sub(origin[axis]).filter(|at| *at < grid.own()[axis])
            });
            if let [Some(x), Some(y), Some(z)] = local {
                grid.row_mut(y + 1, z + 1)[x + 1] = charge;
            }
        }
    }
    Ok(())
}

/// Returns the points of this rank with the smallest and with the largest numbers. A number is negated for the latter.
fn candidates(partition: Partition, points: usize) -> [Candidates; 2] {
    let (origin, extents) = (partition.origin(points), partition.extents(points));
    let mut best = [[[f64::INFINITY, 0.0]; CHARGES]; 2];
    for z in origin[2]..origin[2] + extents[2] {
        for y in origin[1]..origin[1] + extents[1] {
            let first = origin[0] + points * (y + points * z);
            let mut random = Random::new(SEED).skip(first as u64);
            for index in first..first + extents[0] {
                let number = random.next();
                for (side, number) in best.iter_mut().zip([number, -number]) {
                    if number < side[CHARGES - 1][0] {
                        side[CHARGES - 1] = [number, index as f64];
                        side.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]));
                    }
                }
            }
        }
    }
    best
}

/// Returns the points with the ten smallest numbers of all ranks.
fn best_of_all(comm: &mut impl Comm, own: &Candidates) -> Result<Vec<usize>, CommError> {
    let lengths = vec![size_of::<Candidates>(); comm.size()];
    let send = vec![*own; comm.size()];
    let mut all = send.clone();
    comm.all_to_all(send.as_bytes(), all.as_mut_bytes(), (&lengths, &lengths))?;
    let mut all = all.concat();
    all.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index as f64")]
    let index = |candidate: &[f64; 2]| candidate[1] as usize;
    Ok(all[..CHARGES].iter().map(index).collect())
}
