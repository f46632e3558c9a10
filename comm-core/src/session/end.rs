//! How a call ends: exactly one of these, each saying whether the handler ran.

use core::fmt;

use pronto_wire::FailureCode;

use crate::fabric::Arrived;

/// Whether the handler of a call ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Executed {
    /// It did not, and will not.
    No = 0,
    /// It may have, or may yet.
    Maybe = 1,
    /// It did.
    Yes = 2,
}

impl Executed {
    pub(super) const fn from_bits(bits: u64) -> Self {
        match bits {
            0 => Self::No,
            1 => Self::Maybe,
            _ => Self::Yes,
        }
    }
}

impl fmt::Display for Executed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "its handler did not run",
            Self::Maybe => "its handler may have run, or may yet",
            Self::Yes => "its handler ran",
        })
    }
}

/// The end of a call, or of a send whose completion was waited for.
#[derive(Debug)]
pub enum End<L> {
    /// The handler's reply.
    Reply(Arrived<L>),
    /// An answer that is no reply; [`FailureCode::executed`] says whether the handler ran.
    Failure {
        /// Why.
        code: FailureCode,
        /// A handler's own error, encoded; empty otherwise.
        payload: Arrived<L>,
    },
    /// The peer went away.
    PeerDown {
        /// `No` if the request never left this node.
        executed: Executed,
    },
    /// The deadline passed first.
    Deadline {
        /// `No` if the request never left this node.
        executed: Executed,
    },
    /// A send: its buffer may be used again. A one-sided operation: it is done; for atomics, what was there before.
    Done(u64),
    /// A send or one-sided operation: the queue pair failed first; it may or may not have been carried out.
    Flushed,
    /// A one-sided operation: no grant allows it.
    AccessRefused,
    /// A one-sided operation: this connection has none.
    Unsupported,
}
