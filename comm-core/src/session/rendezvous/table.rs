//! The table of posted receives, of messages that wait for a receive, and of transfers.
//!
//! # Invariants
//! 1. Messages match the receives with the same tag in the order of arrival. The order of a message by reference is that of its request, so
//!    a shorter eager message does not overtake it.
//! 2. No message waits while a matching receive is posted: a thread that adds one of the two checks for the other.
//! 3. At most [`MAX_UNEXPECTED`] messages are parked: they wait although their sender already has a reply.
//! 4. Of the other messages, at most one waits per call slot of the peer, and at most [`MAX_SENDS`](super::MAX_SENDS) wait: a correct peer has no
//!    more sends without a response. So memory of unmatched messages is bounded.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pronto_wire::{CallId, Class};

use super::transfer::{Chunking, GivenUp, Source, Transfer};
use super::unmatched::{Added, Unmatched, is_later};
use crate::fabric::{Arrived, GrantId, Region};

/// Maximum number of eager messages that are parked: copied to memory of this side until a receive is posted, so that their senders get a
/// reply. Senders of further eager messages wait.
pub const MAX_UNEXPECTED: usize = 8;
/// Longest eager message that is parked, bytes. Parked messages lie outside of the receive budget. A longer one waits in its receive buffer, as
/// the messages beyond [`MAX_UNEXPECTED`] do.
pub const MAX_PARKED_LEN: usize = 64 << 10;

/// A posted receive.
#[derive(Debug)]
pub(in crate::session) struct Posted {
    /// The slot that ends with the receive.
    pub(in crate::session) slot: CallId,
    pub(in crate::session) tag: u64,
    pub(in crate::session) region: Region,
    pub(in crate::session) offset: u64,
    pub(in crate::session) len: u64,
}

/// The identity of an offer, which is needed for its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The sender's call.
    pub call: CallId,
    /// The link on which the offer arrived.
    pub link: u16,
    /// The class in which the offer arrived.
    pub class: Class,
    /// The tag, which selects the receives that match.
    pub tag: u64,
}

/// A message without a matching receive.
#[derive(Debug)]
pub(in crate::session) struct UnmatchedMessage<L> {
    pub(in crate::session) offer: Offer,
    pub(in crate::session) body: Body<L>,
}

/// The bytes of a message.
#[derive(Debug)]
pub(in crate::session) enum Body<L> {
    /// The bytes are in the sender's memory and must be read.
    Source(Source),
    /// The bytes are in the receive buffer of an eager message, after the first `skip` bytes of its payload.
    Eager { payload: Arrived<L>, skip: usize },
    /// The bytes of an eager message, copied. The sender has its reply and its credit.
    Unexpected(Box<[u8]>),
}

/// A message and the receive that it matches.
#[derive(Debug)]
pub(in crate::session) struct Met<L> {
    pub(in crate::session) posted: Posted,
    pub(in crate::session) waiting: UnmatchedMessage<L>,
}

/// The rendezvous table of one peer.
#[derive(Debug)]
pub(in crate::session) struct Table<L> {
    pub(in crate::session) posted: VecDeque<Posted>,
    /// Messages without a matching receive.
    pub(in crate::session) waiting: Unmatched<L>,
    /// Messages that their senders have cancelled and that need a response.
    pub(in crate::session) given_up: VecDeque<UnmatchedMessage<L>>,
    pub(in crate::session) transfers: VecDeque<Transfer>,
    /// Sends that the program has left, and that the peer has not.
    pub(in crate::session) left: Vec<LeftSend>,
}

/// A send that the program has left, or one piece of its memory. Until its call has a response, it counts among the sends in progress, and
/// the peer may read its memory.
#[derive(Debug, Default)]
pub struct LeftSend {
    /// False for all but one piece of the memory.
    pub is_counted: bool,
    /// The call, if it has no response yet.
    pub call: Option<CallId>,
    /// The memory that is reclaimed after the response.
    pub lent: Option<Lent>,
}

/// Memory of this side that is granted to the peer for a send.
#[derive(Debug)]
pub struct Lent {
    /// The grant.
    pub grant: GrantId,
    /// The link for which the grant is valid.
    pub link: u16,
    /// The memory, which must live until the grant has ended.
    pub region: Region,
}

impl<L> Default for Table<L> {
    fn default() -> Self {
        Self {
            posted: VecDeque::new(),
            waiting: Unmatched::default(),
            given_up: VecDeque::new(),
            transfers: VecDeque::new(),
            left: Vec::new(),
        }
    }
}

impl<L> Table<L> {
    pub(in crate::session) fn is_empty(&self) -> bool {
        let no_messages = self.waiting.is_empty() && self.given_up.is_empty();
        no_messages && self.posted.is_empty() && self.transfers.is_empty() && self.left.is_empty()
    }

    /// Returns the place of the first transfer that can start a chunk.
    pub(in crate::session) fn turn(&self, chunking: Chunking, link: u16) -> Option<usize> {
        self.transfers.iter().position(|transfer| transfer.next_chunk(chunking, link).is_some())
    }

    /// Ends the turn of the transfer at a place: the others come first now.
    pub(in crate::session) fn end_turn(&mut self, at: usize) {
        if let Some(transfer) = self.transfers.remove(at) {
            self.transfers.push_back(transfer);
        }
    }

    /// Adds a message that has arrived, and gives up transfers of earlier calls in its call slot. If a message already waits in that slot,
    /// only that of the later call is kept. Returns the other one, which may be `message`.
    pub(in crate::session) fn add(&mut self, message: UnmatchedMessage<L>) -> Option<UnmatchedMessage<L>> {
        let CallId { slot, generation } = message.offer.call;
        for transfer in &mut self.transfers {
            let other = transfer.offer.call;
            if other.slot == slot && is_later(generation, other.generation) {
                transfer.give_up(GivenUp::BySender);
            }
        }
        match self.waiting.add(message) {
            Added::Waits => None,
            Added::Replaced(ended) | Added::Outdated(ended) => Some(ended),
        }
    }

    /// Returns whether a receive with this tag is posted, so that an arriving message matches immediately.
    pub(in crate::session) fn is_awaited(&self, tag: u64) -> bool {
        self.posted.iter().any(|posted| posted.tag == tag)
    }

    /// Takes the first message, in the order of arrival, that has a matching receive, together with the first of its receives.
    pub(in crate::session) fn meet(&mut self) -> Option<Met<L>> {
        if self.waiting.is_empty() {
            return None;
        }
        let first = |(receive, posted): (usize, &Posted)| Some((self.waiting.first(posted.tag)?, receive));
        // Among receives with the same tag, the minimum is the one that was posted first.
        let (message, receive) = self.posted.iter().enumerate().filter_map(first).min()?;
        let waiting = self.waiting.take(message)?;
        let posted = self.posted.remove(receive)?;
        Some(Met { posted, waiting })
    }

    /// Cancels the message of a call, if it waits and is not parked. The next turn then responds to it.
    pub(in crate::session) fn cancel(&mut self, call: CallId) {
        self.given_up.extend(self.waiting.take_call(call));
    }

    /// Cancels the messages of all calls for which `is_cancelled` holds.
    pub(in crate::session) fn cancel_where(&mut self, is_cancelled: impl Fn(CallId) -> bool) {
        let cancelled: Vec<_> = self.waiting.calls().filter(|call| is_cancelled(*call)).collect();
        cancelled.into_iter().for_each(|call| self.cancel(call));
    }

    /// Takes out a receive that has not matched a message.
    pub(in crate::session) fn withdraw(&mut self, slot: CallId) -> Option<Posted> {
        let at = self.posted.iter().position(|posted| posted.slot == slot)?;
        self.posted.remove(at)
    }

    /// Posts a receive again whose matching message was cancelled by its sender. It precedes the receives that were posted after it.
    pub(in crate::session) fn post_again(&mut self, posted: Posted) {
        self.posted.push_front(posted);
    }

    /// Stores a new grant of the sender for its bytes.
    pub(in crate::session) fn regrant(&mut self, call: CallId, source: &Source) {
        if let Some(Body::Source(old)) = self.waiting.body_of(call)
            && old.pieces.len() == source.pieces.len()
        {
            old.clone_from(source);
        }
        if let Some(transfer) = self.transfers.iter_mut().find(|transfer| transfer.offer.call == call) {
            transfer.regrant(source);
        }
    }
}

impl<L> UnmatchedMessage<L> {
    pub(in crate::session) fn is_parked(&self) -> bool {
        matches!(self.body, Body::Unexpected(_))
    }
}
