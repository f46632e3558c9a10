//! The send ring of the present link, as all its senders reach it.
//!
//! Short buffers come from the strip of the sender's thread: one lock that no other thread takes, and no reference counted.
//! Everything else takes a reference to the ring, under a lock held for that moment, and comes from its chunks.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;

use pronto_sync::hint::spin_loop;
use pronto_sync::{CachePadded, TryLock, TryLockGuard, thread_number};

use super::loan::Loan;
use super::memory::Buffer;
use super::ring::{Exhausted, SendRing};
use super::strip::STRIPS;

/// Holds the present link's ring, or none.
pub(crate) struct PresentRing {
    ring: TryLock<Option<Arc<SendRing>>>,
    strips: [CachePadded<TryLock<Option<Arc<SendRing>>>>; STRIPS],
}

impl PresentRing {
    /// None.
    pub(crate) fn new() -> Self {
        let strips = core::array::from_fn(|_| CachePadded::new(TryLock::new(None)));
        Self { ring: TryLock::new(None), strips }
    }

    /// Puts another ring, or none, in the place of the one before, whose buffers live on.
    ///
    /// # Panics
    /// If the ring was in such a place before.
    pub(crate) fn set(&self, ring: Option<Arc<SendRing>>) {
        let with_strips = ring.as_ref().filter(|ring| ring.has_strips());
        if let Some(ring) = with_strips {
            assert!(ring.enter_strips(), "a ring is entered once");
        }
        for (index, strip) in self.strips.iter().enumerate() {
            let old = core::mem::replace(&mut *wait_for(strip), with_strips.map(Arc::clone));
            if let Some(old) = old {
                SendRing::retire_strip(old, index);
            }
        }
        let old = core::mem::replace(&mut *wait_for(&self.ring), ring);
        if let Some(old) = old {
            old.retire();
        }
    }

    /// The ring.
    pub(crate) fn ring(&self) -> Option<Arc<SendRing>> {
        wait_for(&self.ring).clone()
    }

    /// A buffer of `len` bytes of the present ring, if there is one; see [`SendRing::loan`].
    #[inline]
    pub(crate) fn loan(&self, len: usize, owner: u32) -> Option<Result<Loan, Exhausted>> {
        self.loan_by(thread_number(), len, owner)
    }

    /// The same by the thread of that number.
    #[inline]
    pub(super) fn loan_by(&self, thread: usize, len: usize, owner: u32) -> Option<Result<Loan, Exhausted>> {
        match self.loan_of_strip_by(thread, len, owner) {
            Some(loan) => Some(Ok(loan)),
            None => self.loan_of_chunks(len, owner),
        }
    }

    /// A buffer of the strip of this thread, if `len` bytes have room there.
    #[inline]
    pub(crate) fn loan_of_strip(&self, len: usize, owner: u32) -> Option<Loan> {
        self.loan_of_strip_by(thread_number(), len, owner)
    }

    #[inline]
    fn loan_of_strip_by(&self, thread: usize, len: usize, owner: u32) -> Option<Loan> {
        let buffer = self.take_in_strip(thread % STRIPS, len, owner);
        buffer.is_some().then(|| Loan::new(buffer))
    }

    /// A buffer of a strip, or none, which comes back in registers.
    #[inline(never)]
    fn take_in_strip(&self, index: usize, len: usize, owner: u32) -> Buffer {
        let Some(strip) = self.strips[index].try_lock() else { return Buffer::none() };
        let Some(ring) = &*strip else { return Buffer::none() };
        let extent = ring.take_in_strip(index, len, owner);
        extent.map_or(Buffer::none(), |extent| Buffer::in_strip(ring, index, extent))
    }

    #[cold]
    #[inline(never)]
    fn loan_of_chunks(&self, len: usize, owner: u32) -> Option<Result<Loan, Exhausted>> {
        Some(self.ring()?.loan(len, owner))
    }

    /// A strip that nobody has used since the last look but one, and whose memory may be given back; nobody uses it before the
    /// answer is dropped.
    pub(crate) fn idle_strip(&self) -> Option<IdleStrip<'_>> {
        let ring = self.ring()?;
        (0..STRIPS).filter(|index| ring.uses_strip(*index)).find_map(|index| {
            // Who holds it uses it.
            let strip = self.strips[index].try_lock()?;
            let range = strip.as_ref()?.idle_strip(index)?;
            Some(IdleStrip { _strip: strip, range })
        })
    }
}

/// A strip in the provider's hands, until dropped.
pub(crate) struct IdleStrip<'a> {
    _strip: TryLockGuard<'a, Option<Arc<SendRing>>>,
    range: Range<usize>,
}

impl IdleStrip<'_> {
    /// Its bytes, from the base of the memory.
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// The lock of a pointer, which is held for a moment.
fn wait_for(lock: &TryLock<Option<Arc<SendRing>>>) -> TryLockGuard<'_, Option<Arc<SendRing>>> {
    loop {
        match lock.try_lock() {
            Some(held) => return held,
            None => spin_loop(),
        }
    }
}

impl Drop for PresentRing {
    fn drop(&mut self) {
        self.set(None);
    }
}

impl fmt::Debug for PresentRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresentRing")
    }
}
