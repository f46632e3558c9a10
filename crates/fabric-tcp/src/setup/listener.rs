//! The accepting side: a bounded number of half-open connections, and the tokens that handshakes wait for.

use core::net::SocketAddr;
use core::time::Duration;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{Shutdown, shutdown};

use super::deadline::Deadline;
use super::handshake::{Canceller, Handshake};
use super::{Options, Purpose, Token, await_link, preamble, purpose_of};
use crate::error::SetupError;

/// Connections of one listener that may not yet have said what they are for, and as many handshakes that may be under
/// way beside them: were it one number, full of handshakes, then none of their second connections could come in.
pub const MAX_HALF_OPEN: usize = 64;

/// What a listener has refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounters {
    /// Connections dropped because too many were half open, and handshakes because too many were under way.
    pub crowded: u64,
    /// Connections that began with something else than this protocol.
    pub bad_preambles: u64,
    /// Second connections with a token that nobody waits for.
    pub unknown_tokens: u64,
    /// Connections that did not say what they are for in time, or went away.
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
    /// Listens at an address. Others than loopback are refused unless `options` say that plain text is understood;
    /// that goes for network namespaces, too.
    pub fn bind(addr: impl ToSocketAddrs, options: Options) -> Result<Self, SetupError> {
        let addrs: Vec<SocketAddr> = addr.to_socket_addrs()?.collect();
        addrs.iter().try_for_each(|addr| options.plaintext.check(*addr))?;
        let listener = TcpListener::bind(&addrs[..])?;
        Ok(Self { listener, options, shared: Arc::default() })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> Result<SocketAddr, SetupError> {
        Ok(self.listener.local_addr()?)
    }

    /// The next connection; blocks until there is one, or until [`close`](Self::close).
    pub fn accept(&self) -> Result<Incoming, SetupError> {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    if let Some(permit) = Permit::acquire(&self.shared, Stage::Unidentified) {
                        return Ok(Incoming { stream, peer, options: self.options, permit });
                    }
                }
                // The connection was gone before we looked, or a signal came: the listener is well.
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::ECONNABORTED | Errno::EINTR) => {}
                    // What accept says of a socket that was shut down.
                    Some(Errno::EINVAL) => return Err(SetupError::Closed),
                    _ => return Err(error.into()),
                },
            }
        }
    }

    /// Ends every present and later [`accept`](Self::accept), from any thread.
    pub fn close(&self) {
        // Fails only if it was closed before.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
    }

    /// What was refused so far.
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
    /// By stage.
    half_open: [usize; 2],
    waiting: Vec<Waiting>,
    counters: ListenerCounters,
}

/// A handshake that waits for its second connection.
#[derive(Debug)]
struct Waiting {
    token: Token,
    hand: SyncSender<TcpStream>,
    /// Rung after the connection was handed over.
    bell: Arc<EventFd>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a half-open connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has not said what it is for.
    Unidentified,
    /// It is a handshake.
    Handshake,
}

/// The right to be half open.
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

    /// Waits for the connection that presents `token`, from now until the value is dropped.
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

/// A handshake's place in the list of those that wait.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    permit: &'a Permit,
    token: Token,
    arrived: Receiver<TcpStream>,
    bell: Arc<EventFd>,
}

impl Expected<'_> {
    /// The second connection; ends early if the first one does.
    pub(super) fn wait(&self, first: &TcpStream, deadline: Deadline) -> Result<TcpStream, SetupError> {
        await_link::second(first, &self.bell, deadline)?;
        self.arrived.try_recv().map_err(|_| SetupError::Lost)
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.permit.shared.lock().waiting.retain(|waiting| waiting.token != self.token);
    }
}

/// A connection that has not yet said what it is for.
#[derive(Debug)]
pub struct Incoming {
    stream: TcpStream,
    peer: SocketAddr,
    options: Options,
    permit: Permit,
}

impl Incoming {
    /// Who connected.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns what ends this connection, and the handshake that it becomes, from another thread. Drop it before the
    /// handshake becomes a link.
    pub fn canceller(&self) -> Result<Canceller, SetupError> {
        Canceller::of(&self.stream)
    }

    /// Reads what the connection is for: a handshake, which then has `timeout` for all of it, or nothing if it was the
    /// second connection of a link and is now where it belongs.
    pub fn begin(self, timeout: Duration) -> Result<Option<Handshake>, SetupError> {
        let shared = Arc::clone(&self.permit.shared);
        self.identify(timeout).inspect_err(|error| {
            let counters = &mut shared.lock().counters;
            match error {
                SetupError::Preamble(_) => counters.bad_preambles += 1,
                SetupError::UnknownToken => counters.unknown_tokens += 1,
                // Counted where it was refused.
                SetupError::Crowded => {}
                _ => counters.silent += 1,
            }
        })
    }

    fn identify(self, timeout: Duration) -> Result<Option<Handshake>, SetupError> {
        let Self { stream, peer, options, permit } = self;
        let deadline = Deadline::after(timeout);
        stream.set_nodelay(true)?;
        let mut found = [0; 8];
        deadline.read_exact(&stream, &mut found)?;
        match purpose_of(found)? {
            Purpose::First => {
                let permit = Permit::acquire(&permit.shared, Stage::Handshake).ok_or(SetupError::Crowded)?;
                deadline.write_all(&stream, &preamble(Purpose::Answer))?;
                Ok(Some(Handshake::accepted(stream, peer, deadline, options, permit)))
            }
            Purpose::Second => {
                let mut token = Token::default();
                deadline.read_exact(&stream, &mut token)?;
                let mut state = permit.shared.lock();
                let place = state.waiting.iter().position(|waiting| waiting.token == token);
                // Taken out of the list: a token is good for one connection.
                let Waiting { hand, bell, .. } =
                    state.waiting.swap_remove(place.ok_or(SetupError::UnknownToken)?);
                drop(state);
                hand.try_send(stream).map_err(|_| SetupError::UnknownToken)?;
                // A full counter is as good as a write: the descriptor is readable.
                let _full = bell.write(1);
                Ok(None)
            }
            Purpose::Answer | Purpose::Ready => Err(SetupError::Preamble(found)),
        }
    }
}
