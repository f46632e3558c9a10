//! Points to cluster: rows of numbers, from a file, from the bundled digits, or from a seed.

mod csv;
mod digits;
mod synthetic;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use csv::Fault;

/// Rows of numbers, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// All numbers, row by row.
    pub values: Vec<f64>,
    /// Numbers per row, at least 1.
    pub dims: usize,
    /// The class of each row, if known. Used to judge the result, never to compute it.
    pub labels: Option<Vec<u8>>,
}

impl Points {
    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.values.len() / self.dims
    }

    /// Returns the numbers of one row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.dims..(row + 1) * self.dims]
    }
}

/// Source of the points. Every node gets the same points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The handwritten digits bundled with this crate.
    Digits,
    /// A file of numbers separated by commas.
    File(PathBuf),
    /// Points generated from a seed.
    Synthetic {
        /// Number of points.
        points: usize,
        /// Numbers per point.
        dims: usize,
        /// The seed.
        seed: u64,
    },
}

impl Source {
    /// Reads or generates the points.
    ///
    /// # Errors
    /// [`DataError`], which names file, line and column.
    pub fn load(&self) -> Result<Points, DataError> {
        match self {
            Self::Digits => digits::load(),
            Self::File(path) => {
                let read = |source| DataError::Read { path: path.clone(), source };
                let size = std::fs::metadata(path).map_err(read)?.len();
                if size > MAX_FILE_BYTES {
                    return Err(DataError::TooLarge { path: path.clone(), size });
                }
                let text = std::fs::read_to_string(path).map_err(read)?;
                csv::parse(&text).map_err(|(line, fault)| DataError::Line { path: path.clone(), line, fault })
            }
            Self::Synthetic { points, dims, seed } => {
                let values = points.saturating_mul(*dims);
                if values > MAX_VALUES {
                    return Err(DataError::TooMany { values });
                }
                Ok(synthetic::make(*points, *dims, *seed))
            }
        }
    }

    /// Returns the name of the data in reports and in the process' mapped ranges.
    #[must_use]
    pub fn title(&self) -> String {
        match self {
            Self::Digits => "UCI handwritten digits".to_owned(),
            Self::File(path) => path.display().to_string(),
            Self::Synthetic { points, dims, seed } => {
                format!("synthetic, {points} points of {dims} numbers, seed {seed}")
            }
        }
    }
}

/// Reason why the points could not be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be read as text.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is larger than the demo supports.
    #[error("{} is too large: {size} bytes, at most {MAX_FILE_BYTES} are supported", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Size of the file in bytes.
        size: u64,
    },
    /// There are more numbers than the demo supports.
    #[error("too many numbers: {values}, at most {MAX_VALUES} are supported")]
    TooMany {
        /// Number of values requested.
        values: usize,
    },
    /// A line of the file is invalid.
    #[error("{}, line {line}: {fault}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Error in the line.
        fault: Fault,
    },
    /// The bundled data is damaged.
    #[error("the bundled digits cannot be unpacked: {0}")]
    Bundle(io::Error),
}

/// Maximum size of a file. It prevents a wrong file name (a disk image, a log) from filling the memory of every node.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Maximum number of values, 256 MiB on every node: the number of values in the largest file if they are as short as
/// possible, and a quarter of the address space.
const MAX_VALUES: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named_in_the_error() {
        let error = Source::File("/nowhere/at/all.csv".into()).load().unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all.csv"), "{error}");
    }

    #[test]
    fn too_many_numbers_are_refused_before_they_are_generated() {
        let source = Source::Synthetic { points: usize::MAX, dims: 2, seed: 1 };
        assert!(matches!(source.load(), Err(DataError::TooMany { .. })));
    }

    #[test]
    fn synthetic_data_is_named_synthetic() {
        let source = Source::Synthetic { points: 10, dims: 2, seed: 1 };
        assert!(source.title().contains("synthetic"));
        assert_eq!(source.load().unwrap().rows(), 10);
    }
}
