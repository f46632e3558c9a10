//! Behaviour of the simulated network without faults, and the transport that it resembles.

use pronto_core::Nanos;
use pronto_core::fabric::{AtomicScope, SHORT_PAYLOAD};

use crate::random::Span;

/// Maximum payloads of an inline message and of a short message, bytes: the lengths that providers copy.
const LINE: u32 = 40;
const SHORT: u32 = 232;
const _: () = assert!(SHORT as usize == SHORT_PAYLOAD);

/// Meaning of a send completion. The engine must work with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionMeaning {
    /// The transport has taken a copy, as tcp does.
    Copied,
    /// The payload has reached the peer's receive buffer, and the acknowledgement has arrived: verbs.
    Acknowledged,
    /// The receiver has dropped the payload, which it read in the sender's memory: shm.
    Consumed,
}

/// Party that executes one-sided operations at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// None: the connection has no one-sided operations.
    Unsupported,
    /// The network: the target need not make any call.
    Passive,
    /// The target, when it polls.
    Polling,
}

/// Options of a network without faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// Time of flight of a frame. Frames of one connection keep their order; those of different connections may
    /// overtake each other within this span.
    pub delay: Span,
    /// One frame in this number is delayed by [`Self::spike`], with all frames after it on its connection; 0 means
    /// never.
    pub spike_one_in: u32,
    /// Delay of such a frame.
    pub spike: Span,
    /// Meaning of a send completion.
    pub completion: CompletionMeaning,
    /// Party that executes one-sided operations.
    pub target: Target,
    /// Scope of one-sided atomics.
    pub atomics: AtomicScope,
    /// Maximum payload that is copied while it is posted, bytes.
    pub copies: u32,
    /// True if a refused one-sided access ends the connection, as with verbs.
    pub refusal_ends_connection: bool,
    /// Time from the loss of a connection until a living end is notified.
    pub loss_notice: Span,
    /// Time for which frames that cannot pass are retried before the connection is given up.
    pub retry_for: Nanos,
    /// Time after which an attempt to connect fails.
    pub dial_timeout: Nanos,
    /// Time from an event until the turn of its node.
    pub wake: Span,
}

impl SimOptions {
    /// Memory shared by processes on one host: short flights, buffers free after reading.
    pub const fn like_shm() -> Self {
        Self {
            delay: Span { min: Nanos(100), max: Nanos(400) },
            spike_one_in: 0,
            spike: Span::micros(0, 0),
            completion: CompletionMeaning::Consumed,
            target: Target::Passive,
            atomics: AtomicScope::Global,
            copies: SHORT,
            refusal_ends_connection: false,
            loss_notice: Span::micros(20, 200),
            retry_for: Nanos::from_secs(60),
            dial_timeout: Nanos::from_millis(100),
            wake: Span { min: Nanos(50), max: Nanos::from_micros(40) },
        }
    }

    /// Streams between hosts: longer flights with spikes, a polling target, long retries to an unreachable peer.
    pub const fn like_tcp() -> Self {
        Self {
            delay: Span::micros(15, 60),
            spike_one_in: 200,
            spike: Span::millis(1, 40),
            completion: CompletionMeaning::Copied,
            target: Target::Polling,
            loss_notice: Span::micros(50, 5_000),
            dial_timeout: Nanos::from_secs(1),
            copies: LINE,
            ..Self::like_shm()
        }
    }

    /// Reliable connected queue pairs: acknowledged, passive, atomic only among themselves, short retries.
    pub const fn like_verbs() -> Self {
        Self {
            delay: Span::micros(1, 5),
            spike_one_in: 500,
            spike: Span::micros(100, 2_000),
            completion: CompletionMeaning::Acknowledged,
            target: Target::Passive,
            atomics: AtomicScope::Fabric,
            refusal_ends_connection: true,
            loss_notice: Span::micros(50, 5_000),
            retry_for: Nanos::from_millis(500),
            dial_timeout: Nanos::from_secs(1),
            ..Self::like_shm()
        }
    }
}
