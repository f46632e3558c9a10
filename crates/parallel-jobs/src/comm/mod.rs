//! The communication that the jobs need: messages between ranks, and collectives of all ranks.

mod collectives;
#[cfg(feature = "mpi")]
#[expect(unsafe_code, reason = "functions of a C library")]
mod mpi;
mod over_pronto;
mod regions;

use core::fmt;

use thiserror::Error;

#[cfg(feature = "mpi")]
pub use mpi::Mpi;
pub use over_pronto::{OverPronto, Settings};

/// Largest number of ranks of a job.
pub const MOST_RANKS: usize = 8;

/// Position of a process in its job, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub usize);

/// Kind of a message. A message matches the first receive of its sender and tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u16);

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The receiver, another rank.
    pub to: Rank,
    /// Tag of the message.
    pub tag: Tag,
    /// Content.
    pub bytes: &'a [u8],
}

/// A message to receive.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The sender, another rank.
    pub from: Rank,
    /// Tag of the message.
    pub tag: Tag,
    /// Memory for the content. The message has exactly this length.
    pub bytes: &'a mut [u8],
}

/// Values that each rank contributes and that the result replaces, element by element.
#[derive(Debug)]
pub enum Reduction<'a> {
    /// Sum of integers, which must not overflow.
    SumU32(&'a mut [u32]),
    /// Sum of floating-point numbers.
    SumF64(&'a mut [f64]),
    /// Maximum of floating-point numbers.
    MaxF64(&'a mut [f64]),
}

/// Messages that a rank has sent. Those within the collectives of an MPI library are not known: such a collective counts in `collectives`,
/// and in `bytes` with the bytes that the rank contributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages to other ranks.
    pub messages: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Collective operations.
    pub collectives: u64,
}

impl Traffic {
    /// Returns what was sent after `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            messages: self.messages - earlier.messages,
            bytes: self.bytes - earlier.bytes,
            collectives: self.collectives - earlier.collectives,
        }
    }
}

/// The ranks of a job, as one of them sees the others. All ranks call the collectives in the same order.
pub trait Comm {
    /// Returns the position of this process.
    fn rank(&self) -> Rank;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Sends and receives several messages, all of which may be in progress concurrently. Returns when the last one was received. The
    /// contents that are sent may then be changed.
    ///
    /// # Errors
    /// A rank has ended, or a message has another length.
    fn exchange(&mut self, send: &[Outgoing<'_>], receive: &mut [Incoming<'_>]) -> Result<(), CommError>;

    /// Combines values of all ranks. Each rank passes the same number of values, and gets the same result.
    ///
    /// # Errors
    /// A rank has ended.
    fn allreduce(&mut self, values: Reduction<'_>) -> Result<(), CommError>;

    /// Sends a part of `send` to each rank and receives a part of `receive` from each, including this one. The parts are in the order of
    /// ranks. `parts.0` has the lengths of those to send, `parts.1` of those to receive, in bytes.
    ///
    /// # Errors
    /// A rank has ended, or a part has another length.
    fn all_to_all(
        &mut self,
        send: &[u8],
        receive: &mut [u8],
        parts: (&[usize], &[usize]),
    ) -> Result<(), CommError>;

    /// Waits until all ranks have called this.
    ///
    /// # Errors
    /// A rank has ended.
    fn barrier(&mut self) -> Result<(), CommError>;

    /// Returns the messages that this rank has sent since its start.
    fn traffic(&self) -> Traffic;

    /// Waits for all ranks and leaves the job. No message can be sent afterwards.
    ///
    /// # Errors
    /// A rank has ended early.
    fn close(&mut self) -> Result<(), CommError>;

    /// Sends a message. May return before it was received.
    ///
    /// # Errors
    /// The receiver has ended.
    fn send(&mut self, to: Rank, tag: Tag, bytes: &[u8]) -> Result<(), CommError> {
        self.exchange(&[Outgoing { to, tag, bytes }], &mut [])
    }

    /// Receives a message, which fills `bytes`.
    ///
    /// # Errors
    /// The sender has ended, or the message has another length.
    fn receive(&mut self, from: Rank, tag: Tag, bytes: &mut [u8]) -> Result<(), CommError> {
        self.exchange(&[], &mut [Incoming { from, tag, bytes }])
    }
}

/// The reason why ranks cannot communicate.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommError {
    /// A rank did not start in time.
    #[error("rank {rank} did not start: {why}")]
    NotStarted {
        /// The rank.
        rank: Rank,
        /// Reason of its last attempt to connect.
        why: pronto::NodeError,
    },
    /// This process cannot be a node.
    #[error("cannot start the node of this rank: {0}")]
    Node(#[from] pronto::NodeError),
    /// A rank has ended before the others, or cannot be reached any more.
    #[error("rank {0} has ended, or cannot be reached any more")]
    Ended(Rank),
    /// A message could not be sent.
    #[error("cannot send to rank {rank}: {why}")]
    NotSent {
        /// The receiver.
        rank: Rank,
        /// Reason.
        why: pronto::rpc::TransferError,
    },
    /// A message could not be received.
    #[error("cannot receive from rank {rank}: {why}")]
    NotReceived {
        /// The sender.
        rank: Rank,
        /// Reason.
        why: pronto::ReceiveError,
    },
    /// A message has another length than its receive.
    #[error(
        "a message from rank {rank} has {got} bytes instead of {expected}: start all ranks with the same job and class"
    )]
    Length {
        /// The sender.
        rank: Rank,
        /// Length of the message, bytes.
        got: u64,
        /// Length of the receive, bytes.
        expected: usize,
    },
    /// The number of ranks is not supported.
    #[error("{0} ranks: the number of ranks must be from 1 to {MOST_RANKS}")]
    Size(usize),
    /// A function of MPI failed.
    #[cfg(feature = "mpi")]
    #[error("{function} failed with error {code}")]
    Mpi {
        /// The function.
        function: &'static str,
        /// Error code of MPI, or -1.
        code: i32,
    },
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
