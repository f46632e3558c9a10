//! Fields and traits of the queue pair. It is made in `connecting.rs`, sends in `sending.rs`, receives in
//! `receiving.rs`, grants its peer access to memory in `granting.rs`, sleeps in `arming.rs` and ends in `ending.rs`.
//!
//! # Invariants
//! 1. `failed` is set at most once. From then on nothing is posted or granted, and everything outstanding completes.
//! 2. `entries` has one entry for every request in the queue, in order.
//! 3. Memory that a device may still access is dropped after the queue, which is the first field.

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
use crate::sleep::{Waits, WakeSources};
use crate::sys::{Access, Channel, CompletionQueue, MemoryRegion, PinnedBytes, Queue, SendRequest, Verb};
use crate::windows::{Granted, Windows};

/// Number of polls in which a lost connection may still complete outstanding requests, including one-sided operations.
/// A refused access also ends the connection, and on a busy machine the device reports the refusal long after the peer
/// has closed.
pub(crate) const LAST_POLLS: u32 = 65_536;
/// Remaining polls at which waiting ends unless a one-sided operation is outstanding.
pub(crate) const LAST_POLLS_FOR_ACCESS: u32 = LAST_POLLS - 4096;

/// One connection of one class over RDMA.
#[derive(Debug)]
pub struct VerbsQueuePair {
    pub(crate) queue: Queue,
    pub(crate) windows: Windows,
    pub(crate) grants: Vec<Granted>,
    pub(crate) sends: CompletionQueue,
    pub(crate) receives: CompletionQueue,
    pub(crate) entries: VecDeque<Entry>,
    /// Registered chunks of send memory.
    pub(crate) chunks: Vec<Arc<MemoryRegion>>,
    /// Buffers of dropped messages that a device may still write to.
    pub(crate) abandoned: Vec<PoolBuffer>,
    pub(crate) memory: Arc<Mapping>,
    pub(crate) done: VecDeque<Completion>,
    /// Pushed messages whose buffers are free once they are posted, because the device or this code copies them.
    pub(crate) copied: VecDeque<WrId>,
    pub(crate) inbox: Inbox,
    /// Windows of the peer whose payloads were read and not yet reported.
    pub(crate) owed: VecDeque<u16>,
    /// Windows of this side, with their keys, that the peer no longer needs.
    pub(crate) closing: VecDeque<(u32, u16)>,
    pub(crate) in_use: Arc<InUse>,
    pub(crate) capabilities: Capabilities,
    pub(crate) max_receive: u32,
    /// Length of the peer's receive buffers, bytes.
    pub(crate) their_buffer: u32,
    /// Longest message of both devices, bytes.
    pub(crate) longest: u32,
    pub(crate) since_signal: u32,
    /// State that decides when to poll for completions of sends.
    pub(crate) reaping: Reaping,
    /// Buffers for copies of short messages.
    pub(crate) kept: Arc<Kept>,
    pub(crate) depth: u32,
    /// Becomes readable when a buffer returns to the pool while this queue pair waits for it.
    pub(crate) bell: Arc<EventFd>,
    /// Waiter for buffers to read payloads into.
    pub(crate) fetch_waiter: Waiter,
    /// Waiter for buffers for copies of payloads from unregistered regions.
    pub(crate) copy_waiter: Waiter,
    pub(crate) waits: Waits,
    /// Also held by the completion queues; kept here to be removed from the epoll.
    pub(crate) channel: Arc<Channel>,
    /// True if the last sleeper was woken by the channel.
    pub(crate) has_events: bool,
    /// True if a sleeper has requested all events since solicited ones were last requested.
    pub(crate) slept_for_all: bool,
    pub(crate) alive: Arc<Alive>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) next_grant: u32,
    /// Number of completed requests of the provider itself: bindings and probes.
    pub(crate) settled: u64,
    pub(crate) asked: u64,
    pub(crate) failed: Option<FabricError>,
    pub(crate) last_polls: u32,
    pub(crate) closed: bool,
    pub(crate) counters: Counters,
    /// Receive buffers for messages of this queue pair.
    pub(crate) buffers: Arc<Receives>,
    pub(crate) _share: Share,
}

/// Counters of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were sent with their payload.
    pub eager: u64,
    /// Messages whose payload the receiver has read.
    pub rendezvous: u64,
    /// Payloads from unregistered regions that were copied.
    pub copied: u64,
    /// Registrations made while a message was posted: of regions for payloads longer than 64 KiB that were not
    /// registered ahead.
    pub registered_on_the_way: u64,
    /// Requests for an event; with soft-RoCE each one is a system call.
    pub events_asked: u64,
}

impl VerbsQueuePair {
    /// Returns the current counters.
    pub fn counters(&self) -> Counters {
        let events_asked = self.sends.events_asked + self.receives.events_asked;
        Counters { events_asked, ..self.counters }
    }

    pub(crate) fn usable(&self) -> Result<(), FabricError> {
        self.failed.map_or(Ok(()), Err)
    }

    pub(crate) fn attach(&mut self, socket: OwnedFd) -> Result<(), VerbsError> {
        self.waits.add(WakeSources::SOCKET, self.alive.attach(socket))
    }

    /// Pushes a request of the provider itself. Returns its number for [`has_settled`](Self::has_settled).
    pub(crate) fn ask(&mut self, verb: Verb<'_>) -> Result<u64, FabricError> {
        let mut back_off = BackOff::default();
        while self.queue.room() == 0 {
            self.usable()?;
            self.reap();
            #[expect(
                clippy::disallowed_methods,
                reason = "this waits for a device, which may be a kernel thread"
            )]
            back_off.pause_by(std::thread::yield_now, std::thread::sleep);
        }
        self.asked += 1;
        let request = SendRequest { verb, line: 0, gathered: None, signalled: true };
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
                self.reap_at_next_poll();
                self.take_events();
                Ok(())
            }
            Armed::Solicited => self.arm_for_solicited(),
            Armed::All => self.arm_for_all(),
        }
    }

    fn notify_woken(&mut self) {
        self.has_events = true;
        self.reap_at_next_poll();
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
