//! Errors of a node.

use thiserror::Error;

use crate::cache::Unexpected;
use crate::directory::Violation;
use crate::messages::TaskId;
use crate::network::NetworkError;
use crate::page::{Address, PageNumber};

/// An error that ends the run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OsError {
    /// A message was not delivered, or its reply did not arrive.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A peer sent an unsolicited response, or asked the wrong home.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A home sent a grant that does not match a fault.
    #[error(transparent)]
    Unexpected(#[from] Unexpected),
    /// The contents of a page were damaged.
    #[error("page {page} arrived damaged", page = page.0)]
    Corrupt {
        /// The page.
        page: PageNumber,
    },
    /// A task used an address where nothing is mapped, or wrote to a read-only range.
    #[error("segmentation fault at {address:#x}", address = address.0)]
    Fault {
        /// The address.
        address: Address,
    },
    /// The address space is full.
    #[error("cannot map {length} bytes: the address space is full")]
    NoRoom {
        /// Bytes asked for.
        length: u64,
    },
    /// A page did not become available in time.
    #[error("page {page} did not arrive in time", page = page.0)]
    PageLate {
        /// The page.
        page: PageNumber,
    },
    /// A sleeping task was not woken in time.
    #[error("a task that sleeps at {address:#x} was not woken in time", address = address.0)]
    NotWoken {
        /// The futex.
        address: Address,
    },
    /// A futex does not lie wholly on one page.
    #[error("invalid futex address {address:#x}: the futex would cross a page boundary", address = address.0)]
    Misplaced {
        /// The address.
        address: Address,
    },
    /// A migrated task did not come back in time.
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
        /// Exit code of the task.
        code: i32,
    },
    /// The thread for a task could not be created.
    #[error("cannot create a thread for task {task}: {source}")]
    Thread {
        /// The task.
        task: TaskId,
        /// Cause.
        source: std::io::Error,
    },
}
