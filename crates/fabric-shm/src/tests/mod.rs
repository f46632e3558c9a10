//! Violations by a peer, and how they are reported.

mod announce;
mod announced_memory;
mod by_address;
mod foreign;
mod leases;
mod lines;
mod listener;
mod revoked;
mod rogue;
mod setup;
mod solicited;
mod withdrawn;

use pronto_core::fabric::ConnectionLimits;

/// Small limits, equal in both directions.
const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 4,
    receive_depth: 4,
    max_send_payload: 1 << 16,
    max_receive_payload: 1 << 16,
    send_memory: 1 << 20,
};
