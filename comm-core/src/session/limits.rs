//! Sizes of a session, each a sum of its users.

use pronto_wire::{Class, Windows};

use super::doorbells::Doorbells;
use crate::time::Nanos;

/// Calls that a peer may have open: what its greeting may ask for.
pub const MAX_CALLS: u16 = 1024;

/// Sizes and times of a session. The windows are what this side grants to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls to the peer that may be open at a time, over both classes; each reserves a reply in both.
    pub calls: u16,
    /// Requests and notifications that the peer may have under way, by class.
    pub requests: [u16; 2],
    /// Longest payload that is taken, by class, bytes.
    pub max_payload: [u32; 2],
    /// Send memory, by class, bytes; virtual.
    pub send_memory: [u32; 2],
    /// A peer that was silent for so long is down.
    pub liveness: Nanos,
    /// How often a silent session says that it lives. A peer that stands still for the rest of the liveness limit has
    /// spoken before it is over.
    pub heartbeat: Nanos,
    /// Whether messages share doorbells.
    pub doorbells: Doorbells,
}

/// Control messages under way on one connection: a credit return, a heartbeat, a goodbye, and five cancels.
pub const CONTROL_WINDOW: u16 = 8;

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 56,
            requests: [64, 56],
            max_payload: [64 << 10, 4 << 20],
            send_memory: [8 << 20, 32 << 20],
            liveness: Nanos::from_secs(3),
            heartbeat: Nanos::from_millis(1_850),
            doorbells: Doorbells::Shared,
        }
    }
}

impl Limits {
    /// The same sizes with another liveness limit, and heartbeats that suit it unless they are given.
    #[must_use]
    pub fn with_liveness(self, liveness: Option<Nanos>, heartbeat: Option<Nanos>) -> Self {
        let liveness = liveness.unwrap_or(self.liveness);
        let heartbeat = heartbeat.unwrap_or_else(|| self.heartbeat.min(Nanos(liveness.0 / 5 * 3)));
        Self { liveness, heartbeat, ..self }
    }

    /// The window that this side grants for a class: what it will have posted.
    pub const fn window(&self, class: Class) -> Windows {
        Windows {
            requests: self.requests[class.index()],
            replies: self.calls,
            control: CONTROL_WINDOW,
            max_payload: self.max_payload[class.index()],
        }
    }
}
