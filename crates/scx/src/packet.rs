//! Packets with descriptors, from a Unix socket.
//!
//! # Invariants
//! 1. A descriptor that the kernel has installed for a packet becomes an `OwnedFd` immediately.
#![expect(unsafe_code, reason = "ownership of received descriptors; listed in docs/unsafe.md")]

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use pronto_expedite::scx::Request;

/// A packet, and the first descriptor that came with it.
#[derive(Debug)]
pub(crate) struct Packet {
    bytes: [u8; LONGEST],
    length: usize,
    pub(crate) descriptor: Option<OwnedFd>,
    /// A descriptor is missing, because this process has reached its limit of open files.
    pub(crate) is_cut: bool,
}

/// Maximum number of descriptors with a packet (`SCM_MAX_FD` in include/net/scm.h). All are taken, because the kernel installs as many as
/// there is space for.
const DESCRIPTORS: usize = 253;

/// Bytes of the longest packet that is a request, and one more, so that a longer one is recognised.
const LONGEST: usize = Request::LENGTH + 1;

impl Packet {
    /// Returns the bytes; none at the end of the connection.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Receives a packet, and drops what is beyond its first bytes and descriptor.
///
/// # Errors
/// `EAGAIN` if there is none.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Packet, Errno> {
    let mut bytes = [0; LONGEST];
    let mut space = cmsg_space!([RawFd; DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let length = message.bytes;
    let mut descriptors = Vec::new();
    let is_cut = message.flags.contains(MsgFlags::MSG_CTRUNC);
    for control in message.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            descriptors.extend(numbers.into_iter().map(owned));
        }
    }
    Ok(Packet { bytes, length, descriptor: descriptors.into_iter().next(), is_cut })
}

/// Takes ownership of a descriptor that the kernel has just installed.
pub(crate) fn owned(number: RawFd) -> OwnedFd {
    // SAFETY: I1.
    unsafe { OwnedFd::from_raw_fd(number) }
}
