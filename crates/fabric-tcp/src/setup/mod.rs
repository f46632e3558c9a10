//! Setting up a link: two connections to one peer, found and tied together before any queue pair exists.
//!
//! ```text
//! dialler                                acceptor
//!   connect ───────────────────────────►  Listener::accept
//!   preamble "first"  ─────────────────►  Incoming::begin
//!   ◄─────────────────  preamble "answer"
//!   send / receive  ◄──────────────────►  send / receive        (the greeting; length-prefixed)
//!   ◄─────────────────  token, 16 random bytes                  (establish)
//!   connect ───────────────────────────►  Listener::accept
//!   preamble "second", token  ─────────►  Incoming::begin gives None: handed to the handshake that waits for it
//!   ◄─────────────────  preamble "ready", on the first connection
//! ```
//!
//! The dialler says nothing on either connection before it is told that both are there: until then neither side has a link,
//! and each gives up at once when the other does. Only a connection that breaks while "ready" travels leaves the acceptor
//! with a link that the dialler does not have; it finds the connection broken as soon as it looks at the link.
//!
//! Everything is bounded: each side by one deadline for the whole of it, the acceptor in how many connections may be
//! half open. An acceptor's `establish` waits for a second connection, so it must not run on the thread that accepts.

mod await_link;
mod deadline;
mod handshake;
mod listener;
mod pair;

use core::net::SocketAddr;
use core::time::Duration;

use crate::error::SetupError;

pub use handshake::{Canceller, Handshake, Link};
pub use listener::{Incoming, Listener, ListenerCounters, MAX_HALF_OPEN};

/// Default of [`Options::answer_timeout`]. Chosen by us; no source.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether traffic may leave the host unencrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plaintext {
    /// No: loopback addresses only.
    #[default]
    LoopbackOnly,
    /// Yes. Whoever can listen on the way reads everything, and can pretend to be either side.
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

/// What both sides of a set-up can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether traffic may leave the host unencrypted.
    pub plaintext: Plaintext,
    /// How long the peer's kernel may leave what was sent without any answer before the connection counts as lost. A peer
    /// that reads slowly, or not at all, is not lost: its kernel answers the probes of its closed window.
    pub answer_timeout: Duration,
    /// How long the kernel polls a device with NAPI when somebody waits for it (SO_BUSY_POLL, socket(7)); zero is what the system does
    /// anyway. Where the kernel wants a privilege for it, it is not set without.
    pub busy_poll: Duration,
    /// Packets that the kernel takes in one go when it polls so (SO_BUSY_POLL_BUDGET, Documentation/networking/napi.rst); none is what
    /// the kernel has of its own.
    pub busy_poll_packets: Option<u16>,
    /// Whether polling goes before the device's interrupts (SO_PREFER_BUSY_POLL, Documentation/networking/napi.rst).
    pub prefer_busy_poll: bool,
    /// Send and receive buffers of each socket, bytes (SO_SNDBUF, SO_RCVBUF, socket(7)); none lets the kernel choose.
    pub socket_buffer: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            plaintext: Plaintext::default(),
            answer_timeout: ANSWER_TIMEOUT,
            busy_poll: Duration::ZERO,
            busy_poll_packets: None,
            prefer_busy_poll: false,
            socket_buffer: None,
        }
    }
}

/// First seven bytes of every connection; the last of them is the version of this framing.
const PROTOCOL: [u8; 7] = *b"pronto\x03";

/// What a connection is for: the eighth byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Purpose {
    First = b'1',
    Answer = b'a',
    Second = b'2',
    Ready = b'r',
}

/// A preamble, 8 bytes.
fn preamble(purpose: Purpose) -> [u8; 8] {
    let [a, b, c, d, e, f, g] = PROTOCOL;
    [a, b, c, d, e, f, g, purpose as u8]
}

fn purpose_of(found: [u8; 8]) -> Result<Purpose, SetupError> {
    [Purpose::First, Purpose::Answer, Purpose::Second, Purpose::Ready]
        .into_iter()
        .find(|purpose| preamble(*purpose) == found)
        .ok_or(SetupError::Preamble(found))
}

/// What ties the second connection to the first.
type Token = [u8; 16];
