//! A shared receive queue.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use nix::errno::Errno;

use super::context::Domain;
use crate::error::{VerbsError, last};
use crate::ffi::{
    ibv_create_srq, ibv_destroy_srq, ibv_post_srq_recv, ibv_recv_wr, ibv_sge, ibv_srq, ibv_srq_attr,
    ibv_srq_init_attr,
};

/// Receives that every queue pair of the domain can use.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    raw: NonNull<ibv_srq>,
    _domain: Arc<Domain>,
}

// SAFETY: as for Context.
unsafe impl Send for SharedReceives {}
// SAFETY: posting receives is the only call made here, and the library locks it.
unsafe impl Sync for SharedReceives {}

impl SharedReceives {
    /// Creates a queue of at most `receives`.
    pub(crate) fn new(domain: &Arc<Domain>, receives: u32) -> Result<Self, VerbsError> {
        let mut wanted = ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            attr: ibv_srq_attr { max_wr: receives, max_sge: 1, srq_limit: 0 },
        };
        // SAFETY: a live domain; the attributes outlive the call.
        let raw = NonNull::new(unsafe { ibv_create_srq(domain.raw(), &raw mut wanted) });
        Ok(Self { raw: raw.ok_or_else(|| last("ibv_create_srq"))?, _domain: Arc::clone(domain) })
    }

    pub(super) fn raw(&self) -> *mut ibv_srq {
        self.raw.as_ptr()
    }

    /// Posts one receive under a name.
    ///
    /// # Safety
    /// The `len` bytes at `address` must be registered under `key` in this domain, and stay so until the receive has
    /// completed. Nothing else may access them until then.
    pub(crate) unsafe fn post(&self, id: u64, (address, key): (u64, u32), len: u32) -> Result<(), Errno> {
        let mut place = ibv_sge { addr: address, length: len, lkey: key };
        let mut receive =
            ibv_recv_wr { wr_id: id, next: ptr::null_mut(), sg_list: &raw mut place, num_sge: 1 };
        let mut refused = ptr::null_mut();
        // SAFETY: a live queue; the request is copied by the call, and the caller guarantees the bytes.
        match unsafe { ibv_post_srq_recv(self.raw.as_ptr(), &raw mut receive, &raw mut refused) } {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno)),
        }
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        // SAFETY: invariant 1: every queue pair holds an owner of this.
        let _destroyed = unsafe { ibv_destroy_srq(self.raw.as_ptr()) };
    }
}
