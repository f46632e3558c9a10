//! Parallel jobs that communicate: the workloads with which coscheduling is measured.
//!
//! Solsona, Giné, Hernández and Luque, "Predictive Coscheduling Implementation in a Non-dedicated Linux Cluster" (2001), ran IS and MG of
//! the NAS Parallel Benchmarks, `master-slave`, and `calcula` as the load of local users. `docs/papers.md` describes that work. These are
//! the four programs, written from their specifications.
//!
//! | module | content |
//! | --- | --- |
//! | [`comm`] | messages and collectives of a job's ranks: [`comm::Comm`], over Pronto, and over Open MPI with the feature `mpi` |
//! | [`is`], [`mg`] | the two benchmarks, classes S, W and A, on 1, 2, 4 or 8 ranks |
//! | [`master_slave`], [`calcula`] | the two synthetic programs |
//! | [`outcome`], [`usage`] | time, verification and work of a job; resources that a rank has used |
//! | [`random`] | the random numbers of NPB |
//!
//! The program `pronto-jobs` runs them.
#![deny(unsafe_code)]

pub mod calcula;
pub mod comm;
pub mod is;
pub mod master_slave;
pub mod mg;
pub mod outcome;
pub mod random;
pub mod usage;
