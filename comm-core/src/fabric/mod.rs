//! SEAM Fabric: queue pairs with verbs semantics, which every transport provides.
//!
//! A [`QueuePair`] is one connection of one class to one peer, with its send completion queue, its receive completion
//! queue and its protection domain. It is driven by one thread at a time (`&mut`): whoever holds the connection's
//! engine. The order of calls in one turn of that engine:
//!
//! 1. [`poll`](QueuePair::poll) until it finds no message,
//! 2. [`poll_send`](QueuePair::poll_send) until it gives nothing,
//! 3. any number of [`post`](QueuePair::post),
//! 4. one [`ring_doorbell`](QueuePair::ring_doorbell),
//! 5. before sleeping: [`arm`](QueuePair::arm), then 1 and 2 once more, then sleep on [`channel`](QueuePair::channel).
//!
//! # What a provider promises
//! 1. Messages of one queue pair arrive in the order of their posting, whole, once, or the queue pair fails. The outcome of a poll
//!    says where its message lies, whatever that is, and never changes the order.
//! 2. A send completion says that the buffer may be used again, and nothing else: it is no acknowledgement.
//! 3. Every signalled work request completes exactly once, also when the queue pair fails or is closed (then `Flushed`).
//! 4. A message is at most [`Capabilities::max_payload`] long; up to 40 bytes travel in the message's own slot.
//! 5. Nothing that a peer sends or writes makes a provider panic, read out of bounds or wait: it fails with
//!    [`FabricError::Peer`].
//! 6. A provider never looks at a header, but for the four bytes of its fabric word.
//! 7. No allocation and, where [`Capabilities::polls_without_syscalls`] says so, no system call in 1 to 4.
//! 8. Where a provider carries out one-sided work of the peer in its polls, one of them returns [`PollOutcome::OneSided`] afterwards.
//!
//! # What the engine promises
//! 1. No more messages are in flight than the receive depth agreed when connecting. A provider that notices a breach by
//!    the peer fails; it need not notice a breach by its own engine.
//! 2. An extent of send memory is complete when it is posted, and nobody writes to it from `post` until its completion.
//! 3. A range of send memory that is retired contains no buffer in use.

mod capabilities;
mod claim;
mod error;
pub mod region;
mod work;

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;

pub use capabilities::{AtomicScope, Capabilities, OneSided, Revocation};
pub use claim::{MemoryClaim, MemoryClaimed};
pub use error::{FabricError, GrantError, PeerFault, PostError};
pub use region::{Grant, GrantId, HeapMemory, HeapSendMemory, Region, RegionMemory, RemoteRange, Rights};
pub use work::{
    Arrived, Completion, Extent, Gather, InlineMessage, MessageSlot, Operation, OutOfBounds, Payload,
    PollOutcome, Received, SHORT_PAYLOAD, SendWork, ShortMessage, Signal, Status, Withdrawn, WrId,
    poll_by_value,
};

/// Memory in which outgoing payloads are composed; the provider's, so that it lies where the transport wants it.
///
/// # Safety
/// - The bytes `base .. base + len` stay mapped, readable and writable by this process, and in place, while the value lives.
/// - [`claim`](Self::claim) returns `true` at most once while the value lives, whichever handle it is called on.
/// - Only the caller that got `true` from it writes to the bytes. No other value of this trait covers any of them, and no
///   safe function of the implementing type reads or writes them. The provider reads an extent only between its posting and
///   its completion.
#[expect(unsafe_code, reason = "the promise about the memory is the provider's to make")]
pub unsafe trait SendMemory: Send + Sync + fmt::Debug {
    /// First byte; aligned to 64 bytes.
    fn base(&self) -> NonNull<u8>;
    /// Length, bytes.
    fn len(&self) -> usize;
    /// Claims the only right to write to the bytes. Returns `true` to the first caller and `false` to all later ones, also
    /// after the first caller has gone. [`crate::buf::SendRing::new`] claims it; see [`MemoryClaim`] for implementers.
    fn claim(&self) -> bool;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What both ends agreed on for one connection, from this side's view; every provider is made with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Messages in flight that the peer can receive.
    pub send_depth: u32,
    /// Messages in flight that this side can receive.
    pub receive_depth: u32,
    /// Longest payload that the peer takes, bytes.
    pub max_send_payload: u32,
    /// Longest payload that this side takes, bytes.
    pub max_receive_payload: u32,
    /// Send memory, bytes; virtual, made ready chunk by chunk.
    pub send_memory: u32,
}

impl ConnectionLimits {
    /// The same connection from the other side, with as much send memory.
    #[must_use]
    pub const fn mirrored(self) -> Self {
        Self {
            send_depth: self.receive_depth,
            receive_depth: self.send_depth,
            max_send_payload: self.max_receive_payload,
            max_receive_payload: self.max_send_payload,
            send_memory: self.send_memory,
        }
    }
}

/// What the messages before a doorbell are to a peer that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellEvent {
    /// At least one of them is a solicited event: it wakes every peer that has armed.
    Solicited,
    /// None of them is: a peer that has armed for [`Armed::Solicited`] need not be woken.
    Unsolicited,
}

/// The events that a queue pair is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Armed {
    /// None.
    Nothing,
    /// The next message whose doorbell was rung with [`DoorbellEvent::Solicited`], or the loss of the connection. Unsolicited messages
    /// and completions may give no event. Arming for [`Armed::All`] afterwards counts as arming for the first time: poll
    /// again.
    Solicited,
    /// The next message or completion, or the loss of the connection.
    All,
}

/// What a sleeper waits for on a channel, level-triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// That it becomes readable. Off while the provider will not read: then somebody else wakes the engine.
    pub readable: bool,
    /// That it becomes writable: output is blocked by a full transport.
    pub writable: bool,
}

impl Interest {
    /// Readable only: what a completion channel is.
    pub const READABLE: Self = Self { readable: true, writable: false };
}

/// The place where threads sleep until a queue pair has an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionChannel {
    /// The descriptor: a completion channel, socket, eventfd or epoll.
    pub fd: i32,
    /// The events of the descriptor to wait for.
    pub interest: Interest,
    /// If `fd` is a set of descriptors, another epoll of the same ones, for a caller that sleeps until its own response comes.
    /// The kernel wakes a sleeper there before any sleeper on `fd`. Its events carry the class, 0 or 1.
    pub caller_epoll: Option<i32>,
}

impl CompletionChannel {
    /// A descriptor that becomes readable with an event, without an epoll for callers.
    pub const fn readable(fd: i32) -> Self {
        Self { fd, interest: Interest::READABLE, caller_epoll: None }
    }
}

/// One connection of one class to one peer.
pub trait QueuePair: Send + fmt::Debug {
    /// A received payload that lies in a receive buffer. Dropping it posts that receive again, from any thread.
    type Lease: Payload;

    /// What this connection can do; constant while it lives.
    fn capabilities(&self) -> &Capabilities;

    /// The memory that [`Gather::Ring`] extents lie in.
    fn send_memory(&self) -> Arc<dyn SendMemory>;

    /// Makes a byte range of the send memory ready for use (commits, pins, registers it). Called on the progress path,
    /// ahead of need, in whole chunks.
    fn prepare(&mut self, range: Range<usize>) -> Result<(), FabricError>;

    /// Takes the readiness of an idle range back, and with it the memory behind it: its bytes become undefined or zero. The
    /// range contains no buffer in use (the engine's promise 3).
    fn retire(&mut self, range: Range<usize>) -> Result<(), FabricError>;

    /// Readies a region whose payloads will be sent by reference, or which one-sided operations will read or write: where the
    /// transport pins memory, that is done here, ahead of need, and not on a message's way. It lasts while anybody holds the
    /// region.
    fn register(&mut self, region: &Region) -> Result<(), FabricError> {
        let _ = region;
        Ok(())
    }

    /// Posts one work request. It may stay in the provider until the next doorbell.
    ///
    /// The caller of the fast path passes a constant variant of [`Gather`] and an inlined provider folds its branches: no
    /// payload needs a method of its own.
    fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError>;

    /// Hands everything posted so far to the transport, and wakes the peer if it sleeps and has armed for this `event`. A
    /// provider may wake it for more.
    ///
    /// # Errors
    /// The queue pair has failed.
    fn ring_doorbell(&mut self, event: DoorbellEvent) -> Result<(), FabricError>;

    /// Whether both polls would find nothing now: no message, no completion, no loss. A poll that costs next to nothing,
    /// for threads that poll again and again; always false for a provider without such a poll.
    fn is_quiet(&self) -> bool {
        false
    }

    /// The next send completion, if there is one.
    fn poll_send(&mut self) -> Option<Completion>;

    /// Polls for the next message once, and carries out what the peer asks for by one-sided operations where that is done by polling.
    /// Fills `slot` as the outcome says, and otherwise leaves arbitrary bytes in it.
    ///
    /// # Errors
    /// The queue pair has failed: close it.
    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<Self::Lease>, FabricError>;

    /// Makes a lease out of a copy of `payload`, the bytes of a short message that somebody wants to keep.
    ///
    /// # Panics
    /// If the provider never returns [`PollOutcome::Short`].
    fn lease_copy(&self, payload: &[u8]) -> Self::Lease {
        unreachable!("a lease of {} bytes where no message is short", payload.len())
    }

    /// Asks for an event on the channel when one of these `events` comes; see [`Armed`]. What arrived before may give none:
    /// poll both queues once more before sleeping.
    ///
    /// [`Armed::Nothing`] takes the request back where the transport can, and consumes events that have come. Where the
    /// transport cannot, one event may still come, with nothing to show for it.
    ///
    /// # Errors
    /// The queue pair has failed. [`Armed::Nothing`] never fails, also after that.
    fn arm(&mut self, events: Armed) -> Result<(), FabricError>;

    /// Reports that the channel has woken the calling thread, and perhaps no other. The provider skips no poll, by any thread,
    /// until one has come back empty. Does nothing in a provider that never skips polls.
    fn notify_woken(&mut self) {}

    /// Returns the channel that has an event when something comes; none in simulation. The loss of the connection is an event
    /// too. After [`close`](Self::close) and [`Armed::Nothing`] there is no channel any more, or it stays silent: a dead
    /// connection keeps no thread awake. Ask again before every sleep, after [`arm`](QueuePair::arm) and the last poll, since
    /// the interest changes.
    fn channel(&self) -> Option<CompletionChannel>;

    /// Lets this peer, and nobody else, access a range of a region from now on.
    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError>;

    /// Ends a grant. When it returns, no further access under it begins; see [`Revocation`].
    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError>;

    /// Moves the queue pair to the error state: nothing is sent or received any more, the peer is told where the
    /// transport can, and what is outstanding completes as flushed. Poll until nothing comes before dropping it.
    fn close(&mut self);
}
