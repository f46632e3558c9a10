//! Output that was posted and not yet accepted by the kernel, in sending order.
//!
//! # Invariants
//! 1. The stream is the segments, front to back. Bytes of a staged segment are the oldest in the staging ring that do
//!    not belong to an earlier segment.
//! 2. Some segments are sent piece by piece, up to 64 KiB at a time: payloads from regions, one-sided writes, data for the
//!    peer's reads. The piece that was begun belongs to the first such segment.
//! 3. `posted` counts the bytes of staged segments, send memory and region payloads as they are posted. `taken` counts
//!    the same bytes as the kernel accepts them. The stream is in order, so a send is complete when `taken` reaches the
//!    value that `posted` had after it.
//! 4. Buffers keep the size that they once needed, until a whole sleep in which little was posted.
//! 5. Posts leave [`ANSWER_ROOM`] bytes of staging and [`ONE_SIDED_DEPTH`] segments free: a peer within its limit
//!    always gets its answers.

use std::collections::VecDeque;

use pronto_core::fabric::{Extent, FabricError, PeerFault, Region, WrId};
use pronto_wire::HEADER_LEN;

use crate::frame::{CHUNK, Kind, OneSidedHeader};
use crate::grants::{Access, Grants};
use crate::one_sided::{ONE_SIDED_DEPTH, UNREADABLE};
use crate::parts::Source;
use crate::piece::Piece;
use crate::socket::Socket;
use crate::staging::Staging;
use pronto_mapping::Mapping;

/// Maximum payload that is copied into the staging ring: cheaper than one more entry of a vectored write.
pub(crate) const COPIED_PAYLOAD: usize = 1024;
/// Bytes of staging that only answer frames may use.
const ANSWER_ROOM: usize = ONE_SIDED_DEPTH * HEADER_LEN;
/// Bytes of staging per message in flight: an inline message, and the same amount again for copied payloads.
const STAGED_PER_MESSAGE: usize = 128;
/// Minimum staging, bytes.
const STAGING_MIN: usize = 32 << 10;
/// Maximum staging, bytes.
const STAGING_MAX: usize = 1 << 20;
/// Maximum number of entries of one vectored write; with contiguous bytes merged, more than a burst needs.
const GATHER: usize = 64;
/// Maximum number of sends in one flush, so that a fast reader at the other end cannot keep the engine busy forever. Data for a read of the
/// peer ends a flush: the other connection may have messages.
const SENDS_PER_FLUSH: usize = 16;

/// A part of the stream that is not sent yet.
#[derive(Debug)]
enum Segment {
    /// Number of bytes in the staging ring.
    Staged(usize),
    /// Send memory.
    Memory(Extent),
    /// A message's payload in a region.
    Region { region: Region, offset: usize, len: usize },
    /// Remainder of a one-sided write of this side.
    Write { region: Region, local: usize, tag: u32, key: u64, offset: u64, rest: u64 },
    /// Remaining data for a read by the peer.
    Data { tag: u32, key: u64, offset: u64, sent: u64, rest: u64 },
}

#[derive(Debug)]
pub(crate) struct Outbound {
    staging: Staging,
    segments: VecDeque<Segment>,
    max_segments: usize,
    sends: VecDeque<(u64, WrId)>,
    max_sends: usize,
    posted: u64,
    /// Value of `posted` when the last sleep began.
    posted_before: u64,
    taken: u64,
    piece: Piece,
    reads: usize,
    answers: bool,
    blocked: bool,
    flushed: bool,
}

impl Outbound {
    /// Returns empty output for `depth` messages in flight.
    pub(crate) fn new(depth: u32) -> Self {
        let depth = depth as usize;
        let staging = (depth.saturating_mul(STAGED_PER_MESSAGE)).clamp(STAGING_MIN, STAGING_MAX);
        // Each message has at most two segments; answers are extra.
        let max_segments = 2 * (depth + ONE_SIDED_DEPTH).min(STAGING_MAX / HEADER_LEN);
        let max_sends = depth.max(ONE_SIDED_DEPTH);
        Self {
            staging: Staging::new(staging.next_power_of_two()),
            segments: VecDeque::new(),
            max_segments,
            sends: VecDeque::new(),
            max_sends,
            posted: 0,
            posted_before: 0,
            taken: 0,
            piece: Piece::default(),
            reads: 0,
            answers: false,
            blocked: false,
            flushed: false,
        }
    }

    /// Returns whether there is room for `staged` bytes, two segments and one completion.
    pub(crate) fn has_room(&self, staged: usize) -> bool {
        self.staging.free() >= staged + ANSWER_ROOM
            && self.segments.len() + 2 <= self.max_segments
            && self.sends.len() < self.max_sends
    }

    /// Returns whether output remained after a doorbell because the socket is full.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Returns whether something needs a flush for which no doorbell is rung: answers to the peer, or the protocol of an encrypted connection.
    pub(crate) fn has_answers(&self) -> bool {
        self.answers
    }

    /// Makes the poll in progress flush, and report progress.
    pub(crate) fn need_flush(&mut self) {
        self.answers = true;
    }

    /// Returns whether data for the peer's reads is being sent.
    pub(crate) fn is_answering(&self) -> bool {
        self.reads != 0
    }

    /// Appends bytes, which are copied now.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.staging.push(bytes);
        self.staged(bytes.len());
    }

    /// Appends `len` bytes, which are copied out of a region now.
    pub(crate) fn push_region(&mut self, region: &Region, offset: usize, len: usize) {
        self.staging.reserve(len, |part, at| {
            region
                .read(offset + at, part)
                .expect("bounds checked when posted, and a region keeps its length");
        });
        self.staged(len);
    }

    fn staged(&mut self, len: usize) {
        self.posted += len as u64;
        match self.segments.back_mut() {
            Some(Segment::Staged(last)) => *last += len,
            _ if len == 0 => {}
            _ => self.segments.push_back(Segment::Staged(len)),
        }
    }

    /// Appends a piece of send memory, by reference.
    pub(crate) fn push_memory(&mut self, extent: Extent) {
        self.posted += u64::from(extent.len);
        self.segments.push_back(Segment::Memory(extent));
    }

    /// Appends a payload in a region, by reference.
    pub(crate) fn push_region_later(&mut self, region: &Region, offset: usize, len: usize) {
        self.posted += len as u64;
        self.segments.push_back(Segment::Region { region: region.clone(), offset, len });
    }

    /// Appends a one-sided write of `len` bytes.
    pub(crate) fn push_write(
        &mut self,
        region: &Region,
        local: usize,
        tag: u32,
        (key, offset, len): (u64, u64, u64),
    ) {
        self.segments.push_back(Segment::Write {
            region: region.clone(),
            local,
            tag,
            key,
            offset,
            rest: len,
        });
    }

    /// Adds a completion for everything appended so far.
    pub(crate) fn complete_here(&mut self, wr: WrId) {
        self.sends.push_back((self.posted, wr));
    }

    /// Answers a request of the peer in one frame.
    pub(crate) fn answer(&mut self, header: &OneSidedHeader) -> Result<(), PeerFault> {
        if self.staging.free() < HEADER_LEN {
            return Err(PeerFault::Overrun);
        }
        self.answers = true;
        self.push(header.as_array());
        Ok(())
    }

    /// Answers a read by the peer with `len` bytes, in as many frames as needed, with messages in between.
    pub(crate) fn answer_read(
        &mut self,
        tag: u32,
        (key, offset, len): (u64, u64, u64),
    ) -> Result<(), PeerFault> {
        if self.reads == ONE_SIDED_DEPTH {
            return Err(PeerFault::Overrun);
        }
        self.reads += 1;
        self.answers = true;
        self.segments.push_back(Segment::Data { tag, key, offset, sent: 0, rest: len });
        Ok(())
    }

    /// Returns the next completed send, and true if it was sent or false if it was flushed.
    pub(crate) fn completed(&mut self) -> Option<(WrId, bool)> {
        let (end, wr) = *self.sends.front()?;
        let done = end <= self.taken;
        (done || self.flushed).then(|| {
            self.sends.pop_front();
            (wr, done)
        })
    }

    /// Ends sending: sends that the kernel has not accepted complete as flushed.
    pub(crate) fn abandon(&mut self) {
        self.flushed = true;
        self.blocked = false;
        self.answers = false;
        self.segments.clear();
        self.piece = Piece::default();
    }

    /// Frees long buffers when a sleep begins, if no more was posted since the last one than fits the shortest buffers.
    pub(crate) fn rest(&mut self) {
        let before = core::mem::replace(&mut self.posted_before, self.posted);
        if self.posted - before <= Staging::SHORTEST as u64 && self.segments.is_empty() {
            self.staging.give_back();
            self.segments.shrink_to_fit();
            self.sends.shrink_to_fit();
        }
    }

    /// Passes everything to the kernel, or as much as it accepts.
    pub(crate) fn flush(
        &mut self,
        socket: &mut Socket,
        memory: &Mapping,
        grants: &Grants,
    ) -> Result<(), FabricError> {
        self.answers = false;
        if socket.is_encrypted() {
            return self.flush_encrypted(socket, memory, grants);
        }
        for _ in 0..SENDS_PER_FLUSH {
            if self.segments.is_empty() {
                break;
            }
            self.make_piece(grants)?;
            let reads = self.reads;
            let (sent, offered) = self.send(socket, memory)?;
            self.consume(sent);
            // The kernel accepted less than offered, so the socket is full: another call would find no room.
            if sent < offered || reads != 0 {
                break;
            }
        }
        self.blocked = !self.segments.is_empty();
        Ok(())
    }

    /// Encrypts everything and passes it to the kernel, or as much as it accepts.
    #[cold]
    fn flush_encrypted(
        &mut self,
        socket: &mut Socket,
        memory: &Mapping,
        grants: &Grants,
    ) -> Result<(), FabricError> {
        let mut is_full = !socket.flush_encrypted()?;
        for _ in 0..SENDS_PER_FLUSH {
            if is_full || self.segments.is_empty() {
                break;
            }
            self.make_piece(grants)?;
            // The bytes of a region may change while they are encrypted, so they are copied first.
            self.piece.save();
            let reads = self.reads;
            let mut gather = [&[][..]; GATHER];
            let entries = self.gather(memory, &mut gather, Piece::slices);
            let sent = socket.send_encrypted(gather[..entries].iter().copied())?.unwrap_or(0);
            self.consume(sent);
            is_full = socket.has_unsent();
            if reads != 0 {
                break;
            }
        }
        self.blocked = !self.segments.is_empty() || socket.has_unsent();
        Ok(())
    }

    fn send(&self, socket: &mut Socket, memory: &Mapping) -> Result<(usize, usize), FabricError> {
        if let ([Segment::Staged(len)], []) = self.segments.as_slices() {
            let (all, rest) = self.staging.parts(0, *len);
            if rest.is_empty() {
                return Ok((socket.send(&[Source::of(all)])?.unwrap_or(0), *len));
            }
        }
        let mut gather = [Source::EMPTY; GATHER];
        let entries = self.gather(memory, &mut gather, Piece::parts);
        let offered = gather[..entries].iter().map(Source::len).sum();
        Ok((socket.send(&gather[..entries])?.unwrap_or(0), offered))
    }

    /// Lists the parts of the stream that can be sent now. `of_piece` returns those of the piece. Returns the number of parts.
    fn gather<'a, P: From<&'a [u8]>>(
        &'a self,
        memory: &'a Mapping,
        into: &mut [P; GATHER],
        of_piece: impl Fn(&'a Piece) -> [P; 2],
    ) -> usize {
        let (mut entries, mut staged) = (0, 0);
        for segment in &self.segments {
            // A segment takes two entries at most.
            if entries + 2 > GATHER {
                break;
            }
            let bytes = match segment {
                Segment::Staged(len) => {
                    staged += len;
                    let (first, second) = self.staging.parts(staged - len, *len);
                    [first, second]
                }
                Segment::Memory(extent) => {
                    #[expect(unsafe_code, reason = "posted send memory is read in place")]
                    // SAFETY: the segment was posted and its completion comes after it (invariant 3), so no thread
                    // writes to the extent (the engine's promise 2 in the fabric).
                    let bytes = unsafe { memory.bytes(*extent) };
                    [bytes, &[]]
                }
                // The next piece of this segment comes after this one and is not made yet.
                _ => {
                    [into[entries], into[entries + 1]] = of_piece(&self.piece);
                    return entries + 2;
                }
            };
            for part in bytes.into_iter().filter(|part| !part.is_empty()) {
                into[entries] = part.into();
                entries += 1;
            }
        }
        entries
    }

    fn consume(&mut self, mut sent: usize) {
        while sent > 0 {
            let segment = self.segments.front_mut().expect("no more is sent than was offered");
            match segment {
                Segment::Staged(len) => {
                    let n = sent.min(*len);
                    *len -= n;
                    sent -= n;
                    self.taken += n as u64;
                    self.staging.consume(n);
                    if *len == 0 {
                        self.segments.pop_front();
                    }
                }
                Segment::Memory(extent) => {
                    let n = u32::try_from(sent).unwrap_or(u32::MAX).min(extent.len);
                    *extent = Extent { offset: extent.offset + n, len: extent.len - n };
                    sent -= n as usize;
                    self.taken += u64::from(n);
                    if extent.len == 0 {
                        self.segments.pop_front();
                    }
                }
                _ => {
                    let n = sent.min(self.piece.left());
                    sent -= n;
                    self.piece.advance(n);
                    if matches!(segment, Segment::Region { .. }) {
                        self.taken += n as u64;
                    }
                    if self.piece.left() == 0 {
                        self.end_piece();
                    }
                }
            }
        }
    }

    /// Finishes the front segment's piece after it was sent. Ends the segment if that was its last piece, and moves data for
    /// a read to the back.
    fn end_piece(&mut self) {
        match self.segments.front() {
            Some(Segment::Region { len: 0, .. } | Segment::Write { rest: 0, .. }) => {
                self.segments.pop_front();
            }
            Some(Segment::Data { rest: 0, .. }) => {
                self.reads -= 1;
                self.segments.pop_front();
            }
            Some(Segment::Data { .. }) => self.segments.rotate_left(1),
            _ => {}
        }
    }

    /// Makes the next piece of the first segment that needs one.
    fn make_piece(&mut self, grants: &Grants) -> Result<(), FabricError> {
        if self.piece.left() != 0 {
            return Ok(());
        }
        let first = self.segments.iter_mut().find(|s| !matches!(s, Segment::Staged(_) | Segment::Memory(_)));
        let made = match first {
            Some(Segment::Region { region, offset, len }) => {
                let (at, n) = (*offset, CHUNK.min(*len));
                (*offset, *len) = (at + n, *len - n);
                Piece::new(&[], region, at, n)
            }
            Some(Segment::Write { region, local, tag, key, offset, rest }) => {
                let n = chunk(*rest);
                let header = OneSidedHeader::new(Kind::Write, 8 + n, *tag, *key, *offset);
                let made = Piece::new(&[header.as_array(), &rest.to_le_bytes()], region, *local, n);
                // The peer rejects a range that wraps around, as it does with the first frame.
                *offset = offset.wrapping_add(n as u64);
                (*local, *rest) = (*local + n, *rest - n as u64);
                made
            }
            Some(Segment::Data { tag, key, offset, sent, rest }) => {
                // Checked for each piece: the grant may have been revoked since the last one.
                match grants.range(*key, *offset, *rest, Access::Read) {
                    Some((region, at)) => {
                        let n = chunk(*rest);
                        let header = OneSidedHeader::new(Kind::Data, n, *tag, *sent, 0);
                        let after = n as u64;
                        (*offset, *sent, *rest) = (*offset + after, *sent + after, *rest - after);
                        Piece::new(&[header.as_array()], region, at, n).or_else(|_| {
                            *rest = 0;
                            Ok(refusal(*tag, UNREADABLE))
                        })
                    }
                    None => {
                        *rest = 0;
                        Ok(refusal(*tag, 0))
                    }
                }
            }
            _ => return Ok(()),
        };
        // Bounds were checked when posting; a region that shrank since then violates the owner's contract.
        self.piece = made.map_err(|_| FabricError::System { errno: libc::EFAULT })?;
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn is_inside_a_frame(&self) -> bool {
        matches!(self.segments.front(), Some(Segment::Data { .. })) && self.piece.is_begun()
    }

    /// Copies the bytes of the piece that is being sent, if it lies in a range whose grant has ended: its owner may change the bytes now.
    pub(crate) fn revoked(&mut self, key: u64) {
        let first = self.segments.iter().find(|s| !matches!(s, Segment::Staged(_) | Segment::Memory(_)));
        if matches!(first, Some(Segment::Data { key: of, .. }) if *of == key) {
            self.piece.save();
        }
    }
}

/// Returns the answer frame of a read that is refused.
fn refusal(tag: u32, why: u64) -> Piece {
    let header = OneSidedHeader::new(Kind::Answer, 0, tag, 1, why);
    Piece::of_head(&[header.as_array()])
}

fn chunk(rest: u64) -> usize {
    usize::try_from(rest).unwrap_or(usize::MAX).min(CHUNK)
}
