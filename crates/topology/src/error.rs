//! Errors in the description of a machine.

use std::path::PathBuf;

use thiserror::Error;

use crate::cpus::MAX_CPU;

/// A machine description that cannot be used. A missing file is not an error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file or folder exists but cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// Path of the file or folder.
        path: PathBuf,
        /// Cause reported by the operating system.
        cause: std::io::Error,
    },
    /// A file does not hold the list of numbers that its documentation promises.
    #[error("{}: {fault}", path.display())]
    List {
        /// Path of the file or folder.
        path: PathBuf,
        /// Fault in the list.
        fault: ListFault,
    },
    /// A file does not hold a valid number.
    #[error("{}: invalid number {text:?}", path.display())]
    Number {
        /// Path of the file or folder.
        path: PathBuf,
        /// First characters of the file's content.
        text: String,
    },
}

/// A fault in a list of numbers such as `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListFault {
    /// A part of the list is neither a number nor a range.
    #[error("{part:?} is neither a number nor a range")]
    NotANumber {
        /// First characters of the part.
        part: String,
    },
    /// A range ends before it begins.
    #[error("the range {first}-{last} ends before it begins")]
    Backwards {
        /// First number of the range.
        first: u32,
        /// Last number of the range.
        last: u32,
    },
    /// A number is larger than any CPU or node number of a kernel.
    #[error("{number} is greater than {MAX_CPU}, the largest number that a kernel supports")]
    TooGreat {
        /// The number.
        number: u32,
    },
}

/// Returns the first characters of a text, for messages.
pub(crate) fn beginning(text: &str) -> String {
    /// Characters shown; valid content is shorter.
    const SHOWN: usize = 40;
    text.trim().chars().take(SHOWN).collect()
}
