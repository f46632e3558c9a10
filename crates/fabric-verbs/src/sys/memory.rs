//! Registered memory, and windows onto it.

use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use nix::errno::Errno;
use pronto_core::fabric::{FabricError, RegionMemory, SendMemory};
use pronto_mapping::Mapping;

use super::context::{Domain, Registered};
use crate::error::{VerbsError, last, not_registered};
use crate::ffi::{alloc_window, ibv_access_flags, ibv_dealloc_mw, ibv_dereg_mr, ibv_mr, ibv_mw, ibv_reg_mr};

/// Access of a registration. None of them permits remote access: only a window does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The device writes received data, or reads data to send.
    Local,
    /// As `Local`, and windows may be bound to it.
    Windows,
}

/// Access flags that would let peers access a registration directly.
const REMOTE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;

impl Access {
    fn flags(self) -> i32 {
        let flags = match self {
            Self::Local => ibv_access_flags::IBV_ACCESS_LOCAL_WRITE,
            Self::Windows => ibv_access_flags::IBV_ACCESS_LOCAL_WRITE | ibv_access_flags::IBV_ACCESS_MW_BIND,
        };
        i32::try_from(flags.0).unwrap_or(0)
    }
}

/// Bytes that a device may access, with the owner that keeps them in place.
#[derive(Clone, Debug)]
pub(crate) enum PinnedBytes {
    /// Memory in which messages are composed or received.
    Mapped(Arc<Mapping>),
    /// Memory of a region, created by an embedding program.
    Region(Arc<dyn RegionMemory>),
}

impl PinnedBytes {
    fn base(&self) -> NonNull<u8> {
        match self {
            Self::Mapped(mapping) => mapping.base(),
            Self::Region(memory) => memory.base(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Mapped(mapping) => SendMemory::len(&**mapping),
            Self::Region(memory) => memory.len(),
        }
    }
}

/// Registered memory.
pub(crate) struct MemoryRegion {
    raw: NonNull<ibv_mr>,
    range: Range<usize>,
    bytes: PinnedBytes,
    domain: Arc<Domain>,
}

// SAFETY: as for Context.
unsafe impl Send for MemoryRegion {}
// SAFETY: as for Context.
unsafe impl Sync for MemoryRegion {}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryRegion").field(&self.range).finish()
    }
}

impl MemoryRegion {
    /// Pins and registers a range, which must lie in the memory.
    pub(crate) fn register(
        domain: &Arc<Domain>,
        bytes: PinnedBytes,
        range: Range<usize>,
        access: Access,
    ) -> Result<Arc<Self>, FabricError> {
        if range.start > range.end || range.end > bytes.len() {
            return Err(FabricError::System { errno: Errno::EINVAL as i32 });
        }
        // SAFETY: range.start <= bytes.len(), so that the sum stays within the memory.
        let first = unsafe { bytes.base().add(range.start) };
        // SAFETY: invariants 1 and 2: the memory stays in place while `bytes` lives, which this value holds.
        let raw = unsafe { ibv_reg_mr(domain.raw(), first.as_ptr().cast(), range.len(), access.flags()) };
        let raw = NonNull::new(raw).ok_or_else(|| not_registered(range.len(), Errno::last()))?;
        let this = Self { raw, range, bytes, domain: Arc::clone(domain) };
        let registered =
            Registered { len: this.range.len(), remote: access.flags().cast_unsigned() & REMOTE != 0 };
        domain.registered.lock().unwrap_or_else(PoisonError::into_inner).insert(this.key(), registered);
        Ok(Arc::new(this))
    }

    /// Returns the registered range of the memory.
    pub(crate) fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// Returns the memory.
    pub(crate) fn bytes(&self) -> &PinnedBytes {
        &self.bytes
    }

    /// Returns the address and the key of the byte at `offset` of the memory, for the device. The offset must lie in
    /// the range.
    pub(crate) fn local(&self, offset: usize) -> (u64, u32) {
        debug_assert!(self.range.start <= offset && offset <= self.range.end);
        (self.bytes.base().as_ptr() as u64 + offset as u64, self.key())
    }

    fn key(&self) -> u32 {
        // SAFETY: a live registration (invariant 1).
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    pub(super) fn raw(&self) -> *mut ibv_mr {
        self.raw.as_ptr()
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // Before the device assigns the key to another registration.
        self.domain.registered.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key());
        // SAFETY: invariant 1. A window that is still bound would make it fail: the owner of a window holds this.
        let ended = unsafe { ibv_dereg_mr(self.raw.as_ptr()) };
        debug_assert_eq!(ended, 0, "ibv_dereg_mr");
    }
}

/// A type-2 memory window, which lets one peer access a piece of registered memory over one queue pair.
pub(crate) struct MemoryWindow {
    raw: NonNull<ibv_mw>,
    _domain: Arc<Domain>,
}

// SAFETY: as for Context.
unsafe impl Send for MemoryWindow {}
// SAFETY: as for Context; a key is changed by the queue of the one queue pair that uses it.
unsafe impl Sync for MemoryWindow {}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryWindow({:#x})", self.key())
    }
}

impl MemoryWindow {
    pub(crate) fn new(domain: &Arc<Domain>) -> Result<Self, VerbsError> {
        // SAFETY: a live protection domain.
        let raw = NonNull::new(unsafe { alloc_window(domain.raw()) });
        let raw = raw.ok_or_else(|| last("ibv_alloc_mw"))?;
        Ok(Self { raw, _domain: Arc::clone(domain) })
    }

    /// Returns the key of the last binding, once its request was posted.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: a live window (invariant 1).
        unsafe { (*self.raw.as_ptr()).rkey }
    }

    /// Returns the key of the next binding: the same window, another variant (ibv_inc_rkey(3)).
    pub(super) fn next_key(&self) -> u32 {
        let key = self.key();
        (key & !0xff) | (key.wrapping_add(1) & 0xff)
    }

    pub(super) fn raw(&self) -> NonNull<ibv_mw> {
        self.raw
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // SAFETY: invariant 1. This also ends a binding: its key is invalid from then on.
        let _freed = unsafe { ibv_dealloc_mw(self.raw.as_ptr()) };
    }
}
