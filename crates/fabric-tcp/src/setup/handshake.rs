//! One side of a set-up: set-up messages in both directions, then two connections become two queue pairs.

use core::net::SocketAddr;
use core::time::Duration;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use pronto_core::Class;
use pronto_core::fabric::ConnectionLimits;
use rustls::pki_types::CertificateDer;

use super::channel::Channel;
use super::deadline::Deadline;
use super::listener::Permit;
use super::{Options, Purpose, Token, await_link, preamble, purpose_of};
use crate::error::SetupError;
use crate::pool::ReceivePool;
use crate::queue_pair::TcpQueuePair;
use crate::random::random_bytes;

/// Ends a handshake from another thread, whatever the handshake waits for. Drop it once the handshake has become a
/// link; otherwise a cancellation breaks the link.
#[derive(Debug)]
pub struct Canceller(TcpStream);

impl Canceller {
    /// Returns a canceller for a connection that is not a handshake yet.
    pub(super) fn of(stream: &TcpStream) -> Result<Self, SetupError> {
        Ok(Self(stream.try_clone()?))
    }

    /// Breaks the first connection. Both sides then find it lost.
    pub fn cancel(&self) {
        // Fails only if the connection is broken already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Two queue pairs to one peer.
#[derive(Debug)]
pub struct Link {
    /// Connection for small, urgent messages.
    pub control: TcpQueuePair,
    /// Connection for large messages.
    pub bulk: TcpQueuePair,
}

/// A first connection, before it becomes a link. Dropping it closes the connection.
#[derive(Debug)]
pub struct Handshake {
    channel: Channel,
    peer: SocketAddr,
    deadline: Deadline,
    options: Options,
    role: Role,
}

#[derive(Debug)]
enum Role {
    /// The dialling side; `answered` is true once the acceptor's preamble was received.
    Dialler { answered: bool },
    /// The accepting side.
    Acceptor { permit: Permit },
}

impl Handshake {
    /// Connects to a listener. `timeout` limits the whole handshake, including `establish`.
    pub fn dial(addr: SocketAddr, timeout: Duration, options: Options) -> Result<Self, SetupError> {
        options.check(addr)?;
        let deadline = Deadline::after(timeout);
        let stream = connect(addr, deadline, options.purpose(Purpose::First))?;
        let mut channel = Channel::plain(stream);
        let mut answered = false;
        if let Some(tls) = &options.tls {
            hear_answer(&mut channel, deadline, &options)?;
            answered = true;
            channel.secure(tls.client()?, options.tls_by, deadline)?;
            // In TLS 1.3 this side's handshake ends before the acceptor has judged this side. It does not go on before it is trusted.
            hear_answer(&mut channel, deadline, &options)?;
        }
        Ok(Self { channel, peer: addr, deadline, options, role: Role::Dialler { answered } })
    }

    pub(super) fn accepted(
        channel: Channel,
        peer: SocketAddr,
        deadline: Deadline,
        options: Options,
        permit: Permit,
    ) -> Self {
        Self { channel, peer, deadline, options, role: Role::Acceptor { permit } }
    }

    /// Returns the address of the other side.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the address of this side.
    pub fn local_addr(&self) -> Result<SocketAddr, SetupError> {
        Ok(self.channel.stream().local_addr()?)
    }

    /// Returns the certificates of the other side, its own first, or its raw public key. None if the connection is not encrypted.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.channel.peer_certificates()
    }

    /// Limits the rest of the handshake to `timeout`; never extends it.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { deadline: self.deadline.or_after(timeout), ..self }
    }

    /// Returns a handle that can end this handshake from another thread.
    pub fn canceller(&self) -> Result<Canceller, SetupError> {
        Canceller::of(self.channel.stream())
    }

    /// Sends a set-up message of at most 4 GiB - 1.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), SetupError> {
        let max = u32::MAX as usize;
        let len = u32::try_from(bytes.len()).map_err(|_| SetupError::TooLong { len: bytes.len(), max })?;
        self.channel.write_all(self.deadline, &[&len.to_le_bytes(), bytes].concat())
    }

    /// Receives a set-up message of at most `max` bytes. Rejects a longer one before allocating memory for it.
    pub fn receive(&mut self, max: usize) -> Result<Vec<u8>, SetupError> {
        self.hear_answer()?;
        let mut len = [0; 4];
        self.channel.read_exact(self.deadline, &mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > max {
            return Err(SetupError::TooLong { len, max });
        }
        let mut bytes = vec![0; len];
        self.channel.read_exact(self.deadline, &mut bytes)?;
        Ok(bytes)
    }

    /// Makes the second connection, and turns both into queue pairs, with `limits` by class. The acceptor waits for the
    /// dialler's second connection, which another thread must accept and [`begin`](super::Incoming::begin). The dialler
    /// waits until the acceptor has it. Each side stops waiting as soon as the other one gives up.
    pub fn establish(
        self,
        limits: [ConnectionLimits; 2],
        pool: &Arc<ReceivePool>,
    ) -> Result<Link, SetupError> {
        limits.iter().try_for_each(|limits| pool.check(limits.max_receive_payload))?;
        let options = self.options.clone();
        let [control, bulk] = self.establish_channels()?;
        let queue_pair =
            |channel, class: Class| TcpQueuePair::new(channel, class, &limits[class.index()], pool, &options);
        Ok(Link { control: queue_pair(control, Class::Control)?, bulk: queue_pair(bulk, Class::Bulk)? })
    }

    /// Makes the second connection and returns both, by class, without queue pairs. Later bytes on them are encrypted only if the
    /// kernel does so.
    pub fn establish_streams(self) -> Result<[TcpStream; 2], SetupError> {
        Ok(self.establish_channels()?.map(|channel| channel.into_parts().0))
    }

    fn establish_channels(mut self) -> Result<[Channel; 2], SetupError> {
        self.hear_answer()?;
        let Self { mut channel, deadline, .. } = self;
        let second = match &self.role {
            Role::Dialler { .. } => {
                let mut token = Token::default();
                channel.read_exact(deadline, &mut token)?;
                let purpose = self.options.purpose(Purpose::Second);
                let mut second = Channel::plain(connect(self.peer, deadline, purpose)?);
                if let Some(tls) = &self.options.tls {
                    second.secure(tls.client()?, self.options.tls_by, deadline)?;
                    same_peer(&channel, &second)?;
                }
                second.write_all(deadline, &token)?;
                await_link::ready(&mut channel, &second, deadline)?;
                second
            }
            Role::Acceptor { permit } => {
                let token = random_bytes()?;
                let expected = permit.expect(token)?;
                channel.write_all(deadline, &token)?;
                let second = expected.wait(&channel, deadline)?;
                same_peer(&channel, &second)?;
                channel.write_all(deadline, &preamble(Purpose::Ready))?;
                second
            }
        };
        Ok([channel, second])
    }

    /// Reads the acceptor's preamble, if the dialler has not read it yet.
    fn hear_answer(&mut self) -> Result<(), SetupError> {
        if let Role::Dialler { answered: answered @ false } = &mut self.role {
            hear_answer(&mut self.channel, self.deadline, &self.options)?;
            *answered = true;
        }
        Ok(())
    }
}

/// Reads the acceptor's preamble, which says whether the acceptor encrypts.
fn hear_answer(channel: &mut Channel, deadline: Deadline, options: &Options) -> Result<(), SetupError> {
    let mut found = [0; 8];
    channel.read_exact(deadline, &mut found)?;
    match (purpose_of(found)?, options.tls.is_some()) {
        (Purpose::Answer, false) | (Purpose::SecureAnswer, true) => Ok(()),
        (Purpose::Answer, true) => Err(SetupError::PeerWithoutTls),
        (Purpose::SecureAnswer, false) => Err(SetupError::PeerRequiresTls),
        _ => Err(SetupError::Preamble(found)),
    }
}

/// Checks that both connections of a link lead to the same identity.
fn same_peer(first: &Channel, second: &Channel) -> Result<(), SetupError> {
    let own = |channel: &Channel| channel.peer_certificates().and_then(<[_]>::first).cloned();
    if own(first) == own(second) { Ok(()) } else { Err(SetupError::OtherIdentity) }
}

fn connect(addr: SocketAddr, deadline: Deadline, purpose: Purpose) -> Result<TcpStream, SetupError> {
    let stream = TcpStream::connect_timeout(&addr, deadline.left()?)?;
    stream.set_nodelay(true)?;
    deadline.write_all(&stream, &preamble(purpose))?;
    Ok(stream)
}
