//! The socket: the only file that sends and receives; counts every call.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send, sendmsg, setsockopt, sockopt};
use nix::sys::uio::readv;
use pronto_core::Class;
use pronto_core::fabric::FabricError;

/// Bytes not yet sent that the kernel takes on the bulk connection before it says full. What waits here is behind the
/// point where control of order is ours.
const BULK_UNSENT: u32 = 256 << 10;

mod unsent_limit {
    //! An option that nix has no name for.
    use nix::sys::socket::sockopt::SetStruct;

    /// TCP_NOTSENT_LOWAT of tcp(7).
    #[derive(Clone, Copy, Debug)]
    pub(super) struct NotSentLowAt;

    nix::setsockopt_impl!(NotSentLowAt, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, u32, SetStruct<'_, u32>);
}

/// System calls made on one connection, and what they were good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Sends, vectored or not.
    pub sends: u64,
    /// Sends that found the socket full.
    pub full_sends: u64,
    /// Receives, vectored or not.
    pub receives: u64,
    /// Receives that found nothing.
    pub empty_receives: u64,
}

/// What a receive gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(usize),
    Nothing,
    End,
}

#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    pub(crate) calls: Calls,
}

impl Socket {
    /// Takes a connected stream over.
    pub(crate) fn new(stream: TcpStream, class: Class, user_timeout: Duration) -> Result<Self, FabricError> {
        let refused = |errno: Errno| FabricError::System { errno: errno as i32 };
        let io = |error: std::io::Error| FabricError::System { errno: error.raw_os_error().unwrap_or(0) };
        stream.set_nonblocking(true).map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        let millis = u32::try_from(user_timeout.as_millis()).unwrap_or(u32::MAX);
        setsockopt(&stream, sockopt::TcpUserTimeout, &millis).map_err(refused)?;
        if class == Class::Bulk {
            setsockopt(&stream, unsent_limit::NotSentLowAt, &BULK_UNSENT).map_err(refused)?;
        }
        Ok(Self { stream, calls: Calls::default() })
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.stream.as_raw_fd()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Hands bytes to the kernel; how many it took, or none if it is full.
    pub(crate) fn send(&mut self, parts: &[IoSlice<'_>]) -> Result<Option<usize>, FabricError> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        loop {
            self.calls.sends += 1;
            let sent = match parts {
                [one] => send(self.descriptor(), one, flags),
                many => sendmsg::<()>(self.descriptor(), many, &[], flags, None),
            };
            match sent {
                Ok(n) => return Ok(Some(n)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.calls.full_sends += 1;
                    return Ok(None);
                }
                Err(errno) => return Err(failure(errno)),
            }
        }
    }

    /// Takes what has arrived, into one or two buffers.
    pub(crate) fn receive(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<Read, FabricError> {
        loop {
            self.calls.receives += 1;
            let received = match &mut *into {
                [one] => recv(self.stream.as_raw_fd(), one, MsgFlags::MSG_DONTWAIT),
                many => readv(self.stream.as_fd(), many),
            };
            match received {
                Ok(0) => return Ok(Read::End),
                Ok(n) => return Ok(Read::Bytes(n)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.calls.empty_receives += 1;
                    return Ok(Read::Nothing);
                }
                Err(errno) => return Err(failure(errno)),
            }
        }
    }

    /// Whether the connection was reset meanwhile; for a connection that does not read at present.
    pub(crate) fn check(&self) -> Result<(), FabricError> {
        match self.stream.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(FabricError::Lost),
            Err(error) => Err(FabricError::System { errno: error.raw_os_error().unwrap_or(0) }),
        }
    }

    /// Tells the peer that nothing more comes, behind what the kernel has already taken.
    pub(crate) fn finish(&self) {
        // Fails only if the connection is gone already, which tells the peer as well.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

fn failure(errno: Errno) -> FabricError {
    match errno {
        Errno::EPIPE
        | Errno::ECONNRESET
        | Errno::ECONNABORTED
        | Errno::ENOTCONN
        | Errno::ETIMEDOUT
        | Errno::EHOSTUNREACH
        | Errno::ENETUNREACH
        | Errno::ENETDOWN => FabricError::Lost,
        other => FabricError::System { errno: other as i32 },
    }
}
