//! Setting up a link: two connections to one peer are matched before any queue pair exists.
//!
//! ```text
//! dialler                                acceptor
//!   connect ───────────────────────────►  Listener::accept
//!   preamble "first"  ─────────────────►  Incoming::begin
//!   ◄─────────────────  preamble "answer"
//!   send / receive  ◄──────────────────►  send / receive        (the greeting; length-prefixed)
//!   ◄─────────────────  token, 16 random bytes                  (establish)
//!   connect ───────────────────────────►  Listener::accept
//!   preamble "second", token  ─────────►  Incoming::begin returns None: handed to the waiting handshake
//!   ◄─────────────────  preamble "ready", on the first connection
//! ```
//!
//! With TLS, a handshake of it follows "answer" on the first connection, after which the acceptor sends "answer" again, encrypted, and one
//! follows "second" on the other connection. Everything after these is encrypted.
//!
//! The dialler sends nothing on either connection before it is notified that both exist: until then neither side has a
//! link, and each gives up immediately when the other does. One case remains: a connection that breaks while "ready" is
//! in flight leaves the acceptor with a link that the dialler does not have. The acceptor finds the connection broken
//! when it first uses the link.
//!
//! Everything is bounded: each side by one deadline for the whole set-up, the acceptor also by the number of half-open
//! connections. An acceptor's `establish` waits for a second connection, so it must not run on the thread that accepts.

mod await_link;
mod channel;
mod deadline;
mod handshake;
mod listener;
mod pair;

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use crate::error::SetupError;
use crate::tls::Tls;

pub(crate) use channel::Channel;
pub use handshake::{Canceller, Handshake, Link};
pub use listener::{Incoming, Listener, ListenerCounters, MAX_HALF_OPEN};

/// Default of [`Options::answer_timeout`]. Chosen by us; no source.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Permission for traffic to leave the host unencrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plaintext {
    /// Not permitted: loopback addresses only.
    #[default]
    LoopbackOnly,
    /// Permitted. Anyone on the network path can read the traffic and impersonate either side.
    IUnderstand,
}

impl Plaintext {
    fn check(self, addr: SocketAddr) -> Result<(), SetupError> {
        match self {
            Self::LoopbackOnly if !addr.ip().to_canonical().is_loopback() => {
                Err(SetupError::NotLoopback(addr))
            }
            _ => Ok(()),
        }
    }
}

/// The choice of what encrypts and decrypts after a TLS handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsBy {
    /// The kernel, where it can (CONFIG_TLS, Documentation/networking/tls.rst), and this process elsewhere.
    #[default]
    Kernel,
    /// This process.
    Process,
}

/// Options of both sides of a set-up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Encryption and authentication by TLS 1.3, both sides of a link; `None` for connections without.
    pub tls: Option<Arc<Tls>>,
    /// The side of the system calls that encrypts, with [`Self::tls`].
    pub tls_by: TlsBy,
    /// Permission for traffic to leave the host unencrypted.
    pub plaintext: Plaintext,
    /// Time after which the connection counts as lost if the peer's kernel does not acknowledge sent data. A peer that
    /// reads slowly, or not at all, is not lost: its kernel answers the probes of its closed window.
    pub answer_timeout: Duration,
    /// Time for which the kernel polls a NAPI device while a thread waits for it (SO_BUSY_POLL, socket(7)); zero keeps
    /// the system's setting. If the kernel requires a privilege that the process lacks, the option is not set.
    pub busy_poll: Duration,
    /// Maximum number of packets per busy poll (SO_BUSY_POLL_BUDGET, Documentation/networking/napi.rst); `None` keeps
    /// the kernel's default.
    pub busy_poll_packets: Option<u16>,
    /// True if polling takes precedence over the device's interrupts (SO_PREFER_BUSY_POLL,
    /// Documentation/networking/napi.rst).
    pub prefer_busy_poll: bool,
    /// Send and receive buffers of each socket, bytes (SO_SNDBUF, SO_RCVBUF, socket(7)); `None` lets the kernel choose.
    pub socket_buffer: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: None,
            tls_by: TlsBy::default(),
            plaintext: Plaintext::default(),
            answer_timeout: ANSWER_TIMEOUT,
            busy_poll: Duration::ZERO,
            busy_poll_packets: None,
            prefer_busy_poll: false,
            socket_buffer: None,
        }
    }
}

impl Options {
    /// Returns an error if traffic to this address would leave the host unencrypted without permission.
    fn check(&self, addr: SocketAddr) -> Result<(), SetupError> {
        if self.tls.is_some() { Ok(()) } else { self.plaintext.check(addr) }
    }

    /// Returns the purpose to state for a connection, which depends on whether it is encrypted.
    const fn purpose(&self, purpose: Purpose) -> Purpose {
        match (purpose, self.tls.is_some()) {
            (Purpose::First, true) => Purpose::SecureFirst,
            (Purpose::Answer, true) => Purpose::SecureAnswer,
            (Purpose::Second, true) => Purpose::SecureSecond,
            (purpose, _) => purpose,
        }
    }
}

/// First seven bytes of every connection; the last of them is the version of this protocol.
const PROTOCOL: [u8; 7] = *b"pronto\x03";

/// Purpose of a connection: the eighth byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Purpose {
    First = b'1',
    Answer = b'a',
    Second = b'2',
    Ready = b'r',
    /// As [`Self::First`]; a TLS handshake follows.
    SecureFirst = b'3',
    /// As [`Self::Answer`], of a side that accepts TLS only.
    SecureAnswer = b't',
    /// As [`Self::Second`]; a TLS handshake follows.
    SecureSecond = b'4',
}

impl Purpose {
    const ALL: [Self; 7] = [
        Self::First,
        Self::Answer,
        Self::Second,
        Self::Ready,
        Self::SecureFirst,
        Self::SecureAnswer,
        Self::SecureSecond,
    ];
}

/// Returns a preamble of 8 bytes.
fn preamble(purpose: Purpose) -> [u8; 8] {
    let [a, b, c, d, e, f, g] = PROTOCOL;
    [a, b, c, d, e, f, g, purpose as u8]
}

fn purpose_of(found: [u8; 8]) -> Result<Purpose, SetupError> {
    Purpose::ALL.into_iter().find(|purpose| preamble(*purpose) == found).ok_or(SetupError::Preamble(found))
}

/// Returns an accepted connection after a TLS handshake.
#[cfg(test)]
pub(crate) fn secured(stream: std::net::TcpStream, tls: &Tls) -> Result<Channel, SetupError> {
    let mut channel = Channel::plain(stream);
    channel.secure(tls.server()?, TlsBy::Process, deadline::Deadline::after(ANSWER_TIMEOUT))?;
    Ok(channel)
}

/// Identifier that assigns the second connection to the first.
type Token = [u8; 16];
