//! One transfer: the bytes of one offer into one posted receive, in chunks.
//!
//! # Invariants
//! 1. Every byte below `next` was asked for, and is here unless a chunk under way or `restart` covers it.
//! 2. What was refused, or lost with its link, is asked for again on another grant only: on the same one that would go on for ever.
//! 3. A transfer ends when nothing of it is under way: until then its chunks may write into the receive's buffer.

use pronto_wire::CallId;

use super::table::{Offer, Posted};
use crate::fabric::{Capabilities, Region, RemoteRange};
use crate::session::end::End;
use crate::session::one_sided::Access;

/// How the bytes of a connection move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// Bytes of a chunk: other messages get their turn between two.
    pub len: u64,
    /// Chunks of one transfer under way at a time.
    pub window: usize,
}

impl Chunking {
    /// Where a look copies (shared memory): a chunk holds up whoever polls, for some microseconds.
    pub const COPIED: Self = Self { len: 16 << 10, window: 1 };
    /// Where the kernel carries bytes: a chunk is what may stand before another message of the same connection, and the window is
    /// what may be parked in socket buffers.
    pub const CARRIED: Self = Self { len: 64 << 10, window: 8 };
    /// Where a device moves them (memory is pinned): a chunk is a work request, and costs nobody's time.
    pub const MOVED: Self = Self { len: 256 << 10, window: 4 };

    /// What suits a connection.
    pub const fn of(capabilities: &Capabilities) -> Self {
        if capabilities.pins_memory {
            Self::MOVED
        } else if capabilities.polls_without_syscalls {
            Self::COPIED
        } else {
            Self::CARRIED
        }
    }
}

/// A chunk under way.
#[derive(Debug)]
struct Chunk {
    slot: CallId,
    at: u64,
    /// The link of the grant that it was asked for on.
    link: u16,
}

/// What has to be asked for again.
#[derive(Clone, Copy, Debug)]
struct Restart {
    /// The lowest byte.
    at: u64,
    /// The link of the grant that did not give it.
    link: u16,
}

/// Why a transfer ends before its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum GivenUp {
    /// Its receiver cancelled the receive.
    ByReceiver,
    /// Its sender's call was cancelled, or had its deadline.
    BySender,
    /// The connection has no one-sided operations, or cannot use the receive's memory for them.
    Unsupported,
}

/// A transfer.
#[derive(Debug)]
pub(in crate::session) struct Transfer {
    pub(in crate::session) posted: Posted,
    pub(in crate::session) offer: Offer,
    /// Where the sender's bytes are, on the link that granted them.
    source: Source,
    next: u64,
    under_way: alloc::vec::Vec<Chunk>,
    restart: Option<Restart>,
    given_up: Option<GivenUp>,
}

/// Where a sender's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct Source {
    pub(in crate::session) remote: RemoteRange,
    /// The link whose grant it is.
    pub(in crate::session) link: u16,
}

impl Transfer {
    pub(in crate::session) fn new(posted: Posted, offer: Offer, source: Source) -> Self {
        Self {
            posted,
            offer,
            source,
            next: 0,
            under_way: alloc::vec::Vec::new(),
            restart: None,
            given_up: None,
        }
    }

    /// Bytes in all.
    pub(in crate::session) const fn len(&self) -> u64 {
        self.source.remote.len
    }

    /// The next chunk to ask for on `link`, if one may be.
    pub(in crate::session) fn next_chunk(&self, chunking: Chunking, link: u16) -> Option<(u64, Access)> {
        let may = self.given_up.is_none()
            && self.restart.is_none()
            && self.source.link == link
            && self.under_way.len() < chunking.window;
        if !may || self.next >= self.len() {
            return None;
        }
        let end = self.len().min(self.next + chunking.len);
        let remote = self.source.remote.part(self.next..end)?;
        let (local, offset) = (Region::clone(&self.posted.region), self.posted.offset + self.next);
        Some((end, Access::Read { local, offset, remote }))
    }

    /// That chunk, up to `end`, was asked for.
    pub(in crate::session) fn started(&mut self, slot: CallId, end: u64) {
        self.under_way.push(Chunk { slot, at: self.next, link: self.source.link });
        self.next = end;
    }

    /// Takes in the chunks that have ended; says how many.
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
                // The link went away, or its grant: the sender grants again on the next link, or gives up.
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

    /// The sender has granted its bytes again, on another link.
    pub(in crate::session) fn regrant(&mut self, source: Source) {
        if source.remote.len == self.source.remote.len {
            self.source = source;
        }
    }

    /// Goes on from the lowest byte that is missing, on another grant, once nothing of the old one is under way.
    pub(in crate::session) fn go_on(&mut self, link: u16) {
        if self.under_way.is_empty()
            && self.source.link == link
            && let Some(restart) = self.restart.take_if(|restart| restart.link != link)
        {
            self.next = restart.at;
        }
    }

    /// No more chunks are asked for. That the receiver wants no message any more counts more than that this one will not come.
    pub(in crate::session) fn give_up(&mut self, why: GivenUp) {
        if why == GivenUp::ByReceiver || self.given_up.is_none() {
            self.given_up = Some(why);
        }
    }

    /// Whether it is over, and how: all bytes are here, or it was given up.
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
