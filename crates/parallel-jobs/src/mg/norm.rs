//! The norm of a grid over all ranks.

use super::grid::Grid;
use crate::comm::{Comm, CommError, Reduction};

/// Returns the root of the mean square of all values. `points` is their number at all ranks.
///
/// The benchmark also asks for the largest value, which takes a reduction of its own.
pub(super) fn of(comm: &mut impl Comm, grid: &Grid, points: f64) -> Result<f64, CommError> {
    let [x, y, z] = grid.own();
    let (mut sum, mut largest) = (0.0, 0.0_f64);
    for (y, z) in (1..=z).flat_map(|z| (1..=y).map(move |y| (y, z))) {
        for value in &grid.row(y, z)[1..=x] {
            sum += value * value;
            largest = largest.max(value.abs());
        }
    }
    let (mut sum, mut largest) = ([sum], [largest]);
    comm.allreduce(Reduction::MaxF64(&mut largest))?;
    comm.allreduce(Reduction::SumF64(&mut sum))?;
    Ok((sum[0] / points).sqrt())
}
