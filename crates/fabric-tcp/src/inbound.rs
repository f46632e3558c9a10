//! Received bytes: the receive buffer, and the frame that is being assembled.
//!
//! # Invariants
//! 1. `start..end` of the buffer holds the bytes that were received and not yet consumed. While a long frame is
//!    incomplete, it is empty: all of the frame's bytes have been moved to their destination. The receive continues there.
//! 2. `drained` means that the last receive returned less than there was room for. The next receive would most likely
//!    find nothing, so it is skipped once.
//! 3. One receive is also skipped after arming: the sleep ends immediately if the socket is readable. It is not skipped
//!    while `woken_alone`: only one thread got the event, and another one may sleep next; or bytes wait that are no longer in the socket, as
//!    they are decrypted. `woken_alone` ends with a receive that leaves nothing behind.
//! 4. The buffer starts short. It grows each time a receive fills it, and becomes short again after a whole sleep in
//!    which no receive would have filled a short one. A node has thousands of connections, of which few are in a burst.

use core::mem;
use std::sync::Arc;

use pronto_core::fabric::{Arrived, FabricError, InlineMessage, PeerFault, PollOutcome, Received};
use pronto_wire::{HEADER_LEN, INLINE_PAYLOAD, InlinePayload, RawHeader};

use crate::frame::{self, CHUNK, Opening};
use crate::one_sided::{OneSided, Sink};
use crate::outbound::Outbound;
use crate::parts::Destination;
use crate::pool::{Account, Lease};
use crate::socket::{Read, Socket};

/// Length of the receive buffer in a burst, bytes: a thousand inline messages in one call.
const BUFFER: usize = 64 << 10;
/// Length of the receive buffer of a quiet connection, bytes: some inline messages.
const SHORT_BUFFER: usize = 1 << 10;
/// Factor by which the buffer grows after a receive has filled it.
const GROWTH: usize = 16;
/// Maximum number of receives in one poll without a message. Half a chunk of one-sided data also ends a poll, as the other connection may
/// have messages.
pub(crate) const RECEIVES_PER_POLL: usize = 16;
const _: () = assert!(SHORT_BUFFER >= HEADER_LEN + INLINE_PAYLOAD + frame::MAX_EXTRA);

/// Position in the current frame.
#[derive(Debug)]
enum State {
    /// At a frame boundary.
    Boundary,
    /// A message whose payload waits for a receive buffer.
    Starved { header: RawHeader, len: usize },
    /// A message whose payload is being received.
    Payload { header: RawHeader, lease: Lease, filled: usize },
    /// Data of a one-sided frame: `done` bytes are processed, `left` are missing.
    Data { sink: Sink, done: u64, left: usize },
}

#[derive(Debug)]
pub(crate) struct Inbound {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    state: State,
    drained: bool,
    woken_alone: bool,
    /// Maximum number of bytes in the buffer since it was last armed, bytes.
    fullest: usize,
    /// Number of bytes of one-sided data that the current poll has processed.
    data: usize,
    account: Arc<Account>,
    max_payload: usize,
    /// Maximum payload of an inline message.
    max_inline: usize,
    pub(crate) starved: u64,
}

impl Inbound {
    pub(crate) fn new(account: Arc<Account>, max_payload: usize) -> Self {
        Self {
            buffer: vec![0; SHORT_BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
            state: State::Boundary,
            drained: false,
            woken_alone: false,
            fullest: 0,
            data: 0,
            account,
            max_payload,
            max_inline: max_payload.min(INLINE_PAYLOAD),
            starved: 0,
        }
    }

    /// Returns whether reading has stopped because no receive buffer is available.
    pub(crate) fn is_starved(&self) -> bool {
        matches!(self.state, State::Starved { .. })
    }

    /// Returns whether all received bytes were consumed, without a partial frame.
    fn is_empty(&self) -> bool {
        self.start == self.end && matches!(self.state, State::Boundary)
    }

    /// Skips the next receive, because the sleeper waits on the socket itself, which stays readable while there is
    /// data. Shrinks the buffer after a quiet sleep.
    pub(crate) fn leave_out_next_receive(&mut self, socket: &mut Socket) {
        self.drained = !self.woken_alone;
        let quiet = mem::take(&mut self.fullest) < SHORT_BUFFER;
        if quiet && self.buffer.len() > SHORT_BUFFER && self.start == self.end {
            self.resize(SHORT_BUFFER);
            socket.rest();
        }
    }

    /// Makes the next poll receive: one thread was notified of an event, and others may not have been.
    pub(crate) fn leave_out_nothing(&mut self) {
        self.drained = false;
        self.woken_alone = true;
    }

    /// Replaces the buffer by one of `len` bytes, which must hold the unconsumed bytes.
    fn resize(&mut self, len: usize) {
        let mut buffer = vec![0; len].into_boxed_slice();
        let left = self.end - self.start;
        buffer[..left].copy_from_slice(&self.buffer[self.start..self.end]);
        (self.buffer, self.start, self.end) = (buffer, 0, left);
    }

    /// Drops the unfinished frame and returns its buffer.
    pub(crate) fn abandon(&mut self) {
        self.state = State::Boundary;
        self.start = 0;
        self.end = 0;
    }

    /// Receives until there is a message, after [`Self::next_inline`] has found none. Writes an inline message to
    /// `into`. Executes one-sided requests of the peer on the way.
    pub(crate) fn next(
        &mut self,
        into: &mut InlineMessage,
        socket: &mut Socket,
        one_sided: &mut OneSided,
        outbound: &mut Outbound,
    ) -> Result<PollOutcome<Lease>, FabricError> {
        self.data = 0;
        let mut receives = 0;
        loop {
            if !self.is_empty()
                && let Some(message) = self.advance(one_sided, outbound)?
            {
                return Ok(PollOutcome::Leased(message));
            }
            if self.is_starved() {
                socket.check()?;
                return Ok(PollOutcome::Nothing);
            }
            if mem::take(&mut self.drained) {
                return Ok(PollOutcome::Nothing);
            }
            let is_enough = self.data >= CHUNK / 2 || receives == RECEIVES_PER_POLL;
            // The socket does not wake a sleeper for decrypted bytes, so none are left behind. They are not many.
            if is_enough && !socket.has_unread() {
                return Ok(PollOutcome::Nothing);
            }
            receives += 1;
            match self.receive(socket, one_sided, outbound)? {
                Read::Bytes(_) if self.next_inline(into) => return Ok(PollOutcome::Inline),
                // Of an encrypted connection, whose peer decides how many records it sends without data.
                Read::Bytes(0) => return Ok(PollOutcome::Nothing),
                Read::Bytes(_) => {}
                Read::Nothing | Read::Control => return Ok(PollOutcome::Nothing),
                Read::End => return Err(FabricError::Lost),
            }
        }
    }

    /// Takes the next message if it is in the buffer and inline.
    #[inline]
    pub(crate) fn next_inline(&mut self, into: &mut InlineMessage) -> bool {
        let there = self.end - self.start;
        if there < HEADER_LEN || !matches!(self.state, State::Boundary) {
            return false;
        }
        let bytes = &self.buffer[self.start..];
        let message = frame::open_inline(bytes, there, self.max_inline);
        message.is_some_and(|message| {
            self.start += HEADER_LEN + usize::from(message.payload.len());
            *into = message;
            true
        })
    }

    /// Appends `bytes` as if they had been received; they must fit the buffer together with the unconsumed bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.resize(BUFFER);
        self.buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Moves the unconsumed bytes to the front of the buffer, or of a longer buffer if the last receive filled this
    /// one.
    fn make_room(&mut self, may_grow: bool) {
        if may_grow && self.end == self.buffer.len() && self.end < BUFFER {
            return self.resize(BUFFER.min(self.buffer.len() * GROWTH));
        }
        if self.start != self.end {
            self.buffer.copy_within(self.start..self.end, 0);
        }
        (self.start, self.end) = (0, self.end - self.start);
    }

    /// Receives once: the rest of an unfinished payload into its buffer, that of one-sided data into its region, and the bytes after it
    /// into the receive buffer.
    fn receive(
        &mut self,
        socket: &mut Socket,
        one_sided: &mut OneSided,
        outbound: &mut Outbound,
    ) -> Result<Read, FabricError> {
        if socket.is_encrypted() {
            return self.receive_decrypted(socket, outbound);
        }
        if one_sided.is_reading() || matches!(self.state, State::Payload { .. } | State::Data { .. }) {
            return self.receive_in_place(socket, one_sided);
        }
        self.make_room(true);
        let room = self.buffer.len() - self.end;
        let read = socket.receive(&mut [Destination::of(&mut self.buffer[self.end..])])?;
        self.received(read, 0, is_short(read, room));
        Ok(read)
    }

    #[inline(never)]
    fn receive_in_place(
        &mut self,
        socket: &mut Socket,
        one_sided: &mut OneSided,
    ) -> Result<Read, FabricError> {
        // While data for reads arrives, the receive buffer takes little more than the next header, so that the data after it is received in
        // its place.
        let reading = one_sided.is_reading();
        self.make_room(!reading);
        let room = self.buffer.len() - self.end;
        let room = if reading { room.min(SHORT_BUFFER) } else { room };
        let spare = Destination::of(&mut self.buffer[self.end..self.end + room]);
        let (read, place) = match &mut self.state {
            State::Payload { lease, filled, .. } => {
                let rest = &mut lease.bytes_mut()[*filled..];
                let place = rest.len();
                let read = socket.receive(&mut [Destination::of(rest), spare])?;
                if let Read::Bytes(n) = read {
                    *filled += n.min(place);
                }
                (read, place)
            }
            State::Data { sink, done, left } => match one_sided.place(*sink, *done, *left)? {
                Some((region, at)) => {
                    let place = *left;
                    let data = Destination::in_region(region, at, place)
                        .expect("bounds checked when granted or posted, and a region keeps its length");
                    let read = socket.receive(&mut [data, spare])?;
                    if let Read::Bytes(n) = read {
                        let n = n.min(place);
                        one_sided.placed(*sink, n, true)?;
                        (*done, *left) = (*done + n as u64, place - n);
                        self.data += n;
                    }
                    (read, place)
                }
                None => (socket.receive(&mut [spare])?, 0),
            },
            _ => (socket.receive(&mut [spare])?, 0),
        };
        self.received(read, place, is_short(read, place + room));
        Ok(read)
    }

    /// Receives from an encrypted connection: the rest of an unfinished payload into its buffer, all other bytes into the receive buffer.
    #[cold]
    fn receive_decrypted(
        &mut self,
        socket: &mut Socket,
        outbound: &mut Outbound,
    ) -> Result<Read, FabricError> {
        self.make_room(true);
        let spare = &mut self.buffer[self.end..];
        let (read, place) = match &mut self.state {
            State::Payload { lease, filled, .. } => {
                let rest = &mut lease.bytes_mut()[*filled..];
                let place = rest.len();
                let read = socket.receive_encrypted(rest, spare)?;
                if let Read::Bytes(n) = read {
                    *filled += n.min(place);
                }
                (read, place)
            }
            _ => (socket.receive_encrypted(spare, &mut [])?, 0),
        };
        if socket.has_unsent() {
            outbound.need_flush();
        }
        self.received(read, place, socket.is_drained());
        // A poll that ends with a message leaves them behind, and none is left out before the next sleep.
        self.woken_alone |= socket.has_unread();
        Ok(read)
    }

    /// Counts received bytes: those beyond the first `place` are in the buffer. `is_drained` is true if another receive would find nothing.
    fn received(&mut self, read: Read, place: usize, is_drained: bool) {
        let all = if let Read::Bytes(n) = read { n } else { 0 };
        self.end += all.saturating_sub(place);
        self.fullest = self.fullest.max(self.end);
        self.drained = matches!(read, Read::Bytes(_)) && is_drained;
        self.woken_alone &= !self.drained && read != Read::Nothing;
    }

    /// Processes the buffer until a message is complete or more bytes are needed.
    pub(crate) fn advance(
        &mut self,
        one_sided: &mut OneSided,
        outbound: &mut Outbound,
    ) -> Result<Option<Received<Lease>>, FabricError> {
        loop {
            match mem::replace(&mut self.state, State::Boundary) {
                State::Boundary => match self.open(one_sided, outbound)? {
                    Step::Message(message) => return Ok(Some(message)),
                    Step::Again => {}
                    Step::Wait => return Ok(None),
                },
                State::Starved { header, len } => match self.account.take(len) {
                    Some(lease) => self.state = State::Payload { header, lease, filled: 0 },
                    None => {
                        self.state = State::Starved { header, len };
                        return Ok(None);
                    }
                },
                State::Payload { header, mut lease, mut filled } => {
                    let rest = &mut lease.bytes_mut()[filled..];
                    let n = rest.len().min(self.end - self.start);
                    rest[..n].copy_from_slice(&self.buffer[self.start..self.start + n]);
                    self.start += n;
                    filled += n;
                    if filled == lease.bytes().len() {
                        return Ok(Some(Received { header, payload: Arrived::Buffer(lease) }));
                    }
                    self.state = State::Payload { header, lease, filled };
                    return Ok(None);
                }
                State::Data { sink, done, left } => {
                    let n = left.min(self.end - self.start);
                    if n > 0 {
                        one_sided.data(sink, done, &self.buffer[self.start..self.start + n])?;
                    }
                    self.start += n;
                    self.data += n;
                    if n < left {
                        self.state = State::Data { sink, done: done + n as u64, left: left - n };
                        return Ok(None);
                    }
                    one_sided.end(sink, outbound)?;
                }
            }
        }
    }

    /// Takes the start of the next frame from the buffer.
    fn open(&mut self, one_sided: &mut OneSided, outbound: &mut Outbound) -> Result<Step, FabricError> {
        let bytes = &self.buffer[self.start..self.end];
        match frame::open(bytes)? {
            Opening::Partial => Ok(Step::Wait),
            Opening::Message { len, .. } if len > self.max_payload => {
                Err(PeerFault::Length { len: len as u64, max: self.max_payload as u64 }.into())
            }
            Opening::Message { header, len } if len <= INLINE_PAYLOAD => {
                let Some(payload) = bytes.get(HEADER_LEN..HEADER_LEN + len) else { return Ok(Step::Wait) };
                let payload = InlinePayload::new(payload).expect("at most 40 bytes");
                self.start += HEADER_LEN + len;
                Ok(Step::Message(Received { header, payload: Arrived::Inline(payload) }))
            }
            Opening::Message { header, len } => {
                self.start += HEADER_LEN;
                self.state = match self.account.take(len) {
                    Some(lease) => State::Payload { header, lease, filled: 0 },
                    None => {
                        self.starved += 1;
                        State::Starved { header, len }
                    }
                };
                Ok(if self.is_starved() { Step::Wait } else { Step::Again })
            }
            Opening::OneSided { frame, consumed } => {
                self.start += consumed;
                if let Some(sink) = one_sided.handle(frame, outbound)? {
                    let left = match frame {
                        frame::OneSidedFrame::Write { data, .. }
                        | frame::OneSidedFrame::Data { data, .. } => data,
                        _ => 0,
                    };
                    self.state = State::Data { sink, done: 0, left };
                }
                Ok(Step::Again)
            }
        }
    }
}

/// Returns whether a receive found less than there was room for.
fn is_short(read: Read, room: usize) -> bool {
    matches!(read, Read::Bytes(n) if n < room)
}

/// Result of taking the start of a frame.
#[derive(Debug)]
enum Step {
    Message(Received<Lease>),
    Again,
    Wait,
}
