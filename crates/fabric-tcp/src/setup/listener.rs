//! The accepting side: a bounded number of half-open connections, and the tokens for which handshakes wait.

use core::net::SocketAddr;
use core::time::Duration;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{Shutdown, shutdown};

use super::channel::Channel;
use super::deadline::Deadline;
use super::handshake::{Canceller, Handshake};
use super::{Options, Purpose, Token, await_link, preamble, purpose_of};
use crate::error::SetupError;

/// Maximum number of connections of one listener whose purpose is still unknown, and, separately, of unfinished
/// handshakes. With a common limit, unfinished handshakes could use all of it and keep their own second connections
/// out.
pub const MAX_HALF_OPEN: usize = 64;

/// Time within which a connection states its purpose. The dialler does so as soon as it is connected. If the network loses just these bytes, the
/// attempt may fail, and the dialler tries again.
const FIRST_BYTES: Duration = Duration::from_millis(500);

/// Counters of rejected connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounters {
    /// Connections dropped because too many were half-open, and handshakes dropped because too many were unfinished.
    pub crowded: u64,
    /// Connections that began with another protocol or version.
    pub bad_preambles: u64,
    /// Second connections with a token for which no handshake waits.
    pub unknown_tokens: u64,
    /// Connections on which the TLS handshake failed, or which used TLS where this side does not, or the other way round.
    pub untrusted: u64,
    /// Connections that did not state their purpose in time, or closed.
    pub silent: u64,
}

/// Listens for links.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    options: Options,
    shared: Arc<Shared>,
}

impl Listener {
    /// Listens at an address. Rejects addresses other than loopback unless `options` permit unencrypted traffic; this
    /// includes addresses of other network namespaces. With TLS all addresses are permitted.
    pub fn bind(addr: impl ToSocketAddrs, options: Options) -> Result<Self, SetupError> {
        let addrs: Vec<SocketAddr> = addr.to_socket_addrs()?.collect();
        addrs.iter().try_for_each(|addr| options.check(*addr))?;
        let listener = TcpListener::bind(&addrs[..])?;
        Ok(Self { listener, options, shared: Arc::default() })
    }

    /// Returns the address at which it listens.
    pub fn local_addr(&self) -> Result<SocketAddr, SetupError> {
        Ok(self.listener.local_addr()?)
    }

    /// Returns the next connection. Blocks until there is one, or until [`close`](Self::close).
    pub fn accept(&self) -> Result<Incoming, SetupError> {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    if let Some(permit) = Permit::acquire(&self.shared, Stage::Unidentified) {
                        return Ok(Incoming { stream, peer, options: self.options.clone(), permit });
                    }
                }
                // The connection closed before it was accepted, or a signal arrived: the listener still works.
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::ECONNABORTED | Errno::EINTR) => {}
                    // Result of accept on a socket that was shut down.
                    Some(Errno::EINVAL) => return Err(SetupError::Closed),
                    _ => return Err(error.into()),
                },
            }
        }
    }

    /// Ends every current and later [`accept`](Self::accept), from any thread.
    pub fn close(&self) {
        // Fails only if the listener was closed before.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
    }

    /// Returns the counters of rejected connections.
    pub fn counters(&self) -> ListenerCounters {
        self.shared.lock().counters
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of half-open connections by stage.
    half_open: [usize; 2],
    waiting: Vec<Waiting>,
    counters: ListenerCounters,
}

/// A handshake that waits for its second connection.
#[derive(Debug)]
struct Waiting {
    token: Token,
    hand: SyncSender<Channel>,
    /// Signalled after the connection was handed over.
    bell: Arc<EventFd>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stage of a half-open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its purpose is still unknown.
    Unidentified,
    /// It is a handshake.
    Handshake,
}

/// Permit for one half-open connection.
#[derive(Debug)]
pub(super) struct Permit {
    shared: Arc<Shared>,
    stage: Stage,
}

impl Permit {
    fn acquire(shared: &Arc<Shared>, stage: Stage) -> Option<Self> {
        let mut state = shared.lock();
        if state.half_open[stage as usize] == MAX_HALF_OPEN {
            state.counters.crowded += 1;
            return None;
        }
        state.half_open[stage as usize] += 1;
        Some(Self { shared: Arc::clone(shared), stage })
    }

    /// Registers a wait for the connection that presents `token`, until the returned value is dropped.
    pub(super) fn expect(&self, token: Token) -> Result<Expected<'_>, SetupError> {
        let (hand, arrived) = sync_channel(1);
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        self.shared.lock().waiting.push(Waiting { token, hand, bell: Arc::clone(&bell) });
        Ok(Expected { permit: self, token, arrived, bell })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.lock().half_open[self.stage as usize] -= 1;
    }
}

/// Registration of a handshake that waits for its second connection.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    permit: &'a Permit,
    token: Token,
    arrived: Receiver<Channel>,
    bell: Arc<EventFd>,
}

impl Expected<'_> {
    /// Waits for the second connection. Fails early if the first one breaks.
    pub(super) fn wait(&self, first: &Channel, deadline: Deadline) -> Result<Channel, SetupError> {
        await_link::second(first, &self.bell, deadline)?;
        self.arrived.try_recv().map_err(|_| SetupError::Lost)
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.permit.shared.lock().waiting.retain(|waiting| waiting.token != self.token);
    }
}

/// A connection whose purpose is still unknown.
#[derive(Debug)]
pub struct Incoming {
    stream: TcpStream,
    peer: SocketAddr,
    options: Options,
    permit: Permit,
}

impl Incoming {
    /// Returns the address of the peer.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns a handle that ends this connection, and the handshake that it becomes, from another thread. Drop it
    /// before the handshake becomes a link.
    pub fn canceller(&self) -> Result<Canceller, SetupError> {
        Canceller::of(&self.stream)
    }

    /// Reads the purpose of the connection, which must arrive within half a second, and makes the TLS handshake if there is one. Returns a
    /// handshake, which must finish within `timeout`, TLS included. Returns `None` for the second connection of a link, which is passed to the
    /// handshake that waits for it.
    pub fn begin(self, timeout: Duration) -> Result<Option<Handshake>, SetupError> {
        let shared = Arc::clone(&self.permit.shared);
        self.identify(timeout).inspect_err(|error| {
            let counters = &mut shared.lock().counters;
            match error {
                SetupError::Preamble(_) => counters.bad_preambles += 1,
                SetupError::UnknownToken => counters.unknown_tokens += 1,
                SetupError::Tls(_) | SetupError::PeerWithoutTls | SetupError::PeerRequiresTls => {
                    counters.untrusted += 1;
                }
                // Counted where it was rejected.
                SetupError::Crowded => {}
                _ => counters.silent += 1,
            }
        })
    }

    fn identify(self, timeout: Duration) -> Result<Option<Handshake>, SetupError> {
        let Self { stream, peer, options, permit } = self;
        let deadline = Deadline::after(timeout);
        stream.set_nodelay(true)?;
        let first = deadline.or_after(FIRST_BYTES);
        let mut found = [0; 8];
        first.read_exact(&stream, &mut found)?;
        let mut channel = Channel::plain(stream);
        let tls = options.tls.as_ref();
        match purpose_of(found)? {
            purpose @ (Purpose::First | Purpose::SecureFirst) => {
                let permit = Permit::acquire(&permit.shared, Stage::Handshake).ok_or(SetupError::Crowded)?;
                channel.write_all(deadline, &preamble(options.purpose(Purpose::Answer)))?;
                match (purpose, tls) {
                    (Purpose::First, None) => {}
                    (Purpose::SecureFirst, Some(tls)) => {
                        channel.secure(tls.server()?, options.tls_by, deadline)?;
                        channel.write_all(deadline, &preamble(Purpose::SecureAnswer))?;
                    }
                    (_, Some(_)) => return Err(SetupError::PeerWithoutTls),
                    (_, None) => return Err(SetupError::PeerRequiresTls),
                }
                Ok(Some(Handshake::accepted(channel, peer, deadline, options, permit)))
            }
            purpose @ (Purpose::Second | Purpose::SecureSecond) => {
                let mut token = Token::default();
                match (purpose, tls) {
                    (Purpose::Second, None) => channel.read_exact(first, &mut token)?,
                    (Purpose::SecureSecond, Some(tls)) => {
                        channel.secure(tls.server()?, options.tls_by, deadline)?;
                        channel.read_exact(deadline, &mut token)?;
                    }
                    _ => return Err(SetupError::UnknownToken),
                }
                let mut state = permit.shared.lock();
                let place = state.waiting.iter().position(|waiting| waiting.token == token);
                // Removed from the list: a token is valid for one connection.
                let Waiting { hand, bell, .. } =
                    state.waiting.swap_remove(place.ok_or(SetupError::UnknownToken)?);
                drop(state);
                hand.try_send(channel).map_err(|_| SetupError::UnknownToken)?;
                // If the counter is full, the descriptor is readable already.
                let _full = bell.write(1);
                Ok(None)
            }
            Purpose::Answer | Purpose::SecureAnswer | Purpose::Ready => Err(SetupError::Preamble(found)),
        }
    }
}
