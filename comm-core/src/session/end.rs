//! The ends of a call. Each call has exactly one end, which tells whether the handler ran.

use core::fmt;

use pronto_wire::FailureCode;

use crate::fabric::Arrived;

/// Knowledge about whether the handler of a call ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Executed {
    /// The handler did not run, and will not.
    No = 0,
    /// The handler may have run, or may still run.
    Maybe = 1,
    /// The handler ran.
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
            Self::Maybe => "its handler may have run or may still run",
            Self::Yes => "its handler ran",
        })
    }
}

/// The end of a call, of a synchronous send, or of a one-sided operation.
#[derive(Debug)]
pub enum End<L> {
    /// The handler's reply.
    Reply(Arrived<L>),
    /// A failure in place of a reply; [`FailureCode::executed`] tells whether the handler ran.
    Failure {
        /// The reason.
        code: FailureCode,
        /// The handler's encoded error value; empty for other failures.
        payload: Arrived<L>,
    },
    /// The peer went down.
    PeerDown {
        /// `No` if the request never left this node.
        executed: Executed,
    },
    /// The deadline passed first.
    Deadline {
        /// `No` if the request never left this node.
        executed: Executed,
    },
    /// A send completed, so that its buffer may be reused, or a one-sided operation succeeded. For an atomic operation, the previous value.
    Done(u64),
    /// The queue pair failed before a send or one-sided operation completed. It may or may not have been executed.
    Flushed,
    /// No grant allows the one-sided operation.
    AccessRefused,
    /// The memory that the peer granted has lost its bytes.
    Unreadable,
    /// The connection does not support one-sided operations.
    Unsupported,
}
