//! The socket: the only file that sends and receives. It counts every call.

use core::time::Duration;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use pronto_core::Class;
use pronto_core::fabric::FabricError;

use crate::parts::{self, Destination, Source};
use crate::setup::{Channel, Options};
use crate::tls::{Broken, Connection, Control, KernelTls};
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
    /// Something that is no data. More may have arrived with it.
    Control,
    End,
}

#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    /// In a box, as most connections have none.
    tls: Option<Box<Connection>>,
    /// Present if the kernel encrypts and decrypts, so that this side sends and receives as without.
    kernel: Option<Box<KernelTls>>,
    /// True if the last receive of an encrypted connection found less than there was room for.
    is_drained: bool,
    /// Busy-polling options that the kernel refused.
    not_busy: Refused,
    /// Time for which the kernel tries to send remaining data after the socket was closed.
    answer_timeout: Duration,
    pub(crate) calls: Calls,
}

impl Socket {
    /// Takes over a connected stream and sets its options.
    pub(crate) fn new(channel: Channel, class: Class, options: &Options) -> Result<Self, FabricError> {
        let (stream, tls, kernel) = channel.into_parts();
        let refused = |errno: Errno| FabricError::System { errno: errno as i32 };
        let not_busy = tuning::apply(&stream, class, options).map_err(refused)?;
        Ok(Self {
            stream,
            tls,
            kernel,
            is_drained: false,
            not_busy,
            answer_timeout: options.answer_timeout,
            calls: Calls::default(),
        })
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

    /// Returns whether the kernel encrypts and decrypts.
    pub(crate) const fn is_encrypted_by_kernel(&self) -> bool {
        self.kernel.is_some()
    }

    /// Returns whether bytes on this connection are encrypted by this side. Then [`Self::send_encrypted`] and [`Self::receive_encrypted`] are used in place
    /// of [`Self::send`] and [`Self::receive`].
    pub(crate) const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns whether there are bytes to receive, or the end of the stream, that are no longer in the socket, which therefore does not wake a
    /// sleeper for them.
    pub(crate) fn has_unread(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_plaintext() || tls.is_closed())
    }

    /// Returns whether encrypted bytes wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.unsent().is_empty())
    }

    /// Frees buffers that a burst has made long, when a sleep begins.
    pub(crate) fn rest(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.rest();
        }
    }

    /// Passes bytes to the kernel. Returns the number of accepted bytes, or `None` if the socket is full.
    pub(crate) fn send(&mut self, parts: &[Source<'_>]) -> Result<Option<usize>, FabricError> {
        if self.kernel.is_some() && !self.keep_keys()? {
            return Ok(None);
        }
        loop {
            self.calls.sends += 1;
            match parts::send(self.as_fd(), parts) {
                Ok(n) => {
                    if let Some(kernel) = &mut self.kernel {
                        kernel.count_sent(n);
                    }
                    return Ok(Some(n));
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.calls.full_sends += 1;
                    return Ok(None);
                }
                Err(errno) => return Err(self.failure(errno)),
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
                Err(errno) => return self.received_none(errno),
            }
        }
    }

    /// Processes the error of a receive. With TLS by the kernel, a record that is no data causes one.
    #[cold]
    #[inline(never)]
    fn received_none(&mut self, errno: Errno) -> Result<Read, FabricError> {
        if errno == Errno::EIO && self.kernel.is_some() {
            return self.receive_control();
        }
        Err(self.failure(errno))
    }

    /// Returns the error of the connection for that of a send or receive.
    #[cold]
    fn failure(&self, errno: Errno) -> FabricError {
        match errno {
            // The kernel could not decrypt, because the bytes were changed on their way.
            Errno::EBADMSG | Errno::EMSGSIZE | Errno::EINVAL | Errno::EKEYEXPIRED
                if self.kernel.is_some() =>
            {
                FabricError::Lost
            }
            errno => failure(errno),
        }
    }

    /// Changes the keys with which the kernel encrypts, if that is due. Returns false if the socket is full.
    fn keep_keys(&mut self) -> Result<bool, FabricError> {
        match &mut self.kernel {
            Some(kernel) if kernel.is_due() => {
                self.calls.sends += 1;
                let changed = kernel.change_keys(&self.stream).map_err(|_| FabricError::Lost)?;
                self.calls.full_sends += u64::from(!changed);
                Ok(changed)
            }
            _ => Ok(true),
        }
    }

    /// Receives a record of the protocol, which the kernel does not pass on as data. More of them are left to the next poll.
    fn receive_control(&mut self) -> Result<Read, FabricError> {
        let Some(kernel) = &mut self.kernel else { return Ok(Read::Control) };
        self.calls.receives += 1;
        match kernel.receive_control(&self.stream) {
            Ok(Control::Done) => Ok(Read::Control),
            Ok(Control::End) => Ok(Read::End),
            Err(Broken::Alert(_) | Broken::Otherwise) => Err(FabricError::Lost),
        }
    }

    /// Encrypts bytes and passes them to the kernel. Returns the number of bytes that were encrypted: they are sent even if
    /// [`Self::has_unsent`] afterwards. Returns `None` if the socket is full.
    pub(crate) fn send_encrypted<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<usize>, FabricError> {
        if !self.flush_encrypted()? {
            return Ok(None);
        }
        let tls = self.tls.as_mut().expect("the connection is encrypted");
        let count = tls.encrypt(parts).map_err(|_| FabricError::Lost)?;
        self.flush_encrypted()?;
        Ok(Some(count))
    }

    /// Passes encrypted bytes to the kernel. Returns whether it accepted all of them.
    pub(crate) fn flush_encrypted(&mut self) -> Result<bool, FabricError> {
        loop {
            let Some(tls) = self.tls.as_mut().filter(|tls| !tls.unsent().is_empty()) else { return Ok(true) };
            self.calls.sends += 1;
            match parts::send(self.stream.as_fd(), &[Source::of(tls.unsent())]) {
                Ok(count) => tls.sent(count),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.calls.full_sends += 1;
                    return Ok(false);
                }
                Err(errno) => return Err(failure(errno)),
            }
        }
    }

    /// Moves decrypted bytes to one or two buffers, after one receive if there are none. A receive whose bytes are no data, but belong to the
    /// protocol, returns no bytes. [`Self::is_drained`] tells whether another receive would find something.
    ///
    /// # Errors
    /// [`FabricError::Lost`] if the bytes were changed on their way, among others.
    pub(crate) fn receive_encrypted(
        &mut self,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Result<Read, FabricError> {
        let tls = self.tls.as_mut().expect("the connection is encrypted");
        if !tls.has_plaintext() {
            if tls.is_closed() {
                return Ok(Read::End);
            }
            let room = tls.room();
            let len = room.len();
            self.calls.receives += 1;
            match parts::receive(self.stream.as_fd(), &mut [Destination::of(room)]) {
                Ok(0) => return Ok(Read::End),
                Ok(count) => {
                    self.is_drained = count < len;
                    tls.received(count).map_err(|_| FabricError::Lost)?;
                }
                // The next poll tries again.
                Err(Errno::EINTR) => return Ok(Read::Bytes(0)),
                Err(Errno::EAGAIN) => {
                    self.calls.empty_receives += 1;
                    self.is_drained = true;
                    return Ok(Read::Nothing);
                }
                Err(errno) => return Err(failure(errno)),
            }
        }
        let taken = tls.take(first);
        Ok(Read::Bytes(taken + if taken == first.len() { tls.take(second) } else { 0 }))
    }

    /// Returns whether the last receive on an encrypted connection found less than there was room for, and nothing of it is left.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained && !self.has_unread()
    }

    /// Checks whether the connection was reset, for a connection that does not read at present.
    pub(crate) fn check(&self) -> Result<(), FabricError> {
        match self.stream.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(FabricError::Lost),
            Err(error) => Err(FabricError::System { errno: error.raw_os_error().unwrap_or(0) }),
        }
    }

    /// Sends the end of the stream, after the data that the kernel has already accepted. With TLS a record that it has not accepted as a whole is
    /// lost.
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
