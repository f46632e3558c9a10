//! The socket: the only file that sends and receives. It counts every call.

use core::time::Duration;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use pronto_core::Class;
use pronto_core::fabric::FabricError;

use crate::parts::{self, Destination, Source};
use crate::setup::Options;
use crate::tuning::{self, BusyPolling, Refused};

/// Counters of the system calls on one connection, and of those without effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Sends, vectored or not.
    pub sends: u64,
    /// Sends for which the socket was full.
    pub full_sends: u64,
    /// Receives, vectored or not.
    pub receives: u64,
    /// Receives that found nothing.
    pub empty_receives: u64,
}

/// Result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(usize),
    Nothing,
    End,
}

#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    /// Busy-polling options that the kernel refused.
    not_busy: Refused,
    /// Time for which the kernel tries to send remaining data after the socket was closed.
    answer_timeout: Duration,
    pub(crate) calls: Calls,
}

impl Socket {
    /// Takes over a connected stream and sets its options.
    pub(crate) fn new(stream: TcpStream, class: Class, options: &Options) -> Result<Self, FabricError> {
        let refused = |errno: Errno| FabricError::System { errno: errno as i32 };
        let not_busy = tuning::apply(&stream, class, options).map_err(refused)?;
        Ok(Self { stream, not_busy, answer_timeout: options.answer_timeout, calls: Calls::default() })
    }

    /// Returns whether the kernel polls the device for it.
    pub(crate) fn busy_polling(&self) -> BusyPolling {
        tuning::busy_polling(&self.stream, self.not_busy)
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.stream.as_raw_fd()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Passes bytes to the kernel. Returns the number of accepted bytes, or `None` if the socket is full.
    pub(crate) fn send(&mut self, parts: &[Source<'_>]) -> Result<Option<usize>, FabricError> {
        loop {
            self.calls.sends += 1;
            match parts::send(self.as_fd(), parts) {
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

    /// Receives available bytes into one or two buffers.
    #[inline(always)]
    pub(crate) fn receive(&mut self, into: &mut [Destination<'_>]) -> Result<Read, FabricError> {
        loop {
            self.calls.receives += 1;
            match parts::receive(self.stream.as_fd(), into) {
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

    /// Checks whether the connection was reset, for a connection that does not read at present.
    pub(crate) fn check(&self) -> Result<(), FabricError> {
        match self.stream.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(FabricError::Lost),
            Err(error) => Err(FabricError::System { errno: error.raw_os_error().unwrap_or(0) }),
        }
    }

    /// Sends the end of the stream, after the data that the kernel has already accepted.
    pub(crate) fn finish(&self) {
        // Fails only if the connection is gone already, which the peer also notices.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        tuning::end_after(&self.stream, self.answer_timeout);
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
