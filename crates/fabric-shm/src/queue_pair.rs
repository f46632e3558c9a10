//! The queue pair: sending, receiving, sleeping, announced memory, and closing.

use core::fmt;
use core::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use pronto_core::fabric::{
    Armed, Capabilities, Completion, CompletionChannel, DoorbellEvent, FabricError, Gather, Grant,
    GrantError, GrantId, MessageSlot, Operation, OutOfBounds, PeerFault, PollOutcome, PostError, QueuePair,
    Received, Region, Rights, SendMemory, SendWork, Signal,
};
use pronto_sync::Event as Published;
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use pronto_wire::{INLINE_PAYLOAD, RawHeader};

use crate::announce::{Announcement, Announcements};
use crate::bell::{Rung, Sleep};
use crate::form::{self, RegionName, Words};
use crate::layout::{ANNOUNCEMENT, CLOSED};
use crate::lease::{Incoming, ShmLease};
use crate::map::{OwnArray, PeerArray, forked};
use crate::one_sided::{Atomic, Given, Held};
use crate::receive::{Receiving, system};
use crate::regions::{PassedRegions, Unnamed};
use crate::send::Sending;

/// Maximum number of wake-ups without a message or completion. A correct peer wakes only after publishing, so between
/// two of its wake-ups there is a message or a completion.
const WAKE_FLOOD: u32 = 1024;
/// Maximum number of announcements received in one call; more than fit into the socket.
const DRAIN: usize = 1024;
/// Value that no state word has, so that it differs from all of them.
const LOOK_AGAIN: u64 = u64::MAX;

/// Counters of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Payloads that were copied because too much was lent.
    pub copied: u64,
    /// Wake-ups received.
    pub wakes: u64,
    /// Bytes of the peer's memory that are lent at present.
    pub lent: u64,
}

/// One connection of one class over shared memory.
pub struct ShmQueuePair {
    pub(crate) capabilities: Capabilities,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) sleep: Sleep,
    /// This side's state word.
    pub(crate) state: OwnArray<AtomicU64>,
    /// The peer's state word, and the value that was last processed.
    pub(crate) peer_state: PeerArray<AtomicU64>,
    pub(crate) peer_seen: u64,
    pub(crate) announcements: Announcements,
    pub(crate) passed: PassedRegions,
    pub(crate) given: Given,
    pub(crate) held: Held,
    /// Wake-ups since the last message or completion.
    pub(crate) idle_wakes: u32,
    pub(crate) wakes: u64,
    /// True once the peer's end of the bell is closed.
    pub(crate) ended: bool,
    pub(crate) failure: Option<FabricError>,
    /// Zero in a forked child.
    pub(crate) original: &'static AtomicU32,
    /// True once this side has closed the queue pair.
    pub(crate) closed: bool,
}

impl ShmQueuePair {
    /// Returns the current counters.
    pub fn counts(&self) -> Counts {
        let (lent, _) = self.incoming().lent();
        Counts { copied: self.receiving.copied, wakes: self.wakes, lent }
    }

    /// Returns whether this side can read the peer's memory by its address, or the error number. `None` if it has not tried: it tries when the
    /// peer first grants memory of its program. Such memory is copied before this side reads it until then, and if it cannot.
    pub fn reads_by_address(&mut self) -> Option<Result<(), i32>> {
        self.held.peer().tried().map(|tried| tried.map_err(|errno| errno as i32))
    }

    fn incoming(&self) -> &Incoming {
        &self.receiving.incoming
    }

    /// Checks that the queue pair may be used: it has not failed, and this process is not a forked child.
    #[inline]
    fn usable(&self) -> Result<(), FabricError> {
        if self.failure.is_none() && self.original.load(Ordering::Relaxed) != 0 {
            Ok(())
        } else {
            self.unusable()
        }
    }

    #[cold]
    fn unusable(&self) -> Result<(), FabricError> {
        Err(self.failure.unwrap_or(FabricError::Lost))
    }

    #[cold]
    pub(crate) fn fail(&mut self, failure: FabricError) -> FabricError {
        *self.failure.get_or_insert(failure)
    }

    /// Passes memory to the peer and counts the announcement in the state word.
    fn announce(
        (state, announcements): (&OwnArray<AtomicU64>, &Announcements),
        what: Announcement,
        fd: Option<&OwnedFd>,
    ) -> Result<(), Errno> {
        announcements.send(what, fd.map(AsFd::as_fd))?;
        let announced = state[0].load(Ordering::Relaxed) + ANNOUNCEMENT;
        // SYNC: the packet is in the socket; pairs with the load in look_around.
        state[0].store(announced, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn send(&mut self, signal: Signal, header: &RawHeader, payload: Gather<'_>) -> Result<(), PostError> {
        match payload {
            Gather::Inline(payload) => self.sending.post_inline(signal, header, payload),
            Gather::Short(bytes) => self.sending.post_short(signal, header, bytes),
            Gather::Ring(extent) => self.sending.post_ring(signal, header, extent),
            Gather::Region { region, offset, len } => self.send_region(signal, header, region, (offset, len)),
        }
    }

    fn send_region(
        &mut self,
        signal: Signal,
        header: &RawHeader,
        region: &Region,
        (offset, len): (u64, u32),
    ) -> Result<(), PostError> {
        let (start, wanted) = (usize::try_from(offset).unwrap_or(usize::MAX), len as usize);
        self.sending.check_len(wanted)?;
        if start.checked_add(wanted).is_none_or(|end| end > region.len()) {
            return Err(OutOfBounds { offset: start, wanted, len: region.len() }.into());
        }
        if wanted <= INLINE_PAYLOAD {
            let mut payload = [0; INLINE_PAYLOAD];
            region.read(start, &mut payload[..wanted])?;
            return self.sending.post_short(signal, header, &payload[..wanted]);
        }
        let announce = (&self.state, &self.announcements);
        let name = self.passed.name(region, |RegionName { slot, generation }, fd| {
            Self::announce(announce, Announcement::Region { slot, generation }, Some(&fd))
        });
        match name {
            Ok(name) => self.sending.post_region(signal, header, (offset, len), (name, region)),
            Err(Unnamed::Later) => Err(PostError::Full),
            Err(Unnamed::Copy) => Err(PostError::Unsupported),
        }
    }

    fn access(&mut self, signal: Signal, operation: Operation<'_>) -> Result<(), PostError> {
        let (Operation::Read { remote, .. }
        | Operation::Write { remote, .. }
        | Operation::CompareSwap { remote, .. }
        | Operation::FetchAdd { remote, .. }) = operation
        else {
            return Err(PostError::Unsupported);
        };
        self.sending.room()?;
        if !self.held.knows(remote) {
            self.adopt()?;
        }
        let before = match operation {
            Operation::Read { local, local_offset, remote } => {
                let read = self.held.read(local, local_offset, remote);
                if let Err(PostError::Failed(error)) = read {
                    self.fail(error);
                }
                read.map(|()| 0)
            }
            Operation::Write { local, local_offset, remote } => {
                self.held.write(local, local_offset, remote).map(|()| 0)
            }
            Operation::CompareSwap { expected, desired, .. } => {
                self.held.atomic(remote, Atomic::CompareSwap { expected, desired })
            }
            Operation::FetchAdd { add, .. } => self.held.atomic(remote, Atomic::FetchAdd { add }),
            Operation::Send { .. } => Err(PostError::Unsupported),
        }?;
        self.sending.complete(signal, before)
    }

    /// Receives the memory that the peer has announced.
    fn adopt(&mut self) -> Result<(), FabricError> {
        for _ in 0..DRAIN {
            let announced = self.announcements.receive().map_err(|fault| self.fail(fault.into()))?;
            let Some((what, fd)) = announced else { break };
            let adopted = match (what, fd) {
                (Announcement::Region { slot, generation }, Some(fd)) => {
                    self.receiving.adopt(RegionName { slot, generation }, &fd)
                }
                (Announcement::Grant { .. }, Some(fd)) => self.held.adopt(what, &fd),
                (Announcement::Memory { slot, generation, address, len }, _) => {
                    self.held.adopt_by_address((slot, generation), (address, len))
                }
                (Announcement::Try, _) => {
                    self.held.peer().try_once();
                    Ok(())
                }
                // `receive` has checked the number of descriptors.
                (_, None) => Ok(()),
            };
            adopted.map_err(|failure| self.fail(failure))?;
        }
        Ok(())
    }

    /// Receives pending wake-ups.
    fn take_wakes(&mut self) {
        match self.incoming().bell.take() {
            Rung::Times(count) => {
                self.wakes += u64::from(count);
                self.idle_wakes += count;
                if self.idle_wakes > WAKE_FLOOD {
                    self.fail(PeerFault::WakeFlood(self.idle_wakes).into());
                }
            }
            Rung::Descriptors(found) => {
                self.fail(PeerFault::Descriptors { found, expected: 0 }.into());
            }
            Rung::Ended => {
                self.ended = true;
                self.peer_seen = LOOK_AGAIN;
            }
        }
    }

    /// Polls for everything rare: messages with payloads elsewhere, a changed state word, and faults.
    #[inline(never)]
    fn poll_rest(&mut self) -> Result<Option<Received<ShmLease>>, FabricError> {
        self.usable()?;
        match self.receiving.poll().map_err(|fault| self.fail(fault.into()))? {
            Some((words, form)) => self.take(&words, form).map(Some),
            None => self.poll_rare(),
        }
    }

    /// Receives announcements and then the last messages. Called when the state word may have changed, or the peer's
    /// end was seen.
    #[cold]
    fn poll_rare(&mut self) -> Result<Option<Received<ShmLease>>, FabricError> {
        // SYNC: Acquire sees what was published before closing; pairs with the stores in announce and close.
        let state = self.peer_state.load(0, Ordering::Acquire);
        self.adopt()?;
        if state & CLOSED == 0 && !self.ended {
            self.peer_seen = state;
            return Ok(None);
        }
        match self.receiving.poll().map_err(|fault| self.fail(fault.into()))? {
            None => Err(self.fail(FabricError::Lost)),
            Some((words, form)) => self.take(&words, form).map(Some),
        }
    }

    /// Returns the message of a line, wherever its payload is.
    fn take(&mut self, words: &Words, form: u8) -> Result<Received<ShmLease>, FabricError> {
        self.idle_wakes = 0;
        if self.receiving.is_inline(form) {
            return Ok(form::message(words, form));
        }
        let mut message = self.receiving.elsewhere(words, form).map_err(|failure| self.fail(failure))?;
        if message.is_none() {
            // The peer has announced the region, but this side has not adopted it yet.
            self.adopt()?;
            message = self.receiving.elsewhere(words, form).map_err(|failure| self.fail(failure))?;
        }
        message.ok_or_else(|| self.fail(PeerFault::Access.into()))
    }

    fn arm_for(&mut self, least: Published) -> Result<(), FabricError> {
        self.usable()?;
        self.held.forget_revoked();
        self.sleep.arm(least);
        Ok(())
    }

    fn disarm(&mut self) {
        if self.usable().is_ok() && self.sleep.is_armed() {
            self.sleep.disarm();
            // A flood is recorded here; the next poll reports it.
            self.take_wakes();
        }
    }

    fn check_range(&self, range: &Range<usize>) -> Result<(), FabricError> {
        self.usable()?;
        if range.start > range.end || range.end > SendMemory::len(&*self.sending.memory) {
            return Err(system(Errno::EINVAL));
        }
        Ok(())
    }
}

impl QueuePair for ShmQueuePair {
    type Lease = ShmLease;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send_memory(&self) -> Arc<dyn SendMemory> {
        Arc::clone(&self.sending.memory) as Arc<dyn SendMemory>
    }

    fn prepare(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        self.check_range(&range)?;
        self.sending.memory.commit(range).map_err(system)
    }

    fn retire(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        self.check_range(&range)?;
        self.sending.memory.give_back(range).map_err(system)
    }

    #[inline(always)]
    fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        self.usable()?;
        match work.operation {
            Operation::Send { header, payload } => self.send(work.signal, header, payload),
            operation => self.access(work.signal, operation),
        }
    }

    #[inline]
    fn ring_doorbell(&mut self, event: DoorbellEvent) -> Result<(), FabricError> {
        self.usable()?;
        if self.sending.take_posted() {
            self.receiving.incoming.bell.wake_if_armed(match event {
                DoorbellEvent::Solicited => Published::Solicited,
                DoorbellEvent::Unsolicited => Published::Unsolicited,
            });
        }
        Ok(())
    }

    #[inline(always)]
    fn is_quiet(&self) -> bool {
        // The next line is not written, the state word is unchanged, no payload is outstanding, no completion waits,
        // and nothing has failed.
        !self.receiving.is_ready()
            && self.peer_state.load(0, Ordering::Relaxed) == self.peer_seen
            && self.sending.is_idle()
            && self.usable().is_ok()
    }

    #[inline(always)]
    fn poll_send(&mut self) -> Option<Completion> {
        if self.usable().is_err() {
            return self.sending.flush();
        }
        match self.sending.poll() {
            Ok(None) => None,
            Ok(done) => {
                self.idle_wakes = 0;
                done
            }
            Err(fault) => {
                self.fail(fault.into());
                self.sending.flush()
            }
        }
    }

    #[inline(always)]
    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<ShmLease>, FabricError> {
        if self.usable().is_ok() {
            if self.receiving.poll_inline(slot.inline) {
                self.idle_wakes = 0;
                return Ok(PollOutcome::Inline);
            }
            if self.receiving.poll_short(slot.short) {
                self.idle_wakes = 0;
                return Ok(PollOutcome::Short);
            }
            // SYNC: as in look_around; here only to see that nothing has changed.
            if !self.receiving.is_ready() && self.peer_state.load(0, Ordering::Acquire) == self.peer_seen {
                return Ok(PollOutcome::Nothing);
            }
        }
        match self.poll_rest() {
            Ok(Some(message)) => Ok(PollOutcome::Leased(message)),
            Ok(None) => Ok(PollOutcome::Nothing),
            Err(error) => Err(error),
        }
    }

    fn lease_copy(&self, payload: &[u8]) -> ShmLease {
        let len = u32::try_from(payload.len()).expect("a short message fits");
        ShmLease::copied(&self.receiving.incoming, len, |bytes| bytes.copy_from_slice(payload))
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        match events {
            Armed::Nothing => {
                self.disarm();
                Ok(())
            }
            Armed::Solicited => self.arm_for(Published::Solicited),
            Armed::All => self.arm_for(Published::Unsolicited),
        }
    }

    fn channel(&self) -> Option<CompletionChannel> {
        (!self.closed).then(|| CompletionChannel::readable(self.incoming().bell.descriptor()))
    }

    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        self.usable()?;
        let announce = (&self.state, &self.announcements);
        let reads_by_address = region.is_read_only() && {
            // If the socket is full, the next grant asks.
            if self.held.peer().must_ask() && Self::announce(announce, Announcement::Try, None).is_ok() {
                self.held.peer().asked();
            }
            self.held.peer().can_read()
        };
        self.given.grant(region, (range.start, range.end), rights, reads_by_address, |what, fd| {
            Self::announce(announce, what, fd.as_ref())
        })
    }

    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
        self.usable()?;
        self.given.revoke(grant)
    }

    fn give_back(&mut self) {
        self.held.give_back();
    }

    fn close(&mut self) {
        self.fail(FabricError::Lost);
        if self.closed || forked() {
            return;
        }
        self.closed = true;
        self.given.revoke_all();
        let last = self.state[0].load(Ordering::Relaxed) | CLOSED;
        // SYNC: everything that was published comes before it; pairs with the load in look_around.
        self.state[0].store(last, Ordering::Release);
        // SYNC: the grants are revoked and the link is closed before this side writes to its regions again; pairs with
        // the fences in Incoming::is_closed_by_peer and in Held::live_after.
        fence(Ordering::SeqCst);
        self.announcements.close();
        self.incoming().bell.close();
    }
}

impl Drop for ShmQueuePair {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for ShmQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("ShmQueuePair");
        out.field("capabilities", &self.capabilities).field("failure", &self.failure);
        out.field("counts", &self.counts()).finish_non_exhaustive()
    }
}
