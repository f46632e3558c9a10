//! What can fail on a node.

use thiserror::Error;

use crate::cache::Unexpected;
use crate::directory::Violation;
use crate::messages::TaskId;
use crate::network::NetworkError;
use crate::page::{Address, PageNumber};

/// Something failed; the run is over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OsError {
    /// A message was not delivered or not answered.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A peer answered for what it was not asked.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A home granted what nobody asked for.
    #[error(transparent)]
    Unexpected(#[from] Unexpected),
    /// A page is not what was sent.
    #[error("page {page} arrived damaged", page = page.0)]
    Corrupt {
        /// The page.
        page: PageNumber,
    },
    /// A task used an address where nothing is mapped, or wrote where it may only read.
    #[error("segmentation fault at {address:#x}", address = address.0)]
    Fault {
        /// The address.
        address: Address,
    },
    /// The address space is full.
    #[error("no room for {length} bytes in the address space")]
    NoRoom {
        /// Bytes asked for.
        length: u64,
    },
    /// A page did not become available in time.
    #[error("page {page} did not come in time", page = page.0)]
    PageLate {
        /// The page.
        page: PageNumber,
    },
    /// Nobody woke a task in time.
    #[error("nobody woke a task that sleeps at {address:#x}", address = address.0)]
    NotWoken {
        /// The futex.
        address: Address,
    },
    /// A futex does not lie wholly on one page.
    #[error("no futex can be at {address:#x}", address = address.0)]
    Misplaced {
        /// The address.
        address: Address,
    },
    /// A task that was handed over was not heard of in time.
    #[error("task {task} did not come back in time")]
    TaskLate {
        /// The task.
        task: TaskId,
    },
    /// A task ended with an error, or by a signal (128 and the signal's number).
    #[error("task {task} ended with code {code}")]
    TaskFailed {
        /// The task.
        task: TaskId,
        /// Its code.
        code: i32,
    },
    /// A thread for a task could not be had.
    #[error("no thread for task {task}: {source}")]
    Thread {
        /// The task.
        task: TaskId,
        /// Why.
        source: std::io::Error,
    },
}
