//! The accounts of a node: messages by type, causes by kind, and how each message arrived. Causes are counted where they
//! occur, messages where they are sent and again where they are received. A check compares the independent counts.

mod cause;
mod ledger;
mod lengths;
mod reconcile;
mod streams;

pub use cause::{Cause, Causes};
pub use ledger::{Ledger, Traffic, TypeTraffic};
pub use lengths::{Lengths, Step};
pub use reconcile::{Equation, Totals, reconcile};
pub use streams::{Faults, Incoming, Outgoing};
