//! Messages that have arrived and cannot be delivered yet, in order: a message whose payload is still being read delays
//! all later ones.

use std::collections::VecDeque;

use pronto_core::fabric::{Arrived, Received};
use pronto_wire::{InlinePayload, RawHeader};

use crate::frame::Waiting;
use crate::lease::{Lease, Use};
use crate::pool::PoolBuffer;

/// A message in the inbox.
#[derive(Debug)]
pub(crate) enum Item {
    /// A complete inline message.
    Inline(RawHeader, InlinePayload, #[expect(dead_code, reason = "held, not read")] Use),
    /// A complete message.
    Whole(RawHeader, Lease),
    /// A message whose payload is in the sender's memory.
    Elsewhere(Fetch),
}

/// A payload to be read.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) header: RawHeader,
    pub(crate) waiting: Waiting,
    pub(crate) used: Use,
    pub(crate) progress: Progress,
}

/// Progress of reading a payload.
#[derive(Debug)]
pub(crate) enum Progress {
    /// No buffer is assigned yet.
    Wanted,
    /// The device is reading it.
    Underway(PoolBuffer),
    /// It was read.
    Here(PoolBuffer),
}

/// The messages, numbered in order.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    items: VecDeque<Item>,
    /// Number of the first message.
    first: u64,
    /// Number of payloads that were not read yet.
    pub(crate) fetching: usize,
}

impl Inbox {
    pub(crate) fn with_capacity(messages: usize) -> Self {
        Self { items: VecDeque::with_capacity(messages), ..Self::default() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn push(&mut self, item: Item) {
        self.fetching += usize::from(matches!(item, Item::Elsewhere(_)));
        self.items.push_back(item);
    }

    /// Returns the first message whose payload is not being read yet, with its number.
    pub(crate) fn first_wanted(&mut self) -> Option<(u64, &mut Fetch)> {
        let first = self.first;
        self.items.iter_mut().enumerate().find_map(|(at, item)| match item {
            Item::Elsewhere(fetch) if matches!(fetch.progress, Progress::Wanted) => {
                Some((first + at as u64, fetch))
            }
            _ => None,
        })
    }

    /// Notes that the payload of a message was read. Returns the data for the report to its sender.
    pub(crate) fn arrived(&mut self, number: u64) -> Option<Waiting> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let Some(Item::Elsewhere(fetch)) = self.items.get_mut(at) else { return None };
        let Progress::Underway(buffer) = core::mem::replace(&mut fetch.progress, Progress::Wanted) else {
            return None;
        };
        fetch.progress = Progress::Here(buffer);
        self.fetching -= 1;
        Some(fetch.waiting)
    }

    /// Returns the first message, if it is complete.
    pub(crate) fn pop(&mut self) -> Option<Received<Lease>> {
        if let Some(Item::Elsewhere(Fetch { progress: Progress::Wanted | Progress::Underway(_), .. })) =
            self.items.front()
        {
            return None;
        }
        let item = self.items.pop_front()?;
        self.first += 1;
        Some(match item {
            Item::Inline(header, payload, _) => Received { header, payload: Arrived::Inline(payload) },
            Item::Whole(header, lease) => Received { header, payload: Arrived::Buffer(lease) },
            Item::Elsewhere(Fetch { header, used, progress, .. }) => match progress {
                Progress::Here(buffer) => {
                    Received { header, payload: Arrived::Buffer(Lease::fetched(buffer, used)) }
                }
                Progress::Wanted | Progress::Underway(_) => unreachable!("excluded above"),
            },
        })
    }

    /// Drops all messages. Returns the buffers that a device may still write to.
    pub(crate) fn clear(&mut self) -> Vec<PoolBuffer> {
        self.first += self.items.len() as u64;
        self.fetching = 0;
        let underway = |item| match item {
            Item::Elsewhere(Fetch { progress: Progress::Underway(buffer), .. }) => Some(buffer),
            _ => None,
        };
        self.items.drain(..).filter_map(underway).collect()
    }
}
