//! The queue pair: one TCP connection of one class.
//!
//! # Invariants
//! 1. `failed` is set at most once. From then on nothing is posted, granted or received, and everything outstanding
//!    completes.
//! 2. `cut` is set when sending failed because the connection is gone. From then on nothing is posted, but messages
//!    that the peer sent before are still received, until the stream ends.

use core::mem;
use core::ops::Range;
use core::task::Waker;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use pronto_core::Class;
use pronto_core::fabric::{
    Armed, AtomicScope, Capabilities, Completion, CompletionChannel, ConnectionLimits, DoorbellEvent, Extent,
    FabricError, Gather, Grant, GrantError, GrantId, InlineMessage, Interest, MessageSlot,
    OneSided as OneSidedSupport, Operation, OutOfBounds, PollOutcome, PostError, QueuePair, Region,
    RemoteRange, Revocation, Rights, SendMemory, SendWork, Signal, Status, WrId,
};
use pronto_wire::{HEADER_LEN, INLINE_PAYLOAD, InlinePayload, RawHeader};

use crate::frame::{self, Kind, MAX_FRAME, OneSidedHeader};
use crate::inbound::Inbound;
use crate::one_sided::{OneSided, Open};
use crate::outbound::{COPIED_PAYLOAD, Outbound};
use crate::pool::{Account, Lease, ReceivePool};
use crate::setup::{Channel, Options};
use crate::silence::Silence;
use crate::socket::{Calls, Socket};
use crate::tuning::BusyPolling;
use pronto_mapping::Mapping;

/// One TCP connection of one class. The [crate] documentation explains how output and receive buffers wake a sleeper.
#[derive(Debug)]
pub struct TcpQueuePair {
    capabilities: Capabilities,
    socket: Socket,
    memory: Arc<Mapping>,
    inbound: Inbound,
    outbound: Outbound,
    one_sided: OneSided,
    silence: Silence,
    failed: Option<FabricError>,
    cut: Option<FabricError>,
    /// True if one-sided work of the peer was carried out and no poll has reported it yet.
    answered: bool,
    on_blocked: Option<Waker>,
}

/// Counters of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// System calls.
    pub calls: Calls,
    /// Number of times that reading stopped because no receive buffer was available.
    pub starved: u64,
}

impl TcpQueuePair {
    pub(crate) fn new(
        channel: Channel,
        class: Class,
        limits: &ConnectionLimits,
        pool: &Arc<ReceivePool>,
        options: &Options,
    ) -> Result<Self, FabricError> {
        let max_receive = limits.max_receive_payload.min(MAX_FRAME) as usize;
        Ok(Self {
            capabilities: Capabilities {
                provider: "tcp",
                max_payload: limits.max_send_payload.min(MAX_FRAME),
                receive_depth: limits.receive_depth,
                send_depth: limits.send_depth,
                polls_without_syscalls: false,
                visible_when_posted: false,
                by_reference: true,
                copies: 40,
                pins_memory: false,
                ready_when_touched: true,
                one_sided: OneSidedSupport::Supported {
                    passive_target: false,
                    atomics: AtomicScope::Global,
                    revocation: Revocation::Enforced,
                },
            },
            socket: Socket::new(channel, class, options)?,
            memory: Arc::new(Mapping::new(limits.send_memory)?),
            inbound: Inbound::new(Account::new(pool, limits.receive_depth), max_receive),
            outbound: Outbound::new(limits.send_depth),
            one_sided: OneSided::default(),
            silence: Silence::new(options.answer_timeout),
            failed: None,
            cut: None,
            answered: false,
            on_blocked: None,
        })
    }

    /// Returns whether the kernel polls the device while a thread waits for this connection ([`Options::busy_poll`]).
    pub fn busy_polling(&self) -> BusyPolling {
        self.socket.busy_polling()
    }

    /// Returns whether the kernel encrypts and decrypts ([`TlsBy`](crate::TlsBy)).
    pub const fn is_encrypted_by_kernel(&self) -> bool {
        self.socket.is_encrypted_by_kernel()
    }

    /// Sets a waker that is called whenever output begins to wait for the socket. A thread that sleeps with the
    /// interest of an earlier [`channel`](QueuePair::channel) would not notice room in the socket.
    pub fn on_blocked(&mut self, waker: Waker) {
        self.on_blocked = Some(waker);
    }

    /// Returns whether output waits for the socket; equal to [`Interest::writable`].
    pub fn wants_write(&self) -> bool {
        self.outbound.is_blocked()
    }

    /// Returns the current counters.
    pub fn counters(&self) -> Counters {
        Counters { calls: self.socket.calls, starved: self.inbound.starved }
    }

    /// Returns whether the socket is full in the middle of data for a read of the peer.
    #[cfg(test)]
    pub(crate) fn is_inside_a_frame(&self) -> bool {
        self.outbound.is_blocked() && self.outbound.is_inside_a_frame()
    }

    fn usable(&self) -> Result<(), FabricError> {
        self.failed.or(self.cut).map_or(Ok(()), Err)
    }

    fn post_message(
        &mut self,
        signal: Signal,
        header: &RawHeader,
        payload: Gather<'_>,
    ) -> Result<(), PostError> {
        let (len, max) = (payload.len(), self.capabilities.max_payload as usize);
        if len > max {
            return Err(PostError::TooLong { len, max });
        }
        if let Some(bytes) = payload.copied() {
            let payload = InlinePayload::new(bytes);
            self.post_inline(header, &payload.ok_or(PostError::TooLong { len, max: INLINE_PAYLOAD })?)?;
            if let Signal::Signalled(wr) = signal {
                self.outbound.complete_here(wr);
            }
            return Ok(());
        }
        match payload {
            Gather::Inline(_) | Gather::Short(_) => unreachable!("posted above"),
            Gather::Ring(Extent { offset, .. }) => _ = within(self.memory.len(), offset.into(), len as u64)?,
            Gather::Region { region, offset, .. } => _ = within(region.len(), offset, len as u64)?,
        }
        // Without a completion, the sender could not tell when the buffer may be reused.
        let Signal::Signalled(wr) = signal else { return Err(PostError::Unsupported) };
        let copied = len <= COPIED_PAYLOAD;
        if !self.outbound.has_room(HEADER_LEN + if copied { len } else { 0 }) {
            return Err(PostError::Full);
        }
        let mut header = *header;
        header.fabric = frame::word(Kind::Message, len);
        self.outbound.push(header.as_array());
        match payload {
            Gather::Inline(_) | Gather::Short(_) => unreachable!("posted above"),
            Gather::Ring(extent) if copied => {
                #[expect(unsafe_code, reason = "posted send memory is read in place")]
                // SAFETY: the extent is being posted, so no thread writes to it until its completion (the engine's promise 2).
                let bytes = unsafe { self.memory.bytes(extent) };
                self.outbound.push(bytes);
            }
            Gather::Ring(extent) => self.outbound.push_memory(extent),
            Gather::Region { region, offset, .. } => {
                let offset = usize::try_from(offset).expect("within the region, checked above");
                if copied {
                    self.outbound.push_region(region, offset, len);
                } else {
                    self.outbound.push_region_later(region, offset, len);
                }
            }
        }
        self.outbound.complete_here(wr);
        Ok(())
    }

    /// Posts a message with an inline payload.
    fn post_inline(&mut self, header: &RawHeader, payload: &InlinePayload) -> Result<(), PostError> {
        self.usable()?;
        let (len, max) = (usize::from(payload.len()), self.capabilities.max_payload as usize);
        if len > max {
            return Err(PostError::TooLong { len, max });
        }
        if !self.outbound.has_room(HEADER_LEN + len) {
            return Err(PostError::Full);
        }
        let mut line = [0; HEADER_LEN + INLINE_PAYLOAD];
        let (head, rest) = line.split_at_mut(HEADER_LEN);
        let mut header = *header;
        header.fabric = frame::word(Kind::Message, len);
        head.copy_from_slice(header.as_array());
        rest.copy_from_slice(payload.line());
        self.outbound.push(&line[..HEADER_LEN + len]);
        Ok(())
    }

    /// Posts anything that is not an unsignalled inline message.
    #[inline(never)]
    fn post_any(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        self.usable()?;
        let SendWork { signal, operation } = work;
        match operation {
            Operation::Send { header, payload } => self.post_message(signal, header, payload),
            Operation::Read { local, local_offset, remote } => {
                let at = within(local.len(), local_offset, remote.len)?;
                let open = Open::Read { region: local.clone(), at, len: remote.len, got: 0 };
                self.post_one_sided(signal, open, |outbound, tag| {
                    let header = OneSidedHeader::new(Kind::Read, 8, tag, remote.key, remote.offset);
                    outbound.push(header.as_array());
                    outbound.push(&remote.len.to_le_bytes());
                })
            }
            Operation::Write { local, local_offset, remote } => {
                self.post_write(signal, (local, local_offset), remote)
            }
            Operation::CompareSwap { remote, expected, desired } => {
                self.post_atomic(signal, Kind::CompareSwap, remote, &[expected, desired])
            }
            Operation::FetchAdd { remote, add } => self.post_atomic(signal, Kind::FetchAdd, remote, &[add]),
        }
    }

    /// Posts a one-sided operation: opens it, then passes its tag to `push`.
    fn post_one_sided(
        &mut self,
        signal: Signal,
        open: Open,
        push: impl FnOnce(&mut Outbound, u32),
    ) -> Result<(), PostError> {
        let Signal::Signalled(wr) = signal else { return Err(PostError::Unsupported) };
        if !self.one_sided.has_room() || !self.outbound.has_room(HEADER_LEN + frame::MAX_EXTRA) {
            return Err(PostError::Full);
        }
        let tag = self.one_sided.open(wr, open);
        push(&mut self.outbound, tag);
        Ok(())
    }

    /// Returns the events that a thread sleeping on the socket must wait for.
    pub(crate) fn interest(&self) -> Interest {
        Interest { readable: !self.inbound.is_starved(), writable: self.outbound.is_blocked() }
    }

    fn post_write(
        &mut self,
        signal: Signal,
        (local, local_offset): (&Region, u64),
        remote: RemoteRange,
    ) -> Result<(), PostError> {
        let at = within(local.len(), local_offset, remote.len)?;
        self.post_one_sided(signal, Open::Write, |outbound, tag| {
            outbound.push_write(local, at, tag, (remote.key, remote.offset, remote.len));
        })
    }

    fn post_atomic(
        &mut self,
        signal: Signal,
        kind: Kind,
        remote: RemoteRange,
        operands: &[u64],
    ) -> Result<(), PostError> {
        if remote.len != 8 {
            return Err(PostError::NotGranted);
        }
        if !remote.offset.is_multiple_of(8) {
            let clamp = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            return Err(OutOfBounds { offset: clamp(remote.offset), wanted: 8, len: 8 }.into());
        }
        self.post_one_sided(signal, Open::Atomic, |outbound, tag| {
            let header = OneSidedHeader::new(kind, 8 * operands.len(), tag, remote.key, remote.offset);
            outbound.push(header.as_array());
            for operand in operands {
                outbound.push(&operand.to_le_bytes());
            }
        })
    }

    /// Receives, and executes one-sided requests of the peer.
    fn poll_socket(&mut self, into: &mut InlineMessage) -> Result<PollOutcome<Lease>, FabricError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let polled = self.inbound.next(into, &mut self.socket, &mut self.one_sided, &mut self.outbound);
        if !matches!(polled, Ok(PollOutcome::Nothing)) {
            return polled.inspect_err(|error| self.fail(*error));
        }
        // No doorbell follows for the answers that the peer waits for.
        if self.outbound.has_answers() && self.cut.is_none() {
            self.answered = true;
            let _ = self.flush();
        }
        if self.silence.is_due() {
            self.check_silence()?;
        }
        Ok(if mem::take(&mut self.answered) { PollOutcome::OneSided } else { PollOutcome::Nothing })
    }

    /// Sends pending output. After `Lost`, the connection still delivers messages that arrived before; any other error
    /// is final.
    fn flush(&mut self) -> Result<(), FabricError> {
        let was_blocked = self.outbound.is_blocked();
        let flushed = self.outbound.flush(&mut self.socket, &self.memory, &self.one_sided.grants);
        if !was_blocked
            && self.outbound.is_blocked()
            && let Some(waker) = &self.on_blocked
        {
            waker.wake_by_ref();
        }
        match flushed {
            Ok(()) => {}
            Err(FabricError::Lost) => {
                self.cut = Some(FabricError::Lost);
                self.outbound.abandon();
                self.one_sided.abandon();
            }
            Err(error) => self.fail(error),
        }
        flushed
    }

    /// Fails the connection if the peer's kernel has not responded for too long.
    #[cold]
    fn check_silence(&mut self) -> Result<(), FabricError> {
        self.silence
            .check(&self.socket.as_fd(), self.socket.calls.sends)
            .inspect_err(|error| self.fail(*error))
    }

    fn fail(&mut self, error: FabricError) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        self.socket.finish();
        self.inbound.abandon();
        self.outbound.abandon();
        self.one_sided.abandon();
    }
}

/// Returns the socket, which stays open while this lives. After a failure it is no longer a channel, but still becomes
/// readable.
impl AsFd for TcpQueuePair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl QueuePair for TcpQueuePair {
    type Lease = Lease;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send_memory(&self) -> Arc<dyn SendMemory> {
        Arc::clone(&self.memory) as Arc<dyn SendMemory>
    }

    fn prepare(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        self.memory.prepare(&range)
    }

    fn retire(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        #[expect(unsafe_code, reason = "discards the bytes")]
        // SAFETY: no buffer in use lies in a range that is retired (the engine's promise 3), so none in it is posted either.
        unsafe {
            self.memory.retire(range)
        }
    }

    #[inline(always)]
    fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        match work {
            SendWork {
                signal: Signal::Unsignalled,
                operation: Operation::Send { header, payload: Gather::Inline(payload) },
            } => self.post_inline(header, payload),
            work => self.post_any(work),
        }
    }

    fn ring_doorbell(&mut self, _: DoorbellEvent) -> Result<(), FabricError> {
        self.usable()?;
        self.flush()
    }

    fn poll_send(&mut self) -> Option<Completion> {
        fn pop(this: &mut TcpQueuePair) -> Option<Completion> {
            let status = |done| if done { Status::Done(0) } else { Status::Flushed };
            let send = this.outbound.completed();
            send.map(|(wr, done): (WrId, bool)| Completion { wr, status: status(done) })
                .or_else(|| this.one_sided.completed())
        }
        if let Some(completion) = pop(self) {
            return Some(completion);
        }
        // The next call that can return an error reports it; outstanding operations complete here.
        if self.outbound.is_blocked() {
            self.answered |= self.outbound.is_answering();
            let _ = self.flush();
            return pop(self);
        }
        None
    }

    #[inline]
    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<Lease>, FabricError> {
        // The receive of an earlier message may have included this one. A failed connection has none.
        if self.inbound.next_inline(slot.inline) {
            return Ok(PollOutcome::Inline);
        }
        self.poll_socket(slot.inline)
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        if events == Armed::Nothing {
            self.inbound.leave_out_nothing();
            return Ok(());
        }
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.check_silence()?;
        self.inbound.leave_out_next_receive(&mut self.socket);
        self.outbound.rest();
        Ok(())
    }

    fn notify_woken(&mut self) {
        self.inbound.leave_out_nothing();
    }

    fn channel(&self) -> Option<CompletionChannel> {
        let (fd, interest) = (self.socket.descriptor(), self.interest());
        // A dead socket stays readable forever, and its end was already reported.
        self.failed.is_none().then_some(CompletionChannel { fd, interest, caller_epoll: None })
    }

    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        self.usable()?;
        self.one_sided.grants.grant(region, range, rights)
    }

    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
        let key = self.one_sided.grants.revoke(grant)?;
        self.outbound.revoked(key);
        Ok(())
    }

    fn close(&mut self) {
        self.fail(FabricError::Lost);
    }
}

/// Returns the start of a range in a memory of `memory` bytes, if the range is inside.
fn within(memory: usize, offset: u64, len: u64) -> Result<usize, OutOfBounds> {
    match offset.checked_add(len) {
        Some(end) if end <= memory as u64 => {
            Ok(usize::try_from(offset).expect("not beyond a memory's length"))
        }
        _ => {
            let clamp = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            Err(OutOfBounds { offset: clamp(offset), wanted: clamp(len), len: memory })
        }
    }
}
