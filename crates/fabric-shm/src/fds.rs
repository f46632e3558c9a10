//! Descriptors that the kernel installs: those received with packets, and accepted connections.
//!
//! # Invariants
//! 1. Every descriptor that the kernel installs while receiving becomes an `OwnedFd` immediately, even if the peer sent
//!    more than it should: otherwise a peer could fill this process's table of descriptors.
//! 2. The kernel writes at most the number of bytes that is passed with a pointer.
#![expect(unsafe_code, reason = "nix gives no descriptors of a truncated control message, and so leaks them")]

use core::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{SockFlag, accept4};
use zerocopy::IntoBytes;

use crate::passed::Passed;

/// Maximum number of descriptors that the kernel passes with one packet (`SCM_MAX_FD`, include/net/scm.h).
const MOST: usize = 253;
const HEADER: usize = size_of::<libc::cmsghdr>();
/// Space for other control messages, which a peer that has a copy of this end can turn on: credentials, a security label
/// and a process. The kernel itself would close descriptors for which there is no space left.
const OTHERS: usize = 512;
const CONTROL_WORDS: usize = (HEADER + MOST * size_of::<i32>() + OTHERS).div_ceil(size_of::<u64>());
/// Type of a control message with a descriptor of the sending process (include/linux/socket.h).
const SCM_PIDFD: i32 = 4;

/// A received packet.
#[derive(Debug)]
pub(crate) struct Packet {
    /// Length, at most that of the buffer.
    pub(crate) len: usize,
    /// True if the packet was longer than the buffer.
    pub(crate) truncated: bool,
    /// True if there was neither a byte nor a control message: the peer has closed, or has sent an empty packet.
    pub(crate) is_end: bool,
    /// Its descriptors, closed on exec.
    pub(crate) fds: Vec<Passed>,
}

/// Waits for a connection and accepts it.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let accepted = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: invariant 1: the kernel has just installed this descriptor for this call; no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(accepted) })
}

/// Receives one packet, or returns `EAGAIN` if there is none. An empty packet means that the peer has closed.
pub(crate) fn receive(socket: BorrowedFd<'_>, out: &mut [u8]) -> Result<Packet, Errno> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    // SAFETY: a msghdr is integers and pointers, for which zeros are values.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: every pointer in the message is to a local that outlives the call, and each comes with its length.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let len = usize::try_from(received).map_err(|_| Errno::last())?;
    let filled = message.msg_controllen.min(size_of_val(&control));
    let fds = descriptors(&control.as_bytes()[..filled]);
    let truncated = message.msg_flags & libc::MSG_TRUNC != 0;
    Ok(Packet { len, truncated, is_end: len == 0 && filled == 0, fds })
}

/// Returns an option of a socket that is a number. Fails if the descriptor is not a socket.
pub(crate) fn socket_option(fd: BorrowedFd<'_>, name: i32) -> Result<i32, Errno> {
    let mut value = 0i32;
    let mut len = libc::socklen_t::try_from(size_of_val(&value)).expect("four bytes");
    let into = (&raw mut value).cast();
    // SAFETY: invariant 2; both pointers are to locals that outlive the call.
    let found = unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, into, &raw mut len) };
    Errno::result(found).map(|_| value)
}

/// Extracts the descriptors from the control messages that the kernel wrote.
fn descriptors(mut control: &[u8]) -> Vec<Passed> {
    let mut fds = Vec::new();
    while let Some((len, level, kind)) = header(control) {
        let Some(data) = control.get(HEADER..len) else { break };
        if level == libc::SOL_SOCKET && [libc::SCM_RIGHTS, SCM_PIDFD].contains(&kind) {
            for raw in data.chunks_exact(size_of::<i32>()) {
                let raw = i32::from_ne_bytes(raw.try_into().expect("chunks of four bytes"));
                if raw < 0 {
                    // The kernel reports an error in the place of a process's descriptor.
                    continue;
                }
                // SAFETY: invariant 1: the kernel has just installed this descriptor for this call; no other code knows
                // it.
                fds.push(Passed::new(unsafe { OwnedFd::from_raw_fd(raw) }));
            }
        }
        control = control.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    }
    fds
}

/// Returns length, level and type of the first control message.
fn header(control: &[u8]) -> Option<(usize, i32, i32)> {
    let number = |offset: usize| Some(i32::from_ne_bytes(control.get(offset..offset + 4)?.try_into().ok()?));
    let len = control.get(offset_of!(libc::cmsghdr, cmsg_len)..size_of::<usize>())?;
    let len = usize::from_ne_bytes(len.try_into().ok()?);
    Some((len, number(offset_of!(libc::cmsghdr, cmsg_level))?, number(offset_of!(libc::cmsghdr, cmsg_type))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockType, sendmsg, socketpair};
    use std::io::IoSlice;
    use std::os::fd::AsFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    #[test]
    fn as_many_descriptors_as_the_kernel_passes_are_taken_and_closed() {
        let (from, to) = pair();
        let fds = vec![from.as_raw_fd(); MOST];
        let rights = [ControlMessage::ScmRights(&fds)];
        sendmsg::<()>(from.as_raw_fd(), &[IoSlice::new(b"abcd")], &rights, MsgFlags::empty(), None).unwrap();
        let mut out = [0; 2];
        let packet = receive(to.as_fd(), &mut out).unwrap();
        assert_eq!((packet.len, packet.truncated, packet.fds.len()), (2, true, MOST));
        assert_eq!(&out, b"ab");
        drop((packet, from));
        let mut end = [PollFd::new(to.as_fd(), PollFlags::POLLIN)];
        poll(&mut end, PollTimeout::from(10_000u16)).unwrap();
        assert!(receive(to.as_fd(), &mut out).unwrap().is_end, "no copy of the other end is left open");
    }

    #[test]
    fn an_empty_socket_has_no_packet() {
        let (_from, to) = pair();
        assert_eq!(receive(to.as_fd(), &mut [0; 4]).unwrap_err(), Errno::EAGAIN);
    }
}
