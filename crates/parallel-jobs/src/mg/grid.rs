//! The points of a box, with one layer of points of its neighbours around it.

/// Numbers of points along x, y and z.
pub(super) type Extents = [usize; 3];

/// Values at the points of a box. Coordinates count from the lower layer of neighbours at 0; the own points begin at 1. Rows along x are
/// contiguous.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grid {
    /// Own points along each axis.
    own: Extents,
    values: Vec<f64>,
}

impl Grid {
    /// Returns a grid of zeros with `own` points.
    pub(super) fn new(own: Extents) -> Self {
        let all = own.map(|points| points + 2);
        Self { own, values: vec![0.0; all[0] * all[1] * all[2]] }
    }

    /// Returns the number of own points along each axis.
    pub(super) const fn own(&self) -> Extents {
        self.own
    }

    /// Sets all values to zero.
    pub(super) fn clear(&mut self) {
        self.values.fill(0.0);
    }

    /// Returns the values along x, with those of both neighbours.
    pub(super) fn row(&self, y: usize, z: usize) -> &[f64] {
        let start = self.start(y, z);
        &self.values[start..start + self.width()]
    }

    /// Returns the values along x for writing.
    pub(super) fn row_mut(&mut self, y: usize, z: usize) -> &mut [f64] {
        let (start, width) = (self.start(y, z), self.width());
        &mut self.values[start..start + width]
    }

    /// Number of values along x, with those of both neighbours.
    pub(super) const fn width(&self) -> usize {
        self.own[0] + 2
    }

    const fn start(&self, y: usize, z: usize) -> usize {
        (z * (self.own[1] + 2) + y) * self.width()
    }
}
