//! The receiving half of a queue pair: lines, and the payloads that they refer to, checked.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use pronto_core::fabric::{
    Arrived, FabricError, InlineMessage, PeerFault, Received, ShortMessage, Withdrawn,
};
use pronto_ring::{Line, LineReader};
use pronto_wire::{INLINE_PAYLOAD, InlinePayload};

use crate::form::{self, Elsewhere, RegionName, Words};
use crate::lease::{Incoming, Place, Release, ShmLease, Taken};
use crate::map::{Access, Mapping, PeerArray, Slot};
use crate::memfd::{self, Demand};
use crate::regions::{MAX_ANNOUNCED, MAX_REGIONS};

/// Maximum length of the mapped regions from which the peer sends, bytes: those that it may announce, and those that it has replaced
/// while a lease of one of their messages is being dropped.
const MAX_MAPPED: u64 = 2 * MAX_ANNOUNCED;
/// Maximum number of replaced regions that are still mapped. A correct peer replaces a region when no message from it is in use.
const MAX_REPLACED: usize = MAX_REGIONS;

const LONGEST_INLINE: u8 = 40;
const _: () = assert!(LONGEST_INLINE as usize == INLINE_PAYLOAD);

/// A region of the peer.
#[derive(Debug)]
struct PeerRegion {
    generation: u32,
    memory: Arc<Mapping>,
}

/// Receiving half of a queue pair.
#[derive(Debug)]
pub(crate) struct Receiving {
    reader: LineReader<PeerArray<Line>>,
    /// Slots, one for each line.
    slots: PeerArray<Slot>,
    pub(crate) incoming: Arc<Incoming>,
    regions: Box<[Option<PeerRegion>]>,
    /// Regions that the peer has replaced, which leases may still use.
    replaced: Vec<Weak<Mapping>>,
    max_payload: u32,
    /// Maximum payload in a line: 40 bytes, or less by agreement.
    max_inline: u8,
    /// Payloads that were copied because too much was lent.
    pub(crate) copied: u64,
}

impl Receiving {
    pub(crate) fn new(
        (lines, slots): (PeerArray<Line>, PeerArray<Slot>),
        incoming: Arc<Incoming>,
        max_payload: u32,
    ) -> Self {
        let regions = (0..MAX_REGIONS).map(|_| None).collect();
        let max_inline = u8::try_from(max_payload).unwrap_or(LONGEST_INLINE).min(LONGEST_INLINE);
        let reader = LineReader::new(lines);
        Self { reader, slots, incoming, regions, replaced: Vec::new(), max_payload, max_inline, copied: 0 }
    }

    /// Returns a copy of the next line, with its form.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<Option<(Words, u8)>, PeerFault> {
        self.reader.poll().map_err(|_| PeerFault::Overrun)
    }

    /// Receives the next message if its line is written and holds its payload.
    #[inline]
    pub(crate) fn poll_inline(&mut self, into: &mut InlineMessage) -> bool {
        let max_inline = self.max_inline;
        self.reader.poll_if(|form| form <= max_inline).is_some_and(|(words, form)| {
            into.header = form::header(&words);
            into.payload = InlinePayload::first(form::payload(&words), form);
            true
        })
    }

    /// Returns whether the next line is written.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.reader.is_ready()
    }

    /// Returns whether a line of this form holds its payload.
    #[inline]
    pub(crate) fn is_inline(&self, form: u8) -> bool {
        form <= self.max_inline
    }

    /// Returns the message of a line that does not hold its payload. Returns `None` if the payload is in a region that
    /// this side has not adopted.
    pub(crate) fn elsewhere(
        &mut self,
        words: &Words,
        form: u8,
    ) -> Result<Option<Received<ShmLease>>, FabricError> {
        match form {
            form::RING => self.lease(words, Elsewhere::parse(words), None).map(Some),
            form::REGION => self.in_region(words),
            len if usize::from(len) <= form::MAX_SHORT && u32::from(len) <= self.max_payload => {
                Ok(Some(self.short_message(words, len)))
            }
            len if usize::from(len) <= form::MAX_SHORT => {
                Err(PeerFault::Length { len: len.into(), max: self.max_payload.into() }.into())
            }
            other => Err(PeerFault::UnknownForm(other).into()),
        }
    }

    /// Receives the next message if its line is written and its payload continues in the slot next to the line.
    #[inline]
    pub(crate) fn poll_short(&mut self, into: &mut ShortMessage) -> bool {
        let (max_inline, max_payload) = (self.max_inline, self.max_payload);
        let is_short = |form: u8| {
            form > max_inline && usize::from(form) <= form::MAX_SHORT && u32::from(form) <= max_payload
        };
        self.reader.poll_if(is_short).is_some_and(|(words, form)| {
            into.put(form::header(&words), form, |bytes| self.copy_short(&words, bytes));
            true
        })
    }

    /// Returns the message whose line was taken last and whose payload continues in the slot next to the line.
    fn short_message(&self, words: &Words, len: u8) -> Received<ShmLease> {
        let fill = |bytes: &mut [u8]| self.copy_short(words, bytes);
        let lease = ShmLease::copied(&self.incoming, len.into(), fill);
        Received { header: form::header(words), payload: Arrived::Buffer(lease) }
    }

    /// Copies the payload of the line that was taken last.
    #[inline]
    fn copy_short(&self, words: &Words, bytes: &mut [u8]) {
        let (inline, short_message) = bytes.split_at_mut(INLINE_PAYLOAD.min(bytes.len()));
        inline.copy_from_slice(&form::payload(words)[..inline.len()]);
        self.slots.read(self.reader.last_index(), short_message);
    }

    fn in_region(&mut self, words: &Words) -> Result<Option<Received<ShmLease>>, FabricError> {
        let place = Elsewhere::parse(words);
        let RegionName { slot, generation } = place.region;
        let known = self.regions.get(slot as usize).and_then(Option::as_ref);
        let Some(region) = known.filter(|region| region.generation == generation) else { return Ok(None) };
        let memory = Arc::clone(&region.memory);
        self.lease(words, place, Some(memory)).map(Some)
    }

    /// Returns a message whose payload is in the peer's memory. If the peer may have written there since it sent the
    /// message, the connection is lost: a later message must not be delivered in its place.
    fn lease(
        &mut self,
        words: &Words,
        place: Elsewhere,
        region: Option<Arc<Mapping>>,
    ) -> Result<Received<ShmLease>, FabricError> {
        let Elsewhere { offset, len, tag, token, .. } = place;
        if len > self.max_payload {
            return Err(PeerFault::Length { len: len.into(), max: self.max_payload.into() }.into());
        }
        let all = region.as_deref().unwrap_or(&self.incoming.memory).len() as u64;
        if offset.checked_add(len.into()).is_none_or(|end| end > all) {
            return Err(PeerFault::Offset { offset, len: all }.into());
        }
        let tags = self.incoming.done.len() - 1;
        if tag as usize >= tags {
            return Err(PeerFault::Offset { offset: tag.into(), len: tags as u64 }.into());
        }
        let place = Place { region, offset, len };
        if let Some(payload) = place.lend(&self.incoming) {
            payload.prefetch();
        }
        let lent = ShmLease::new(&self.incoming, place, Release { tag, token });
        let (lease, taken) = lent.map_err(|Withdrawn| FabricError::Lost)?;
        self.copied += u64::from(taken == Taken::Copied);
        Ok(Received { header: form::header(words), payload: Arrived::Buffer(lease) })
    }

    /// Maps a region that the peer announced.
    pub(crate) fn adopt(&mut self, name: RegionName, fd: &OwnedFd) -> Result<(), FabricError> {
        let count = self.regions.len() as u64;
        let outside = PeerFault::Offset { offset: name.slot.into(), len: count };
        let slot = name.slot as usize;
        let replaced = self.regions.get_mut(slot).ok_or(outside)?.take();
        self.replaced.extend(replaced.map(|region| Arc::downgrade(&region.memory)));
        self.replaced.retain(|region| region.strong_count() > 0);
        if self.replaced.len() > MAX_REPLACED {
            return Err(PeerFault::TooManyRegions(MAX_REPLACED).into());
        }
        let len = |region: &Mapping| region.len() as u64;
        let replaced = self.replaced.iter().filter_map(Weak::upgrade).map(|region| len(&region));
        let mapped: u64 =
            self.regions.iter().flatten().map(|region| len(&region.memory)).chain(replaced).sum();
        let memory = map_peer(fd, Access::Read, (mapped, MAX_MAPPED))?;
        self.regions[slot] = Some(PeerRegion { generation: name.generation, memory: Arc::new(memory) });
        Ok(())
    }
}

/// Checks and maps the whole of a file that the peer announced. `mapped` bytes of at most `max` are mapped already.
pub(crate) fn map_peer(
    fd: &OwnedFd,
    access: Access,
    (mapped, max): (u64, u64),
) -> Result<Mapping, FabricError> {
    let len = memfd::check(fd.as_fd(), Demand::FixedSize).map_err(|_| PeerFault::Unsealed)?;
    let announced = mapped.saturating_add(len);
    if announced > max {
        return Err(PeerFault::TooMuchMemory { announced, max }.into());
    }
    let len = usize::try_from(len).ok().filter(|len| *len > 0).ok_or(PeerFault::Offset { offset: 0, len })?;
    Mapping::new(fd.as_fd(), 0, len, access).map_err(|errno| match errno {
        Errno::EACCES | Errno::EPERM => PeerFault::Access.into(),
        errno => system(errno),
    })
}

/// Returns the error of a failed system call.
pub(crate) fn system(errno: Errno) -> FabricError {
    FabricError::System { errno: errno as i32 }
}
