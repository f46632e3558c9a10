//! Ping-pongs over sockets: the floor of any call over TCP, and of one over a Unix socket.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use anyhow::Context as _;

use crate::placement::{CpuPair, face_to_face};
use crate::sample::Recorder;

/// Measures round trips of `size` bytes over a Unix stream socket, both sides blocking in `read`.
pub(crate) fn unix_blocking(
    cpus: CpuPair,
    size: usize,
    budget: Duration,
    into: &mut Recorder,
) -> anyhow::Result<()> {
    let (near, far) = UnixStream::pair().context("creating a pair of Unix sockets")?;
    ping_pong(cpus, size, budget, into, (near, far))
}

/// Measures round trips of `size` bytes over TCP on the loopback interface with `TCP_NODELAY`, both sides blocking in `read`.
pub(crate) fn tcp_blocking(
    cpus: CpuPair,
    size: usize,
    budget: Duration,
    into: &mut Recorder,
) -> anyhow::Result<()> {
    ping_pong(cpus, size, budget, into, tcp_pair()?)
}

/// Measures round trips like [`tcp_blocking`], with both sides polling instead of sleeping.
pub(crate) fn tcp_spinning(
    cpus: CpuPair,
    size: usize,
    budget: Duration,
    into: &mut Recorder,
) -> anyhow::Result<()> {
    ping_pong(cpus, size, budget, into, tcp_spinning_pair()?)
}

/// Returns two connected sockets for [`tcp_spinning`].
pub(crate) fn tcp_spinning_pair() -> anyhow::Result<(Spinning<TcpStream>, Spinning<TcpStream>)> {
    let (near, far) = tcp_pair()?;
    near.set_nonblocking(true).context("making a socket non-blocking")?;
    far.set_nonblocking(true).context("making a socket non-blocking")?;
    Ok((Spinning(near), Spinning(far)))
}

/// Returns two connected sockets for [`tcp_blocking`].
pub(crate) fn tcp_pair() -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on the loopback interface")?;
    let address = listener.local_addr().context("reading the port")?;
    let near = TcpStream::connect(address).context("connecting over the loopback interface")?;
    let (far, _) = listener.accept().context("accepting over the loopback interface")?;
    near.set_nodelay(true).context("setting TCP_NODELAY")?;
    far.set_nodelay(true).context("setting TCP_NODELAY")?;
    Ok((near, far))
}

fn ping_pong<S: Read + Write + Send>(
    cpus: CpuPair,
    size: usize,
    budget: Duration,
    into: &mut Recorder,
    (mut near, mut far): (S, S),
) -> anyhow::Result<()> {
    let partner = move || {
        let mut buffer = vec![0; size];
        loop {
            match far.read_exact(&mut buffer) {
                Ok(()) => far.write_all(&buffer)?,
                // The caller is done and has closed its end.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    };
    // `near` is moved in, so it is closed when the caller is done, whatever the outcome.
    let caller = move || {
        let mut buffer = vec![0; size];
        into.round(budget, || {
            near.write_all(&buffer)?;
            near.read_exact(&mut buffer)
        })
        .context("a socket round trip")
    };
    face_to_face(cpus, partner, caller)
}

/// A non-blocking socket that is polled until it is ready.
#[derive(Debug)]
pub(crate) struct Spinning<S>(S);

impl<S: Read> Read for Spinning<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}

impl<S: Write> Write for Spinning<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
