//! SEAM Fabric: queue pairs with verbs semantics, which every transport provides.
//!
//! A [`QueuePair`] is one connection of one class to one peer, with its send completion queue, its receive completion
//! queue and its protection domain. One thread at a time drives it (`&mut`): the holder of the session's engine. The order
//! of calls in one turn of that engine:
//!
//! 1. [`poll`](QueuePair::poll) until it finds no message,
//! 2. [`poll_send`](QueuePair::poll_send) until it returns no completion,
//! 3. any number of [`post`](QueuePair::post),
//! 4. one [`ring_doorbell`](QueuePair::ring_doorbell),
//! 5. before sleeping: [`arm`](QueuePair::arm), then 1 and 2 once more, then sleep on [`channel`](QueuePair::channel).
//!
//! # Promises of a provider
//! 1. Messages of one queue pair arrive complete, once and in the order of posting, or the queue pair fails. The form in which a
//!    poll returns a message never changes the order.
//! 2. A send completion means only that the buffer may be reused. It is not an acknowledgement by the peer.
//! 3. Every signalled work request completes exactly once. If the queue pair fails or is closed, it completes as `Flushed`.
//! 4. A payload is at most [`Capabilities::max_payload`] long; up to 40 bytes travel in the message's own slot.
//! 5. Nothing that a peer sends or writes makes a provider panic, read out of bounds or wait. The provider fails with
//!    [`FabricError::Peer`] instead.
//! 6. A provider does not read the header, except for the four bytes of its fabric word.
//! 7. Steps 1 to 4 do not allocate. If [`Capabilities::polls_without_syscalls`] is set, they make no system call.
//! 8. If a provider executes one-sided work of the peer while polling, a poll returns [`PollOutcome::OneSided`] afterwards.
//!
//! # Promises of the engine
//! 1. No more messages are in flight than the receive depth agreed when connecting. A provider that detects a violation by
//!    the peer fails; it need not detect a violation by its own engine.
//! 2. An extent of send memory is complete when it is posted, and no thread writes to it from `post` until its completion.
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
pub use region::{
    Grant, GrantId, HeapMemory, HeapSendMemory, Memory, MemoryAccess, Region, RegionMemory, RemoteRange,
    Rights,
};
pub use work::{
    Arrived, Completion, Extent, Gather, InlineMessage, MessageSlot, Operation, OutOfBounds, Payload,
    PollOutcome, Received, SHORT_PAYLOAD, SendWork, ShortMessage, Signal, Status, Withdrawn, WrId,
    poll_by_value,
};

/// Memory in which outgoing payloads are composed. The provider allocates it, as the transport may need special memory.
///
/// # Safety
/// - The bytes `base .. base + len` stay mapped, readable and writable by this process, and in place, while the value lives.
/// - [`claim`](Self::claim) returns `true` at most once while the value lives, on all its handles together.
/// - Only the caller that got `true` from it writes to the bytes. No other value of this trait covers any of them, and no
///   safe function of the implementing type reads or writes them. The provider reads an extent only between its posting and
///   its completion.
#[expect(unsafe_code, reason = "the provider makes the promise about the memory")]
pub unsafe trait SendMemory: Send + Sync + fmt::Debug {
    /// Returns the address of the first byte, which is aligned to 64 bytes.
    fn base(&self) -> NonNull<u8>;
    /// Returns the length, bytes.
    fn len(&self) -> usize;
    /// Claims the only right to write to the bytes. Returns `true` to the first caller and `false` to all later ones, also
    /// after the first caller has gone. [`crate::buf::SendRing::new`] claims it; see [`MemoryClaim`] for implementers.
    fn claim(&self) -> bool;
    /// Returns whether the length is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The limits of one connection on which both ends have agreed, from the view of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of messages in flight to the peer.
    pub send_depth: u32,
    /// Maximum number of messages in flight to this side.
    pub receive_depth: u32,
    /// Longest payload that the peer receives, bytes.
    pub max_send_payload: u32,
    /// Longest payload that this side receives, bytes.
    pub max_receive_payload: u32,
    /// Length of the send memory, bytes. The memory is virtual and is made ready chunk by chunk.
    pub send_memory: u32,
}

impl ConnectionLimits {
    /// Returns the limits of this connection from the view of the other side, with the same length of send memory.
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

/// The kind of event that the messages before a doorbell are for a sleeping peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellEvent {
    /// At least one message is a solicited event, which wakes every armed peer.
    Solicited,
    /// No message is a solicited event. A peer that is armed for [`Armed::Solicited`] need not be woken.
    Unsolicited,
}

/// The events for which a queue pair is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Armed {
    /// No events.
    Nothing,
    /// The next message whose doorbell was rung with [`DoorbellEvent::Solicited`], or the loss of the connection. Unsolicited messages
    /// and completions may give no event. Arming for [`Armed::All`] afterwards requires another recheck.
    Solicited,
    /// The next message or completion, or the loss of the connection.
    All,
}

/// The level-triggered conditions for which a thread sleeps on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// True to wait until the channel is readable. False while the provider does not read, so that another thread must wake the engine.
    pub readable: bool,
    /// True to wait until the channel is writable, because the transport has no room for output.
    pub writable: bool,
}

impl Interest {
    /// Readable only, as for a completion channel.
    pub const READABLE: Self = Self { readable: true, writable: false };
}

/// The place where threads sleep until a queue pair has an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionChannel {
    /// The descriptor: a completion channel, socket, eventfd or epoll.
    pub fd: i32,
    /// The events of the descriptor to wait for.
    pub interest: Interest,
    /// The caller epoll, if `fd` is a set of descriptors: another epoll of the same descriptors, for a caller that sleeps until its own
    /// response arrives. The kernel wakes a sleeper there before any sleeper on `fd`. Its events carry the class, 0 or 1.
    pub caller_epoll: Option<i32>,
}

impl CompletionChannel {
    /// Returns a channel whose descriptor becomes readable with an event, without a caller epoll.
    pub const fn readable(fd: i32) -> Self {
        Self { fd, interest: Interest::READABLE, caller_epoll: None }
    }
}

/// One connection of one class to one peer.
pub trait QueuePair: Send + fmt::Debug {
    /// A received payload in a receive buffer. Dropping it, on any thread, posts that receive again.
    type Lease: Payload;

    /// Returns the capabilities of this connection, which are constant while it lives.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the memory of [`Gather::Ring`] extents.
    fn send_memory(&self) -> Arc<dyn SendMemory>;

    /// Makes a byte range of the send memory ready for use: commits, pins and registers it. The engine calls this in advance, for whole
    /// chunks.
    fn prepare(&mut self, range: Range<usize>) -> Result<(), FabricError>;

    /// Reclaims the physical memory of an idle range, which is then no longer ready. Its bytes become undefined or zero. The range
    /// contains no buffer in use (the engine's promise 3).
    fn retire(&mut self, range: Range<usize>) -> Result<(), FabricError>;

    /// Registers a region in advance for sends by reference and one-sided operations. If the transport pins memory, it does so here, so
    /// that no message is delayed by it. The registration lasts while a handle to the region exists.
    fn register(&mut self, region: &Region) -> Result<(), FabricError> {
        let _ = region;
        Ok(())
    }

    /// Posts one work request. It may stay in the provider until the next doorbell.
    ///
    /// A caller on the fast path passes a constant variant of [`Gather`], for which an inlined provider folds its branches.
    /// Therefore no kind of payload needs a method of its own.
    fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError>;

    /// Passes everything posted so far to the transport, and wakes the peer if it sleeps and is armed for this `event`. A
    /// provider may wake the peer more often.
    ///
    /// # Errors
    /// The queue pair has failed.
    fn ring_doorbell(&mut self, event: DoorbellEvent) -> Result<(), FabricError>;

    /// Returns whether both polls would find nothing now: no message, no completion, no loss. This check is very cheap, for
    /// threads that poll repeatedly. A provider without such a check always returns false.
    fn is_quiet(&self) -> bool {
        false
    }

    /// Returns the next send completion, if there is one.
    fn poll_send(&mut self) -> Option<Completion>;

    /// Polls once for the next message. If the provider executes the peer's one-sided operations while polling, executes these, too.
    /// Fills the part of `slot` that the outcome names; other parts may contain arbitrary bytes.
    ///
    /// # Errors
    /// The queue pair has failed: close it.
    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<Self::Lease>, FabricError>;

    /// Returns a lease on a copy of `payload`, the bytes of a short message that must be kept.
    ///
    /// # Panics
    /// If the provider never returns [`PollOutcome::Short`].
    fn lease_copy(&self, payload: &[u8]) -> Self::Lease {
        unreachable!("a lease of {} bytes from a provider without short messages", payload.len())
    }

    /// Requests an event on the channel when one of these `events` occurs; see [`Armed`]. Messages and completions that arrived
    /// before may give no event, so poll both queues once more before sleeping.
    ///
    /// [`Armed::Nothing`] cancels the request if the transport can, and consumes pending events. If the transport cannot, one
    /// spurious event may still occur.
    ///
    /// # Errors
    /// The queue pair has failed. [`Armed::Nothing`] never returns an error, even after a failure.
    fn arm(&mut self, events: Armed) -> Result<(), FabricError>;

    /// Reports that the channel has woken the calling thread, and perhaps no other. The provider must not skip a poll of any thread
    /// until a poll has found nothing. Does nothing in a provider that never skips polls.
    fn notify_woken(&mut self) {}

    /// Returns the channel that has an event when something arrives or the connection is lost; none in simulation. After
    /// [`close`](Self::close) and [`Armed::Nothing`] there is no channel any more, or it has no events, so that a dead connection keeps
    /// no thread awake. Call this again before every sleep, after [`arm`](QueuePair::arm) and the last poll, as the interest changes.
    fn channel(&self) -> Option<CompletionChannel>;

    /// Allows this peer, and no other, to access a range of a region.
    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError>;

    /// Ends a grant. After this method has returned, no access under the grant begins; [`Revocation`] tells whether this also holds for a
    /// peer that breaks the rules.
    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError>;

    /// Frees memory that the queue pair keeps to be faster the next time. Called when the connection is idle.
    fn give_back(&mut self) {}

    /// Moves the queue pair to the error state: it sends and receives no more messages, notifies the peer if the transport can,
    /// and completes outstanding work requests as flushed. Poll until nothing is found before dropping the queue pair.
    fn close(&mut self);
}
