//! Sending: work requests become requests of the queue, and its completions become completions of the fabric.

use std::sync::Arc;

use pronto_core::fabric::{
    Completion, DoorbellEvent, Extent, FabricError, Gather, Operation, OutOfBounds, PostError, Region,
    RemoteRange, SendMemory as _, SendWork, Signal, Status, WrId,
};
use pronto_wire::{HEADER_LEN, INLINE_PAYLOAD, RawHeader};
use zerocopy::IntoBytes as _;

use crate::frame::{Kind, Waiting, word};
use crate::pool::{PoolBuffer, UNREGISTERED};
use crate::queue_pair::VerbsQueuePair;
use crate::sys::{Done, MemoryRegion, Rights, SendRequest, Verb};
use crate::windows::Lent;

/// Number of requests that messages leave free, for reads of payloads and the reports after them.
const RESERVE: usize = 16;

/// `ibv_wc_status` values that have a specific meaning here.
const REMOTE_INVALID_REQUEST: u32 = 9;
pub(crate) const REMOTE_ACCESS: u32 = 10;
const RETRIES_EXCEEDED: u32 = 12;
const RECEIVER_NOT_READY: u32 = 13;
const FLUSHED: u32 = 5;

/// Purpose of a request in the queue.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A message with its payload, whose memory is held until the device has finished.
    Message(WrId, #[expect(dead_code, reason = "held, not read")] Source),
    /// A copied message, whose memory is held until it is posted.
    Held(#[expect(dead_code, reason = "held, not read")] Source),
    /// A part of an operation that completes otherwise.
    Part,
    /// Ends the window onto a payload that the peer has read.
    Closing(u16),
    /// A read of a payload: the message's number in the inbox.
    Fetch(u64),
    /// A one-sided operation, whose local memory is held.
    Access { wr: WrId, atomic: bool, _memory: Option<Arc<MemoryRegion>> },
    /// A request of the provider itself that is waited for.
    Asked,
}

/// Memory that a request needs.
#[derive(Debug)]
pub(crate) enum Source {
    Registered(#[expect(dead_code, reason = "held, not read")] Arc<MemoryRegion>),
    Copied(#[expect(dead_code, reason = "held, not read")] PoolBuffer),
}

/// A payload in registered memory.
struct Piece {
    memory: Arc<MemoryRegion>,
    offset: usize,
    copy: Option<PoolBuffer>,
}

impl VerbsQueuePair {
    pub(crate) fn push_work(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        let SendWork { signal, operation } = work;
        match operation {
            Operation::Send { header, payload } => self.send(signal, header, payload),
            Operation::Read { local, local_offset, remote } => {
                self.access(signal, local, local_offset, remote, Verb::Read)
            }
            Operation::Write { local, local_offset, remote } => {
                self.access(signal, local, local_offset, remote, Verb::Write)
            }
            Operation::CompareSwap { remote, expected, desired } => {
                self.atomic(signal, remote, |at| Verb::CompareSwap { at, expected, desired })
            }
            Operation::FetchAdd { remote, add } => {
                self.atomic(signal, remote, |at| Verb::FetchAdd { at, add })
            }
        }
    }

    /// Pushes one request; there must be room. Memory in `gathered` is held by the entry, or protected by the engine's
    /// promise about send memory (promise 2 of the fabric).
    pub(crate) fn push(&mut self, mut request: SendRequest<'_>, entry: Entry) -> u32 {
        // Without signalled requests, the queue would never learn that others are done.
        self.since_signal += 1;
        request.signalled |= self.since_signal >= self.depth / 4;
        if request.signalled {
            self.since_signal = 0;
            self.reaping.asked_below = self.queue.next_number() + 1;
        }
        self.entries.push_back(entry);
        #[expect(unsafe_code, reason = "the device will read or write what the request names")]
        // SAFETY: a request's memory is its own line, or is held in its entry or in the list of chunks until the
        // request has completed. Nothing writes to it meanwhile: regions are shared memory by contract, extents are
        // covered by the engine's promise, pool buffers belong to the entry or the inbox.
        unsafe {
            self.queue.push(request)
        }
    }

    /// Rings the doorbell for everything that was pushed.
    pub(crate) fn post(&mut self, event: DoorbellEvent) {
        let posted = self.queue.post(event);
        self.end_copied(if posted.is_ok() { Status::Done(0) } else { Status::Flushed });
        if let Err(errno) = posted {
            self.fail(FabricError::System { errno: errno as i32 });
        }
    }

    /// Completes copied messages, whose buffers are free and which have no completion of the device.
    fn end_copied(&mut self, status: Status) {
        self.done.extend(self.copied.drain(..).map(|wr| Completion { wr, status }));
    }

    fn send(&mut self, signal: Signal, header: &RawHeader, payload: Gather<'_>) -> Result<(), PostError> {
        let len = payload.len();
        let most = self.capabilities.max_payload as usize;
        let copies = self.capabilities.copies as usize;
        let max = if payload.copied().is_some() { copies } else { most };
        if len > max {
            return Err(PostError::TooLong { len, max });
        }
        let wr = match (signal, &payload) {
            (Signal::Signalled(wr), _) => Some(wr),
            (Signal::Unsignalled, payload) if payload.copied().is_some() => None,
            // Without a completion, the sender could not tell when the buffer may be reused.
            (Signal::Unsignalled, _) => return Err(PostError::Unsupported),
        };
        let offset = match payload {
            Gather::Inline(_) | Gather::Short(_) => 0,
            Gather::Ring(Extent { offset, .. }) => within(self.memory.len(), offset.into(), len as u64)?,
            Gather::Region { region, offset, .. } => within(region.len(), offset, len as u64)?,
        };
        if self.queue.room() < RESERVE + 2 {
            return Err(PostError::Full);
        }
        let mut headed = *header;
        headed.fabric = word(Kind::Message, 0).into();
        if len <= INLINE_PAYLOAD {
            let line = self.queue.next_line();
            line[..HEADER_LEN].copy_from_slice(headed.as_array());
            let rest = &mut line[HEADER_LEN..HEADER_LEN + len];
            match payload {
                Gather::Inline(payload) => rest.copy_from_slice(payload.as_slice()),
                Gather::Short(bytes) => rest.copy_from_slice(bytes),
                Gather::Ring(extent) => {
                    #[expect(unsafe_code, reason = "posted send memory is read in place")]
                    // SAFETY: the extent is being posted, so no thread writes to it until its completion (the engine's promise 2).
                    let bytes = unsafe { self.memory.bytes(extent) };
                    rest.copy_from_slice(bytes);
                }
                Gather::Region { region, .. } => region.read(offset, rest)?,
            }
            self.send_copied(len, wr);
            return Ok(());
        }
        if let Gather::Short(bytes) = payload {
            let copy = self.queue.next_copy().ok_or(PostError::TooLong { len, max: INLINE_PAYLOAD })?;
            copy[..HEADER_LEN].copy_from_slice(headed.as_array());
            copy[HEADER_LEN..HEADER_LEN + len].copy_from_slice(bytes);
            self.send_copied(len, wr);
            return Ok(());
        }
        let Some(wr) = wr else { return Err(PostError::Unsupported) };
        let eager = HEADER_LEN + len <= self.their_buffer as usize;
        if !eager && !self.windows.has_free() {
            return Err(PostError::Full);
        }
        let piece = match payload {
            Gather::Inline(_) | Gather::Short(_) => return Err(PostError::TooLong { len, max }),
            Gather::Ring(_) => self.extent(offset, len)?,
            Gather::Region { region, .. } => self.region(region, offset, len)?,
        };
        if eager {
            self.send_whole(&headed, piece, len, wr)
        } else {
            self.send_waiting(headed, piece, len, wr)
        }
        Ok(())
    }

    /// Pushes the message that was written to the next request's line or copy slot.
    fn send_copied(&mut self, len: usize, wr: Option<WrId>) {
        self.counters.eager += 1;
        let line = u32::try_from(HEADER_LEN + len).unwrap_or(0);
        self.copied.extend(wr);
        self.push(SendRequest { verb: Verb::Send, line, gathered: None, signalled: false }, Entry::Part);
    }

    /// Returns the piece for an extent. Send memory is registered chunk by chunk, and no extent crosses a chunk
    /// boundary.
    fn extent(&self, offset: usize, len: usize) -> Result<Piece, PostError> {
        let covers =
            |chunk: &&Arc<MemoryRegion>| chunk.range().start <= offset && offset + len <= chunk.range().end;
        let found = self.chunks.iter().rev().find(covers);
        let outside = OutOfBounds { offset, wanted: len, len: self.memory.len() };
        let memory = Arc::clone(found.ok_or(PostError::OutOfBounds(outside))?);
        Ok(Piece { memory, offset, copy: None })
    }

    fn region(&mut self, region: &Region, offset: usize, len: usize) -> Result<Piece, PostError> {
        if let Some(memory) = self.shared.regions.find(region) {
            return Ok(Piece { memory, offset, copy: None });
        }
        if len <= UNREGISTERED {
            let mut copy = self.shared.pool.take(len, &self.copy_waiter).ok_or(PostError::Full)?;
            if !copy.fill(region, offset) {
                return Err(OutOfBounds { offset, wanted: len, len: region.len() }.into());
            }
            self.counters.copied += 1;
            let (memory, offset) = copy.registered();
            return Ok(Piece { memory: Arc::clone(memory), offset, copy: Some(copy) });
        }
        let memory = self.shared.regions.register(&self.shared.domain, region)?;
        self.counters.registered_on_the_way += 1;
        Ok(Piece { memory, offset, copy: None })
    }

    /// Sends header and payload as one message, gathered by the device.
    fn send_whole(&mut self, header: &RawHeader, piece: Piece, len: usize, wr: WrId) {
        self.queue.next_line()[..HEADER_LEN].copy_from_slice(header.as_array());
        let Piece { memory, offset, copy } = piece;
        let gathered = Some((memory.local(offset), u32::try_from(len).unwrap_or(0)));
        let line = u32::try_from(HEADER_LEN).unwrap_or(0);
        self.counters.eager += 1;
        let copied = self.queue.copies(u32::try_from(HEADER_LEN + len).unwrap_or(u32::MAX));
        let source = copy.map_or(Source::Registered(memory), Source::Copied);
        let entry = if copied {
            self.copied.push_back(wr);
            Entry::Held(source)
        } else {
            Entry::Message(wr, source)
        };
        self.push(SendRequest { verb: Verb::Send, line, gathered, signalled: !copied }, entry);
    }

    /// Sends the header and a window onto the payload, which the peer reads and reports. There must be a free window.
    fn send_waiting(&mut self, mut header: RawHeader, piece: Piece, len: usize, wr: WrId) {
        let Piece { memory, offset, copy } = piece;
        let Some((number, window)) = self.windows.take() else { return };
        let rights = Rights { read: true, write: false, atomic: false };
        // Written out here, because the window borrows one field and pushing needs the others.
        let verb =
            Verb::Bind { window: &mut window.window, memory: &memory, offset, len: len as u64, rights };
        let request = SendRequest { verb, line: 0, gathered: None, signalled: false };
        #[expect(unsafe_code, reason = "the device will let the peer read what the request names")]
        // SAFETY: a window lies in registered memory, which the window's loan holds until the peer has read it; windows
        // are dropped only after unposted requests are forgotten.
        let key = unsafe { self.queue.push(request) };
        window.lent = Some(Lent { wr, key, closing: false, _memory: Arc::clone(&memory), _copy: copy });
        self.since_signal += 1;
        self.entries.push_back(Entry::Part);
        header.fabric = word(Kind::Rendezvous, 0).into();
        let waiting = Waiting {
            len: u32::try_from(len).unwrap_or(0).into(),
            key: key.into(),
            window: u32::from(number).into(),
        };
        let line = self.queue.next_line();
        line[..HEADER_LEN].copy_from_slice(header.as_array());
        let end = HEADER_LEN + size_of::<Waiting>();
        line[HEADER_LEN..end].copy_from_slice(waiting.as_bytes());
        self.counters.rendezvous += 1;
        let line = u32::try_from(end).unwrap_or(0);
        let request = SendRequest { verb: Verb::Send, line, gathered: None, signalled: false };
        self.push(request, Entry::Part);
    }

    fn access(
        &mut self,
        signal: Signal,
        local: &Region,
        local_offset: u64,
        remote: RemoteRange,
        verb: impl FnOnce(u64, u32) -> Verb<'static>,
    ) -> Result<(), PostError> {
        let Signal::Signalled(wr) = signal else { return Err(PostError::Unsupported) };
        let offset = within(local.len(), local_offset, remote.len)?;
        let max = self.longest as usize;
        let len = u32::try_from(remote.len).ok().filter(|len| *len <= self.longest);
        let len = len.ok_or_else(|| PostError::TooLong {
            len: usize::try_from(remote.len).unwrap_or(usize::MAX),
            max,
        })?;
        let key = key_of(remote)?;
        if self.queue.room() < RESERVE + 1 {
            return Err(PostError::Full);
        }
        let memory = self.shared.regions.register(&self.shared.domain, local)?;
        let gathered = (len > 0).then(|| (memory.local(offset), len));
        let request = SendRequest { verb: verb(remote.offset, key), line: 0, gathered, signalled: true };
        self.push(request, Entry::Access { wr, atomic: false, _memory: Some(memory) });
        Ok(())
    }

    fn atomic(
        &mut self,
        signal: Signal,
        remote: RemoteRange,
        verb: impl FnOnce((u64, u32)) -> Verb<'static>,
    ) -> Result<(), PostError> {
        let Signal::Signalled(wr) = signal else { return Err(PostError::Unsupported) };
        if remote.len != 8 {
            return Err(PostError::NotGranted);
        }
        if !remote.offset.is_multiple_of(8) {
            let offset = usize::try_from(remote.offset).unwrap_or(usize::MAX);
            return Err(OutOfBounds { offset, wanted: 8, len: 8 }.into());
        }
        let key = key_of(remote)?;
        if self.queue.room() < RESERVE + 1 {
            return Err(PostError::Full);
        }
        let request =
            SendRequest { verb: verb((remote.offset, key)), line: 8, gathered: None, signalled: true };
        self.push(request, Entry::Access { wr, atomic: true, _memory: None });
        Ok(())
    }

    /// Processes the available completions.
    pub(crate) fn reap(&mut self) {
        loop {
            match self.sends.poll() {
                Ok(None) => break,
                Ok(Some(found)) => self.retire_through(found),
                Err(errno) => {
                    self.fail(FabricError::System { errno: errno as i32 });
                    self.flush_all();
                    break;
                }
            }
        }
    }

    /// Retires requests up to a completed one. Requests complete in order: earlier unsignalled ones are done.
    fn retire_through(&mut self, found: Done) {
        while self.queue.oldest() <= found.id {
            let Some(entry) = self.entries.pop_front() else { break };
            let number = self.queue.oldest();
            let status = if number == found.id { found.status } else { 0 };
            let value = self.queue.result_of(number);
            self.queue.completed_before(number + 1);
            self.ended(entry, status, value);
        }
        if let Some(error) = failure_of(found.status) {
            self.fail(error);
        }
    }

    /// Flushes requests for which no doorbell was rung: they were never sent.
    pub(crate) fn flush_unposted(&mut self) {
        let posted = usize::try_from(self.queue.first_unposted() - self.queue.oldest()).unwrap_or(0);
        let unposted: Vec<Entry> = self.entries.drain(posted.min(self.entries.len())..).collect();
        self.queue.forget_unposted();
        self.end_copied(Status::Flushed);
        for entry in unposted {
            self.ended(entry, FLUSHED, 0);
        }
    }

    /// Flushes all requests, because no completions will follow.
    pub(crate) fn flush_all(&mut self) {
        self.queue.completed_before(self.queue.next_number());
        for entry in core::mem::take(&mut self.entries) {
            self.ended(entry, FLUSHED, 0);
        }
    }

    fn ended(&mut self, entry: Entry, status: u32, value: u64) {
        match entry {
            Entry::Message(wr, _) => {
                self.complete(wr, if status == 0 { Status::Done(0) } else { Status::Flushed });
            }
            Entry::Held(_) | Entry::Part => {}
            Entry::Closing(window) => {
                if status == 0
                    && let Some(wr) = self.windows.give_back(window)
                {
                    self.complete(wr, Status::Done(0));
                }
            }
            Entry::Fetch(number) => {
                if status == 0 {
                    self.fetched(number);
                }
            }
            Entry::Access { wr, atomic, .. } => self.complete(
                wr,
                match status {
                    0 => Status::Done(if atomic { value } else { 0 }),
                    REMOTE_ACCESS | REMOTE_INVALID_REQUEST => Status::AccessRefused,
                    _ => Status::Flushed,
                },
            ),
            Entry::Asked => self.settled += 1,
        }
    }
}

/// Returns the failure of the connection that a failed request implies.
fn failure_of(status: u32) -> Option<FabricError> {
    match status {
        0 => None,
        // The peer is gone, or has ended the connection. A refused access ends it, too; that request's own completion
        // says why.
        FLUSHED | RETRIES_EXCEEDED | REMOTE_ACCESS | REMOTE_INVALID_REQUEST => Some(FabricError::Lost),
        RECEIVER_NOT_READY => Some(FabricError::ReceiverNotReady),
        status => Some(FabricError::WorkFailed { status }),
    }
}

/// Returns the key of a window as the device uses it: 32 bits.
fn key_of(remote: RemoteRange) -> Result<u32, PostError> {
    u32::try_from(remote.key).map_err(|_| PostError::NotGranted)
}

/// Returns the start of a range that lies within `len` bytes.
fn within(len: usize, offset: u64, wanted: u64) -> Result<usize, OutOfBounds> {
    let clamp = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    match offset.checked_add(wanted) {
        Some(end) if end <= len as u64 => Ok(clamp(offset)),
        _ => Err(OutOfBounds { offset: clamp(offset), wanted: clamp(wanted), len }),
    }
}
