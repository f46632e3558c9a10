//! Registrations of regions, kept while the region lives: its memory cannot move under a registration that holds it.

use core::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pronto_core::fabric::{FabricError, Region, RegionMemory};
use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::sys::{Access, Domain, MemoryRegion, PinnedBytes};

/// The registered regions of one device.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    known: Mutex<Vec<Arc<MemoryRegion>>>,
    made: AtomicU64,
}

fn memory_of(registered: &MemoryRegion) -> Option<&Arc<dyn RegionMemory>> {
    match registered.bytes() {
        PinnedBytes::Region(memory) => Some(memory),
        PinnedBytes::Mapped(_) => None,
    }
}

impl Regions {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<MemoryRegion>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The registration of a region, if it has one.
    pub(crate) fn find(&self, region: &Region) -> Option<Arc<MemoryRegion>> {
        let wanted = Arc::as_ptr(region.memory()).cast::<()>();
        let is_it = |known: &&Arc<MemoryRegion>| {
            memory_of(known).is_some_and(|memory| ptr::eq(Arc::as_ptr(memory).cast::<()>(), wanted))
        };
        self.lock().iter().find(is_it).cloned()
    }

    /// The registration of a region, made now if there is none.
    pub(crate) fn register(
        &self,
        domain: &Arc<Domain>,
        region: &Region,
    ) -> Result<Arc<MemoryRegion>, FabricError> {
        if let Some(known) = self.find(region) {
            return Ok(known);
        }
        // The list grows here alone: a node whose threads always poll never arms, and would keep every region it ever used.
        self.forget_unused();
        let bytes = PinnedBytes::Region(Arc::clone(region.memory()));
        let made = MemoryRegion::register(domain, bytes, 0..region.len(), Access::Windows)?;
        self.made.fetch_add(1, Ordering::Relaxed);
        self.lock().push(Arc::clone(&made));
        Ok(made)
    }

    /// Ends registrations of regions that nobody else holds any more, and that no request uses.
    pub(crate) fn forget_unused(&self) {
        self.lock().retain(|known| {
            Arc::strong_count(known) > 1
                || memory_of(known).is_some_and(|memory| Arc::strong_count(memory) > 1)
        });
    }

    /// Registrations made so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}
