//! MG: a multigrid solver of the Poisson equation on a periodic cube, whose right side is +1 or -1 at twenty points and 0 elsewhere.
//!
//! Written from the NAS report RNR-94-007, section 2.3.3, and from the documentation of NPB 3. The cube is cut into equal boxes, one for each
//! rank. Every operator that changes a grid is followed by an exchange of the faces of its box (`halo`). Four V cycles are made. Then the
//! norm of the residual is compared with the published value.

mod charges;
mod grid;
mod halo;
mod norm;
mod operators;
mod partition;

use crate::comm::{Comm, CommError};
use crate::outcome::{Clock, Outcome, Watch};
use crate::usage::Meter;
use grid::Grid;
use halo::Halo;
pub use operators::Coefficients;
use partition::Partition;

/// V cycles of classes S, W and A.
const CYCLES: u32 = 4;
/// Relative error of the norm up to which a result is right.
const TOLERANCE: f64 = 1e-8;
/// Floating-point operations per point and cycle, as NPB counts them.
const OPERATIONS: f64 = 58.0;

/// A size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 32^3 points.
    S,
    /// 128^3 points.
    W,
    /// 256^3 points.
    A,
}

impl Class {
    /// Returns the base-2 logarithm of the number of points along an axis, which is also the number of grids.
    const fn levels(self) -> usize {
        match self {
            Self::S => 5,
            Self::W => 7,
            Self::A => 8,
        }
    }

    /// Returns the published norm of the residual after four cycles.
    const fn norm(self) -> f64 {
        match self {
            Self::S => 0.530_770_700_573_4e-4,
            Self::W => 0.646_732_937_533_9e-5,
            Self::A => 0.243_336_530_906_9e-5,
        }
    }
}

/// The grids of a rank, from the coarsest of 2^3 points at index 0 to the finest.
#[derive(Debug)]
pub struct MultiGrid {
    class: Class,
    coefficients: Coefficients,
    partition: Partition,
    halo: Halo,
    /// Approximate solutions.
    solutions: Vec<Grid>,
    /// Residuals.
    residuals: Vec<Grid>,
    /// Right side, on the finest grid.
    right_side: Grid,
}

impl MultiGrid {
    /// Allocates the grids of this rank.
    ///
    /// # Panics
    /// Panics if the number of ranks is not 1, 2, 4 or 8.
    pub fn new(comm: &impl Comm, class: Class, coefficients: Coefficients) -> Self {
        let partition = Partition::new(comm.rank(), comm.size());
        let grids = || (1..=class.levels()).map(|level| Grid::new(partition.extents(1 << level))).collect();
        let (solutions, residuals): (Vec<Grid>, Vec<Grid>) = (grids(), grids());
        let right_side = Grid::new(partition.extents(1 << class.levels()));
        let halo = Halo::new(partition);
        Self { class, coefficients, partition, halo, solutions, residuals, right_side }
    }

    /// Solves the problem and verifies the norm of the residual.
    ///
    /// # Errors
    /// A rank has ended.
    pub fn run(
        mut self,
        comm: &mut impl Comm,
        clock: &impl Clock,
        watch: &dyn Watch,
    ) -> Result<Outcome, CommError> {
        // A cycle that does not count touches all memory, as in NPB.
        self.reset(comm)?;
        self.residual(comm)?;
        self.cycle(comm)?;
        self.reset(comm)?;
        comm.barrier()?;

        let meter = Meter::start(clock, comm.traffic());
        self.residual(comm)?;
        self.norm(comm)?;
        for cycle in 1..=CYCLES {
            watch.reached(cycle, CYCLES);
            self.cycle(comm)?;
            self.residual(comm)?;
        }
        let norm = self.norm(comm)?;
        let usage = meter.stop(clock, comm.traffic());

        let error = ((norm - self.class.norm()) / self.class.norm()).abs();
        let points = self.points();
        Ok(Outcome {
            usage,
            // Not a number is wrong, too.
            verified: error <= TOLERANCE,
            detail: format!("norm {norm:.12e}, published {:.12e}", self.class.norm()),
            work: OPERATIONS * f64::from(CYCLES) * points,
            unit: "floating-point operations",
        })
    }

    /// Number of points of the finest grid, of all ranks.
    fn points(&self) -> f64 {
        f64::from(1_u32 << (3 * self.class.levels()))
    }

    /// Sets the right side, and the solution to zero.
    fn reset(&mut self, comm: &mut impl Comm) -> Result<(), CommError> {
        charges::place(comm, self.partition, 1 << self.class.levels(), &mut self.right_side)?;
        self.halo.exchange(comm, &mut self.right_side)?;
        self.finest_solution().clear();
        Ok(())
    }

    fn finest_solution(&mut self) -> &mut Grid {
        self.solutions.last_mut().expect("at least one level")
    }

    /// Calculates the residual of the finest grid.
    fn residual(&mut self, comm: &mut impl Comm) -> Result<(), CommError> {
        let finest = self.class.levels() - 1;
        let residual = &mut self.residuals[finest];
        self.coefficients.residual(&self.solutions[finest], Some(&self.right_side), residual);
        self.halo.exchange(comm, residual)
    }

    /// Makes a V cycle: restricts the residual to the coarsest grid, and corrects the solution from there up to the finest grid.
    fn cycle(&mut self, comm: &mut impl Comm) -> Result<(), CommError> {
        let finest = self.class.levels() - 1;
        for level in (1..=finest).rev() {
            let (coarser, finer) = self.residuals.split_at_mut(level);
            operators::restrict(&finer[0], &mut coarser[level - 1]);
            self.halo.exchange(comm, &mut coarser[level - 1])?;
        }
        self.solutions[0].clear();
        self.smooth(comm, 0)?;
        for level in 1..=finest {
            if level < finest {
                self.solutions[level].clear();
            }
            let (coarser, finer) = self.solutions.split_at_mut(level);
            operators::prolong(&coarser[level - 1], &mut finer[0]);
            if level == finest {
                self.residual(comm)?;
            } else {
                self.coefficients.residual(&finer[0], None, &mut self.residuals[level]);
                self.halo.exchange(comm, &mut self.residuals[level])?;
            }
            self.smooth(comm, level)?;
        }
        Ok(())
    }

    /// Adds the smoothed residual to the solution of a level.
    fn smooth(&mut self, comm: &mut impl Comm, level: usize) -> Result<(), CommError> {
        self.coefficients.smooth(&self.residuals[level], &mut self.solutions[level]);
        self.halo.exchange(comm, &mut self.solutions[level])
    }

    /// Returns the norm of the residual of the finest grid.
    fn norm(&self, comm: &mut impl Comm) -> Result<f64, CommError> {
        norm::of(comm, self.residuals.last().expect("at least one level"), self.points())
    }
}
