//! Calls of this side: the slot that a caller waits on, shared by all threads, and what the engine knows of each call.

mod open;
mod table;

pub use table::{CallTable, Expects};

pub(super) use open::{Before, Cause, Ended, OpenCalls, Report, Request, Resend, TimeLimit};
#[cfg(test)]
pub(super) use table::MOST_ASIDE;
pub(super) use table::most_aside;
