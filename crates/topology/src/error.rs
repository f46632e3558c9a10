//! What is wrong with a machine's description.

use std::path::PathBuf;

use thiserror::Error;

use crate::cpus::MAX_CPU;

/// A description that cannot be used. Files that are not there are no error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file or folder is there, and cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A file that holds a list of numbers holds something else.
    #[error("{}: {fault}", path.display())]
    List {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        fault: ListFault,
    },
    /// A file that holds a number holds something else.
    #[error("{}: {text:?} is no number that could stand there", path.display())]
    Number {
        /// Which.
        path: PathBuf,
        /// The beginning of what it holds.
        text: String,
    },
}

/// What is wrong with a list of numbers, as in `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListFault {
    /// A part of it is neither a number nor a range.
    #[error("{part:?} is neither a number nor a range")]
    NotANumber {
        /// Its beginning.
        part: String,
    },
    /// A range ends before it begins.
    #[error("the range {first}-{last} ends before it begins")]
    Backwards {
        /// Its first number.
        first: u32,
        /// Its last number.
        last: u32,
    },
    /// A number is greater than any that the kernel gives.
    #[error("{number} is greater than {MAX_CPU}, the greatest that a kernel may be built for")]
    TooGreat {
        /// The number.
        number: u32,
    },
}

/// The beginning of a text, for messages.
pub(crate) fn beginning(text: &str) -> String {
    /// What a file should hold is shorter.
    const SHOWN: usize = 40;
    text.trim().chars().take(SHOWN).collect()
}
