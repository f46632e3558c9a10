//! Receives that wait for messages, messages that wait for receives, and those that have met.
//!
//! # Invariants
//! 1. Messages with one tag meet the receives with that tag in the order of their arrival: one that travels by reference takes
//!    its place when its request arrives, so a shorter one that is carried along does not overtake it.
//! 2. No message waits for a receive that is there: whoever adds one of the two looks for the other.
//! 3. No more than [`MAX_UNEXPECTED`] messages wait whose sender was told that they have arrived.
//! 4. Of the other messages one waits per call slot of the peer at most, so that the peer's own limit bounds the table.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pronto_wire::{CallId, Class};

use super::transfer::{GivenUp, Source, Transfer};
use super::unmatched::{Added, Unmatched, is_later};
use crate::fabric::{Arrived, GrantId, Region};

/// Messages carried along that are parked in memory of this side until there is a receive, while their senders go on. The others'
/// senders wait.
pub const MAX_UNEXPECTED: usize = 8;

/// A receive that was posted.
#[derive(Debug)]
pub(in crate::session) struct Posted {
    /// Where its end is waited for.
    pub(in crate::session) slot: CallId,
    pub(in crate::session) tag: u64,
    pub(in crate::session) region: Region,
    pub(in crate::session) offset: u64,
    pub(in crate::session) len: u64,
}

/// Whose message it is, and how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The sender's call.
    pub call: CallId,
    /// The link that it came on.
    pub link: u16,
    /// The class that it came in.
    pub class: Class,
    /// Which receives it is for.
    pub tag: u64,
}

/// A message without a receive.
#[derive(Debug)]
pub(in crate::session) struct UnmatchedMessage<L> {
    pub(in crate::session) offer: Offer,
    pub(in crate::session) body: Body<L>,
}

/// What a message consists of.
#[derive(Debug)]
pub(in crate::session) enum Body<L> {
    /// The sender's memory, to be read.
    Source(Source),
    /// Bytes that came along, behind `skip` others, in their receive buffer.
    Eager { payload: Arrived<L>, skip: usize },
    /// Bytes that came along, copied: the sender was answered, and has its credit back.
    Unexpected(Box<[u8]>),
}

/// A message and its receive.
#[derive(Debug)]
pub(in crate::session) struct Met<L> {
    pub(in crate::session) posted: Posted,
    pub(in crate::session) waiting: UnmatchedMessage<L>,
}

/// All of one peer's.
#[derive(Debug)]
pub(in crate::session) struct Table<L> {
    pub(in crate::session) posted: VecDeque<Posted>,
    /// Messages without a receive.
    pub(in crate::session) waiting: Unmatched<L>,
    /// Messages that their senders have given up, to be answered.
    pub(in crate::session) given_up: VecDeque<UnmatchedMessage<L>>,
    pub(in crate::session) transfers: VecDeque<Transfer>,
    /// What this side has lent for its own sends, and takes back when nobody reads it any more.
    pub(in crate::session) lent: Vec<Lent>,
}

/// A sender's bytes, granted to the peer.
#[derive(Debug)]
pub struct Lent {
    /// The grant.
    pub grant: GrantId,
    /// The link that it holds for.
    pub link: u16,
    /// The memory, which stays until the grant has ended.
    pub region: Region,
    /// The call of the offer: until it is answered the peer may be reading.
    pub call: Option<CallId>,
}

impl<L> Default for Table<L> {
    fn default() -> Self {
        Self {
            posted: VecDeque::new(),
            waiting: Unmatched::default(),
            given_up: VecDeque::new(),
            transfers: VecDeque::new(),
            lent: Vec::new(),
        }
    }
}

impl<L> Table<L> {
    pub(in crate::session) fn is_empty(&self) -> bool {
        let no_messages = self.waiting.is_empty() && self.given_up.is_empty();
        no_messages && self.posted.is_empty() && self.transfers.is_empty() && self.lent.is_empty()
    }

    /// A message has arrived. Returns one that is not waited for any more: its caller has used the call slot again.
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

    /// Whether a receive with this tag waits, so that a message that arrives meets it at once.
    pub(in crate::session) fn is_awaited(&self, tag: u64) -> bool {
        self.posted.iter().any(|posted| posted.tag == tag)
    }

    /// The first message, in the order of arrival, for which there is a receive, and that receive: the first posted with its tag.
    pub(in crate::session) fn meet(&mut self) -> Option<Met<L>> {
        if self.waiting.is_empty() {
            return None;
        }
        let first = |(receive, posted): (usize, &Posted)| Some((self.waiting.first(posted.tag)?, receive));
        // Of several receives with one tag the minimum is the one posted first.
        let (message, receive) = self.posted.iter().enumerate().filter_map(first).min()?;
        let waiting = self.waiting.take(message)?;
        let posted = self.posted.remove(receive)?;
        Some(Met { posted, waiting })
    }

    /// The sender of a message has given it up: if it waits, it is to be answered. One that was answered is nobody's to cancel.
    pub(in crate::session) fn cancel(&mut self, call: CallId) {
        self.given_up.extend(self.waiting.take_call(call));
    }

    /// Cancels the messages of all calls for which `is_cancelled` holds.
    pub(in crate::session) fn cancel_where(&mut self, is_cancelled: impl Fn(CallId) -> bool) {
        let cancelled: Vec<_> = self.waiting.calls().filter(|call| is_cancelled(*call)).collect();
        cancelled.into_iter().for_each(|call| self.cancel(call));
    }

    /// Takes a receive out that has not met a message.
    pub(in crate::session) fn withdraw(&mut self, slot: CallId) -> Option<Posted> {
        let at = self.posted.iter().position(|posted| posted.slot == slot)?;
        self.posted.remove(at)
    }

    /// A receive whose message was given up by its sender is there for the next one, before those posted after it.
    pub(in crate::session) fn post_again(&mut self, posted: Posted) {
        self.posted.push_front(posted);
    }

    /// The sender of a message has granted its bytes again.
    pub(in crate::session) fn regrant(&mut self, call: CallId, source: Source) {
        if let Some(Body::Source(old)) = self.waiting.body_of(call)
            && old.remote.len == source.remote.len
        {
            *old = source;
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
