//! Receives that wait for messages, messages that wait for receives, and those that have met.
//!
//! # Invariants
//! 1. Messages with one tag meet the receives with that tag in the order of their arrival: one that travels by reference takes
//!    its place when its request arrives, so a shorter one that is carried along does not overtake it.
//! 2. No message waits for a receive that is there: whoever adds one of the two looks for the other.
//! 3. No more than [`PARKED`] messages wait whose sender was told that they have arrived.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pronto_wire::{CallId, Class};

use super::transfer::{Source, Transfer};
use crate::fabric::{Arrived, GrantId, Region};

/// Messages carried along that are parked in memory of this side until there is a receive, while their senders go on. The others'
/// senders wait.
pub const PARKED: usize = 8;

/// A receive that was posted.
#[derive(Debug)]
pub(super) struct Posted {
    /// Where its end is waited for.
    pub(super) slot: CallId,
    pub(super) tag: u64,
    pub(super) region: Region,
    pub(super) offset: u64,
    pub(super) len: u64,
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
pub(super) struct Waiting<L> {
    pub(super) offer: Offer,
    pub(super) body: Body<L>,
}

/// What a message consists of.
#[derive(Debug)]
pub(super) enum Body<L> {
    /// The sender's memory, to be read.
    Source(Source),
    /// Bytes that came along, behind `skip` others, in their receive buffer.
    Carried { payload: Arrived<L>, skip: usize },
    /// Bytes that came along, copied: the sender was answered, and has its credit back.
    Parked(Box<[u8]>),
}

/// A message and its receive.
#[derive(Debug)]
pub(super) struct Met<L> {
    pub(super) posted: Posted,
    pub(super) waiting: Waiting<L>,
}

/// All of one peer's.
#[derive(Debug)]
pub(super) struct Table<L> {
    pub(super) posted: VecDeque<Posted>,
    pub(super) waiting: VecDeque<Waiting<L>>,
    pub(super) transfers: VecDeque<Transfer>,
    /// What this side has lent for its own sends, and takes back when nobody reads it any more.
    pub(super) lent: Vec<Lent>,
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
            waiting: VecDeque::new(),
            transfers: VecDeque::new(),
            lent: Vec::new(),
        }
    }
}

impl<L> Table<L> {
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty() && self.waiting.is_empty() && self.transfers.is_empty() && self.lent.is_empty()
    }

    /// Whether a message that waits now may be parked, and its sender go on.
    pub(super) fn has_room_to_park(&self) -> bool {
        self.waiting.iter().filter(|other| other.is_parked()).count() < PARKED
    }

    /// Whether a receive with this tag waits, so that a message that arrives meets it at once.
    pub(super) fn is_awaited(&self, tag: u64) -> bool {
        self.posted.iter().any(|posted| posted.tag == tag)
    }

    /// The first message, in the order of arrival, for which there is a receive, and that receive: the first posted with its tag.
    pub(super) fn meet(&mut self) -> Option<Met<L>> {
        let (message, receive) = self.waiting.iter().enumerate().find_map(|(message, waiting)| {
            let receive = self.posted.iter().position(|posted| posted.tag == waiting.offer.tag)?;
            Some((message, receive))
        })?;
        let waiting = self.waiting.remove(message)?;
        let posted = self.posted.remove(receive)?;
        Some(Met { posted, waiting })
    }

    /// Takes a message out that waits and whose sender gave it up.
    pub(super) fn take_cancelled(&mut self, is_cancelled: impl Fn(CallId) -> bool) -> Option<Waiting<L>> {
        let gone = |waiting: &Waiting<L>| !waiting.is_parked() && is_cancelled(waiting.offer.call);
        let at = self.waiting.iter().position(gone)?;
        self.waiting.remove(at)
    }

    /// Takes a receive out that has not met a message.
    pub(super) fn withdraw(&mut self, slot: CallId) -> Option<Posted> {
        let at = self.posted.iter().position(|posted| posted.slot == slot)?;
        self.posted.remove(at)
    }

    /// A receive whose message was given up by its sender is there for the next one, before those posted after it.
    pub(super) fn post_again(&mut self, posted: Posted) {
        self.posted.push_front(posted);
    }

    /// The sender of a message has granted its bytes again.
    pub(super) fn regrant(&mut self, call: CallId, source: Source) {
        for waiting in &mut self.waiting {
            if let Body::Source(old) = &mut waiting.body
                && waiting.offer.call == call
                && old.remote.len == source.remote.len
            {
                *old = source;
            }
        }
        if let Some(transfer) = self.transfers.iter_mut().find(|transfer| transfer.offer.call == call) {
            transfer.regrant(source);
        }
    }
}

impl<L> Waiting<L> {
    fn is_parked(&self) -> bool {
        matches!(self.body, Body::Parked(_))
    }
}
