//! The one place that names a binding of libibverbs.
//!
//! `rdma-mummy-sys` loads libibverbs when the first function of it is called, so that a program built with this crate
//! starts on a machine without RDMA and finds no device there. `rdma-sys`, chosen by `--cfg pronto_rdma_sys`, links the
//! library and needs its headers. Both have the same names.

#[cfg(not(pronto_rdma_sys))]
pub(crate) use rdma_mummy_sys::*;
#[cfg(pronto_rdma_sys)]
pub(crate) use rdma_sys::*;

#[cfg(test)]
mod tests {
    use core::mem::{align_of, offset_of, size_of};

    use super::*;

    /// The bindings write these types by hand; the figures are those of verbs.h on x86-64.
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
