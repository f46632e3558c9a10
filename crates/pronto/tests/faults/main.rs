//! Faults of real nodes: each file is one story that causes a fault, asserts that it happened, and that others went on.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod blocked;
mod child;
mod proxy;
mod raw;
mod rig;

mod cut;
mod flood;
mod forked;
mod half_made;
mod handlers;
mod killed;
mod killed_transfers;
mod lanes;
mod liveness;
mod order;
mod raw_peer;
mod rescues;
mod scribbler;
mod stopped;
mod strangers;
mod transfers;
