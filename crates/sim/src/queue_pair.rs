//! One end of a simulated connection, as the engine sees it.

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

use pronto_core::fabric::{
    Armed, Arrived, Capabilities, Completion, CompletionChannel, DoorbellEvent, FabricError, Gather, Grant,
    GrantError, GrantId, HeapSendMemory, InlineMessage, MessageSlot, OneSided, Operation, OutOfBounds,
    Payload, PollOutcome, PostError, QueuePair, Received, Region, RemoteRange, Revocation, Rights,
    SendMemory, SendWork, Signal, WrId,
};
use pronto_wire::{INLINE_PAYLOAD, InlinePayload};

use crate::access::Request;
use crate::link::{Body, End, Exchanged, Frame, GrantEntry, Message, Posted};
use crate::options::{CompletionMeaning, Target};
use crate::state::{Event, State};
use crate::threads;
use crate::world::{LinkId, SimWorld};

/// Maximum number of simultaneous grants of one end.
const MAX_GRANTS: usize = 1024;
/// Maximum number of outstanding one-sided operations, in addition to the messages.
const ONE_SIDED_DEPTH: usize = 16;
/// Linux' error number for a lack of memory.
const ENOMEM: i32 = 12;
/// Maximum payload of a message on a simulated connection, bytes.
const MAX_PAYLOAD: u32 = 4 << 20;

/// One end of a simulated connection.
pub struct SimQueuePair {
    world: SimWorld,
    link: LinkId,
    end: usize,
    capabilities: Capabilities,
    memory: Arc<HeapSendMemory>,
}

impl SimQueuePair {
    pub(crate) fn new(world: SimWorld, link: LinkId, end: usize) -> Self {
        let state = world.lock();
        let limits = state.links[link.0].ends[end].limits;
        let one_sided = match state.options.target {
            Target::Unsupported => OneSided::None,
            target => OneSided::Supported {
                passive_target: target == Target::Passive,
                atomics: state.options.atomics,
                revocation: Revocation::Enforced,
            },
        };
        let max_payload = limits.max_send_payload.min(MAX_PAYLOAD);
        let copies = state.options.copies.min(max_payload);
        let by_reference = state.options.completion != CompletionMeaning::Copied;
        // A channel like a socket tells whether anything is there, and a poll of it is a system call.
        let polls_without_syscalls = by_reference || !state.has_channels;
        drop(state);
        let capabilities = Capabilities {
            provider: "sim",
            max_payload,
            receive_depth: limits.receive_depth,
            send_depth: limits.send_depth,
            polls_without_syscalls,
            visible_when_posted: false,
            by_reference,
            copies,
            pins_memory: false,
            ready_when_touched: false,
            one_sided,
        };
        let memory = Arc::new(HeapSendMemory::new(limits.send_memory as usize));
        Self { world, link, end, capabilities, memory }
    }

    /// Returns the connection of this end.
    pub fn link(&self) -> LinkId {
        self.link
    }

    /// Returns the counts of requests sent and responses received at this end.
    pub fn exchanged(&self) -> Exchanged {
        self.world.exchanged(self.link)[self.end]
    }

    /// Returns whether a requested event has come, as a readable channel does elsewhere.
    pub fn has_event(&self) -> bool {
        self.world.lock().links[self.link.0].ends[self.end].event
    }

    fn with<T>(&mut self, action: impl FnOnce(&mut End) -> T) -> T {
        action(&mut self.world.lock().link(self.link).ends[self.end])
    }

    /// Returns whether a fault makes the connection take no message; counts the refused post.
    fn is_full(&self) -> bool {
        let mut state = self.world.lock();
        let ends = &state.links[self.link.0].ends;
        let full = state.is_full(ends[self.end].node, ends[1 - self.end].node);
        state.fired.refused_posts += u64::from(full);
        full
    }

    fn body(&self, payload: Gather<'_>) -> Result<Body, PostError> {
        let Capabilities { copies, max_payload, .. } = self.capabilities;
        let max = if payload.copied().is_some() { copies } else { max_payload } as usize;
        let len = payload.len();
        if len > max {
            return Err(PostError::TooLong { len, max });
        }
        Ok(match payload {
            Gather::Inline(payload) => Body::Owned(payload.as_slice().to_vec()),
            Gather::Short(bytes) => Body::Owned(bytes.to_vec()),
            Gather::Ring(extent) => {
                #[expect(unsafe_code, reason = "the receiving end reads the payload where it was composed")]
                // SAFETY: a body is only read, within the extent, and no longer than until the message completes.
                let memory = unsafe { self.memory.posted() };
                Body::place(memory, extent.offset.into(), extent.len.into())?
            }
            Gather::Region { region, offset, len } => Body::place(region.clone(), offset, len.into())?,
        })
    }

    fn posted(&self, work: SendWork<'_>) -> Result<Posted, PostError> {
        let wr = match work.signal {
            Signal::Signalled(wr) => Some(wr),
            Signal::Unsignalled => None,
        };
        if let Operation::Send { header, payload } = work.operation {
            let inline = payload.copied().is_some();
            return Ok(Posted::Message(Message {
                header: *header,
                inline,
                body: self.body(payload)?,
                wr,
                solicited: true,
            }));
        }
        if self.capabilities.one_sided == OneSided::None {
            return Err(PostError::Unsupported);
        }
        // Without a name, the requester could not get the result.
        let wr = wr.ok_or(PostError::Unsupported)?;
        let request = Request::new(wr, work.operation)?;
        Ok(Posted::Request(request.expect("every operation but a send is one-sided")))
    }
}

/// Puts a message on its line, and completes it if the transport completes it there.
fn send(state: &mut State, link: LinkId, end: usize, mut message: Message, event: DoorbellEvent) {
    message.solicited = event == DoorbellEvent::Solicited;
    if message.inline || state.options.completion == CompletionMeaning::Copied {
        message.body.own();
    }
    if state.options.completion == CompletionMeaning::Copied
        && let Some(wr) = message.wr.take()
    {
        let at = state.now + state.random.within(state.options.delay);
        state.schedule(at, Event::Copied { link, end, wr });
    }
    state.link(link).ends[end].exchanged.requests += u64::from(message.is_request());
    state.transmit(link, end, Frame::Message(message));
}

impl QueuePair for SimQueuePair {
    type Lease = SimLease;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send_memory(&self) -> Arc<dyn SendMemory> {
        Arc::clone(&self.memory) as _
    }

    fn prepare(&mut self, _range: Range<usize>) -> Result<(), FabricError> {
        let mut state = self.world.lock();
        let (end, now) = (&state.links[self.link.0].ends[self.end], state.now);
        if let Some(error) = end.failed {
            return Err(error);
        }
        let node = end.node;
        if now < state.node(node).exhausted_until {
            state.fired.refused_memory += 1;
            return Err(FabricError::System { errno: ENOMEM });
        }
        Ok(())
    }

    fn retire(&mut self, _range: Range<usize>) -> Result<(), FabricError> {
        self.with(|end| end.failed.map_or(Ok(()), Err))
    }

    fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        self.with(|end| alive(end))?;
        let posted = self.posted(work)?;
        if self.is_full() {
            return Err(PostError::Full);
        }
        let request = match &posted {
            Posted::Message(message) => message.request(),
            Posted::Request(_) => None,
        };
        self.with(|end| {
            let depth = end.limits.send_depth as usize + ONE_SIDED_DEPTH;
            if end.batch.len().max(end.outstanding.len()) >= depth {
                return Err(PostError::Full);
            }
            if let Signal::Signalled(WrId { slot, generation }) = work.signal {
                let fresh = end.outstanding.insert((slot, generation));
                assert!(fresh, "two outstanding work requests have one name");
            }
            end.batch.push(posted);
            Ok(())
        })?;
        if let Some(call) = request {
            self.world.lock().accept(self.link, self.end, call);
        }
        Ok(())
    }

    fn ring_doorbell(&mut self, event: DoorbellEvent) -> Result<(), FabricError> {
        let mut state = self.world.lock();
        alive(&state.links[self.link.0].ends[self.end])?;
        for posted in core::mem::take(&mut state.link(self.link).ends[self.end].batch) {
            match posted {
                Posted::Message(message) => send(&mut state, self.link, self.end, message, event),
                Posted::Request(request) => state.transmit(self.link, self.end, Frame::Request(request)),
            }
        }
        Ok(())
    }

    fn poll_send(&mut self) -> Option<Completion> {
        self.with(|end| end.completions.pop_front())
    }

    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<SimLease>, FabricError> {
        let mut state = self.world.lock();
        if core::mem::take(&mut state.link(self.link).ends[self.end].skips) {
            return Ok(PollOutcome::Nothing);
        }
        let mut served = false;
        while let Some(request) = state.link(self.link).ends[self.end].requests.pop_front() {
            let outcome = request.serve(&state.links[self.link.0].ends[self.end], state.options.atomics);
            state.answer(self.link, self.end, outcome);
            served = true;
        }
        if state.has_channels && !state.links[self.link.0].ends[self.end].inbox.is_empty() {
            state.note("receive", [self.link.0 as u64, self.end as u64, threads::current() as u64]);
        }
        let end = &mut state.link(self.link).ends[self.end];
        end.served |= served;
        let Some(Message { header, inline, body, wr, solicited: _ }) = end.inbox.pop_front() else {
            alive(end)?;
            let served = core::mem::take(&mut end.served);
            return Ok(if served { PollOutcome::OneSided } else { PollOutcome::Nothing });
        };
        if inline && body.len() <= INLINE_PAYLOAD {
            let mut bytes = [0; INLINE_PAYLOAD];
            let bytes = &mut bytes[..body.len()];
            body.copy_to(0, bytes).expect("a copy of the whole lies within");
            if let Some(wr) = wr {
                state.transmit(self.link, self.end, Frame::Ack(wr));
            }
            let payload = InlinePayload::new(bytes).expect("an inline payload has forty bytes at most");
            *slot.inline = InlineMessage { header, payload };
            return Ok(PollOutcome::Inline);
        }
        end.leases += 1;
        drop(state);
        let lease = SimLease { world: self.world.clone(), link: self.link, end: self.end, body, wr };
        Ok(PollOutcome::Leased(Received { header, payload: Arrived::Buffer(lease) }))
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        let mut state = self.world.lock();
        if state.has_channels {
            let what = match events {
                Armed::Nothing => "disarm",
                Armed::Solicited => "arm for solicited",
                Armed::All => "arm for all",
            };
            state.note(what, [self.link.0 as u64, self.end as u64, threads::current() as u64]);
        }
        let end = &mut state.link(self.link).ends[self.end];
        end.armed = events;
        if events == Armed::Nothing {
            end.event = false;
            return Ok(());
        }
        alive(end)
    }

    fn notify_woken(&mut self) {
        self.world.lock().link(self.link).ends[self.end].skips = false;
    }

    fn is_quiet(&self) -> bool {
        let state = self.world.lock();
        state.has_channels && !state.links[self.link.0].ends[self.end].has_anything()
    }

    fn channel(&self) -> Option<CompletionChannel> {
        let state = self.world.lock();
        let exists = state.has_channels && !state.links[self.link.0].ends[self.end].closed;
        exists.then(|| CompletionChannel::readable(channel_of(self.link, self.end)))
    }

    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        if self.capabilities.one_sided == OneSided::None {
            return Err(GrantError::Unsupported);
        }
        let Range { start, end } = range;
        let len = region.len() as u64;
        if start > end || end > len {
            return Err(GrantError::Range { start, end, len });
        }
        let mut state = self.world.lock();
        alive(&state.links[self.link.0].ends[self.end])?;
        state.keys += 1;
        // Keys are scattered over all values, so that guesses fail.
        let (id, key) = (state.keys, state.keys.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let id = u32::try_from(id).expect("a world does not see four billion grants");
        let grants = &mut state.link(self.link).ends[self.end].grants;
        if grants.len() >= MAX_GRANTS {
            return Err(GrantError::TooMany(MAX_GRANTS));
        }
        let len = end - start;
        grants.insert(key, GrantEntry { id, region: region.clone(), start, len, rights });
        Ok(Grant { id: GrantId(id), remote: RemoteRange { key, offset: 0, len }, is_copy: false })
    }

    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
        self.with(|end| {
            let before = end.grants.len();
            end.grants.retain(|_, entry| entry.id != grant.0);
            if end.grants.len() < before { Ok(()) } else { Err(GrantError::Unknown) }
        })
    }

    fn close(&mut self) {
        self.world.lock().close(self.link, self.end);
    }
}

/// Returns the number of an end's channel, which stands for a descriptor.
pub(crate) fn channel_of(link: LinkId, end: usize) -> i32 {
    i32::try_from(2 * link.0 + end).expect("a world has few links")
}

fn alive(end: &End) -> Result<(), FabricError> {
    match end.failed {
        Some(error) => Err(error),
        None if end.closed => Err(FabricError::Lost),
        None => Ok(()),
    }
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for SimQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimQueuePair")
            .field("link", &self.link)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

/// A payload in a simulated receive buffer, or in its sender's memory.
#[derive(Debug)]
pub struct SimLease {
    world: SimWorld,
    link: LinkId,
    end: usize,
    body: Body,
    wr: Option<WrId>,
}

impl Payload for SimLease {
    fn len(&self) -> usize {
        self.body.len()
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        self.body.copy_to(offset, out)
    }

    fn as_private(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Owned(bytes) => Some(bytes),
            Body::Place { .. } => None,
        }
    }
}

impl Drop for SimLease {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        state.link(self.link).ends[self.end].leases -= 1;
        if let Some(wr) = self.wr {
            state.transmit(self.link, self.end, Frame::Ack(wr));
        }
    }
}
