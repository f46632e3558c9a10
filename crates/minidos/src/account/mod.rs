//! The books of a node: messages by type, causes by kind, and how each arrived. Causes are counted where they happen,
//! messages where they are sent and again where they are received; that they agree is checked, not arranged.

mod cause;
mod ledger;
mod reconcile;
mod streams;

pub use cause::{Cause, Causes};
pub use ledger::{Ledger, Traffic, TypeTraffic};
pub use reconcile::{Equation, Totals, reconcile};
pub use streams::{Faults, Incoming, Outgoing};
