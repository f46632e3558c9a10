//! The only module that names a binding of libibverbs.
//!
//! `rdma-mummy-sys` loads libibverbs at the first call of one of its functions, so that a program built with this crate
//! starts on a machine without RDMA and finds no device there. `rdma-sys`, selected by `--cfg pronto_rdma_sys`, links
//! the library and needs its headers. Both use the same names.
#![expect(unsafe_code, reason = "where the bindings differ, both are called here")]

#[cfg(not(pronto_rdma_sys))]
pub(crate) use rdma_mummy_sys::*;
#[cfg(pronto_rdma_sys)]
pub(crate) use rdma_sys::*;

/// Calls `ibv_alloc_mw`. Returns null on failure.
///
/// # Safety
/// The protection domain must be live.
pub(crate) unsafe fn alloc_window(domain: *mut ibv_pd) -> *mut ibv_mw {
    // SAFETY: the caller's guarantee is passed on.
    let made = unsafe { ibv_alloc_mw(domain, ibv_mw_type::IBV_MW_TYPE_2) };
    #[cfg(pronto_rdma_sys)]
    let made = made.unwrap_or(core::ptr::null_mut());
    made
}

/// Calls `ibv_query_port`. Returns 0 on success.
///
/// # Safety
/// The device must be open, and `into` must have room for the attributes.
pub(crate) unsafe fn query_port(context: *mut ibv_context, port: u8, into: *mut ibv_port_attr) -> i32 {
    // One binding has the function that C programs see, the other one has the old interface under this name.
    #[cfg(not(pronto_rdma_sys))]
    let query = ibv_query_port;
    #[cfg(pronto_rdma_sys)]
    let query = ___ibv_query_port;
    // SAFETY: the caller's guarantee is passed on.
    unsafe { query(context, port, into) }
}

#[cfg(test)]
mod tests {
    use core::mem::{align_of, offset_of, size_of};

    use super::*;

    /// These types are hand-written in the bindings; the numbers are those of verbs.h on x86-64.
    #[test]
    fn hand_written_types_have_the_library_s_layout() {
        assert_eq!((size_of::<ibv_wc>(), align_of::<ibv_wc>()), (48, 8));
        assert_eq!(offset_of!(ibv_wc, status), 8);
        assert_eq!(offset_of!(ibv_wc, byte_len), 20);
        assert_eq!(offset_of!(ibv_wc, qp_num), 28);
        assert_eq!(offset_of!(ibv_wc, wc_flags), 36);
        assert_eq!((size_of::<ibv_send_wr>(), align_of::<ibv_send_wr>()), (128, 8));
        assert_eq!(offset_of!(ibv_send_wr, opcode), 28);
        assert_eq!(offset_of!(ibv_send_wr, imm_data_invalidated_rkey_union), 36);
        assert_eq!(offset_of!(ibv_send_wr, wr), 40);
        assert_eq!(offset_of!(ibv_send_wr, bind_mw_tso_union), 80);
        assert_eq!((size_of::<ibv_gid>(), align_of::<ibv_gid>()), (16, 8));
        assert_eq!(size_of::<ibv_ah_attr>(), 32);
    }
}
