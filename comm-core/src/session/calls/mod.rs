//! Calls that this side makes: the slot in which a caller waits, shared by all threads, and the engine's state of each call.

mod open;
mod request;
mod table;

pub(super) use open::{Cause, Ended, OpenCalls, Report};
pub(super) use request::{Before, Request, Resend, TimeLimit};
pub use table::{CallTable, Expects};

#[cfg(all(test, not(loom)))]
pub(super) use table::MAX_RESERVE;
pub(super) use table::max_reserve;
