//! Peers: other projects' libraries, and bare sockets, called as Pronto is. The programs lie in `bench/peers`.
//!
//! A participant's round is a fresh pair of processes: it starts, meets, is measured and ends. So rounds of all participants can take
//! turns while nobody's polling takes a processor from somebody else, and luck with memory's placement is thrown anew each time.

pub(crate) mod build;
pub(crate) mod line_up;
pub(crate) mod ours;
pub(crate) mod raw;
pub(crate) mod round;

/// Requests that are open at once under load; the programs in `bench/peers` have the same.
pub(crate) const WINDOW: usize = 32;

/// Payload of a request and of its answer, bytes; the programs have the same.
pub(crate) const PAYLOAD: usize = 32;
