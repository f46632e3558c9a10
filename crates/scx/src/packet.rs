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

/// A packet: its first byte, and the first descriptor that came with it.
#[derive(Debug)]
pub(crate) struct Packet {
    /// The first byte; `None` at the end of the connection.
    pub(crate) byte: Option<u8>,
    pub(crate) descriptor: Option<OwnedFd>,
}

/// Receives a packet, and drops what is beyond its first byte and descriptor.
///
/// # Errors
/// `EAGAIN` if there is none.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Packet, Errno> {
    let mut byte = [0];
    let mut space = cmsg_space!(RawFd);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let length = message.bytes;
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            descriptors.extend(numbers.into_iter().map(owned));
        }
    }
    Ok(Packet { byte: (length > 0).then_some(byte[0]), descriptor: descriptors.into_iter().next() })
}

/// Takes ownership of a descriptor that the kernel has just installed.
pub(crate) fn owned(number: RawFd) -> OwnedFd {
    // SAFETY: I1.
    unsafe { OwnedFd::from_raw_fd(number) }
}
