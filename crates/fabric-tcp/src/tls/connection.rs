//! One TLS connection, without I/O: bytes from the socket go in, plaintext comes out, and the other way round.
//!
//! # Invariants
//! 1. Between two calls, `incoming` has no complete record: all of them are decrypted as they arrive. So plaintext that waits is always
//!    in `plain`, where [`Connection::has_plaintext`] finds it.
//! 2. `outgoing[sent..queued]` are records that the socket has not accepted. They leave before anything else is encrypted.
//! 3. Buffers keep the size that they once needed, until a rest in which they are empty.

use core::{fmt, mem};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, Error, ServerConfig};

use super::kernel::{self, KernelTls};

/// Length of the buffer for received records of a quiet connection, bytes.
const SHORT: usize = 1 << 10;
/// Its greatest length, bytes: three of the longest records (RFC 8446, section 5.2), and the header of the next.
const LONG: usize = 3 * (5 + (1 << 14) + 256) + 5;
/// Factor by which it grows after a receive has filled it.
const GROWTH: usize = 8;
/// Greatest number of bytes that are encrypted in one call: those of one record (RFC 8446, section 5.1). The socket sends them while the next ones
/// are encrypted.
pub(super) const MOST: usize = 16 << 10;
/// Room for the header and the tag of a record, and its content type, bytes.
const OVERHEAD: usize = 5 + 1 + 16;
/// Length of the header of a record, bytes.
const HEADER: usize = 5;
/// Room for the records of a change of keys, which leave together with data, bytes.
const KEY_UPDATE: usize = 64;

/// The protocol on this side.
enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

pub(crate) struct Connection {
    side: Side,
    /// Received bytes: `incoming[start..filled]`.
    incoming: Vec<u8>,
    start: usize,
    filled: usize,
    /// Decrypted bytes, of which `plain[taken..]` are not taken yet.
    plain: Vec<u8>,
    taken: usize,
    /// Records for the socket: `outgoing[sent..queued]`.
    outgoing: Vec<u8>,
    sent: usize,
    queued: usize,
    /// Plaintext that is gathered from several parts.
    gathered: Vec<u8>,
    established: bool,
    closed: bool,
    /// The configuration permits to pass the keys on.
    gives_keys: bool,
}

/// A connection after its handshake.
pub(crate) enum Taken {
    /// The kernel encrypts and decrypts.
    ByKernel(Box<KernelTls>),
    /// This side goes on.
    Not(Box<Connection>),
}

/// Result of one step of the protocol.
enum Step {
    Again,
    /// Needs bytes of the other side.
    Blocked,
    /// May send data.
    Ready,
    Closed,
}

impl Connection {
    pub(crate) fn client(config: Arc<ClientConfig>) -> Result<Self, Error> {
        // The name goes unsent and unchecked: a node is known by the name in its certificate, or by its key.
        let name = ServerName::try_from("node.pronto.invalid").expect("a valid name");
        let gives_keys = config.enable_secret_extraction;
        UnbufferedClientConnection::new(config, name).map(|side| Self::new(Side::Client(side), gives_keys))
    }

    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Self, Error> {
        let gives_keys = config.enable_secret_extraction;
        UnbufferedServerConnection::new(config).map(|side| Self::new(Side::Server(side), gives_keys))
    }

    fn new(side: Side, gives_keys: bool) -> Self {
        Self {
            side,
            incoming: vec![0; SHORT],
            start: 0,
            filled: 0,
            plain: Vec::new(),
            taken: 0,
            outgoing: Vec::new(),
            sent: 0,
            queued: 0,
            gathered: Vec::new(),
            established: false,
            closed: false,
            gives_keys,
        }
    }

    /// Returns whether the handshake has ended well on this side.
    pub(crate) const fn is_established(&self) -> bool {
        self.established
    }

    /// Returns whether the other side has ended its stream.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the certificates of the other side, its own first, or its raw public key. None before the handshake has ended.
    pub(crate) fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        match &self.side {
            Side::Client(side) => side.peer_certificates(),
            Side::Server(side) => side.peer_certificates(),
        }
    }

    /// Lets the kernel encrypt and decrypt from now on, if it can. Call it when the handshake has ended, and before anything is received after
    /// it.
    ///
    /// # Errors
    /// The kernel has begun to, and does not take the keys.
    pub(crate) fn into_kernel(self, stream: &TcpStream) -> Result<Taken, Error> {
        let is_between = self.established && !self.closed && self.start == self.filled;
        let is_between = is_between && !self.has_plaintext() && self.unsent().is_empty();
        let is_between = is_between && self.gives_keys;
        let suite = match &self.side {
            Side::Client(side) => side.negotiated_cipher_suite(),
            Side::Server(side) => side.negotiated_cipher_suite(),
        };
        if !is_between || !kernel::can_take(stream, suite) {
            return Ok(Taken::Not(Box::new(self)));
        }
        let certificates = self.peer_certificates().unwrap_or_default().to_vec();
        let established = match self.side {
            Side::Client(side) => kernel::Established::Client(side),
            Side::Server(side) => kernel::Established::Server(side),
        };
        let refused = |_| Error::General("the kernel does not take the keys of a connection".into());
        KernelTls::take(stream, established, certificates)
            .map(|taken| Taken::ByKernel(Box::new(taken)))
            .map_err(refused)
    }

    /// Returns whether decrypted bytes wait to be taken.
    pub(crate) const fn has_plaintext(&self) -> bool {
        self.taken < self.plain.len()
    }

    /// Moves decrypted bytes to `into`, and returns their number.
    pub(crate) fn take(&mut self, into: &mut [u8]) -> usize {
        let waiting = &self.plain[self.taken..];
        let n = waiting.len().min(into.len());
        into[..n].copy_from_slice(&waiting[..n]);
        self.taken += n;
        if self.taken == self.plain.len() {
            self.plain.clear();
            self.taken = 0;
        }
        n
    }

    /// Returns the memory for received bytes. It is empty only if the other side has sent a longer handshake message than any node has.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start != 0 {
            self.incoming.copy_within(self.start..self.filled, 0);
            (self.start, self.filled) = (0, self.filled - self.start);
        }
        if self.filled == self.incoming.len() {
            self.incoming.resize((self.incoming.len() * GROWTH).min(LONG), 0);
        }
        &mut self.incoming[self.filled..]
    }

    /// Returns the number of bytes that the next record lacks, or its header (RFC 8446, section 5.1). During the handshake no more are received, so
    /// that all later records are left to the kernel.
    pub(crate) fn missing(&self) -> usize {
        match &self.incoming[self.start..self.filled] {
            [_, _, _, high, low, rest @ ..] => {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                len.saturating_sub(rest.len()).max(1)
            }
            header => HEADER - header.len(),
        }
    }

    /// Processes `count` more bytes in [`Self::room`].
    ///
    /// # Errors
    /// The other side is not trusted, or broke the protocol. The records to send may then have an alert.
    pub(crate) fn received(&mut self, count: usize) -> Result<(), Error> {
        self.filled += count;
        self.advance()
    }

    /// Goes on until bytes of the other side are needed, or nothing is left to do.
    pub(crate) fn advance(&mut self) -> Result<(), Error> {
        loop {
            match self.step() {
                Ok(Step::Again) => {}
                Ok(Step::Blocked) => return Ok(()),
                Ok(Step::Ready) => {
                    self.established = true;
                    return Ok(());
                }
                Ok(Step::Closed) => {
                    self.closed = true;
                    return Ok(());
                }
                Err(error) => {
                    // There is an alert to encode. A step without would read the wrong bytes again.
                    while self.has_records() && self.step().is_ok() {}
                    return Err(error);
                }
            }
        }
    }

    /// Returns whether the next step encodes a record.
    fn has_records(&self) -> bool {
        match &self.side {
            Side::Client(side) => side.wants_write(),
            Side::Server(side) => side.wants_write(),
        }
    }

    fn step(&mut self) -> Result<Step, Error> {
        let incoming = &mut self.incoming[self.start..self.filled];
        let (plain, outgoing) = (&mut self.plain, (&mut self.outgoing, &mut self.queued));
        let (discard, step) = match &mut self.side {
            Side::Client(side) => handle(side.process_tls_records(incoming), plain, outgoing),
            Side::Server(side) => handle(side.process_tls_records(incoming), plain, outgoing),
        };
        self.start += discard;
        step
    }

    /// Encrypts the first bytes of these parts, and returns their number: all of them, up to 16 KiB. Call it only if nothing is unsent.
    pub(crate) fn encrypt<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> Result<usize, Error> {
        debug_assert!(self.unsent().is_empty());
        let mut gathered = mem::take(&mut self.gathered);
        gathered.clear();
        for part in parts {
            let n = part.len().min(MOST - gathered.len());
            gathered.extend_from_slice(&part[..n]);
            if n < part.len() {
                break;
            }
        }
        let encrypted = self.encrypt_bytes(&gathered);
        self.gathered = gathered;
        encrypted
    }

    fn encrypt_bytes(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let mut room = bytes.len() + OVERHEAD + KEY_UPDATE;
        loop {
            // There may be a change of keys to encode before, on behalf of the other side.
            self.advance()?;
            let end = self.queued + room;
            if self.outgoing.len() < end {
                self.outgoing.resize(end, 0);
            }
            let into = &mut self.outgoing[self.queued..end];
            let incoming = &mut self.incoming[self.start..self.filled];
            let encrypted = match &mut self.side {
                Side::Client(side) => write(side.process_tls_records(incoming), bytes, into),
                Side::Server(side) => write(side.process_tls_records(incoming), bytes, into),
            };
            match encrypted {
                Ok(n) => {
                    self.queued += n;
                    return Ok(bytes.len());
                }
                Err(Unwritten::Room(needed)) if needed > room => room = needed,
                Err(Unwritten::Room(_) | Unwritten::Refused) => return Err(Error::EncryptError),
            }
        }
    }

    /// Returns the records that the socket has to accept.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.outgoing[self.sent..self.queued]
    }

    /// Removes the first `count` bytes of [`Self::unsent`].
    pub(crate) fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.queued {
            (self.sent, self.queued) = (0, 0);
        }
    }

    /// Frees long buffers that are empty.
    pub(crate) fn rest(&mut self) {
        if self.start == self.filled && self.incoming.len() > SHORT {
            self.incoming = vec![0; SHORT];
            (self.start, self.filled) = (0, 0);
        }
        self.gathered.clear();
        if self.queued == 0 {
            self.outgoing.clear();
        }
        for buffer in [&mut self.plain, &mut self.outgoing, &mut self.gathered] {
            if buffer.is_empty() {
                buffer.shrink_to(SHORT);
            }
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("established", &self.established).finish_non_exhaustive()
    }
}

/// Handles one state of the protocol. Returns the number of received bytes that it has used, and how to go on.
fn handle<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    plain: &mut Vec<u8>,
    (outgoing, queued): (&mut Vec<u8>, &mut usize),
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Step::Again),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let encoded = data.encode(&mut outgoing[*queued..]).or_else(|error| match error {
                EncodeError::InsufficientSize(error) => {
                    outgoing.resize(*queued + error.required_size, 0);
                    data.encode(&mut outgoing[*queued..])
                }
                error @ EncodeError::AlreadyEncoded => Err(error),
            });
            encoded.map(|n| *queued += n).map(|()| Step::Again).map_err(|_| Error::EncryptError)
        }
        // The records leave with the next write of this side.
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Step::Again)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Blocked),
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Step::Ready),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Closed),
        // Early data, which is never enabled.
        Ok(_) => Err(Error::General("unexpected state of the TLS connection".into())),
    };
    (discard, step)
}

/// Reason why bytes were not encrypted.
enum Unwritten {
    /// More room is needed, bytes.
    Room(usize),
    /// The connection has ended, or the keys may encrypt nothing more.
    Refused,
}

/// Encrypts bytes, and returns the length of the records.
fn write<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    bytes: &[u8],
    into: &mut [u8],
) -> Result<usize, Unwritten> {
    let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state else { return Err(Unwritten::Refused) };
    traffic.encrypt(bytes, into).map_err(|error| match error {
        EncryptError::InsufficientSize(error) => Unwritten::Room(error.required_size),
        EncryptError::EncryptExhausted => Unwritten::Refused,
    })
}
