//! Two nodes in one thread, on which a call can be counted and taken apart.
//!
//! [`pair`] is that; the program of this package carries out the scenarios that are counted.

#![forbid(unsafe_code)]

pub mod pair;
