//! The send ring of the present link, as senders reach it.

use alloc::sync::Arc;
use core::fmt;

use pronto_sync::TryLock;
use pronto_sync::hint::spin_loop;

use super::refusal::Refused;
use crate::buf::{Loan, SendRing};

/// Holds the present link's ring. The lock is held for the moment of cloning a pointer.
pub(super) struct RingCell {
    ring: TryLock<Option<Arc<SendRing>>>,
}

impl RingCell {
    pub(super) fn new() -> Self {
        Self { ring: TryLock::new(None) }
    }

    pub(super) fn set(&self, ring: Option<Arc<SendRing>>) {
        let old = self.with(|held| core::mem::replace(held, ring));
        drop(old);
    }

    pub(super) fn ring(&self) -> Option<Arc<SendRing>> {
        self.with(|held| held.clone())
    }

    pub(super) fn loan(&self, len: usize, owner: u32) -> Result<Loan, Refused> {
        let ring = self.ring().ok_or(Refused::NoRing)?;
        ring.loan(len, owner).map_err(Refused::Ring)
    }

    fn with<R>(&self, use_it: impl FnOnce(&mut Option<Arc<SendRing>>) -> R) -> R {
        loop {
            if let Some(mut held) = self.ring.try_lock() {
                return use_it(&mut held);
            }
            spin_loop();
        }
    }
}

impl fmt::Debug for RingCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RingCell")
    }
}
