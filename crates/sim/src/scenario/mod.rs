//! Nodes with real sessions, random traffic between them, and a ledger that checks the invariants.
//!
//! | type | purpose |
//! | --- | --- |
//! | [`Scenario`] | a cluster from a seed; runs a scenario, then the common end of all scenarios |
//! | [`for_each_seed`], [`for_each_seed_or_soak`] | run a scenario many times |
//! | [`Traffic`] | the messages that the nodes send |
//! | [`Ledger`] | every message and its end; its rules are the invariants |

mod cluster;
mod handler;
mod handshake;
mod ledger;
mod message;
mod node;
mod seeds;
mod traffic;
mod transfers;

pub use cluster::Scenario;
pub(crate) use handler::{Lease, SimSession, answer_to};
pub use ledger::{Ledger, PeerEvents, Tally};
pub(crate) use message::{Kind, Name, STAMP, Stamp};
pub use seeds::{for_each_seed, for_each_seed_or_soak};
pub use traffic::Traffic;
pub use transfers::TransferTally;
