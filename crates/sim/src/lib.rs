//! The simulated world: virtual time, a seeded network that can fail in every named way, and what runs in it.
//!
//! | type | what for |
//! | --- | --- |
//! | [`SimWorld`] | time, nodes, connections; carries out one event after another |
//! | [`SimQueuePair`] | the fabric provider: one end of a connection |
//! | [`SimOptions`] | the network in good health, resembling shm, tcp or verbs |
//! | [`Fault`], [`FaultRates`] | what goes wrong, on request or at random; [`Fired`] counts it |
//! | [`SimWorld::dial`] | connections asked for by nodes, with a hello and an answer, as greetings are |
//! | [`Simulation`] | nodes that act: engines get their turns, die, come back; checkers look on |
//! | [`Trace`] | what happened, as a hash and in words |
//!
//! # Invariants
//! 1. Everything that happens is decided by the seed, the options, and the calls made: one thread that does the same
//!    gets the same trace. (Threads of their own are possible, for tests about threads; then only they are to blame.)
//! 2. Frames of one connection arrive in order, or the connection ends; those of different ones in any order.
//! 3. A frame that does not get through is not lost: it waits, as transports try again, until the direction is open or
//!    the connection is given up. What is lost is lost with its connection.
//! 4. A node that is dead makes no turn, and its connections are closed.
#![deny(unsafe_code)]

mod access;
mod dial;
mod executor;
mod fault;
mod link;
mod options;
mod queue_pair;
mod random;
pub mod scenario;
mod simulation;
mod state;
mod strike;
mod trace;
mod world;

pub use dial::{DialError, DialId, Dialled, Incoming};
pub use executor::SimExecutor;
pub use fault::{Fault, FaultRates, Fired};
pub use link::Exchanged;
pub use options::{CompletionMeaning, SimOptions, Target};
pub use queue_pair::{SimLease, SimQueuePair};
pub use random::{Random, Span};
pub use simulation::{Actor, Boot, Checker, Simulation};
pub use trace::Trace;
pub use world::{LinkId, SimClock, SimNode, SimWorld};
