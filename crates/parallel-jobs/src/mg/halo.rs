//! The exchange of faces: it sets the layer of neighbours' points around a box.
//!
//! The axes take turns, x first. A face includes the layers that earlier axes have set, so edges and corners arrive without messages of
//! their own.

use zerocopy::IntoBytes;

use super::grid::Grid;
use super::partition::Partition;
use crate::comm::{Comm, CommError, Incoming, Outgoing, Tag};

/// Tags of faces that move down and up their axis. The axes take turns, so they share tags.
const DOWN: Tag = Tag(2);
const UP: Tag = Tag(3);

/// Buffers of two faces, to and from the neighbours.
#[derive(Debug)]
pub(super) struct Halo {
    partition: Partition,
    sent: [Vec<f64>; 2],
    received: [Vec<f64>; 2],
}

impl Halo {
    pub(super) const fn new(partition: Partition) -> Self {
        Self { partition, sent: [Vec::new(), Vec::new()], received: [Vec::new(), Vec::new()] }
    }

    /// Exchanges the faces of a grid with all neighbours.
    pub(super) fn exchange(&mut self, comm: &mut impl Comm, grid: &mut Grid) -> Result<(), CommError> {
        for axis in 0..3 {
            let last = grid.own()[axis];
            for (face, at) in self.sent.iter_mut().zip([1, last]) {
                read_face(grid, axis, at, face);
            }
            let [first, highest] = &self.sent;
            let [from_below, from_above] = &mut self.received;
            if let Some([below, above]) = self.partition.neighbours(axis) {
                from_below.resize(highest.len(), 0.0);
                from_above.resize(first.len(), 0.0);
                let send = [
                    Outgoing { to: below, tag: DOWN, bytes: first.as_bytes() },
                    Outgoing { to: above, tag: UP, bytes: highest.as_bytes() },
                ];
                let mut receive = [
                    Incoming { from: below, tag: UP, bytes: from_below.as_mut_bytes() },
                    Incoming { from: above, tag: DOWN, bytes: from_above.as_mut_bytes() },
                ];
                comm.exchange(&send, &mut receive)?;
            } else {
                from_below.clone_from(highest);
                from_above.clone_from(first);
            }
            write_face(grid, axis, 0, from_below);
            write_face(grid, axis, last + 1, from_above);
        }
        Ok(())
    }
}

/// Copies the values at one coordinate of an axis to `face`. Along the axes before, they include the layers of neighbours.
fn read_face(grid: &Grid, axis: usize, at: usize, face: &mut Vec<f64>) {
    face.clear();
    let [_, y, z] = grid.own();
    match axis {
        0 => {
            for z in 1..=z {
                face.extend((1..=y).map(|y| grid.row(y, z)[at]));
            }
        }
        1 => (1..=z).for_each(|z| face.extend_from_slice(grid.row(at, z))),
        _ => (0..y + 2).for_each(|y| face.extend_from_slice(grid.row(y, at))),
    }
}

/// Writes what `read_face` has read from a neighbour.
fn write_face(grid: &mut Grid, axis: usize, at: usize, face: &[f64]) {
    let ([_, y, z], width) = (grid.own(), grid.width());
    match axis {
        0 => {
            let places = (1..=z).flat_map(|z| (1..=y).map(move |y| (y, z)));
            places.zip(face).for_each(|((y, z), value)| grid.row_mut(y, z)[at] = *value);
        }
        1 => (1..=z).zip(face.chunks(width)).for_each(|(z, row)| grid.row_mut(at, z).copy_from_slice(row)),
        _ => (0..y + 2).zip(face.chunks(width)).for_each(|(y, row)| grid.row_mut(y, at).copy_from_slice(row)),
    }
}
