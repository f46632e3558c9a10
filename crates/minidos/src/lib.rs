//! A mini distributed operating system in user space, and the demo that computes kmeans on it.
//!
//! It is what a distributed OS asks of a communication layer, without the kernel: pages that follow their readers and
//! writers, futexes, ranges, and tasks that move, in the message types of DEX. `docs/demo.md` tells it as a story.
//!
//! | module | what | knows of messages, threads, time |
//! | --- | --- | --- |
//! | [`page`], [`ranges`], [`futex`] | addresses, what is mapped, who sleeps | no |
//! | [`directory`], [`home`] | a page's home: who holds it, who waits for it | no |
//! | [`cache`] | a node's copies, its faults, and demands that came too early | no |
//! | [`account`] | counts of causes and of messages, and the equations between them | no |
//! | [`messages`] | the message types | as data |
//! | `os` | a node: carries out what the above decide | yes |
//! | `network` | posts, checks and writes down every message | yes |
//! | [`kmeans`], [`data`] | the work | the part that runs as a task |
//! | [`demo`], [`control`] | processes, their supervisor, the report | yes |

#![forbid(unsafe_code)]

pub mod account;
pub mod cache;
mod clock;
pub mod control;
mod courier;
pub mod data;
pub mod demo;
pub mod directory;
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
