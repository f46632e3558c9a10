//! Faults of real nodes. Each file causes a fault, asserts that it happened, and asserts that other peers and calls are unaffected.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

mod blocked;
mod child;
mod proxy;
mod raw;
mod rig;
mod secured;

mod calling;
mod control_first;
mod cut;
mod deadlines;
mod deferred;
mod ended_links;
mod flood;
mod forked;
mod half_made;
mod handlers;
mod held_requests;
mod hostile;
mod impostor;
mod inline;
mod killed;
mod killed_transfers;
mod lanes;
mod ledger;
mod lengths;
mod liveness;
mod lost_wake_ups;
mod malformed_reply;
mod order;
mod other_user;
mod panicked;
mod permissions;
mod raw_peer;
mod real_time;
mod receive_budget;
mod scribbler;
mod several_peers;
mod stopped;
mod stopping;
mod strangers;
mod tls;
mod too_many_peers;
mod transfers;
mod user_code;
