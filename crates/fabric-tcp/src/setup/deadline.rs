//! Reads and writes of a blocking stream with one common deadline, however slowly the bytes arrive.

use core::time::Duration;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use crate::error::SetupError;

/// Deadline of a set-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    #[expect(
        clippy::disallowed_methods,
        reason = "set-up is outside the engine, and the deadline bounds system calls"
    )]
    fn now() -> Instant {
        Instant::now()
    }

    pub(super) fn after(timeout: Duration) -> Self {
        let now = Self::now();
        Self(now.checked_add(timeout).unwrap_or(now))
    }

    /// Returns this deadline, or `timeout` from now if that is earlier.
    pub(super) fn or_after(self, timeout: Duration) -> Self {
        Self(self.0.min(Self::after(timeout).0))
    }

    /// Returns the remaining time, or an error if there is none.
    pub(super) fn left(self) -> Result<Duration, SetupError> {
        let left = self.0.saturating_duration_since(Self::now());
        if left.is_zero() { Err(SetupError::TimedOut) } else { Ok(left) }
    }

    pub(super) fn read_exact(self, stream: &TcpStream, out: &mut [u8]) -> Result<(), SetupError> {
        let mut filled = 0;
        while filled < out.len() {
            filled += self.read(stream, &mut out[filled..])?;
        }
        Ok(())
    }

    /// Reads at least one byte.
    pub(super) fn read(self, mut stream: &TcpStream, out: &mut [u8]) -> Result<usize, SetupError> {
        loop {
            stream.set_read_timeout(Some(self.left()?))?;
            match stream.read(out) {
                Ok(0) => return Err(SetupError::Lost),
                Ok(n) => return Ok(n),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn write_all(self, mut stream: &TcpStream, mut bytes: &[u8]) -> Result<(), SetupError> {
        while !bytes.is_empty() {
            stream.set_write_timeout(Some(self.left()?))?;
            match stream.write(bytes) {
                Ok(0) => return Err(SetupError::Lost),
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
