//! Nodes with real sessions, random traffic between them, and a ledger that knows what must hold.
//!
//! | type | what for |
//! | --- | --- |
//! | [`Scenario`] | a cluster from a seed; runs its story, then the epilogue that every story has |
//! | [`for_each_seed`], [`for_each_seed_or_soak`] | tell a story many times |
//! | [`Traffic`] | what the nodes send each other |
//! | [`Ledger`] | every message and what became of it; its rules are the invariants |

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
pub use ledger::{Ledger, PeerEvents, Tally};
pub use seeds::{for_each_seed, for_each_seed_or_soak};
pub use traffic::Traffic;
pub use transfers::TransferTally;
