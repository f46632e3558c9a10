//! The sending half of a queue pair: lines, tags, completions.

use std::collections::VecDeque;
use std::sync::Arc;

use pronto_core::fabric::{
    Completion, Extent, OutOfBounds, PeerFault, PostError, Region, Signal, Status, WrId,
};
use pronto_ring::{Line, LineWriter};
use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_wire::{INLINE_PAYLOAD, InlinePayload, RawHeader};

use crate::form::{self, Elsewhere, RegionName, Words};
use crate::map::{OwnArray, PeerArray, SendSegment, Slot};

/// Maximum number of unpolled completions, per line.
const COMPLETIONS_PER_LINE: usize = 4;

/// A payload that the peer has not released yet.
#[derive(Debug)]
struct Outstanding {
    tag: u32,
    wr: Option<WrId>,
    /// Keeps the memory of a payload that was sent by reference.
    _region: Option<Region>,
}

/// Sending half of a queue pair.
#[derive(Debug)]
pub(crate) struct Sending {
    writer: LineWriter<OwnArray<Line>>,
    /// Slots, one for each line.
    slots: OwnArray<Slot>,
    pub(crate) memory: Arc<SendSegment>,
    max_payload: usize,
    /// Completions that are not polled yet; at most `most_completions`.
    completions: VecDeque<Completion>,
    most_completions: usize,
    /// The peer's release count, then its done words.
    done: PeerArray<AtomicU32>,
    /// Releases processed so far.
    releases: u32,
    /// Token of the present or last use, per tag.
    tokens: Box<[u32]>,
    free_tags: Vec<u32>,
    /// Payloads in order of posting, which is the usual order of release.
    outstanding: VecDeque<Outstanding>,
    /// True if lines were posted since the last doorbell.
    posted: bool,
}

impl Sending {
    pub(crate) fn new(
        (lines, slots): (OwnArray<Line>, OwnArray<Slot>),
        done: PeerArray<AtomicU32>,
        tags: u32,
        memory: Arc<SendSegment>,
        max_payload: u32,
    ) -> Self {
        let most_completions = lines.len() * COMPLETIONS_PER_LINE;
        let count = tags as usize;
        Self {
            writer: LineWriter::new(lines),
            slots,
            memory,
            max_payload: max_payload as usize,
            completions: VecDeque::with_capacity(most_completions),
            most_completions,
            done,
            releases: 0,
            tokens: vec![0; count].into(),
            free_tags: (0..tags).rev().collect(),
            outstanding: VecDeque::with_capacity(count),
            posted: false,
        }
    }

    /// Returns whether a doorbell is pending, and clears the flag.
    #[inline]
    pub(crate) fn take_posted(&mut self) -> bool {
        core::mem::take(&mut self.posted)
    }

    /// Checks a payload's length.
    pub(crate) fn check_len(&self, len: usize) -> Result<(), PostError> {
        if len > self.max_payload {
            return Err(PostError::TooLong { len, max: self.max_payload });
        }
        Ok(())
    }

    /// Posts a message with its payload in the line, word by word.
    #[inline(always)]
    pub(crate) fn post_inline(
        &mut self,
        signal: Signal,
        header: &RawHeader,
        payload: &InlinePayload,
    ) -> Result<(), PostError> {
        let form = payload.len();
        if usize::from(form) > self.max_payload {
            return Err(PostError::TooLong { len: form.into(), max: self.max_payload });
        }
        self.complete(signal, 0)?;
        self.publish(form, form::inline(header, payload));
        Ok(())
    }

    /// Posts a message whose payload is copied: into the line, and the part that exceeds it into the slot next to the
    /// line.
    #[inline(always)]
    pub(crate) fn post_short(
        &mut self,
        signal: Signal,
        header: &RawHeader,
        payload: &[u8],
    ) -> Result<(), PostError> {
        let len = payload.len();
        let max = self.max_payload.min(form::MAX_SHORT);
        let Some(form) = u8::try_from(len).ok().filter(|_| len <= max) else {
            return Err(PostError::TooLong { len, max });
        };
        let Some((inline, short_message)) =
            payload.split_first_chunk().filter(|(_, short_message)| !short_message.is_empty())
        else {
            return self.post_inline_copy(signal, header, payload);
        };
        self.complete(signal, 0)?;
        self.slots[self.writer.next_index()].write(short_message);
        self.publish(form, form::inline(header, &InlinePayload::first(*inline, form)));
        Ok(())
    }

    /// Posts a payload that fits its line. Kept out of line, because fast paths call `post_inline` with a payload in
    /// place.
    #[inline(never)]
    fn post_inline_copy(
        &mut self,
        signal: Signal,
        header: &RawHeader,
        payload: &[u8],
    ) -> Result<(), PostError> {
        let payload = InlinePayload::new(payload).expect("40 bytes at most");
        self.post_inline(signal, header, &payload)
    }

    /// Posts a message with its payload in send memory.
    pub(crate) fn post_ring(
        &mut self,
        signal: Signal,
        header: &RawHeader,
        extent: Extent,
    ) -> Result<(), PostError> {
        let (offset, len) = (extent.offset as usize, extent.len as usize);
        self.check_len(len)?;
        let all = pronto_core::fabric::SendMemory::len(&*self.memory);
        if offset.checked_add(len).is_none_or(|end| end > all) {
            return Err(OutOfBounds { offset, wanted: len, len: all }.into());
        }
        if len <= INLINE_PAYLOAD {
            let mut payload = [0; INLINE_PAYLOAD];
            self.memory.mapping().read(offset as u64, &mut payload[..len])?;
            return self.post_short(signal, header, &payload[..len]);
        }
        let place = (offset as u64, extent.len);
        self.post_elsewhere(signal, header, form::RING, place, (RegionName::default(), None))
    }

    /// Posts a message with its payload, of more than 40 bytes, in a region that the peer knows. The range was checked.
    pub(crate) fn post_region(
        &mut self,
        signal: Signal,
        header: &RawHeader,
        place: (u64, u32),
        (name, region): (RegionName, &Region),
    ) -> Result<(), PostError> {
        self.post_elsewhere(signal, header, form::REGION, place, (name, Some(region)))
    }

    fn post_elsewhere(
        &mut self,
        signal: Signal,
        header: &RawHeader,
        form: u8,
        (offset, len): (u64, u32),
        (name, region): (RegionName, Option<&Region>),
    ) -> Result<(), PostError> {
        let tag = self.free_tags.pop().ok_or(PostError::Full)?;
        let token = &mut self.tokens[tag as usize];
        *token = token.wrapping_add(1);
        let line = Elsewhere { offset, len, tag, token: *token, region: name }.line(header);
        let wr = match signal {
            Signal::Signalled(wr) => Some(wr),
            Signal::Unsignalled => None,
        };
        self.outstanding.push_back(Outstanding { tag, wr, _region: region.cloned() });
        self.publish(form, line);
        Ok(())
    }

    #[inline(always)]
    fn publish(&mut self, form: u8, words: Words) {
        self.writer.publish(form, words);
        self.posted = true;
    }

    /// Adds the completion of an operation that is done while it is posted.
    #[inline(always)]
    pub(crate) fn complete(&mut self, signal: Signal, value: u64) -> Result<(), PostError> {
        match signal {
            Signal::Signalled(wr) => self.push_done(wr, value),
            Signal::Unsignalled => Ok(()),
        }
    }

    #[inline(never)]
    fn push_done(&mut self, wr: WrId, value: u64) -> Result<(), PostError> {
        self.room()?;
        self.completions.push_back(Completion { wr, status: Status::Done(value) });
        Ok(())
    }

    /// Checks that there is room for another completion.
    #[inline]
    pub(crate) fn room(&self) -> Result<(), PostError> {
        if self.completions.len() == self.most_completions { Err(PostError::Full) } else { Ok(()) }
    }

    /// Returns whether no payload is outstanding and no completion waits to be polled.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.completions.is_empty() && self.outstanding.is_empty()
    }

    /// Returns the next completion.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>, PeerFault> {
        if let Some(done) = self.completions.pop_front() {
            return Ok(Some(done));
        }
        if self.outstanding.is_empty() {
            return Ok(None);
        }
        self.poll_released()
    }

    fn poll_released(&mut self) -> Result<Option<Completion>, PeerFault> {
        // SYNC: Acquire sees the done words that were counted; pairs with the add in Incoming::release.
        while self.done.load(0, Ordering::Acquire) != self.releases {
            let done = |held: &Outstanding| {
                let tag = held.tag as usize;
                // SYNC: the peer has read the payload before; pairs with the store in Incoming::release.
                self.done.load(1 + tag, Ordering::Acquire) == self.tokens[tag]
            };
            let place = self.outstanding.iter().position(done);
            let held = place.and_then(|place| self.outstanding.remove(place)).ok_or(PeerFault::Unasked)?;
            self.releases = self.releases.wrapping_add(1);
            self.free_tags.push(held.tag);
            if let Some(wr) = held.wr {
                return Ok(Some(Completion { wr, status: Status::Done(0) }));
            }
        }
        Ok(None)
    }

    /// Returns the next completion of a queue pair that has failed.
    pub(crate) fn flush(&mut self) -> Option<Completion> {
        if let Some(done) = self.completions.pop_front() {
            return Some(done);
        }
        let unnamed = |held: Outstanding| held.wr;
        let wr = core::iter::from_fn(|| self.outstanding.pop_front()).find_map(unnamed)?;
        Some(Completion { wr, status: Status::Flushed })
    }
}
