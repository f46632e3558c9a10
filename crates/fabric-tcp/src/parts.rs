//! The parts of a vectored system call. The kernel copies to and from the bytes of regions, which other processes may access during the
//! call, so that no slice may refer to them.
//!
//! # Invariants
//! 1. The memory of a part stays valid while the part lives: it is borrowed.
//! 2. The kernel's copies are like those of `pronto_core::fabric::SharedBytes`: with a concurrent writer, each byte is old or new.
#![expect(unsafe_code, reason = "system calls take addresses of memory to which other processes write")]

use core::ffi::c_int;
use core::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, TlsGetRecordType, recvmsg};
use pronto_core::fabric::{OutOfBounds, Region};

/// Bytes to send.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Source<'a> {
    part: libc::iovec,
    _lent: PhantomData<&'a [u8]>,
}

impl<'a> Source<'a> {
    /// No bytes.
    pub(crate) const EMPTY: Self = Self::of(&[]);

    pub(crate) const fn of(bytes: &'a [u8]) -> Self {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        Self { part, _lent: PhantomData }
    }

    /// Returns `len` bytes of a region.
    pub(crate) fn in_region(region: &'a Region, at: usize, len: usize) -> Result<Self, OutOfBounds> {
        let first = region.address(at, len)?;
        Ok(Self { part: libc::iovec { iov_base: first.as_ptr().cast(), iov_len: len }, _lent: PhantomData })
    }

    pub(crate) const fn len(&self) -> usize {
        self.part.iov_len
    }
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::of(bytes)
    }
}

/// Memory for received bytes.
#[repr(transparent)]
pub(crate) struct Destination<'a> {
    part: libc::iovec,
    _lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Destination<'a> {
    pub(crate) const fn of(bytes: &'a mut [u8]) -> Self {
        let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        Self { part, _lent: PhantomData }
    }

    /// Returns `len` bytes of a region.
    pub(crate) fn in_region(region: &'a Region, at: usize, len: usize) -> Result<Self, OutOfBounds> {
        let first = region.writable_address(at, len)?;
        Ok(Self { part: libc::iovec { iov_base: first.as_ptr().cast(), iov_len: len }, _lent: PhantomData })
    }
}

/// Sends the parts, or as much of them as the kernel accepts, and returns the number of bytes.
#[inline]
pub(crate) fn send(socket: BorrowedFd<'_>, parts: &[Source<'_>]) -> nix::Result<usize> {
    const FLAGS: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    let descriptor = socket.as_raw_fd();
    let sent = if let [one] = parts {
        // SAFETY: invariant 1.
        unsafe { libc::send(descriptor, one.part.iov_base, one.part.iov_len, FLAGS) }
    } else {
        // SAFETY: zeros are a valid message: one without bytes.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        // The kernel only reads the list.
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: invariant 1, and a part has the layout of an iovec.
        unsafe { libc::sendmsg(descriptor, &raw const message, FLAGS) }
    };
    Errno::result(sent).map(isize::cast_unsigned)
}

/// A control message (cmsg(3)) with one byte.
#[repr(C)]
struct RecordType {
    header: libc::cmsghdr,
    kind: u8,
}

/// Sends a record of TLS by the kernel that is no data: `kind` is its content type (Documentation/networking/tls.rst).
pub(crate) fn send_record(socket: BorrowedFd<'_>, kind: u8, bytes: &[u8]) -> nix::Result<()> {
    let mut part = Source::of(bytes).part;
    let mut control = RecordType {
        header: libc::cmsghdr {
            cmsg_len: (size_of::<libc::cmsghdr>() + 1) as _,
            cmsg_level: libc::SOL_TLS,
            cmsg_type: libc::TLS_SET_RECORD_TYPE,
        },
        kind,
    };
    // SAFETY: zeros are a valid message: one without bytes.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<RecordType>() as _;
    // SAFETY: the message and what it points to live until the call returns.
    let sent = unsafe {
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    Errno::result(sent).map(drop)
}

/// Receives a record of TLS by the kernel, with its content type. Returns the type and the number of bytes.
pub(crate) fn receive_record(socket: BorrowedFd<'_>, into: &mut [u8]) -> nix::Result<(u8, usize)> {
    let mut control = nix::cmsg_space!(u8);
    let mut parts = [std::io::IoSliceMut::new(into)];
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
    let kind = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::TlsGetRecordType(kind) => Some(kind),
        _ => None,
    });
    let kind = match kind {
        Some(TlsGetRecordType::ChangeCipherSpec) => 20,
        Some(TlsGetRecordType::Alert) => 21,
        Some(TlsGetRecordType::Handshake) => 22,
        Some(TlsGetRecordType::Unknown(kind)) => kind,
        _ => 23,
    };
    Ok((kind, received.bytes))
}

/// Receives the bytes that have arrived at a socket that does not block, into one part after another. Returns their number: 0 at the end of
/// the stream.
#[inline(always)]
pub(crate) fn receive(socket: BorrowedFd<'_>, parts: &mut [Destination<'_>]) -> nix::Result<usize> {
    let descriptor = socket.as_raw_fd();
    let received = if let [one] = parts {
        // SAFETY: invariant 1, and the bytes are borrowed exclusively or are those of a region (invariant 2).
        unsafe { libc::recv(descriptor, one.part.iov_base, one.part.iov_len, libc::MSG_DONTWAIT) }
    } else {
        let count = c_int::try_from(parts.len()).map_err(|_| Errno::EINVAL)?;
        // SAFETY: as above, and a part has the layout of an iovec.
        unsafe { libc::readv(descriptor, parts.as_ptr().cast(), count) }
    };
    Errno::result(received).map(isize::cast_unsigned)
}
