//! Other projects' libraries and bare sockets, measured like Pronto. The programs are in `bench/peers`.
//!
//! A participant's round is a fresh pair of processes, which start, connect, are measured and end. Rounds of all participants can
//! therefore take turns without polling threads of one taking CPUs from another, and the placement of memory varies between rounds.

pub(crate) mod build;
pub(crate) mod line_up;
pub(crate) mod ours;
pub(crate) mod raw;
pub(crate) mod round;
pub(crate) mod start;

/// Number of open requests under load, also in the programs of `bench/peers`.
pub(crate) const WINDOW: usize = 32;

/// Length of the payload of a request and of its reply under load in bytes, also in those programs.
pub(crate) const PAYLOAD: usize = 32;

/// Lengths of further single calls, in this order also in those programs.
pub(crate) const MORE_SIZES: [usize; 3] = [224, 4096, 65_536];
