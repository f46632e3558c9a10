//! Leases: received payloads in the memory where the peer composed them, and the handling of too many of them.
//!
//! A held lease delays the reuse of the *sender's* send memory, so the amount lent at a time is bounded. A payload
//! beyond the bound is copied into memory of this side and released immediately.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use pronto_core::fabric::region::SharedBytes;
use pronto_core::fabric::{OutOfBounds, Payload, Withdrawn};
use pronto_sync::Event;
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::bell::Bell;
use crate::layout::CLOSED;
use crate::map::{Mapping, OwnArray, PeerArray, forked};

/// Maximum number of bytes of a peer's memory that are lent at a time: two chunks of its send memory.
pub(crate) const MAX_LENT: u64 = 8 << 20;
/// Maximum number of bytes in private copies at a time. Beyond it, payloads stay in the peer's memory, and flow control
/// stops the peer.
pub(crate) const MAX_COPIED: u64 = 8 << 20;
/// Maximum number of private buffers kept for later copies.
const SPARE_BUFFERS: usize = 16;

/// Increment of the lent count per lease; the lower bits count bytes.
const ONE_LEASE: u64 = 1 << 40;

/// State shared by the leases of a queue pair; it lives until the last of them is dropped.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The peer's send memory.
    pub(crate) memory: Mapping,
    /// The peer's state word.
    state: PeerArray<AtomicU64>,
    /// Release count, then the done words, in this side's segment.
    pub(crate) done: OwnArray<AtomicU32>,
    /// Wakes a peer that sleeps while it waits for send memory.
    pub(crate) bell: Bell,
    /// Leases and bytes lent so far (written only by the engine), and returned so far.
    lent: AtomicU64,
    returned: AtomicU64,
    copied: AtomicU64,
    spare: Mutex<Vec<Vec<u8>>>,
    /// Buffer for `read_copy`, as long as the longest copy so far; empty while a thread uses it.
    scratch: Mutex<Vec<u8>>,
    max_leases: u64,
}

impl Incoming {
    pub(crate) fn new(
        (memory, state): (Mapping, PeerArray<AtomicU64>),
        done: OwnArray<AtomicU32>,
        bell: Bell,
    ) -> Self {
        let max_leases = done.len() as u64 / 2;
        let [lent, returned, copied] = [0; 3].map(AtomicU64::new);
        let spare = Mutex::new(Vec::with_capacity(SPARE_BUFFERS));
        let scratch = Mutex::default();
        Self { memory, state, done, bell, lent, returned, copied, spare, scratch, max_leases }
    }

    /// Returns the number of bytes of the peer's memory that are lent now, and the number of leases.
    pub(crate) fn lent(&self) -> (u64, u64) {
        let returned = self.returned.load(Ordering::Relaxed);
        let lent = self.lent.load(Ordering::Relaxed).wrapping_sub(returned);
        (lent % ONE_LEASE, lent / ONE_LEASE)
    }

    /// Returns whether the peer has closed the link. If it has not, everything read from its memory before this call is
    /// what it sent: the peer writes to a region again only after closing.
    fn is_closed_by_peer(&self) -> bool {
        // SYNC: orders the loads of the payload before that of the state word; pairs with the fence in ShmQueuePair::close.
        fence(Ordering::Acquire);
        self.state.load(0, Ordering::Relaxed) & CLOSED != 0
    }

    fn lend(&self, len: u32) {
        let lent = self.lent.load(Ordering::Relaxed).wrapping_add(ONE_LEASE + u64::from(len));
        self.lent.store(lent, Ordering::Relaxed);
    }

    /// Returns whether a payload of this length may be lent.
    pub(crate) fn may_lend(&self, len: u32) -> bool {
        let (bytes, leases) = self.lent();
        bytes + u64::from(len) <= MAX_LENT && leases < self.max_leases
    }

    /// Returns memory for a private copy, or `None` if too much is copied already.
    fn private(&self, len: u32) -> Option<Vec<u8>> {
        // Only the engine adds, so the sum cannot exceed the bound between the load and the copy.
        let room = self.copied.load(Ordering::Relaxed) + u64::from(len) <= MAX_COPIED;
        room.then(|| self.private_anyway(len))
    }

    /// Returns memory for a private copy, regardless of the bound.
    fn private_anyway(&self, len: u32) -> Vec<u8> {
        self.copied.fetch_add(len.into(), Ordering::Relaxed);
        let mut buffer = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        buffer.clear();
        buffer.resize(len as usize, 0);
        buffer
    }

    fn give_back(&self, buffer: Vec<u8>) {
        self.copied.fetch_sub(buffer.len() as u64, Ordering::Relaxed);
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_BUFFERS {
            spare.push(buffer);
        }
    }

    /// Copies a payload and passes the copy to `read` if it is valid.
    fn read_copy(&self, place: &Place, read: &mut dyn FnMut(&[u8])) {
        let scratch = || self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = core::mem::take(&mut *scratch());
        let len = place.len as usize;
        if buffer.len() < len {
            buffer = vec![0; len];
        }
        place.read(self, 0, &mut buffer[..len]).expect("the place was checked");
        if place.validate(self).is_ok() {
            read(&buffer[..len]);
        }
        let mut kept = scratch();
        if kept.len() < buffer.len() {
            *kept = buffer;
        }
    }

    /// Notifies the sender that it may overwrite a payload.
    fn release(&self, release: Release) {
        // SYNC: the payload was read before this; pairs with the load of the done word in Sending::poll_released.
        self.done[1 + release.tag as usize].store(release.token, Ordering::Release);
        // SYNC: publishes the done word; pairs with the load of the count in Sending::poll_released.
        self.done[0].fetch_add(1, Ordering::Release);
        self.bell.wake_if_armed(Event::Unsolicited);
    }
}

/// Done word and its new value, to be written when a payload may be overwritten. The tag was checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    pub(crate) tag: u32,
    pub(crate) token: u32,
}

/// Place of a payload in the peer's memory. The range was checked.
#[derive(Debug)]
pub(crate) struct Place {
    /// Region that holds the payload; `None` for the peer's send memory.
    pub(crate) region: Option<Arc<Mapping>>,
    /// Offset of the first byte.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u32,
}

impl Place {
    pub(crate) fn lend<'a>(&'a self, incoming: &'a Incoming) -> Option<SharedBytes<'a>> {
        self.memory(incoming).lend(self.offset, self.len as usize).ok()
    }

    /// Checks that bytes read from this place are what the peer sent. Send memory needs no check: its ring takes no new
    /// buffers once the link has ended.
    fn validate(&self, incoming: &Incoming) -> Result<(), Withdrawn> {
        if self.region.is_some() && incoming.is_closed_by_peer() { Err(Withdrawn) } else { Ok(()) }
    }

    fn memory<'a>(&'a self, incoming: &'a Incoming) -> &'a Mapping {
        self.region.as_deref().unwrap_or(&incoming.memory)
    }

    fn read(&self, incoming: &Incoming, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let len = self.len as usize;
        if offset.checked_add(out.len()).is_none_or(|end| end > len) {
            return Err(OutOfBounds { offset, wanted: out.len(), len });
        }
        self.memory(incoming).read(self.offset + offset as u64, out)
    }
}

enum Held {
    Shared(Place, Release),
    Private(Vec<u8>),
}

/// A received payload. The peer may write to its memory meanwhile, so callers copy it out and never borrow it. A
/// payload that was copied because too many are held is private.
pub struct ShmLease {
    held: Held,
    incoming: Arc<Incoming>,
}

impl ShmLease {
    /// Returns a lease with a private copy, which `fill` writes. It ignores the bound on copies: there are never more
    /// such leases than messages that this side granted credits for.
    pub(crate) fn copied(incoming: &Arc<Incoming>, len: u32, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut buffer = incoming.private_anyway(len);
        fill(&mut buffer);
        Self { held: Held::Private(buffer), incoming: Arc::clone(incoming) }
    }

    /// Lends a payload, or copies it if too much is lent already. Returns an error if the payload is in a region and
    /// its sender has closed the link.
    pub(crate) fn new(
        incoming: &Arc<Incoming>,
        place: Place,
        release: Release,
    ) -> Result<(Self, Taken), Withdrawn> {
        let incoming = Arc::clone(incoming);
        if !incoming.may_lend(place.len)
            && let Some(mut buffer) = incoming.private(place.len)
        {
            place.read(&incoming, 0, &mut buffer).expect("the place was checked");
            if let Err(withdrawn) = place.validate(&incoming) {
                incoming.give_back(buffer);
                return Err(withdrawn);
            }
            incoming.release(release);
            return Ok((Self { held: Held::Private(buffer), incoming }, Taken::Copied));
        }
        place.validate(&incoming)?;
        incoming.lend(place.len);
        Ok((Self { held: Held::Shared(place, release), incoming }, Taken::Lent))
    }
}

/// How a payload was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It stays in the peer's memory until the lease is dropped.
    Lent,
    /// It was copied.
    Copied,
}

impl Payload for ShmLease {
    fn len(&self) -> usize {
        match &self.held {
            Held::Shared(place, _) => place.len as usize,
            Held::Private(bytes) => bytes.len(),
        }
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let refused = OutOfBounds { offset, wanted: out.len(), len: self.len() };
        match &self.held {
            Held::Shared(..) if forked() => Err(refused),
            Held::Shared(place, _) => place.read(&self.incoming, offset, out),
            Held::Private(bytes) => {
                let end = offset.checked_add(out.len()).ok_or(refused)?;
                out.copy_from_slice(bytes.get(offset..end).ok_or(refused)?);
                Ok(())
            }
        }
    }

    fn as_private(&self) -> Option<&[u8]> {
        match &self.held {
            Held::Shared(..) => None,
            Held::Private(bytes) => Some(bytes),
        }
    }

    fn as_shared(&self) -> Option<SharedBytes<'_>> {
        match &self.held {
            Held::Shared(..) if forked() => None,
            Held::Shared(place, _) => place.lend(&self.incoming),
            Held::Private(_) => None,
        }
    }

    fn validate(&self) -> Result<(), Withdrawn> {
        match &self.held {
            Held::Shared(..) if forked() => Err(Withdrawn),
            Held::Shared(place, _) => place.validate(&self.incoming),
            Held::Private(_) => Ok(()),
        }
    }

    fn read_copy(&self, read: &mut dyn FnMut(&[u8])) {
        match &self.held {
            Held::Shared(..) if forked() => {}
            Held::Shared(place, _) => self.incoming.read_copy(place, read),
            Held::Private(bytes) => read(bytes),
        }
    }
}

impl Drop for ShmLease {
    fn drop(&mut self) {
        match &mut self.held {
            Held::Shared(..) if forked() => {}
            Held::Shared(place, release) => {
                self.incoming.returned.fetch_add(ONE_LEASE + u64::from(place.len), Ordering::Relaxed);
                self.incoming.release(*release);
            }
            Held::Private(bytes) => self.incoming.give_back(core::mem::take(bytes)),
        }
    }
}

impl fmt::Debug for ShmLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShmLease").field("len", &self.len()).finish_non_exhaustive()
    }
}
