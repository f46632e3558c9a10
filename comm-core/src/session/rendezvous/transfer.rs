//! One transfer: it reads the bytes of one offer into one posted receive, in chunks.
//!
//! # Invariants
//! 1. Each byte below `next` has arrived, is covered by a chunk in flight, or is at or above `restart.at`.
//! 2. Bytes that were refused or lost with their link are read again only with another grant. A retry with the same grant could go on
//!    forever.
//! 3. A transfer ends only when none of its chunks is in flight, because a chunk in flight may write to the receive's buffer.

use pronto_wire::CallId;

use super::pieces::Pieces;
use super::table::{Offer, Posted};
use crate::fabric::{Capabilities, Region};
use crate::session::end::End;
use crate::session::one_sided::Access;

/// The sizes of chunks on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// Length of a chunk, bytes. Other messages are processed between two chunks.
    pub len: u64,
    /// Maximum number of chunks in flight per transfer.
    pub window: usize,
}

impl Chunking {
    /// For connections on which a poll copies the bytes (shared memory). A chunk delays the polling thread for some microseconds.
    pub const COPIED: Self = Self { len: 16 << 10, window: 1 };
    /// For connections on which the kernel transfers the bytes. A message on the same connection waits for at most one chunk, and the
    /// window limits the bytes in socket buffers.
    pub const INTO_BUFFERS: Self = Self { len: 64 << 10, window: 8 };
    /// For connections on which a device transfers the bytes, from pinned memory. A chunk is a work request and takes no CPU time.
    pub const MOVED: Self = Self { len: 256 << 10, window: 4 };

    /// Returns the sizes for a connection.
    pub const fn of(capabilities: &Capabilities) -> Self {
        if capabilities.pins_memory {
            Self::MOVED
        } else if capabilities.polls_without_syscalls {
            Self::COPIED
        } else {
            Self::INTO_BUFFERS
        }
    }
}

/// Number of bytes that a transfer reads before it is the turn of the next one. Transfers that took turns chunk by chunk would all end at
/// about the same time, and each would find that the caches no longer hold the bytes that it wrote first.
const BYTES_PER_TURN: u64 = 1 << 20;

/// A chunk in flight.
#[derive(Debug)]
struct Chunk {
    slot: CallId,
    at: u64,
    /// The link of the grant with which the chunk is read.
    link: u16,
}

/// The bytes that must be read again.
#[derive(Clone, Copy, Debug)]
struct Restart {
    /// The lowest of these bytes.
    at: u64,
    /// The link of the grant that failed.
    link: u16,
}

/// The reason why a transfer ends before its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum GivenUp {
    /// The receiver cancelled the receive.
    ByReceiver,
    /// The sender's call was cancelled, or its deadline passed.
    BySender,
    /// The connection has no one-sided operations, or cannot use the receive's memory for them.
    Unsupported,
    /// The sender's memory has lost its bytes.
    Unreadable,
}

/// A transfer in progress.
#[derive(Debug)]
pub(in crate::session) struct Transfer {
    pub(in crate::session) posted: Posted,
    pub(in crate::session) offer: Offer,
    /// The location of the sender's bytes, with the link that granted them.
    source: Source,
    next: u64,
    /// Number of bytes that were read since its turn began.
    in_turn: u64,
    under_way: alloc::vec::Vec<Chunk>,
    restart: Option<Restart>,
    given_up: Option<GivenUp>,
}

/// The location of a sender's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct Source {
    pub(in crate::session) pieces: Pieces,
    /// The link for which the grants are valid.
    pub(in crate::session) link: u16,
}

impl Transfer {
    pub(in crate::session) fn new(posted: Posted, offer: Offer, source: Source) -> Self {
        Self {
            posted,
            offer,
            source,
            next: 0,
            in_turn: 0,
            under_way: alloc::vec::Vec::new(),
            restart: None,
            given_up: None,
        }
    }

    /// Returns the length of the message, bytes.
    pub(in crate::session) const fn len(&self) -> u64 {
        self.source.pieces.len()
    }

    /// Returns the next chunk to read on `link`, as its end and its operation. Returns `None` if no chunk can be started now.
    pub(in crate::session) fn next_chunk(&self, chunking: Chunking, link: u16) -> Option<(u64, Access)> {
        let may = self.given_up.is_none()
            && self.restart.is_none()
            && self.source.link == link
            && self.under_way.len() < chunking.window;
        if !may || self.next >= self.len() {
            return None;
        }
        let remote = self.source.pieces.part(self.next..self.len().min(self.next + chunking.len))?;
        let end = self.next + remote.len;
        let (local, offset) = (Region::clone(&self.posted.region), self.posted.offset + self.next);
        Some((end, Access::Read { local, offset, remote }))
    }

    /// Records that the next chunk, up to `end`, was started. Returns whether the turn of this transfer is over.
    pub(in crate::session) fn started(&mut self, slot: CallId, end: u64) -> bool {
        self.under_way.push(Chunk { slot, at: self.next, link: self.source.link });
        self.in_turn += end - self.next;
        self.next = end;
        let over = self.in_turn >= BYTES_PER_TURN;
        if over {
            self.in_turn = 0;
        }
        over
    }

    /// Processes the chunks that have ended, and returns their number.
    pub(in crate::session) fn take_ended<L>(
        &mut self,
        mut ended: impl FnMut(CallId) -> Option<End<L>>,
    ) -> usize {
        let before = self.under_way.len();
        let (restart, given_up, present) = (&mut self.restart, &mut self.given_up, self.source.link);
        self.under_way.retain(|chunk| {
            let Some(end) = ended(chunk.slot) else { return true };
            match end {
                End::Done(_) => {}
                End::Unsupported => *given_up = given_up.or(Some(GivenUp::Unsupported)),
                End::Unreadable => *given_up = given_up.or(Some(GivenUp::Unreadable)),
                // The link was lost, or the sender's grant had ended. The bytes from this chunk on are read again when the sender has
                // granted them on the next link, unless it gives up.
                _ => {
                    let before = restart.unwrap_or(Restart { at: chunk.at, link: chunk.link });
                    let link = if chunk.link == present { present } else { before.link };
                    *restart = Some(Restart { at: before.at.min(chunk.at), link });
                }
            }
            false
        });
        before - self.under_way.len()
    }

    /// Stores a new grant of the sender for its bytes, on another link.
    pub(in crate::session) fn regrant(&mut self, source: &Source) {
        if source.pieces.len() == self.source.pieces.len() {
            self.source = source.clone();
        }
    }

    /// Resumes at the lowest missing byte with another grant, if no chunk of the old grant is in flight.
    pub(in crate::session) fn go_on(&mut self, link: u16) {
        if self.under_way.is_empty()
            && self.source.link == link
            && let Some(restart) = self.restart.take_if(|restart| restart.link != link)
        {
            self.next = restart.at;
        }
    }

    /// Stops the transfer: no more chunks are started. The receiver's reason overrides that of the sender.
    pub(in crate::session) fn give_up(&mut self, why: GivenUp) {
        if why == GivenUp::ByReceiver || self.given_up.is_none() {
            self.given_up = Some(why);
        }
    }

    /// Returns whether and how the transfer is over: all bytes have arrived, or it was given up and no chunk is in flight.
    pub(in crate::session) fn is_over(&self) -> Option<Result<u64, GivenUp>> {
        if !self.under_way.is_empty() {
            return None;
        }
        match self.given_up {
            Some(why) => Some(Err(why)),
            None => (self.next == self.len() && self.restart.is_none()).then_some(Ok(self.len())),
        }
    }
}
