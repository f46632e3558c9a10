//! The operators on grids: residual, smoother, restriction and prolongation.
//!
//! An operator with 27 points has four coefficients: for the point itself, and for its neighbours across faces (6), edges (12) and corners
//! (8). For each row the sums over neighbouring rows are made first. The neighbours along x then share them.

use super::grid::Grid;

/// The coefficients of the operator A of the equation and of the smoother C.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients {
    /// A, of the point itself, and across faces, edges and corners.
    pub equation: [f64; 4],
    /// C, likewise.
    pub smoother: [f64; 4],
}

impl Coefficients {
    /// The coefficients of classes S, W and A.
    pub const NPB: Self = Self {
        equation: [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0],
        smoother: [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0, 0.0],
    };

    /// Calculates `residual` = `right_side` - A `solution`. Without a right side, subtracts A `solution` from `residual`.
    pub(super) fn residual(&self, solution: &Grid, right_side: Option<&Grid>, residual: &mut Grid) {
        let negative = self.equation.map(|coefficient| -coefficient);
        add(negative, solution, residual, right_side);
    }

    /// Adds C `residual` to `solution`.
    pub(super) fn smooth(&self, residual: &Grid, solution: &mut Grid) {
        add(self.smoother, residual, solution, None);
    }
}

/// Sums over the rows around a row: of the four that share a face with it, and of the four that share an edge.
struct Around {
    faces: Vec<f64>,
    edges: Vec<f64>,
}

impl Around {
    fn new(width: usize) -> Self {
        Self { faces: vec![0.0; width], edges: vec![0.0; width] }
    }

    fn sum(&mut self, grid: &Grid, y: usize, z: usize) {
        let rows = |places: [(usize, usize); 4]| places.map(|(y, z)| grid.row(y, z));
        let faces = rows([(y - 1, z), (y + 1, z), (y, z - 1), (y, z + 1)]);
        let edges = rows([(y - 1, z - 1), (y + 1, z - 1), (y - 1, z + 1), (y + 1, z + 1)]);
        for (sums, [a, b, c, d]) in [(&mut self.faces, faces), (&mut self.edges, edges)] {
            for ((((sum, a), b), c), d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *sum = a + b + c + d;
            }
        }
    }
}

/// Adds the operator with these coefficients, applied to `from`, to `base`, and writes the sum to `to`. The base is `to` itself if it is
/// `None`. Sets the own points.
fn add(coefficients: [f64; 4], from: &Grid, to: &mut Grid, base: Option<&Grid>) {
    let [_, own_y, own_z] = to.own();
    let mut around = Around::new(from.width());
    for (y, z) in (1..=own_z).flat_map(|z| (1..=own_y).map(move |y| (y, z))) {
        around.sum(from, y, z);
        let target = to.row_mut(y, z);
        if let Some(base) = base {
            target.copy_from_slice(base.row(y, z));
        }
        add_row(coefficients, from.row(y, z), &around, target);
    }
}

fn add_row(coefficients: [f64; 4], row: &[f64], around: &Around, target: &mut [f64]) {
    let [point, face, edge, corner] = coefficients;
    let last = target.len() - 1;
    let triples = row.windows(3).zip(around.faces.windows(3)).zip(around.edges.windows(3));
    for (((row, faces), edges), target) in triples.zip(&mut target[1..last]) {
        *target += point * row[1]
            + face * (row[0] + row[2] + faces[1])
            + edge * (faces[0] + faces[2] + edges[1])
            + corner * (edges[0] + edges[2]);
    }
}

/// Coefficients of the restriction: 1/2 of the point, a quarter across faces, an eighth across edges, and a sixteenth across corners.
const RESTRICTION: [f64; 4] = [0.5, 0.25, 0.125, 0.0625];

/// Projects a fine grid onto the next coarser one. A coarse point is at the same place as every second fine point along each axis, the own
/// fine points 2, 4, ....
pub(super) fn restrict(fine: &Grid, coarse: &mut Grid) {
    let [own_x, own_y, own_z] = coarse.own();
    let [point, face, edge, corner] = RESTRICTION;
    let mut around = Around::new(fine.width());
    for (y, z) in (1..=own_z).flat_map(|z| (1..=own_y).map(move |y| (y, z))) {
        around.sum(fine, 2 * y, 2 * z);
        let (row, Around { faces, edges }) = (fine.row(2 * y, 2 * z), &around);
        for (x, target) in (1..=own_x).zip(&mut coarse.row_mut(y, z)[1..]) {
            let at = 2 * x;
            *target = point * row[at]
                + face * (row[at - 1] + row[at + 1] + faces[at])
                + edge * (faces[at - 1] + faces[at + 1] + edges[at])
                + corner * (edges[at - 1] + edges[at + 1]);
        }
    }
}

/// Adds the trilinear interpolation of a coarse grid to the next finer one, including the layer of neighbours' points.
pub(super) fn prolong(coarse: &Grid, fine: &mut Grid) {
    let [own_x, own_y, own_z] = fine.own();
    let mut mean = vec![0.0; coarse.width()];
    for (y, z) in (0..own_z + 2).flat_map(|z| (0..own_y + 2).map(move |y| (y, z))) {
        // The coarse rows below and above a fine row. They are the same where a coarse row is at the same place.
        let rows =
            [(y / 2, z / 2), (y.div_ceil(2), z / 2), (y / 2, z.div_ceil(2)), (y.div_ceil(2), z.div_ceil(2))];
        let [a, b, c, d] = rows.map(|(y, z)| coarse.row(y, z));
        for ((((mean, a), b), c), d) in mean.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *mean = 0.25 * (a + b + c + d);
        }
        for (x, target) in (0..own_x + 2).zip(fine.row_mut(y, z)) {
            *target += 0.5 * (mean[x / 2] + mean[x.div_ceil(2)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a grid with `value` at every point, also around it.
    fn constant(own: usize, value: f64) -> Grid {
        let mut grid = Grid::new([own; 3]);
        for (y, z) in (0..own + 2).flat_map(|z| (0..own + 2).map(move |y| (y, z))) {
            grid.row_mut(y, z).fill(value);
        }
        grid
    }

    #[test]
    fn the_equation_has_no_residual_for_constants() {
        let mut residual = Grid::new([4; 3]);
        Coefficients::NPB.residual(&constant(4, 3.0), Some(&Grid::new([4; 3])), &mut residual);
        for (y, z) in (1..=4).flat_map(|z| (1..=4).map(move |y| (y, z))) {
            assert!(residual.row(y, z)[1..5].iter().all(|value| value.abs() < 1e-14));
        }
    }

    #[test]
    fn prolongation_keeps_constants_and_restriction_quadruples_them() {
        let mut fine = Grid::new([8; 3]);
        prolong(&constant(4, 3.0), &mut fine);
        assert_eq!(fine, constant(8, 3.0));
        let mut coarse = Grid::new([4; 3]);
        restrict(&constant(8, 3.0), &mut coarse);
        // 1/2 + 6/4 + 12/8 + 8/16.
        assert_eq!(coarse.row(2, 2)[1..5], [12.0; 4]);
    }

    #[test]
    fn prolongation_interpolates_between_coarse_points() {
        let mut coarse = Grid::new([2; 3]);
        coarse.row_mut(1, 1)[1] = 8.0;
        let mut fine = Grid::new([4; 3]);
        prolong(&coarse, &mut fine);
        assert_eq!(
            [fine.row(2, 2)[2], fine.row(2, 2)[1], fine.row(1, 2)[3], fine.row(1, 1)[1]],
            [8.0, 4.0, 2.0, 1.0]
        );
        assert_eq!(fine.row(4, 2)[2], 0.0);
    }
}
