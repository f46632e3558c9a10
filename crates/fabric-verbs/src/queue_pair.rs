//! The queue pair: what it is made of. It is made in `connecting.rs`, sends in `sending.rs`, receives in `receiving.rs`, lets its
//! peer reach memory in `granting.rs`, sleeps in `arming.rs` and ends in `ending.rs`.
//!
//! # Invariants
//! 1. `failed` is set once. From then on nothing is posted or granted, and everything outstanding completes.
//! 2. `entries` has one entry for every request that is in the queue, in its order.
//! 3. What a device may still reach is dropped after the queue, which comes first among the fields.

use core::ops::Range;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::sys::eventfd::EventFd;
use pronto_core::fabric::{
    Armed, Capabilities, Completion, CompletionChannel, DoorbellEvent, FabricError, Grant, GrantError,
    GrantId, MessageSlot, PollOutcome, PostError, QueuePair, Region, Rights, SendMemory, SendWork, Status,
    WrId,
};
use pronto_core::wait::BackOff;
use pronto_mapping::Mapping;

use crate::account::Share;
use crate::alive::Alive;
use crate::device::Shared;
use crate::error::VerbsError;
use crate::inbox::Inbox;
use crate::lease::{InUse, Kept, Lease};
use crate::pool::{PoolBuffer, Waiter};
use crate::reaping::Reaping;
use crate::receives::Receives;
use crate::sending::Entry;
use crate::sleep::{Heard, Waits};
use crate::sys::{Access, Channel, CompletionQueue, MemoryRegion, PinnedBytes, Queue, SendRequest, Verb};
use crate::windows::{Granted, Windows};

/// Looks that a lost connection is given for what is outstanding, a one-sided operation among it: that it was refused ends the
/// connection, too, and on a busy machine the device says why long after the peer has hung up.
pub(crate) const LAST_LOOKS: u32 = 65_536;
/// What is left of them when nothing else is worth waiting for.
pub(crate) const LAST_LOOKS_FOR_ACCESS: u32 = LAST_LOOKS - 4096;

/// One connection of one class over RDMA.
#[derive(Debug)]
pub struct VerbsQueuePair {
    pub(crate) queue: Queue,
    pub(crate) windows: Windows,
    pub(crate) grants: Vec<Granted>,
    pub(crate) sends: CompletionQueue,
    pub(crate) receives: CompletionQueue,
    pub(crate) entries: VecDeque<Entry>,
    /// The chunks of send memory that are registered.
    pub(crate) chunks: Vec<Arc<MemoryRegion>>,
    /// Buffers of payloads that nobody waits for any more, and that a device may still write to.
    pub(crate) abandoned: Vec<PoolBuffer>,
    pub(crate) memory: Arc<Mapping>,
    pub(crate) done: VecDeque<Completion>,
    /// Messages that were pushed and not posted, whose buffers are free once they were: the device, or this code, copies them.
    pub(crate) copied: VecDeque<WrId>,
    pub(crate) inbox: Inbox,
    /// Windows of the peer's whose payloads we have read, and have to say so.
    pub(crate) owed: VecDeque<u16>,
    /// Windows of ours, with their keys, that the peer is done with.
    pub(crate) closing: VecDeque<(u32, u16)>,
    pub(crate) in_use: Arc<InUse>,
    pub(crate) capabilities: Capabilities,
    pub(crate) max_receive: u32,
    /// The peer's receive buffers, bytes.
    pub(crate) their_buffer: u32,
    /// Longest message of both devices, bytes.
    pub(crate) longest: u32,
    pub(crate) since_signal: u32,
    /// When the completions of sends are looked at.
    pub(crate) reaping: Reaping,
    /// Where short messages lie that somebody keeps.
    pub(crate) kept: Arc<Kept>,
    pub(crate) depth: u32,
    /// Readable when a buffer came back to the pool that this queue pair waits for.
    pub(crate) bell: Arc<EventFd>,
    /// Waits for buffers to read payloads to.
    pub(crate) fetch_waiter: Waiter,
    /// Waits for buffers to copy payloads of unregistered regions to.
    pub(crate) copy_waiter: Waiter,
    pub(crate) waits: Waits,
    /// Held by the completion queues as well; named here to be taken out of the epoll.
    pub(crate) channel: Arc<Channel>,
    /// The last sleeper was woken by the channel.
    pub(crate) has_events: bool,
    /// All events were asked for since solicited ones were.
    pub(crate) slept_for_all: bool,
    pub(crate) alive: Arc<Alive>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) next_grant: u32,
    /// Requests of our own that are waited for: bindings, probes.
    pub(crate) settled: u64,
    pub(crate) asked: u64,
    pub(crate) failed: Option<FabricError>,
    pub(crate) last_looks: u32,
    pub(crate) closed: bool,
    pub(crate) counters: Counters,
    /// The receive buffers that messages of this queue pair arrive in.
    pub(crate) buffers: Arc<Receives>,
    pub(crate) _share: Share,
}

/// What a queue pair has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that travelled with their payload.
    pub eager: u64,
    /// Messages whose payload was read by its receiver.
    pub rendezvous: u64,
    /// Payloads of unregistered regions that were copied.
    pub copied: u64,
    /// Registrations made while a message was posted: of regions longer than 64 KiB that were not registered ahead.
    pub registered_on_the_way: u64,
    /// Requests for an event; with soft-RoCE each is a system call.
    pub events_asked: u64,
}

impl VerbsQueuePair {
    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        let events_asked = self.sends.events_asked + self.receives.events_asked;
        Counters { events_asked, ..self.counters }
    }

    pub(crate) fn usable(&self) -> Result<(), FabricError> {
        self.failed.map_or(Ok(()), Err)
    }

    pub(crate) fn attach(&mut self, socket: OwnedFd) -> Result<(), VerbsError> {
        self.waits.add(Heard::SOCKET, self.alive.attach(socket))
    }

    /// Pushes a request of our own and gives the number under which [`has_settled`](Self::has_settled) knows it.
    pub(crate) fn ask(&mut self, verb: Verb<'_>) -> Result<u64, FabricError> {
        let mut back_off = BackOff::default();
        while self.queue.room() == 0 {
            self.usable()?;
            self.reap();
            #[expect(
                clippy::disallowed_methods,
                reason = "the wait is for a device, which may be threads of the kernel"
            )]
            back_off.pause_by(std::thread::yield_now, std::thread::sleep);
        }
        self.asked += 1;
        let request = SendRequest { verb, line: 0, beside: None, signalled: true };
        self.push(request, Entry::Asked);
        self.post(DoorbellEvent::Unsolicited);
        Ok(self.asked)
    }

    pub(crate) fn has_settled(&mut self, asked: u64) -> Result<bool, FabricError> {
        self.reap();
        self.usable()?;
        Ok(self.settled >= asked)
    }

    pub(crate) fn complete(&mut self, wr: WrId, status: Status) {
        self.done.push_back(Completion { wr, status });
    }
}

impl QueuePair for VerbsQueuePair {
    type Lease = Lease;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send_memory(&self) -> Arc<dyn SendMemory> {
        Arc::clone(&self.memory) as Arc<dyn SendMemory>
    }

    fn prepare(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        self.usable()?;
        self.shared.pool.replenish();
        let bytes = PinnedBytes::Mapped(Arc::clone(&self.memory));
        let chunk = MemoryRegion::register(&self.shared.domain, bytes, range, Access::Windows)?;
        self.chunks.push(chunk);
        Ok(())
    }

    fn retire(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        self.usable()?;
        let inside =
            |chunk: &Arc<MemoryRegion>| range.start <= chunk.range().start && chunk.range().end <= range.end;
        self.chunks.retain(|chunk| !inside(chunk));
        #[expect(unsafe_code, reason = "discards the bytes")]
        // SAFETY: no buffer in use lies in a range that is retired (the engine's promise 3), so none in it is posted either.
        unsafe {
            self.memory.retire(range)
        }
    }

    fn register(&mut self, region: &Region) -> Result<(), FabricError> {
        self.usable()?;
        self.shared.regions.register(&self.shared.domain, region).map(drop)
    }

    #[inline]
    fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        self.usable()?;
        self.push_work(work)
    }

    fn ring_doorbell(&mut self, event: DoorbellEvent) -> Result<(), FabricError> {
        self.usable()?;
        self.post(event);
        self.usable()
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        let due = self.failed.is_some()
            || self.alive.is_lost()
            || !self.done.is_empty()
            || !self.inbox.is_empty()
            || !self.owed.is_empty()
            || !self.closing.is_empty()
            || self.shared.pool.is_low();
        !due && self.receives.is_empty() && (!self.may_reap() || self.sends.is_empty())
    }

    #[inline]
    fn poll_send(&mut self) -> Option<Completion> {
        if self.done.is_empty() && self.may_reap() {
            self.reap();
        }
        self.done.pop_front()
    }

    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<Lease>, FabricError> {
        self.usable()?;
        self.receive(slot)
    }

    fn lease_copy(&self, payload: &[u8]) -> Lease {
        Lease::kept(&self.kept, payload)
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        match events {
            Armed::Nothing => {
                self.looks_anew();
                self.take_events();
                Ok(())
            }
            Armed::Solicited => self.arm_for_solicited(),
            Armed::All => self.arm_for_all(),
        }
    }

    fn notify_woken(&mut self) {
        self.has_events = true;
        self.looks_anew();
    }

    fn channel(&self) -> Option<CompletionChannel> {
        (!self.closed).then(|| CompletionChannel {
            caller_epoll: Some(self.waits.near()),
            ..CompletionChannel::readable(self.waits.descriptor())
        })
    }

    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        self.usable()?;
        self.grant_range(region, range, rights)
    }

    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
        self.usable()?;
        self.end_grant(grant)
    }

    fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            self.end();
        }
    }
}
