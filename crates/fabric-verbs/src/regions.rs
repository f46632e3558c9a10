//! Registrations of regions, kept while the region lives. A registration holds the region's memory, so that the memory
//! stays in place.

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

    /// Returns the registration of a region, if it has one.
    pub(crate) fn find(&self, region: &Region) -> Option<Arc<MemoryRegion>> {
        let wanted = Arc::as_ptr(region.memory()).cast::<()>();
        let is_it = |known: &&Arc<MemoryRegion>| {
            memory_of(known).is_some_and(|memory| ptr::eq(Arc::as_ptr(memory).cast::<()>(), wanted))
        };
        self.lock().iter().find(is_it).cloned()
    }

    /// Returns the registration of a region, and makes it if there is none.
    pub(crate) fn register(
        &self,
        domain: &Arc<Domain>,
        region: &Region,
    ) -> Result<Arc<MemoryRegion>, FabricError> {
        if let Some(known) = self.find(region) {
            return Ok(known);
        }
        // The list grows only here: a node whose threads always poll never arms, and would otherwise keep every region
        // that it ever used.
        self.forget_unused();
        let bytes = PinnedBytes::Region(Arc::clone(region.memory()));
        let made = MemoryRegion::register(domain, bytes, 0..region.len(), Access::Windows)?;
        self.made.fetch_add(1, Ordering::Relaxed);
        self.lock().push(Arc::clone(&made));
        Ok(made)
    }

    /// Ends registrations of regions that have no other holder and that no request uses.
    pub(crate) fn forget_unused(&self) {
        self.lock().retain(|known| {
            Arc::strong_count(known) > 1
                || memory_of(known).is_some_and(|memory| Arc::strong_count(memory) > 1)
        });
    }

    /// Returns the number of registrations made so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}
