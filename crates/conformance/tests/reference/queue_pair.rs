//! One end of a reference pair.

use core::ops::Range;
use core::ptr::NonNull;
use std::collections::HashSet;
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, MutexGuard};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::fabric::{
    Armed, Arrived, AtomicScope, Capabilities, Completion, CompletionChannel, ConnectionLimits,
    DoorbellEvent, FabricError, Gather, Grant, GrantError, GrantId, HeapSendMemory, InlineMessage,
    MessageSlot, OneSided, Operation, OutOfBounds, PollOutcome, PostError, QueuePair, Received, Region,
    RemoteRange, Revocation, Rights, SHORT_PAYLOAD, SendMemory, SendWork, Signal, Status,
};
use pronto_wire::{INLINE_PAYLOAD, InlinePayload, RawHeader};

use super::access::Request;
use super::{Body, Flaw, GrantEntry, Lease, Node, Sent, Wire};

/// Returns the descriptors on which the two possible sleepers of an end sleep.
fn sleepers(me: usize, flaw: Option<Flaw>) -> (Arc<EventFd>, Epoll, Epoll) {
    let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("a descriptor is available");
    let epoll = || Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("a descriptor is available");
    let (near, far) = (epoll(), epoll());
    let mut flags = EpollFlags::EPOLLIN;
    flags.set(EpollFlags::EPOLLEXCLUSIVE, flaw != Some(Flaw::WakesBoth));
    let to = |epoll: &Epoll| {
        epoll.add(&bell, EpollEvent::new(flags, me as u64)).expect("it is not in the epoll yet")
    };
    match flaw {
        Some(Flaw::OnlyCallersWake) => to(&near),
        Some(Flaw::CallersSleepOn) => to(&far),
        Some(Flaw::WakesTheServerFirst) => {
            to(&far);
            to(&near);
        }
        _ => {
            to(&near);
            to(&far);
        }
    }
    (Arc::new(bell), near, far)
}

/// Send memory whose claim can be taken repeatedly.
#[derive(Debug)]
struct ClaimedAgain(Arc<HeapSendMemory>);

#[expect(unsafe_code, reason = "a flaw that the suite must find")]
// SAFETY: the guarantee about the claim is broken on purpose; no test of the suite makes a ring of this memory.
unsafe impl SendMemory for ClaimedAgain {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn claim(&self) -> bool {
        true
    }
}

/// One end of a reference pair.
#[derive(Debug)]
pub(crate) struct Reference {
    me: usize,
    wire: Arc<Mutex<Wire>>,
    node: Arc<Node>,
    flaw: Option<Flaw>,
    capabilities: Capabilities,
    memory: Arc<HeapSendMemory>,
    batch: Vec<Posted>,
    grants: HashSet<GrantId>,
    only_buffer: Arc<Mutex<Vec<u8>>>,
    retired: Option<Range<usize>>,
    bell: Arc<EventFd>,
    near: Epoll,
    far: Epoll,
}

#[derive(Debug)]
enum Posted {
    Message(Sent),
    Access(Request),
}

impl Reference {
    pub(super) fn new(
        me: usize,
        limits: ConnectionLimits,
        wire: Arc<Mutex<Wire>>,
        node: Arc<Node>,
        flaw: Option<Flaw>,
    ) -> Self {
        let wrong = flaw == Some(Flaw::TellsWrongLimits);
        let capabilities = Capabilities {
            provider: "reference",
            max_payload: if wrong { limits.max_receive_payload } else { limits.max_send_payload },
            receive_depth: limits.receive_depth,
            send_depth: limits.send_depth,
            polls_without_syscalls: true,
            visible_when_posted: flaw == Some(Flaw::ClaimsVisible),
            by_reference: true,
            copies: u32::try_from(SHORT_PAYLOAD).expect("232"),
            pins_memory: false,
            ready_when_touched: false,
            one_sided: OneSided::Supported {
                passive_target: !matches!(flaw, Some(Flaw::DeniesPassive | Flaw::WorksUnreported)),
                atomics: AtomicScope::Global,
                revocation: Revocation::Enforced,
            },
        };
        let (bell, near, far) = sleepers(me, flaw);
        wire.lock().expect("no test panics while it holds this").ends[me].bell = Some(Arc::clone(&bell));
        Self {
            me,
            wire,
            node,
            flaw,
            capabilities,
            memory: Arc::new(HeapSendMemory::new(limits.send_memory as usize)),
            batch: Vec::new(),
            grants: HashSet::new(),
            only_buffer: Arc::default(),
            retired: None,
            bell,
            near,
            far,
        }
    }

    pub(super) fn has_event(&self) -> bool {
        self.wire().ends[self.me].event
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().expect("no test panics while it holds this")
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn check_alive(&self) -> Result<(), FabricError> {
        let wire = self.wire();
        let state = &wire.ends[self.me];
        let lost = state.closed || (state.lost && !self.has(Flaw::LossIsForgotten));
        if lost { Err(FabricError::Lost) } else { Ok(()) }
    }

    fn body(&self, payload: Gather<'_>) -> Result<Body, PostError> {
        let (region, offset, len) = match payload {
            Gather::Inline(payload) => return Ok(Body::Bytes(payload.as_slice().to_vec())),
            Gather::Short(bytes) => return Ok(Body::Bytes(bytes.to_vec())),
            Gather::Ring(extent) => {
                #[expect(unsafe_code, reason = "the receiving end reads the payload where it was composed")]
                // SAFETY: a body is only read; the suite writes no extent before its completion.
                let memory = unsafe { self.memory.posted() };
                (memory, u64::from(extent.offset), extent.len)
            }
            Gather::Region { region, offset, len } => {
                if self.has(Flaw::KeepsRegions) {
                    core::mem::forget(region.clone());
                }
                (region.clone(), if self.has(Flaw::IgnoresOffsets) { 0 } else { offset }, len)
            }
        };
        let [offset, wanted] = [offset, u64::from(len)].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let outside = offset.checked_add(wanted).is_none_or(|end| end > region.len());
        if outside && !self.has(Flaw::ReadsOutsideMemory) {
            return Err(OutOfBounds { offset, wanted, len: region.len() }.into());
        }
        let forgotten = matches!(payload, Gather::Ring(_))
            && self.retired.as_ref().is_some_and(|retired| retired.contains(&offset));
        Ok(if forgotten { Body::Bytes(vec![0; wanted]) } else { Body::Place { region, offset, len: wanted } })
    }

    fn check_length(&self, payload: Gather<'_>) -> Result<(), PostError> {
        let Capabilities { copies, max_payload, .. } = self.capabilities;
        let max = if payload.copied().is_some() { copies } else { max_payload } as usize;
        let len = payload.len();
        if len > max && !self.has(Flaw::TakesTooLong) {
            return Err(PostError::TooLong { len, max });
        }
        Ok(())
    }

    fn hand_over(&self, wire: &mut Wire, sent: Sent) {
        let other = 1 - self.me;
        let depth = self.capabilities.send_depth as usize;
        if self.has(Flaw::OneReceiveShort) && wire.ends[other].inbox.len() + 1 == depth {
            return;
        }
        let mut sent = sent;
        if self.has(Flaw::CompletesWhenPosted)
            && let Some(wr) = sent.wr.take()
        {
            wire.complete(self.me, wr, Status::Done(0), self.flaw);
        }
        let inbox = &mut wire.ends[other].inbox;
        let small_overtakes = self.has(Flaw::SmallOvertakes) && sent.body.len() <= INLINE_PAYLOAD;
        let before = inbox.iter().position(|earlier| small_overtakes && earlier.body.len() > 10_000);
        match before {
            Some(at) => inbox.insert(at, sent),
            None => inbox.push_back(sent),
        }
        wire.wake(other);
    }

    fn arrived(&self, sent: Sent, slot: MessageSlot<'_>) -> PollOutcome<Lease> {
        let Sent { mut header, inline, body, .. } = sent;
        let mut bytes = body.take();
        if self.has(Flaw::SpoilsHeaders) {
            let mut raw = *header.as_array();
            raw[4] &= 0x7f;
            header = RawHeader::from_array(raw);
        }
        if self.has(Flaw::CutsTheLongest) && bytes.len() == self.capabilities.max_payload as usize {
            bytes.pop();
        }
        if inline {
            return self.fill(slot, header, &bytes);
        }
        let bytes = if self.has(Flaw::OneReceiveBuffer) {
            *self.only_buffer.lock().expect("no test panics while it holds this") = bytes;
            Arc::clone(&self.only_buffer)
        } else {
            Arc::new(Mutex::new(bytes))
        };
        let payload = Arrived::Buffer(Lease { bytes, sloppy: self.has(Flaw::CopiesBeyondTheEnd) });
        PollOutcome::Leased(Received { header, payload })
    }

    /// Puts a message with a copied payload into the matching part of the slot.
    fn fill(&self, slot: MessageSlot<'_>, header: RawHeader, bytes: &[u8]) -> PollOutcome<Lease> {
        if let Some(payload) = InlinePayload::new(bytes) {
            *slot.inline = InlineMessage { header, payload };
            return PollOutcome::Inline;
        }
        let cut = usize::from(self.has(Flaw::CutsShortMessages));
        let bytes = &bytes[..bytes.len().min(SHORT_PAYLOAD) - cut];
        let len = u8::try_from(bytes.len()).expect("at most 232");
        slot.short.put(header, len, |into| into.copy_from_slice(bytes));
        PollOutcome::Short
    }

    fn disarm(&mut self) {
        let mut wire = self.wire();
        let state = &mut wire.ends[self.me];
        state.armed = false;
        let stays = self.has(Flaw::DisarmKeepsEvents) || (self.has(Flaw::DeadStaysAwake) && state.lost);
        state.event &= stays;
        state.left_out = false;
        if !stays {
            // An error means that no event was pending.
            let _count = self.bell.read();
        }
    }
}

impl QueuePair for Reference {
    type Lease = Lease;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send_memory(&self) -> Arc<dyn SendMemory> {
        if self.has(Flaw::LetsTwoWrite) {
            return Arc::new(ClaimedAgain(Arc::clone(&self.memory)));
        }
        Arc::clone(&self.memory) as _
    }

    fn prepare(&mut self, _range: Range<usize>) -> Result<(), FabricError> {
        Ok(())
    }

    fn retire(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        if self.has(Flaw::ForgetsRetiredMemory) {
            self.retired = Some(range);
        }
        Ok(())
    }

    fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        self.check_alive()?;
        if self.batch.len() >= self.capabilities.send_depth as usize {
            return Err(PostError::Full);
        }
        let wr = match work.signal {
            Signal::Signalled(wr) => Some(wr),
            Signal::Unsignalled if self.has(Flaw::CompletesUnsignalled) => {
                Some(pronto_core::fabric::WrId { slot: 9, generation: 1 })
            }
            Signal::Unsignalled => None,
        };
        let posted = match work.operation {
            Operation::Send { header, payload } => {
                self.check_length(payload)?;
                let inline = payload.copied().is_some();
                Posted::Message(Sent { header: *header, wr, inline, body: self.body(payload)? })
            }
            operation => {
                let wr = wr.expect("one-sided operations are signalled");
                Posted::Access(Request::new(wr, operation)?.expect("not a message"))
            }
        };
        self.batch.push(posted);
        Ok(())
    }

    fn ring_doorbell(&mut self, _: DoorbellEvent) -> Result<(), FabricError> {
        self.check_alive()?;
        if self.has(Flaw::SwapsMessages) && self.batch.len() > 2 {
            self.batch.swap(0, 1);
        }
        let count =
            if self.has(Flaw::DoorbellStopsAtFour) { self.batch.len().min(4) } else { self.batch.len() };
        let batch: Vec<_> = self.batch.drain(..count).collect();
        let mut wire = self.wire();
        let node = self.node.lock();
        for posted in batch {
            match posted {
                Posted::Message(sent) => self.hand_over(&mut wire, sent),
                Posted::Access(request)
                    if self.has(Flaw::ClaimsPassive) || self.has(Flaw::WorksUnreported) =>
                {
                    wire.ends[1 - self.me].waiting.push_back(request);
                }
                Posted::Access(request) => wire.serve(self.me, &request, &node, self.flaw),
            }
        }
        Ok(())
    }

    fn poll_send(&mut self) -> Option<Completion> {
        self.wire().ends[self.me].completions.pop_front()
    }

    fn lease_copy(&self, payload: &[u8]) -> Lease {
        let sloppy = self.has(Flaw::CopiesBeyondTheEnd);
        Lease { bytes: Arc::new(Mutex::new(payload.to_vec())), sloppy }
    }

    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<Lease>, FabricError> {
        let mut wire = self.wire();
        if self.has(Flaw::PollingDisarms) {
            wire.ends[self.me].armed = false;
        }
        while let Some(request) = wire.ends[self.me].waiting.pop_front() {
            wire.serve(1 - self.me, &request, &self.node.lock(), self.flaw);
        }
        if wire.ends[self.me].closed {
            return Err(FabricError::Lost);
        }
        if wire.ends[self.me].left_out {
            return Ok(PollOutcome::Nothing);
        }
        if let Some(sent) = wire.ends[self.me].inbox.pop_front() {
            let wr = sent.wr;
            let outcome = self.arrived(sent, slot);
            if let Some(wr) = wr {
                wire.complete(1 - self.me, wr, Status::Done(0), self.flaw);
            }
            return Ok(outcome);
        }
        if wire.ends[self.me].lost || (self.has(Flaw::OneLossForAll) && self.node.lock().lost) {
            if self.has(Flaw::LossIsForgotten) {
                wire.ends[self.me].lost = false;
            }
            return Err(FabricError::Lost);
        }
        Ok(PollOutcome::Nothing)
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        if events == Armed::Nothing {
            self.disarm();
            return Ok(());
        }
        let mut wire = self.wire();
        wire.ends[self.me].armed = true;
        wire.ends[self.me].left_out = self.has(Flaw::LooksAreLeftOut);
        Ok(())
    }

    fn channel(&self) -> Option<CompletionChannel> {
        let caller_epoll = Some(self.near.0.as_raw_fd());
        Some(CompletionChannel { caller_epoll, ..CompletionChannel::readable(self.far.0.as_raw_fd()) })
    }

    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        self.check_alive()?;
        let Range { start, end } = range;
        let len = region.len() as u64;
        if start > end || end > len {
            return Err(GrantError::Range { start, end, len });
        }
        let mut wire = self.wire();
        let mut node = self.node.lock();
        node.keys += if self.has(Flaw::KeysComeBack) { 0 } else { 3 };
        let key = node.keys;
        let entry = GrantEntry { region: region.clone(), start, len: end - start, rights, revoked: false };
        if self.has(Flaw::KeysForEveryone) {
            node.grants.insert(key, entry.clone());
        }
        wire.ends[self.me].grants.insert(key, entry);
        drop((wire, node));
        let id = GrantId(u32::try_from(key).expect("few grants are made"));
        self.grants.insert(id);
        Ok(Grant { id, remote: RemoteRange { key, offset: 0, len: end - start }, is_copy: false })
    }

    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
        if !self.grants.remove(&grant) {
            return Err(GrantError::Unknown);
        }
        let mut wire = self.wire();
        let entry = wire.ends[self.me].grants.get_mut(&grant.0.into()).expect("the grant is in the table");
        entry.revoked = true;
        Ok(())
    }

    fn close(&mut self) {
        let mut wire = self.wire.lock().expect("no test panics while it holds this");
        if wire.ends[self.me].closed {
            return;
        }
        wire.ends[self.me].closed = true;
        if !self.has(Flaw::GrantsOutliveClose) {
            wire.ends[self.me].grants.clear();
        }
        if !self.has(Flaw::CloseFlushesNothing) {
            let under_way = core::mem::take(&mut wire.ends[1 - self.me].inbox);
            let batch = self.batch.drain(..).filter_map(|posted| match posted {
                Posted::Message(sent) => sent.wr,
                Posted::Access(request) => Some(request.wr),
            });
            for wr in under_way.into_iter().filter_map(|sent| sent.wr).chain(batch) {
                wire.complete(self.me, wr, Status::Flushed, self.flaw);
            }
        }
        self.node.lock().lost = true;
        if !self.has(Flaw::GrantsOutliveClose) {
            wire.lose(1 - self.me, self.flaw);
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.close();
    }
}
