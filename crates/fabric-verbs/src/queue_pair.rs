//! The queue pair: what it is made of, how it sleeps, how it ends. Sending is in `sending.rs`, receiving in `receiving.rs`.
//!
//! # Invariants
//! 1. `failed` is set once. From then on nothing is posted or granted, and everything outstanding completes.
//! 2. `entries` has one entry for every request that is in the queue, in its order.
//! 3. What a device may still reach is dropped after the queue, which comes first among the fields.

use core::ops::Range;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::fabric::{
    AtomicScope, Capabilities, Completion, ConnectionLimits, FabricError, Grant, GrantError, GrantId,
    Immediates, OneSided, PostError, QueuePair, Received, Region, RemoteRange, Revocation, Rights,
    SendMemory, SendWork, SmallMessage, Status, WrId,
};
use pronto_mapping::Mapping;

use crate::alive::Alive;
use crate::device::Shared;
use crate::error::VerbsError;
use crate::inbox::Inbox;
use crate::lease::{InUse, Lease};
use crate::pool::PoolBuffer;
use crate::receives::Promise;
use crate::sending::Entry;
use crate::sleep::{Heard, Waits};
use crate::sys::{
    Access, Channel, CompletionQueue, Connect, MemoryRegion, MemoryWindow, PinnedBytes, Queue, QueueSizes,
    Rights as WindowRights, SendRequest, Verb,
};
use crate::windows::{self, Granted, Windows};

/// Grants of one connection at a time.
const MAX_GRANTS: usize = 4096;
/// Requests beside messages: one-sided operations, reads of payloads, answers.
const MORE_REQUESTS: u32 = 128;
/// Looks at the completion queue that closing may cost: what was sent is given the time to leave.
const LINGER: u32 = 4096;
/// Looks at the completion queue for what a closed queue pair flushes; what comes later is for later polls.
const DRAIN: u32 = 65_536;
/// Looks that a lost connection is given for what is outstanding.
const LAST_LOOKS: u32 = 4096;

/// One connection of one class over RDMA.
#[derive(Debug)]
pub struct VerbsQueuePair {
    pub(crate) queue: Queue,
    pub(crate) windows: Windows,
    grants: Vec<Granted>,
    pub(crate) sends: CompletionQueue,
    pub(crate) receives: CompletionQueue,
    pub(crate) entries: VecDeque<Entry>,
    /// The chunks of send memory that are registered.
    pub(crate) chunks: Vec<Arc<MemoryRegion>>,
    /// Buffers of payloads that nobody waits for any more, and that a device may still write to.
    abandoned: Vec<PoolBuffer>,
    pub(crate) memory: Arc<Mapping>,
    pub(crate) done: VecDeque<Completion>,
    /// Messages that were pushed and not posted, whose buffers are free once they were: the device, or this code, copies them.
    pub(crate) copied: VecDeque<WrId>,
    pub(crate) inbox: Inbox,
    pub(crate) immediates: Immediates,
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
    pub(crate) depth: u32,
    pub(crate) bell: Arc<EventFd>,
    waits: Waits,
    /// Held by the completion queues as well; named here to be taken out of the epoll.
    channel: Arc<Channel>,
    /// The last sleeper was woken by the channel.
    has_events: bool,
    pub(crate) alive: Arc<Alive>,
    pub(crate) shared: Arc<Shared>,
    next_grant: u32,
    /// Requests of our own that are waited for: bindings, probes.
    pub(crate) settled: u64,
    asked: u64,
    pub(crate) failed: Option<FabricError>,
    pub(crate) last_looks: u32,
    closed: bool,
    pub(crate) counters: Counters,
    _promise: Promise,
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
}

/// A queue pair before it is connected.
#[derive(Debug)]
pub(crate) struct Half {
    queue: Queue,
    windows: Windows,
    sends: CompletionQueue,
    receives: CompletionQueue,
    channel: Arc<Channel>,
    memory: Arc<Mapping>,
    limits: ConnectionLimits,
    depth: u32,
    shared: Arc<Shared>,
    promise: Promise,
}

impl Half {
    pub(crate) fn new(shared: &Arc<Shared>, limits: ConnectionLimits) -> Result<Self, VerbsError> {
        let domain = &shared.domain;
        let windows = limits.send_depth.min(windows::MOST);
        // A message of the longer kind takes two requests; as many of theirs may have to be read and answered.
        let depth = 2 * limits.send_depth + MORE_REQUESTS;
        let promise = shared.receives.promise(limits.receive_depth + windows + 1)?;
        let channel = Channel::new(domain.context())?;
        let sends = CompletionQueue::new(&channel, depth + 1)?;
        let receives = CompletionQueue::new(&channel, limits.receive_depth + windows + 1)?;
        let sizes = QueueSizes { depth };
        let queue = Queue::new(domain, shared.port, (&sends, &receives), shared.receives.queue(), sizes)?;
        Ok(Self {
            queue,
            windows: Windows::new(domain, windows)?,
            sends,
            receives,
            channel,
            memory: Arc::new(Mapping::new(limits.send_memory)?),
            limits,
            depth,
            shared: Arc::clone(shared),
            promise,
        })
    }

    pub(crate) fn number(&self) -> u32 {
        self.queue.number()
    }

    pub(crate) fn connect(
        mut self,
        first_sequence: u32,
        to: &Connect,
        (their_buffer, longest): (u32, u32),
        waits: Waits,
        alive: &Arc<Alive>,
    ) -> Result<VerbsQueuePair, VerbsError> {
        let system = |what: &'static str| move |errno| VerbsError::System { what, errno };
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let bell = Arc::new(bell.map_err(system("eventfd"))?);
        waits.add(Heard::CHANNEL, &*self.channel)?;
        waits.add(Heard::BELL, &*bell)?;
        self.queue.connect(first_sequence, to)?;
        let limits = &self.limits;
        let device = self.shared.domain.context().limits();
        let scope = if device.atomics_are_global { AtomicScope::Global } else { AtomicScope::Fabric };
        let capabilities = Capabilities {
            provider: "verbs",
            max_payload: limits.max_send_payload.min(longest),
            receive_depth: limits.receive_depth,
            send_depth: limits.send_depth,
            polls_without_syscalls: true,
            by_reference: true,
            copies: 40,
            pins_memory: true,
            ready_when_touched: false,
            one_sided: if device.has_atomics {
                OneSided::Supported { passive_target: true, atomics: scope, revocation: Revocation::Enforced }
            } else {
                OneSided::None
            },
        };
        self.shared.enlist(self.queue.number(), alive);
        let depth = self.depth as usize;
        Ok(VerbsQueuePair {
            queue: self.queue,
            windows: self.windows,
            grants: Vec::new(),
            sends: self.sends,
            receives: self.receives,
            entries: VecDeque::with_capacity(depth),
            chunks: Vec::new(),
            abandoned: Vec::new(),
            memory: self.memory,
            done: VecDeque::with_capacity(2 * depth),
            copied: VecDeque::with_capacity(depth),
            inbox: Inbox::with_capacity(limits.receive_depth as usize),
            immediates: Immediates::new(limits.receive_depth),
            owed: VecDeque::with_capacity(windows::MOST as usize),
            closing: VecDeque::with_capacity(windows::MOST as usize),
            in_use: Arc::default(),
            capabilities,
            max_receive: limits.max_receive_payload,
            their_buffer,
            longest,
            since_signal: 0,
            depth: self.depth,
            bell,
            waits,
            channel: self.channel,
            has_events: false,
            alive: Arc::clone(alive),
            shared: self.shared,
            next_grant: 0,
            settled: 0,
            asked: 0,
            failed: None,
            last_looks: LAST_LOOKS,
            closed: false,
            counters: Counters::default(),
            _promise: self.promise,
        })
    }
}

impl VerbsQueuePair {
    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn usable(&self) -> Result<(), FabricError> {
        self.failed.map_or(Ok(()), Err)
    }

    /// The queue pair is dead: the peer is told, and what is outstanding will complete.
    #[cold]
    pub(crate) fn fail(&mut self, error: FabricError) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        self.alive.end();
        let aborted = self.queue.abort();
        self.flush_unposted();
        self.grants.clear();
        let unread = self.windows.clear();
        self.done.extend(unread.into_iter().map(|wr| Completion { wr, status: Status::Flushed }));
        self.abandoned.extend(self.inbox.clear());
        self.owed.clear();
        self.closing.clear();
        if aborted.is_err() {
            // The device is gone, and tells nothing any more.
            self.flush_all();
        }
    }

    pub(crate) fn attach(&mut self, socket: OwnedFd) -> Result<(), VerbsError> {
        self.waits.add(Heard::SOCKET, self.alive.attach(socket))
    }

    /// The granted ranges, each of its region. Besides them the peer reaches payloads that wait to be read, each behind a
    /// window of its own, and nothing else: no registration has a remote right.
    pub fn open_to_peer(&self) -> Vec<Range<usize>> {
        self.grants.iter().map(Granted::range).collect()
    }

    /// Pushes a request of our own and gives the number under which [`has_settled`](Self::has_settled) knows it.
    fn ask(&mut self, verb: Verb<'_>) -> Result<u64, FabricError> {
        while self.queue.room() == 0 {
            self.usable()?;
            self.reap();
            std::thread::yield_now();
        }
        self.asked += 1;
        let request = SendRequest { verb, line: 0, beside: None, signalled: true };
        self.push(request, Entry::Asked);
        self.post(false);
        Ok(self.asked)
    }

    fn has_settled(&mut self, asked: u64) -> Result<bool, FabricError> {
        self.reap();
        self.usable()?;
        Ok(self.settled >= asked)
    }

    pub(crate) fn begin_probe(&mut self) -> Result<(), VerbsError> {
        // A write of nothing: it needs no key, takes no receive, and is acknowledged.
        self.ask(Verb::Write(0, 0)).map(drop).map_err(|error| unreachable_peer(&error))
    }

    pub(crate) fn probe_has_ended(&mut self) -> Result<bool, VerbsError> {
        self.has_settled(1).map_err(|error| unreachable_peer(&error))
    }

    fn bind(
        &mut self,
        memory: &Arc<MemoryRegion>,
        len: u64,
        rights: Rights,
    ) -> Result<MemoryWindow, GrantError> {
        let system = |error: VerbsError| match error {
            VerbsError::System { errno, .. } => FabricError::System { errno: errno as i32 },
            _ => FabricError::System { errno: Errno::ENOMEM as i32 },
        };
        let mut window = MemoryWindow::new(&self.shared.domain).map_err(system)?;
        let offset = memory.range().start;
        let rights = WindowRights { read: rights.read, write: rights.write, atomic: rights.atomic };
        let asked = self.ask(Verb::Bind { window: &mut window, memory, offset, len, rights })?;
        while !self.has_settled(asked)? {
            std::thread::yield_now();
        }
        Ok(window)
    }

    /// Takes in what the device flushes, which it does in its own time: until then it may still reach what is outstanding.
    fn drain(&mut self) {
        for _ in 0..DRAIN {
            self.reap();
            if self.entries.is_empty() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Waits a moment for what was sent: closed at once, a last message would not leave.
    fn linger(&mut self) {
        if self.failed.is_some() || self.entries.is_empty() {
            return;
        }
        let Ok(asked) = self.ask(Verb::Write(0, 0)) else { return };
        for _ in 0..LINGER {
            if self.alive.is_lost() || self.has_settled(asked).unwrap_or(true) {
                return;
            }
            std::thread::yield_now();
        }
    }
}

fn unreachable_peer(error: &FabricError) -> VerbsError {
    match error {
        FabricError::WorkFailed { status } => VerbsError::Unreachable { status: *status },
        // IBV_WC_RETRY_EXC_ERR
        _ => VerbsError::Unreachable { status: 12 },
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
        self.memory.retire(range)
    }

    fn register(&mut self, region: &Region) -> Result<(), FabricError> {
        self.usable()?;
        self.shared.regions.register(&self.shared.domain, region).map(drop)
    }

    #[inline]
    fn post_send(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        self.usable()?;
        self.take_work(work)
    }

    fn ring_doorbell(&mut self) -> Result<(), FabricError> {
        self.usable()?;
        self.post(true);
        self.usable()
    }

    fn ring_doorbell_unsolicited(&mut self) -> Result<(), FabricError> {
        self.usable()?;
        self.post(false);
        self.usable()
    }

    fn poll_send(&mut self) -> Option<Completion> {
        if self.done.is_empty() {
            self.reap();
        }
        self.done.pop_front()
    }

    fn poll_small(&mut self, into: &mut SmallMessage) -> bool {
        self.failed.is_none() && self.receive_small(into)
    }

    fn poll_recv(&mut self) -> Result<Option<Received<Lease>>, FabricError> {
        self.usable()?;
        self.receive()
    }

    fn poll_immediate(&mut self) -> Option<u32> {
        self.immediates.pop()
    }

    fn arm(&mut self) -> Result<(), FabricError> {
        self.arm_for(false)
    }

    fn arm_solicited(&mut self) -> Result<(), FabricError> {
        self.arm_for(true)
    }

    fn disarm(&mut self) {
        // Where events come, the next is most likely one more: found without asking who woke.
        self.has_events =
            self.has_events && CompletionQueue::take_event([&mut self.sends, &mut self.receives]);
        if self.has_events {
            self.waits.was_all();
            return;
        }
        let heard = self.waits.look();
        if heard.has(Heard::CHANNEL) {
            self.has_events = CompletionQueue::take_event([&mut self.sends, &mut self.receives]);
        }
        if heard.has(Heard::BELL) {
            // An error means that somebody else has heard it.
            let _count = self.bell.read();
        }
        if heard.has(Heard::SOCKET) && self.failed.is_none() {
            self.alive.look();
        }
    }

    fn channel(&self) -> Option<i32> {
        (!self.closed).then(|| self.waits.descriptor())
    }

    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        self.usable()?;
        let len = region.len() as u64;
        if range.start > range.end || range.end > len {
            return Err(GrantError::Range { start: range.start, end: range.end, len });
        }
        if self.capabilities.one_sided == OneSided::None {
            return Err(GrantError::Unsupported);
        }
        if self.grants.len() >= MAX_GRANTS {
            return Err(GrantError::TooMany(MAX_GRANTS));
        }
        let id = GrantId(self.next_grant);
        let granted = if range.is_empty() {
            Granted { id, _window: None, memory: None }
        } else {
            let at = usize::try_from(range.start).unwrap_or(usize::MAX)
                ..usize::try_from(range.end).unwrap_or(usize::MAX);
            let bytes = PinnedBytes::Region(Arc::clone(region.memory()));
            let memory = MemoryRegion::register(&self.shared.domain, bytes, at, Access::Windows)?;
            let window = self.bind(&memory, range.end - range.start, rights)?;
            Granted { id, _window: Some(window), memory: Some(memory) }
        };
        // A grant of nothing has a key that no window has.
        let key = granted._window.as_ref().map_or(u64::MAX, |window| window.key().into());
        self.next_grant = self.next_grant.wrapping_add(1);
        self.grants.push(granted);
        Ok(Grant { id, remote: RemoteRange { key, offset: 0, len: range.end - range.start } })
    }

    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
        self.usable()?;
        let at = self.grants.iter().position(|granted| granted.id == grant).ok_or(GrantError::Unknown)?;
        // Ends the window, and then the registration: both calls return when the device has done so.
        drop(self.grants.swap_remove(at));
        Ok(())
    }

    fn close(&mut self) {
        if self.closed {
            return;
        }
        self.closed = true;
        // What no doorbell was rung for does not leave.
        self.flush_unposted();
        self.grants.clear();
        self.linger();
        self.fail(FabricError::Lost);
        self.drain();
        // The other queue pair's sleepers are not to be woken by what nobody takes any more.
        self.waits.remove(&*self.channel);
        self.waits.remove(&*self.bell);
        if let Some(socket) = self.alive.socket() {
            self.waits.remove(socket);
        }
    }
}

impl VerbsQueuePair {
    fn arm_for(&mut self, solicited: bool) -> Result<(), FabricError> {
        self.usable()?;
        self.shared.pool.replenish();
        self.shared.regions.forget_unused();
        let system = |errno: Errno| FabricError::System { errno: errno as i32 };
        self.receives.request_event(solicited).map_err(system)?;
        // A payload that is being read is a message as soon as that is done, and was announced by a solicited one.
        self.sends.request_event(solicited && self.inbox.fetching == 0).map_err(system)
    }

    pub(crate) fn complete(&mut self, wr: WrId, status: Status) {
        self.done.push_back(Completion { wr, status });
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        self.close();
        self.shared.delist(self.queue.number());
        // Receives that were completed and not looked at go back to where all take them from.
        while let Ok(Some(found)) = self.receives.poll() {
            drop(self.shared.receives.completed(found.id, found.len));
        }
    }
}
