//! Simulated world: virtual time, a seeded network with every named fault, and the nodes that run in it.
//!
//! | type | purpose |
//! | --- | --- |
//! | [`SimWorld`] | time, nodes, connections; executes one event after another |
//! | [`SimQueuePair`] | the fabric provider: one end of a connection |
//! | [`SimOptions`] | the network without faults, resembling shm, tcp or verbs |
//! | [`Fault`], [`FaultRates`] | injected and random faults; [`Fired`] counts them |
//! | [`SimWorld::dial`] | connections requested by nodes, with a hello and a response, like greetings |
//! | [`Simulation`] | nodes that act: engines make turns, die, restart; checkers observe them |
//! | [`Trace`] | all events, as a hash and as text |
//!
//! # Invariants
//! 1. The seed, the options and the calls determine everything: the same calls in one thread give the same trace.
//!    (Tests about threads may use several; then only the threads cause differences.)
//! 2. Frames of one connection arrive in order, or the connection ends; frames of different connections arrive in any
//!    order.
//! 3. A frame that cannot pass is not lost: it waits, as transports retransmit, until the direction is open or the
//!    connection is given up. A frame is lost only with its connection.
//! 4. A dead node makes no turn, and its connections are closed.
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
pub mod threads;
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
