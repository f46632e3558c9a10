//! How the simulated network behaves when nothing is wrong, and which transport it resembles.

use pronto_core::Nanos;
use pronto_core::fabric::{AtomicScope, SHORT_PAYLOAD};

use crate::random::Span;

/// Payloads of a line, and of four, bytes: what providers copy.
const LINE: u32 = 40;
const SHORT: u32 = 232;
const _: () = assert!(SHORT as usize == SHORT_PAYLOAD);

/// What a send completion means here. The engine must be right under each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionMeaning {
    /// The transport took a copy, as tcp does.
    Copied,
    /// The payload has reached the other side's receive buffer, and word of it has come back: verbs.
    Acknowledged,
    /// The receiver has let go of it, which it read where the sender composed it: shm.
    Consumed,
}

/// Who carries out one-sided operations at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nobody: the connection has none.
    Unsupported,
    /// The network: the target need not call anything.
    Passive,
    /// The target, when it polls.
    Polling,
}

/// A network in good health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// Flight of a frame, one way. Frames of one connection keep their order; those of different ones overtake each
    /// other within this span.
    pub delay: Span,
    /// One frame in so many is held up by [`Self::spike`], with all behind it on its connection; 0 is never.
    pub spike_one_in: u32,
    /// How long such a frame is held up.
    pub spike: Span,
    /// What a send completion means.
    pub completion: CompletionMeaning,
    /// Who carries out one-sided operations.
    pub target: Target,
    /// What one-sided atomics are atomic with.
    pub atomics: AtomicScope,
    /// Longest payload that is copied while it is posted, bytes.
    pub copies: u32,
    /// Whether a refused one-sided access ends the connection, as on verbs.
    pub refusal_ends_connection: bool,
    /// From the loss of a connection until an end that lives hears of it.
    pub loss_notice: Span,
    /// How long frames that cannot get through are tried again before the connection is given up.
    pub retry_for: Nanos,
    /// How long an attempt to connect takes to fail.
    pub dial_timeout: Nanos,
    /// From an event until the turn of the node that it is for.
    pub wake: Span,
}

impl SimOptions {
    /// Memory shared by processes of one host: short flights, buffers free once read.
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

    /// Streams between hosts: longer flights with spikes, a polling target, patience with an unreachable peer.
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

    /// Reliable connected queue pairs: acknowledged, passive, atomic among themselves only, quick to give up.
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
