//! Nodes with several threads: the code by which threads wait runs as in production, and the seed decides which thread runs.
//!
//! | part | purpose |
//! | --- | --- |
//! | [`Story`], [`Mix`] | nodes, what their threads do, and the checks at the end |
//! | `scheduler`, `thread`, `pace` | runs one simulated thread at a time, switched at random |
//! | `points` | where threads are switched: with `--cfg simulated`, at every operation on an atomic |
//! | `idle` | detects lost wake-ups: a node whose threads all sleep must have nothing to do |
//! | `panics` | panics of threads that hold an engine |
//! | `resting` | idle peers that the serving thread leaves armed |
//! | `executor` | sleeps and wake-ups in virtual time |
//! | `node`, `serving`, `caller`, `links` | the threads of a node: those of a real node in the order of their steps |
//!
//! A simulated thread is a thread of the operating system that sleeps until the scheduler passes control to it. So code under test needs no
//! change, panics unwind as usual, and thread-local state belongs to its thread.

mod bell;
mod caller;
mod executor;
mod idle;
mod links;
mod mix;
mod node;
mod pace;
mod panics;
mod points;
mod resting;
mod scheduler;
mod serving;
mod story;
mod thread;

pub use mix::Mix;
pub(crate) use points::{Quiet, point};
pub(crate) use scheduler::current;
pub use story::{Ending, Story};
