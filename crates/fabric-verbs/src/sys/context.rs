//! Devices, their ports and addresses; protection domains.

use core::ffi::CStr;
use core::fmt;
use core::mem::MaybeUninit;
use core::net::{IpAddr, Ipv6Addr};
use core::ptr::NonNull;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use pronto_core::fabric::FabricError;
use pronto_mapping::Mapping;
use pronto_sync::atomic::{AtomicU32, Ordering};

use crate::device::Place;
use crate::error::{VerbsError, last};
use crate::ffi::{
    ibv_ack_async_event, ibv_alloc_pd, ibv_async_event, ibv_atomic_cap, ibv_close_device, ibv_context,
    ibv_dealloc_pd, ibv_device_attr, ibv_fork_init, ibv_free_device_list, ibv_get_async_event,
    ibv_get_device_list, ibv_get_device_name, ibv_gid, ibv_open_device, ibv_pd, ibv_port_attr,
    ibv_port_state, ibv_query_device, ibv_query_gid, query_port,
};

/// Address of a port on the fabric, 16 bytes. On RoCE, this is the IP address of its network device; an IPv4 address is
/// mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

impl Gid {
    /// Returns the GID table entry for an IP address (InfiniBand specification, annex A17).
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        })
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).to_canonical().fmt(f)
    }
}

/// A port of a device, and the entry of its GID table to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortAddress {
    /// Port number, starting from 1.
    pub(crate) port: u8,
    /// Index in the port's GID table.
    pub(crate) gid_index: u8,
    /// GID table entry.
    pub(crate) gid: Gid,
    /// Local identifier; 0 on Ethernet.
    pub(crate) lid: u16,
    /// `ibv_mtu`: 1 for 256 bytes, to 5 for 4096.
    pub(crate) mtu: u32,
    /// Longest message, bytes.
    pub(crate) max_message: u32,
}

/// The vendor number of soft-RoCE, `RXE_VENDOR_ID` in drivers/infiniband/sw/rxe/rxe_param.h.
const SOFT_ROCE: u32 = 0xff_ffff;

/// Relevant capabilities of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceLimits {
    pub(crate) max_srq_wr: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) max_cqe: u32,
    /// Maximum number of outstanding reads and atomics, as target and as initiator.
    pub(crate) max_reads: [u8; 2],
    pub(crate) has_atomics: bool,
    pub(crate) atomics_are_global: bool,
    pub(crate) is_soft_roce: bool,
}

/// An open device.
pub(crate) struct Context {
    raw: NonNull<ibv_context>,
    name: String,
    /// Name of the file by which the device was opened.
    character_device: String,
    limits: DeviceLimits,
}

// SAFETY: the library's objects may be used from any thread (verbs(7), invariant 3).
unsafe impl Send for Context {}
// SAFETY: as for Send; calls that change a context are protected by the library's own locks.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name).finish()
    }
}

impl Context {
    /// Opens every device that can be opened.
    pub(crate) fn open_all() -> Result<Vec<Arc<Self>>, VerbsError> {
        // SAFETY: no argument; must come before any registration, and each caller here registers later. It does nothing
        // on kernels that copy pinned pages when forking.
        let forks = unsafe { ibv_fork_init() };
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        let list = NonNull::new(unsafe { ibv_get_device_list(&raw mut count) });
        let list = list.ok_or_else(|| VerbsError::NoDevice(Errno::last()))?;
        if forks != 0 {
            // SAFETY: the list that was just made, freed once.
            unsafe { ibv_free_device_list(list.as_ptr()) };
            return Err(VerbsError::System { what: "ibv_fork_init", errno: Errno::from_raw(forks) });
        }
        let opened = (0..usize::try_from(count).unwrap_or(0))
            .filter_map(|at| {
                // SAFETY: the list has `count` entries.
                let entry = unsafe { list.add(at) };
                // SAFETY: each entry is a device until the list is freed.
                let device = unsafe { entry.read() };
                // SAFETY: as above.
                let name = unsafe { ibv_get_device_name(device) };
                // SAFETY: a string that lives as long as the list.
                let name = unsafe { CStr::from_ptr(name) };
                // SAFETY: as above.
                let raw = NonNull::new(unsafe { ibv_open_device(device) })?;
                Self::adopt(raw, name.to_string_lossy().into_owned())
            })
            .map(Arc::new)
            .collect();
        // SAFETY: freed once; opened devices stay open.
        unsafe { ibv_free_device_list(list.as_ptr()) };
        Ok(opened)
    }

    fn adopt(raw: NonNull<ibv_context>, name: String) -> Option<Self> {
        let mut found = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: an open device; `found` outlives the call.
        let failed = unsafe { ibv_query_device(raw.as_ptr(), found.as_mut_ptr()) };
        // SAFETY: it was zeroed, and every bit pattern of it is a value.
        let found = unsafe { found.assume_init() };
        let positive = |n: i32| u32::try_from(n).unwrap_or(0);
        let byte = |n: i32| u8::try_from(n.clamp(0, 128)).unwrap_or(0);
        let limits = DeviceLimits {
            max_srq_wr: positive(found.max_srq_wr),
            max_qp_wr: positive(found.max_qp_wr),
            max_cqe: positive(found.max_cqe),
            max_reads: [byte(found.max_qp_rd_atom), byte(found.max_qp_init_rd_atom)],
            has_atomics: found.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE,
            atomics_are_global: found.atomic_cap == ibv_atomic_cap::IBV_ATOMIC_GLOB,
            is_soft_roce: found.vendor_id == SOFT_ROCE,
        };
        // SAFETY: an open device, which names the one it was opened from.
        let device = unsafe { (*raw.as_ptr()).device };
        // SAFETY: it lives as long as the open device.
        let file = unsafe { &raw const (*device).dev_name };
        // SAFETY: a string that ends within its array.
        let file = unsafe { CStr::from_ptr(file.cast()) };
        let character_device = file.to_string_lossy().into_owned();
        let this = Self { raw, name, character_device, limits };
        let flags = fcntl(this.events(), FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
        let quiet =
            flags.and_then(|flags| fcntl(this.events(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)));
        (failed == 0 && quiet.is_ok()).then_some(this)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the device file, such as `uverbs0`.
    pub(crate) fn character_device(&self) -> &str {
        &self.character_device
    }

    pub(crate) fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    pub(super) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// Returns the number of completion vectors. If the device has several, each has its own interrupt.
    pub(crate) fn completion_vectors(&self) -> u32 {
        // SAFETY: an open device.
        let count = unsafe { (*self.raw()).num_comp_vectors };
        u32::try_from(count).unwrap_or(0)
    }

    /// Returns the descriptor that becomes readable when there is an asynchronous event.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: an open device.
        let fd = unsafe { (*self.raw()).async_fd };
        // SAFETY: the library keeps this descriptor open as long as the context, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Returns the next asynchronous event, if there is one.
    pub(crate) fn next_event(&self) -> Option<AsyncEvent> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: an open device; `event` outlives the call. The descriptor does not block.
        if unsafe { ibv_get_async_event(self.raw(), event.as_mut_ptr()) } != 0 {
            return None;
        }
        let at = event.as_mut_ptr();
        // SAFETY: within `event`.
        let kind = unsafe { &raw const (*at).event_type };
        // SAFETY: the library has filled it; it is read as a number, since a newer library may know more types.
        let kind = unsafe { kind.cast::<u32>().read() };
        let seen = AsyncEvent::of(kind, || {
            // SAFETY: filled by the library.
            let element = unsafe { &(*at).element };
            // SAFETY: for these types the element is a queue pair.
            let failed = unsafe { element.qp };
            // SAFETY: it lives until its event was acknowledged.
            unsafe { (*failed).qp_num }
        });
        // SAFETY: each event is acknowledged once.
        unsafe { ibv_ack_async_event(at) };
        Some(seen)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        let _closed = unsafe { ibv_close_device(self.raw()) };
    }
}

/// An asynchronous event of a device (ibv_get_async_event(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsyncEvent {
    /// The queue pair with this number is in the error state, or about to be.
    QueuePairFailed(u32),
    /// The device is gone.
    DeviceGone,
    /// Another event, such as a changed port or address, which by itself breaks no connection.
    Other(u32),
}

impl AsyncEvent {
    fn of(kind: u32, queue_pair: impl FnOnce() -> u32) -> Self {
        match kind {
            // IBV_EVENT_QP_FATAL, _QP_REQ_ERR, _QP_ACCESS_ERR
            1..=3 => Self::QueuePairFailed(queue_pair()),
            // IBV_EVENT_DEVICE_FATAL
            8 => Self::DeviceGone,
            other => Self::Other(other),
        }
    }
}

/// A protection domain. Its queue pairs can access the memory that is registered in it.
#[derive(Debug)]
pub(crate) struct Domain {
    raw: NonNull<ibv_pd>,
    context: Arc<Context>,
    place: Place,
    /// Last error number of a failed attempt to take memory from the placement's node; 0 if there was none.
    memory_refused: AtomicU32,
    /// Every registration in the domain, by local key.
    pub(super) registered: Mutex<HashMap<u32, Registered>>,
}

/// A registration, and the access that it gives to peers by its own key, without a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Length in bytes.
    pub len: usize,
    /// True if a peer may read, write or modify it.
    pub remote: bool,
}

// SAFETY: as for Context.
unsafe impl Send for Domain {}
// SAFETY: as for Context.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(context: &Arc<Context>, place: Place) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: an open device.
        let raw = NonNull::new(unsafe { ibv_alloc_pd(context.raw()) }).ok_or_else(|| last("ibv_alloc_pd"))?;
        let (context, registered) = (Arc::clone(context), Mutex::default());
        Ok(Arc::new(Self { raw, context, place, memory_refused: AtomicU32::new(0), registered }))
    }

    /// Returns the placement of the device's resources.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Returns memory for the device, from the placement's node if possible. Registration makes the kernel touch the
    /// memory, on the preferred node.
    pub(crate) fn memory(&self, len: u32) -> Result<Arc<Mapping>, FabricError> {
        let memory = Mapping::new(len)?;
        if let Some(node) = self.place.memory_node
            && let Err(FabricError::System { errno }) = memory.prefer_node(node)
        {
            self.memory_refused.store(errno.unsigned_abs(), Ordering::Relaxed);
        }
        Ok(Arc::new(memory))
    }

    pub(crate) fn memory_refused(&self) -> Option<Errno> {
        let errno = i32::try_from(self.memory_refused.load(Ordering::Relaxed)).unwrap_or(0);
        (errno != 0).then(|| Errno::from_raw(errno))
    }

    /// Returns every registration.
    pub(crate) fn registrations(&self) -> Vec<Registered> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        let _freed = unsafe { ibv_dealloc_pd(self.raw()) };
    }
}

/// Returns every entry of the GID table of every active port.
pub(crate) fn active_ports(context: &Context) -> Vec<PortAddress> {
    let mut found = Vec::new();
    for port in 1..=u8::MAX {
        let mut attributes = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: an open device; `attributes` outlives the call.
        let failed = unsafe { query_port(context.raw(), port, attributes.as_mut_ptr()) };
        // SAFETY: it was zeroed, and every bit pattern of it is a value.
        let attributes = unsafe { attributes.assume_init() };
        if failed != 0 {
            break;
        }
        if attributes.state != ibv_port_state::IBV_PORT_ACTIVE {
            continue;
        }
        let entries = attributes.gid_tbl_len.clamp(0, 255);
        for index in 0..u8::try_from(entries).unwrap_or(0) {
            let mut gid = ibv_gid { raw: [0; 16] };
            // SAFETY: as above.
            let failed = unsafe { ibv_query_gid(context.raw(), port, index.into(), &raw mut gid) };
            // SAFETY: every bit pattern is an array of bytes.
            let gid = Gid(unsafe { gid.raw });
            if failed == 0 && gid.0 != [0; 16] {
                found.push(PortAddress {
                    port,
                    gid_index: index,
                    gid,
                    lid: attributes.lid,
                    mtu: attributes.active_mtu,
                    max_message: attributes.max_msg_sz,
                });
            }
        }
    }
    found
}
