//! One-sided operations, emulated by frames: those of this side, which wait for an answer frame, and those of the peer,
//! executed here.
//!
//! # Invariants
//! 1. A tag names a slot and its use count; an answer with another count matches no operation.
//! 2. At most [`ONE_SIDED_DEPTH`] operations of this side are open or have an unpolled completion.
//! 3. The peer's bytes reach a region only after [`Grants::range`] has allowed exactly that range, at that moment.
//! 4. Once `abandoned`, no operation is open, no grant is valid, and nothing is answered. Frames that the peer sent before it knew
//!    are dropped: they are no fault of the peer.

use std::collections::VecDeque;

use pronto_core::fabric::{Completion, PeerFault, Region, Status, WrId};
use pronto_sync::atomic::Ordering;

use crate::frame::{Kind, OneSidedFrame, OneSidedHeader};
use crate::grants::{Access, Grants};
use crate::outbound::Outbound;

/// Maximum number of open one-sided operations per side.
pub(crate) const ONE_SIDED_DEPTH: usize = 64;
/// Value of a refusal because the granted memory has lost its bytes.
pub(crate) const UNREADABLE: u64 = 1;
/// Bits of a tag that name the slot.
const SLOT_BITS: u32 = 8;
const _: () = assert!(ONE_SIDED_DEPTH <= 1 << SLOT_BITS);

/// Result that an open operation of this side waits for.
#[derive(Debug)]
pub(crate) enum Open {
    /// Data, to be written to this region.
    Read { region: Region, at: usize, len: u64, got: u64 },
    /// Confirmation that the write is done.
    Write,
    /// The previous value.
    Atomic,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    open: Option<(WrId, Open)>,
}

/// Destination of the data of a frame, as it arrives piece by piece.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sink {
    /// This side's region, for the read with this tag.
    Read { tag: u32 },
    /// A granted range.
    Write { tag: u32, key: u64, offset: u64, then: Then },
    /// Nothing: the data is dropped.
    Dropped,
}

/// Action after the data of a write's frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// Wait for the next frame of the write.
    More,
    /// Send the answer frame.
    Answer,
}

#[derive(Debug, Default)]
pub(crate) struct OneSided {
    pub(crate) grants: Grants,
    /// Slots, as many as were ever open at a time.
    slots: Vec<Slot>,
    free: Vec<u16>,
    completions: VecDeque<Completion>,
    /// Number of open reads.
    reads: usize,
    refused: Option<u32>,
    abandoned: bool,
}

impl OneSided {
    /// Returns whether one more operation can be opened.
    pub(crate) fn has_room(&self) -> bool {
        self.slots.len() - self.free.len() + self.completions.len() < ONE_SIDED_DEPTH
    }

    /// Opens an operation and returns its tag. The caller has checked [`has_room`](Self::has_room).
    pub(crate) fn open(&mut self, wr: WrId, open: Open) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u16::try_from(self.slots.len() - 1).expect("few slots")
        });
        self.reads += usize::from(matches!(open, Open::Read { .. }));
        let entry = &mut self.slots[usize::from(slot)];
        entry.open = Some((wr, open));
        (entry.generation << SLOT_BITS) | u32::from(slot)
    }

    pub(crate) fn completed(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Completes everything open as flushed, and ends all grants. Frames that arrive later are dropped.
    pub(crate) fn abandon(&mut self) {
        self.abandoned = true;
        for slot in 0..self.slots.len() {
            if self.slots[slot].open.is_some() {
                self.close(slot, Status::Flushed);
            }
        }
        self.grants.clear();
    }

    /// Processes the start of a frame. Returns the destination of its data, if it has data.
    #[inline(never)]
    pub(crate) fn handle(
        &mut self,
        frame: OneSidedFrame,
        outbound: &mut Outbound,
    ) -> Result<Option<Sink>, PeerFault> {
        if self.abandoned {
            let has_data = matches!(frame, OneSidedFrame::Write { .. } | OneSidedFrame::Data { .. });
            return Ok(has_data.then_some(Sink::Dropped));
        }
        match frame {
            OneSidedFrame::Read { tag, key, offset, len } => {
                match self.grants.range(key, offset, len, Access::Read) {
                    Some(_) if len > 0 => outbound.answer_read(tag, (key, offset, len))?,
                    Some(_) => answer(outbound, tag, Some(0))?,
                    None => answer(outbound, tag, None)?,
                }
                Ok(None)
            }
            OneSidedFrame::Write { tag, key, offset, rest, data } => {
                // Checked to the end of the operation, so that an operation that exceeds the grant changes nothing.
                self.check_write(tag, (key, offset, rest));
                let then = if data as u64 == rest { Then::Answer } else { Then::More };
                Ok(Some(Sink::Write { tag, key, offset, then }))
            }
            OneSidedFrame::CompareSwap { tag, key, offset, expected, desired } => {
                let before = self.word(key, offset).map(|word| {
                    word.compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst)
                        .unwrap_or_else(|other| other)
                });
                answer(outbound, tag, before)?;
                Ok(None)
            }
            OneSidedFrame::FetchAdd { tag, key, offset, add } => {
                let before = self.word(key, offset).map(|word| word.fetch_add(add, Ordering::SeqCst));
                answer(outbound, tag, before)?;
                Ok(None)
            }
            OneSidedFrame::Data { tag, offset, data } => {
                let Some((_, Open::Read { len, got, .. })) = self.entry(tag)? else {
                    return Err(PeerFault::Unasked);
                };
                if data == 0 || offset != *got {
                    return Err(PeerFault::Offset { offset, len: *len });
                }
                if data as u64 > *len - *got {
                    return Err(PeerFault::Length { len: data as u64, max: *len - *got });
                }
                Ok(Some(Sink::Read { tag }))
            }
            OneSidedFrame::Answer { tag, refused, value } => {
                let slot = slot_of(tag);
                match self.entry(tag)? {
                    Some(_) if refused && value == UNREADABLE => self.close(slot, Status::Unreadable),
                    Some(_) if refused => self.close(slot, Status::AccessRefused),
                    Some((_, Open::Read { len: 0, .. } | Open::Write)) => self.close(slot, Status::Done(0)),
                    Some((_, Open::Atomic)) => self.close(slot, Status::Done(value)),
                    _ => return Err(PeerFault::Unasked),
                }
                Ok(None)
            }
        }
    }

    /// Checks whether a write is granted. If it is not, remembers that until its end.
    fn check_write(&mut self, tag: u32, (key, offset, len): (u64, u64, u64)) {
        if self.grants.range(key, offset, len, Access::Write).is_none() {
            self.refused = Some(tag);
        }
    }

    /// Returns whether data for reads of this side is still to come.
    pub(crate) fn is_reading(&self) -> bool {
        self.reads != 0
    }

    /// Returns the destination of a frame's data from offset `done` on, or `None` if the data is dropped.
    pub(crate) fn place(
        &self,
        sink: Sink,
        done: u64,
        len: usize,
    ) -> Result<Option<(&Region, usize)>, PeerFault> {
        match sink {
            Sink::Dropped => Ok(None),
            _ if self.abandoned => Ok(None),
            Sink::Read { tag } => {
                let Some((_, Open::Read { region, at, got, .. })) = self.entry(tag)? else {
                    return Err(PeerFault::Unasked);
                };
                let to = usize::try_from(*got).map_or(usize::MAX, |got| at.saturating_add(got));
                Ok(Some((region, to)))
            }
            Sink::Write { tag, .. } if self.refused == Some(tag) => Ok(None),
            Sink::Write { key, offset, .. } => {
                Ok(self.grants.range(key, offset + done, len as u64, Access::Write))
            }
        }
    }

    /// Counts `len` bytes of a frame's data as processed. `written` tells whether they are at the place that [`place`](Self::place) returned.
    pub(crate) fn placed(&mut self, sink: Sink, len: usize, written: bool) -> Result<(), PeerFault> {
        match sink {
            Sink::Write { tag, .. } if !written => self.refused = Some(tag),
            Sink::Read { tag } if !self.abandoned => {
                let Some((_, Open::Read { len: all, got, .. })) = self.entry_mut(tag)? else {
                    return Err(PeerFault::Unasked);
                };
                if !written {
                    return Err(PeerFault::Offset { offset: *got, len: *all });
                }
                *got += len as u64;
                if *got == *all {
                    self.close(slot_of(tag), Status::Done(0));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Processes the next bytes of a frame's data; `done` is their offset in that data.
    #[inline(never)]
    pub(crate) fn data(&mut self, sink: Sink, done: u64, bytes: &[u8]) -> Result<(), PeerFault> {
        let place = self.place(sink, done, bytes.len())?;
        let written = place.is_some_and(|(region, at)| region.write(at, bytes).is_ok());
        self.placed(sink, bytes.len(), written)
    }

    /// Processes the end of a frame's data.
    #[inline(never)]
    pub(crate) fn end(&mut self, sink: Sink, outbound: &mut Outbound) -> Result<(), PeerFault> {
        let Sink::Write { tag, then, .. } = sink else { return Ok(()) };
        if self.abandoned || matches!(then, Then::More) {
            return Ok(());
        }
        let refused = self.refused.take() == Some(tag);
        answer(outbound, tag, (!refused).then_some(0))
    }

    fn word(&self, key: u64, offset: u64) -> Option<&pronto_sync::atomic::AtomicU64> {
        let (region, at) = self.grants.range(key, offset, 8, Access::Atomic)?;
        region.word(at).ok()
    }

    fn entry(&self, tag: u32) -> Result<Option<&(WrId, Open)>, PeerFault> {
        let slot = self.slots.get(slot_of(tag)).ok_or(PeerFault::Unasked)?;
        Ok(slot.open.as_ref().filter(|_| slot.generation == tag >> SLOT_BITS))
    }

    fn entry_mut(&mut self, tag: u32) -> Result<Option<&mut (WrId, Open)>, PeerFault> {
        let slot = self.slots.get_mut(slot_of(tag)).ok_or(PeerFault::Unasked)?;
        Ok(slot.open.as_mut().filter(|_| slot.generation == tag >> SLOT_BITS))
    }

    fn close(&mut self, slot: usize, status: Status) {
        let entry = &mut self.slots[slot];
        let Some((wr, open)) = entry.open.take() else { return };
        self.reads -= usize::from(matches!(open, Open::Read { .. }));
        entry.generation = (entry.generation + 1) & (u32::MAX >> SLOT_BITS);
        self.free.push(u16::try_from(slot).expect("few slots"));
        self.completions.push_back(Completion { wr, status });
    }
}

fn slot_of(tag: u32) -> usize {
    (tag & ((1 << SLOT_BITS) - 1)) as usize
}

/// Sends an answer frame with a value, or with a refusal.
fn answer(outbound: &mut Outbound, tag: u32, value: Option<u64>) -> Result<(), PeerFault> {
    let refused = u64::from(value.is_none());
    outbound.answer(&OneSidedHeader::new(Kind::Answer, 0, tag, refused, value.unwrap_or(0)))
}
