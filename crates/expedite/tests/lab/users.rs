//! Threads of other users.

/// Changes the user of the calling thread, not of its process.
pub(crate) fn become_user(uid: u32) {
    // SAFETY: the call takes numbers only.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }, 0);
}
