//! Two nodes in one thread, on which the parts of a call can be counted.
//!
//! [`pair`] provides the nodes; the program of this package runs the counted scenarios.

#![forbid(unsafe_code)]

pub mod pair;
