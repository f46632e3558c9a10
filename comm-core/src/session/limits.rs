//! Sizes of a session: numbers of calls and messages, payload lengths and send memory; and the times by which a silent peer is detected.

use pronto_wire::{Class, Windows};

use super::doorbells::Doorbells;
use super::pressure::HeaderPressure;
use crate::buf::Placement;
use crate::time::Nanos;

/// Maximum number of open calls of a peer, which limits the windows in its greeting.
pub const MAX_CALLS: u16 = 4096;

/// Sizes and times of a session. The windows are those that this side grants to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open calls to the peer, over both classes. Each reserves a receive for its reply in both classes.
    pub calls: u16,
    /// Maximum number of requests and notifications of the peer in flight, by class.
    pub requests: [u16; 2],
    /// Number of these when a link begins, by class. The peer gets more when it needs them, except over RDMA, where each needs a posted
    /// receive.
    pub first_requests: [u16; 2],
    /// Longest payload that this side receives, by class, bytes.
    pub max_payload: [u32; 2],
    /// Length of the virtual send memory, by class, bytes.
    pub send_memory: [u32; 2],
    /// Time without any message after which the peer is down.
    pub liveness: Nanos,
    /// Interval of heartbeats in a session without other messages. It is shorter than the liveness limit. The difference is the time for
    /// which a peer may be stopped without being considered down.
    pub heartbeat: Nanos,
    /// Time without requests and notifications after which a link that is made on demand ends.
    pub pause_after: Nanos,
    /// Choice whether messages share doorbells.
    pub doorbells: Doorbells,
    /// Choice of a chunk of send memory for the next buffer.
    pub placement: Placement,
    /// Choice whether headers carry the pressure of their sender.
    pub pressure: HeaderPressure,
}

/// Maximum number of control messages in flight on one connection: a credit return, a heartbeat, a goodbye, and five cancels.
pub const CONTROL_WINDOW: u16 = 8;

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 1024,
            requests: [1024, 1024],
            first_requests: [64, 56],
            max_payload: [64 << 10, 4 << 20],
            send_memory: [8 << 20, 32 << 20],
            liveness: Nanos::from_secs(3),
            heartbeat: Nanos::from_millis(1_800),
            pause_after: Nanos::NEVER,
            doorbells: Doorbells::Shared,
            placement: Placement::HotFirst,
            pressure: HeaderPressure::Off,
        }
    }
}

impl Limits {
    /// Returns these sizes with another liveness limit. If `heartbeat` is `None`, its interval is derived from that limit.
    #[must_use]
    pub fn with_liveness(self, liveness: Option<Nanos>, heartbeat: Option<Nanos>) -> Self {
        let liveness = liveness.unwrap_or(self.liveness);
        let heartbeat = heartbeat.unwrap_or_else(|| self.heartbeat.min(Nanos(liveness.0 / 5 * 3)));
        Self { liveness, heartbeat, ..self }
    }

    /// Returns the receive capacity that this side announces for a class: the numbers of messages, for which it posts receives, and the
    /// longest payload.
    pub const fn window(&self, class: Class) -> Windows {
        let (requests, first) = (self.requests[class.index()], self.first_requests[class.index()]);
        Windows {
            requests: if requests < first { requests } else { first },
            grows_to: requests,
            replies: self.calls,
            control: CONTROL_WINDOW,
            max_payload: self.max_payload[class.index()],
        }
    }
}
