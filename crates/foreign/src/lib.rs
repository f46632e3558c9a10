//! Other communication libraries as sources of a node: their messages progress while the program computes.
//!
//! | file | content |
//! | --- | --- |
//! | `ucx` | a UCX worker: it has a function to arm it and a descriptor, so a node that sleeps wakes for its messages |
//! | `mpi` | the open requests of an MPI process: MPI has no descriptor, so a timer wakes a node that sleeps |
//!
//! Each adapter is built with the feature of its name, which needs the library. Its C half, in `c/`, keeps the structures and macros of
//! the library out of Rust. `cargo xtask test --only foreign` installs the libraries and runs the tests.

#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(feature = "ucx")]
pub mod ucx;
