//! Calls of this side: the slot that a caller waits on, shared by all threads, and what the engine knows of each call.

mod open;
mod request;
mod table;

pub(super) use open::{Cause, Ended, OpenCalls, Report};
pub(super) use request::{Before, Request, Resend, TimeLimit};
pub use table::{CallTable, Expects};

#[cfg(test)]
pub(super) use table::MAX_RESERVE;
pub(super) use table::max_reserve;
