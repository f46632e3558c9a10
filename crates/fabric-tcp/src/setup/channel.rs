//! A connection during the set-up, encrypted or not.

use std::net::{Shutdown, TcpStream};

use nix::errno::Errno;
use rustls::pki_types::CertificateDer;

use super::deadline::Deadline;
use crate::error::SetupError;
use crate::setup::TlsBy;
use crate::tls::{Connection, Control, KernelTls, Taken};

#[derive(Debug)]
pub(crate) struct Channel {
    stream: TcpStream,
    tls: Option<Box<Connection>>,
    /// Present if the kernel encrypts and decrypts.
    kernel: Option<Box<KernelTls>>,
}

impl Channel {
    pub(crate) const fn plain(stream: TcpStream) -> Self {
        Self { stream, tls: None, kernel: None }
    }

    pub(super) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn into_parts(self) -> (TcpStream, Option<Box<Connection>>, Option<Box<KernelTls>>) {
        (self.stream, self.tls, self.kernel)
    }

    /// Encrypts the connection from now on, after a handshake in which each side has authenticated the other one. The kernel does so if it
    /// can and may.
    ///
    /// # Errors
    /// [`SetupError::Tls`] if this side does not trust the other one, or the other way round.
    pub(super) fn secure(
        &mut self,
        mut tls: Connection,
        by: TlsBy,
        deadline: Deadline,
    ) -> Result<(), SetupError> {
        let mut advanced = tls.advance();
        loop {
            if !tls.unsent().is_empty() {
                // If the handshake has failed, these bytes tell the other side why, and its own failure is the lesser one.
                let written = deadline.write_all(&self.stream, tls.unsent());
                tls.sent(tls.unsent().len());
                if advanced.is_ok() {
                    written?;
                }
            }
            if advanced.is_err() {
                self.discard_input();
            }
            advanced?;
            if tls.is_established() {
                let taken = match by {
                    TlsBy::Kernel => tls.into_kernel(&self.stream)?,
                    TlsBy::Process => Taken::Not(Box::new(tls)),
                };
                match taken {
                    Taken::ByKernel(kernel) => self.kernel = Some(kernel),
                    Taken::Not(tls) => self.tls = Some(tls),
                }
                return Ok(());
            }
            if tls.is_closed() {
                return Err(SetupError::Lost);
            }
            let missing = tls.missing();
            let room = tls.room();
            let len = missing.min(room.len());
            let count = deadline.read(&self.stream, &mut room[..len])?;
            advanced = tls.received(count);
        }
    }

    /// Ends the stream and reads bytes that have arrived, so that the kernel does not reset the connection before the other side has read the
    /// alert. A side that sends more than an honest one has under way gets a reset.
    fn discard_input(&self) {
        // Both fail only if the connection is broken, in which case the alert is lost anyway.
        let _ = self.stream.shutdown(Shutdown::Write);
        if self.stream.set_nonblocking(true).is_ok() {
            let mut waste = [0; 4096];
            for _ in 0..16 {
                if !matches!(std::io::Read::read(&mut &self.stream, &mut waste), Ok(1..)) {
                    break;
                }
            }
        }
    }

    /// Returns whether bytes of the other side have arrived that nobody has read, apart from those in the socket.
    pub(super) fn has_unread(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_plaintext())
    }

    /// Returns the certificates of the other side, its own first, or its raw public key. None if the connection is not encrypted.
    pub(super) fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        match &self.kernel {
            Some(kernel) => Some(kernel.peer_certificates()),
            None => self.tls.as_ref().and_then(|tls| tls.peer_certificates()),
        }
    }

    pub(super) fn read_exact(&mut self, deadline: Deadline, out: &mut [u8]) -> Result<(), SetupError> {
        if let Some(kernel) = &mut self.kernel {
            return read_by_kernel(&self.stream, kernel, deadline, out);
        }
        let Some(tls) = &mut self.tls else { return deadline.read_exact(&self.stream, out) };
        let mut filled = 0;
        loop {
            filled += tls.take(&mut out[filled..]);
            if filled == out.len() {
                return Ok(());
            }
            if tls.is_closed() {
                return Err(SetupError::Lost);
            }
            let count = deadline.read(&self.stream, tls.room())?;
            tls.received(count)?;
        }
    }

    pub(super) fn write_all(&mut self, deadline: Deadline, bytes: &[u8]) -> Result<(), SetupError> {
        let Some(tls) = &mut self.tls else { return deadline.write_all(&self.stream, bytes) };
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = tls.encrypt(core::iter::once(rest))?;
            rest = &rest[count..];
            deadline.write_all(&self.stream, tls.unsent())?;
            tls.sent(tls.unsent().len());
        }
        Ok(())
    }
}

/// Reads bytes that the kernel decrypts.
///
/// # Errors
/// [`SetupError::Tls`] with the other side's reason, if it does not trust this side.
fn read_by_kernel(
    stream: &TcpStream,
    kernel: &mut KernelTls,
    deadline: Deadline,
    out: &mut [u8],
) -> Result<(), SetupError> {
    let mut filled = 0;
    while filled < out.len() {
        let error = match deadline.read(stream, &mut out[filled..]) {
            Ok(count) => {
                filled += count;
                continue;
            }
            Err(SetupError::System { errno }) => Errno::from_raw(errno),
            Err(error) => return Err(error),
        };
        match error {
            // A record that is no data.
            Errno::EIO => match kernel.receive_control(stream) {
                Ok(Control::Done) => {}
                Ok(Control::End) => return Err(SetupError::Lost),
                Err(broken) => return Err(SetupError::Tls(broken.into())),
            },
            Errno::EBADMSG | Errno::EMSGSIZE | Errno::EINVAL => {
                return Err(SetupError::Tls(rustls::Error::DecryptError));
            }
            other => return Err(other.into()),
        }
    }
    Ok(())
}
