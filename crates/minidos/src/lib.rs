//! A mini distributed operating system in user space, and the demo that computes k-means on it.
//!
//! It exercises what a distributed OS needs from a communication layer, without a kernel: pages that move to their readers
//! and writers, futexes, mapped ranges and tasks that migrate, in the message types of DEX. `docs/demo.md` describes a run.
//!
//! | module | content | uses messages, threads, time |
//! | --- | --- | --- |
//! | [`page`], [`ranges`], [`futex`] | addresses, mapped ranges, sleeping tasks | no |
//! | [`directory`], [`home`] | a page's home: the nodes that hold it and those that wait for it | no |
//! | [`cache`] | a node's copies, its faults, and demands that arrived before their grant | no |
//! | [`account`] | counts of causes and of messages, and the equations between them | no |
//! | [`messages`] | the message types | as data |
//! | `os` | a node: executes the actions of the state machines above | yes |
//! | `network`, `executor` | posts, checks and counts every message; runs continuations | yes |
//! | [`kmeans`], [`data`] | the computation and its data | only the part that runs as a task |
//! | [`demo`], [`control`] | processes, their supervisor, the report | yes |

#![forbid(unsafe_code)]

pub mod account;
pub mod cache;
mod clock;
pub mod control;
pub mod data;
pub mod demo;
pub mod directory;
mod executor;
pub mod futex;
pub mod home;
pub mod kmeans;
pub mod messages;
mod network;
mod node_process;
mod os;
pub mod page;
pub mod random;
pub mod ranges;

pub use network::NetworkError;
pub use node_process::{NodeProcessError, node_main};
pub use os::OsError;

#[cfg(test)]
mod protocol_tests;
