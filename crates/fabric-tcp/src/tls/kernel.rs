//! TLS by the kernel (Documentation/networking/tls.rst): after the handshake the socket itself encrypts and decrypts, so that an encrypted
//! connection is read and written like any other. The changes of keys are left to this side (RFC 8446, section 4.6.3).

use core::fmt;
use core::net::Ipv4Addr;
use core::time::Duration;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{TcpTlsRx, TcpTlsTx, TcpUlp, TlsCryptoInfo};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{
    AlertDescription, CipherSuite, ConnectionTrafficSecrets, ExtractedSecrets, SupportedCipherSuite,
};

use super::connection::MOST;
use crate::parts;

/// Content types of records (RFC 8446, section 5.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
/// The message that changes the keys of its sender, and whether it asks for a change of the receiver's.
const KEY_UPDATE: u8 = 24;
const UPDATE_REQUESTED: u8 = 1;
/// The alert that ends a stream.
const CLOSE_NOTIFY: u8 = 0;
/// The message with a ticket, which nodes neither send nor use.
const NEW_SESSION_TICKET: u8 = 4;

/// The protocol on this side, whose records are the kernel's.
enum Side {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

/// A connection that the kernel encrypts.
pub(crate) struct KernelTls {
    side: Side,
    certificates: Vec<CertificateDer<'static>>,
    /// Greatest number of records that were sent since the last change of keys.
    sent: u64,
    /// Number from which the keys are changed.
    limit: u64,
    /// The other side has asked for a change of keys.
    is_asked: bool,
}

/// Received bytes that are no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// They were processed.
    Done,
    /// The other side has ended its stream.
    End,
}

/// Reason why bytes that are no data were not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The other side has ended the connection, and says why.
    Alert(AlertDescription),
    /// The other side broke the protocol, or the system refused.
    Otherwise,
}

impl From<rustls::Error> for Broken {
    fn from(_: rustls::Error) -> Self {
        Self::Otherwise
    }
}

impl From<Errno> for Broken {
    fn from(_: Errno) -> Self {
        Self::Otherwise
    }
}

impl From<Broken> for rustls::Error {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Alert(alert) => Self::AlertReceived(alert),
            Broken::Otherwise => Self::DecryptError,
        }
    }
}

/// A connection of rustls that has ended its handshake.
pub(super) enum Established {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// Returns whether the kernel can take over the records of a socket. Until it has keys, the socket works as before.
pub(super) fn can_take(stream: &TcpStream, suite: Option<SupportedCipherSuite>) -> bool {
    let known = suite.and_then(|suite| CIPHERS.iter().find(|known| known.suite == suite.suite()));
    known.is_some_and(Cipher::is_supported) && setsockopt(stream, TcpUlp::default(), b"tls").is_ok()
}

/// A cipher that the kernel may have.
struct Cipher {
    suite: CipherSuite,
    /// Keys for a trial.
    zero: fn() -> TlsCryptoInfo,
    is_supported: OnceLock<bool>,
}

static CIPHERS: [Cipher; 3] = [
    Cipher {
        suite: CipherSuite::TLS13_AES_128_GCM_SHA256,
        zero: || aes_128([0; 16], [0; 4], [0; 8], 0),
        is_supported: OnceLock::new(),
    },
    Cipher {
        suite: CipherSuite::TLS13_AES_256_GCM_SHA384,
        zero: || aes_256([0; 32], [0; 4], [0; 8], 0),
        is_supported: OnceLock::new(),
    },
    Cipher {
        suite: CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        zero: || chacha20([0; 32], [0; 12], 0),
        is_supported: OnceLock::new(),
    },
];

impl Cipher {
    /// Tries the cipher once, on a connection of this process with itself: keys that the kernel refuses, because it lacks the cipher, would end a
    /// link. Without such a connection the next link tries again.
    fn is_supported(&self) -> bool {
        if let Some(known) = self.is_supported.get() {
            return *known;
        }
        let connected = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let stream = TcpStream::connect_timeout(&listener.local_addr()?, TRIAL)?;
            // Keys take a connection, and that ends with its listener before it is accepted.
            Ok::<_, std::io::Error>((stream, listener))
        };
        let Ok((stream, _listener)) = connected() else { return false };
        let takes = setsockopt(&stream, TcpUlp::default(), b"tls").is_ok()
            && setsockopt(&stream, TcpTlsTx, &(self.zero)()).is_ok()
            && setsockopt(&stream, TcpTlsRx, &(self.zero)()).is_ok();
        *self.is_supported.get_or_init(|| takes)
    }
}

/// Time limit for the connection of such a trial.
const TRIAL: Duration = Duration::from_millis(100);

impl KernelTls {
    /// Passes the keys of a connection to the kernel.
    ///
    /// # Errors
    /// The kernel does not take them. The connection is of no use then.
    pub(super) fn take(
        stream: &TcpStream,
        established: Established,
        certificates: Vec<CertificateDer<'static>>,
    ) -> Result<Self, Broken> {
        let (secrets, side) = match established {
            Established::Client(side) => {
                let (secrets, side) = side.dangerous_into_kernel_connection()?;
                (secrets, Side::Client(side))
            }
            Established::Server(side) => {
                let (secrets, side) = side.dangerous_into_kernel_connection()?;
                (secrets, Side::Server(side))
            }
        };
        let ExtractedSecrets { tx, rx } = secrets;
        setsockopt(stream, TcpTlsTx, &keys(tx)?)?;
        setsockopt(stream, TcpTlsRx, &keys(rx)?)?;
        let SupportedCipherSuite::Tls13(suite) = side.suite();
        let limit = suite.common.confidentiality_limit / 4 * 3;
        Ok(Self { side, certificates, sent: 0, limit, is_asked: false })
    }

    /// Returns the certificates of the other side, its own first, or its raw public key.
    pub(crate) fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Counts a send of `count` bytes.
    #[inline]
    pub(crate) const fn count_sent(&mut self, count: usize) {
        self.sent += 1 + (count / MOST) as u64;
    }

    /// Returns whether the keys have to change before the next send.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.sent >= self.limit || self.is_asked
    }

    /// Changes the keys of this side. Returns false if the socket is full.
    pub(crate) fn change_keys(&mut self, stream: &TcpStream) -> Result<bool, Broken> {
        match parts::send_record(stream.as_fd(), HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0]) {
            Ok(()) => {}
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        setsockopt(stream, TcpTlsTx, &keys(self.side.next_tx()?)?)?;
        (self.sent, self.is_asked) = (0, false);
        Ok(true)
    }

    /// Receives a record that is no data: a change of the other side's keys, or the end of its stream.
    pub(crate) fn receive_control(&mut self, stream: &TcpStream) -> Result<Control, Broken> {
        let mut bytes = [0; 64];
        let (kind, count) = parts::receive_record(stream.as_fd(), &mut bytes)?;
        match (kind, &bytes[..count]) {
            (ALERT, [_, CLOSE_NOTIFY]) => Ok(Control::End),
            (HANDSHAKE, [KEY_UPDATE, 0, 0, 1, asked @ 0..=UPDATE_REQUESTED]) => {
                setsockopt(stream, TcpTlsRx, &keys(self.side.next_rx()?)?)?;
                self.is_asked |= *asked == UPDATE_REQUESTED;
                Ok(Control::Done)
            }
            (HANDSHAKE, [NEW_SESSION_TICKET, ..]) if count < bytes.len() => Ok(Control::Done),
            (ALERT, [_, alert]) => Err(Broken::Alert(AlertDescription::from(*alert))),
            _ => Err(Broken::Otherwise),
        }
    }
}

impl Side {
    fn suite(&self) -> SupportedCipherSuite {
        match self {
            Self::Client(side) => side.negotiated_cipher_suite(),
            Self::Server(side) => side.negotiated_cipher_suite(),
        }
    }

    fn next_tx(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Self::Client(side) => side.update_tx_secret(),
            Self::Server(side) => side.update_tx_secret(),
        }
    }

    fn next_rx(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Self::Client(side) => side.update_rx_secret(),
            Self::Server(side) => side.update_rx_secret(),
        }
    }
}

impl fmt::Debug for KernelTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelTls")
            .field("sent", &self.sent)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Returns keys in the form of the kernel (include/uapi/linux/tls.h). The first bytes of the initialisation vector are the salt there.
fn keys((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<TlsCryptoInfo, Broken> {
    fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Broken> {
        bytes.try_into().map_err(|_| Broken::Otherwise)
    }
    Ok(match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
            let (salt, iv) = iv.as_ref().split_at(SALT);
            aes_128(array(key.as_ref())?, array(salt)?, array(iv)?, sequence)
        }
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
            let (salt, iv) = iv.as_ref().split_at(SALT);
            aes_256(array(key.as_ref())?, array(salt)?, array(iv)?, sequence)
        }
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            chacha20(array(key.as_ref())?, array(iv.as_ref())?, sequence)
        }
        _ => return Err(Broken::Otherwise),
    })
}

const fn info(cipher_type: u16) -> libc::tls_crypto_info {
    libc::tls_crypto_info { version: libc::TLS_1_3_VERSION, cipher_type }
}

fn aes_128(key: [u8; 16], salt: [u8; SALT], iv: [u8; 8], sequence: u64) -> TlsCryptoInfo {
    let (info, rec_seq) = (info(libc::TLS_CIPHER_AES_GCM_128), sequence.to_be_bytes());
    TlsCryptoInfo::Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128 { info, iv, key, salt, rec_seq })
}

fn aes_256(key: [u8; 32], salt: [u8; SALT], iv: [u8; 8], sequence: u64) -> TlsCryptoInfo {
    let (info, rec_seq) = (info(libc::TLS_CIPHER_AES_GCM_256), sequence.to_be_bytes());
    TlsCryptoInfo::Aes256Gcm(libc::tls12_crypto_info_aes_gcm_256 { info, iv, key, salt, rec_seq })
}

fn chacha20(key: [u8; 32], iv: [u8; 12], sequence: u64) -> TlsCryptoInfo {
    let (info, rec_seq) = (info(libc::TLS_CIPHER_CHACHA20_POLY1305), sequence.to_be_bytes());
    let salt = [];
    TlsCryptoInfo::Chacha20Poly1305(libc::tls12_crypto_info_chacha20_poly1305 {
        info,
        iv,
        key,
        salt,
        rec_seq,
    })
}

/// Length of the salt of AES-GCM, bytes.
const SALT: usize = 4;
