//! Queues of the sockets of other processes, which the kernel reports by sock_diag, `sock_diag(7)`.
//!
//! A sensor must not hold a duplicate of a socket: its connection would not end with the process. These queries hold nothing. They need no
//! privilege for the network namespace of the caller.
//!
//! Limits of what the kernel reports: the receive queue of a UDP socket counts memory, not payload. A connection over the loopback device
//! of one host acknowledges immediately, so its send queue is almost always empty. The bytes in a Unix socket are in the receive queue of
//! one end and, as memory, in the send queue of the other.

mod wire;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket,
    sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use pronto_sched_policy::policy::occupancy::{Occupancy, Queue};
use thiserror::Error;
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::socket::{Connection, Socket};

use wire::{
    AttributeHeader, InetId, InetReply, InetRequest, MessageHeader, TcpRequest, UnixQueues, UnixReply,
    UnixRequest,
};

/// Identifies a socket in later queries. A socket that reuses the end points of another one is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Inet { family: u8, protocol: u8, id: InetId },
    Unix { inode: u32 },
}

/// Reason why queues cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DiagError {
    /// The kernel has no sock_diag, or a filter of system calls forbids it.
    #[error(
        "the kernel does not report the queues of sockets (sock_diag: {0}): it needs CONFIG_INET_DIAG and CONFIG_UNIX_DIAG"
    )]
    Unavailable(Errno),
    /// The network namespace of a process cannot be entered.
    #[error(
        "cannot enter the network namespace of process {0}: {1}; that needs CAP_SYS_ADMIN: run as root, or in that namespace (nsenter)"
    )]
    Namespace(u32, Errno),
    /// A query failed.
    #[error("cannot read the queues of sockets: {0}")]
    Query(Errno),
    /// A reply has an unknown form.
    #[error("the kernel's report on sockets has an unknown form")]
    Malformed,
}

/// Families of internet sockets (`AF_INET`, `AF_INET6`).
const FAMILIES: [u8; 2] = [2, 10];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Requests per message to the kernel, so that its replies fit into the receive buffer of the socket.
const BATCH: usize = 64;

/// Longest wait for a reply. The kernel replies while the request is sent, so that nothing is waited for.
const PATIENCE_MS: i64 = 1_000;

/// Queries about the sockets of one network namespace.
#[derive(Debug)]
pub struct Diag {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Diag {
    /// Opens queries in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`DiagError::Unavailable`].
    pub fn open() -> Result<Self, DiagError> {
        let protocol = SockProtocol::NetlinkSockDiag;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)
            .map_err(DiagError::Unavailable)?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::milliseconds(PATIENCE_MS))
            .map_err(DiagError::Unavailable)?;
        Ok(Self { socket, buffer: vec![0; 1 << 16], sequence: 0 })
    }

    /// Opens queries in the network namespace of a process. The calling thread enters the namespace for that moment.
    ///
    /// # Errors
    /// [`DiagError::Namespace`] if this process may not, or the process has ended; [`DiagError::Unavailable`].
    pub fn open_in_namespace_of(pid: u32) -> Result<Self, DiagError> {
        let failed = |errno| DiagError::Namespace(pid, errno);
        let of_io =
            |error: io::Error| failed(error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw));
        let own = File::open("/proc/thread-self/ns/net").map_err(of_io)?;
        let other = File::open(format!("/proc/{pid}/ns/net")).map_err(of_io)?;
        setns(&other, CloneFlags::CLONE_NEWNET).map_err(failed)?;
        let opened = Self::open();
        setns(&own, CloneFlags::CLONE_NEWNET).map_err(failed)?;
        opened
    }

    /// Passes each socket of the namespace that can hold data to `each`.
    ///
    /// # Errors
    /// [`DiagError::Query`], [`DiagError::Malformed`]. A kernel without UDP or Unix diagnosis is no error: such sockets are missing.
    pub fn all(&mut self, mut each: impl FnMut(Key, Socket)) -> Result<(), DiagError> {
        self.tcp(&mut each)?;
        self.inet(UDP, &mut each)?;
        let sequence = self.next_sequence();
        self.send(UnixRequest::all(sequence).as_bytes())?;
        self.receive_all(sequence, |body| each_unix(body, &mut each))?;
        Ok(())
    }

    /// Lists the TCP sockets of both families in one request, which saves a pass over the kernel's table, or by family where the kernel does
    /// not know it any more.
    fn tcp(&mut self, each: &mut impl FnMut(Key, Socket)) -> Result<(), DiagError> {
        let sequence = self.next_sequence();
        self.send(TcpRequest::all(sequence).as_bytes())?;
        match self.receive_all(sequence, |body| each_inet(body, TCP, each))? {
            Listed::All => Ok(()),
            Listed::Unknown => self.inet(TCP, each),
        }
    }

    fn inet(&mut self, protocol: u8, each: &mut impl FnMut(Key, Socket)) -> Result<(), DiagError> {
        for family in FAMILIES {
            let sequence = self.next_sequence();
            self.send(InetRequest::all(family, protocol, sequence).as_bytes())?;
            self.receive_all(sequence, |body| each_inet(body, protocol, each))?;
        }
        Ok(())
    }

    /// Passes those of the sockets `keys` that still exist to `each`. TCP and Unix sockets cost one system call each, however many others
    /// the namespace has. The kernel finds a UDP socket reliably only among all of them.
    ///
    /// # Errors
    /// As [`Self::all`].
    pub fn some(&mut self, keys: &[Key], mut each: impl FnMut(Key, Socket)) -> Result<(), DiagError> {
        for batch in keys.chunks(BATCH) {
            let sequence = self.next_sequence();
            let mut requests = Vec::with_capacity(batch.len() * size_of::<InetRequest>());
            for key in batch {
                match key.0 {
                    Kind::Inet { protocol: UDP, .. } => {}
                    Kind::Inet { family, protocol, id } => {
                        requests
                            .extend_from_slice(InetRequest::one(family, protocol, id, sequence).as_bytes());
                    }
                    Kind::Unix { inode } => {
                        requests.extend_from_slice(UnixRequest::one(inode, sequence).as_bytes());
                    }
                }
            }
            if requests.is_empty() {
                continue;
            }
            self.send(&requests)?;
            for key in batch {
                match key.0 {
                    Kind::Inet { protocol: UDP, .. } => {}
                    Kind::Inet { protocol, .. } => {
                        self.receive_one(sequence, |body| each_inet(body, protocol, &mut each))?;
                    }
                    Kind::Unix { .. } => self.receive_one(sequence, |body| each_unix(body, &mut each))?,
                }
            }
        }
        let udp = |key: &&Key| matches!(key.0, Kind::Inet { protocol: UDP, .. });
        let datagrams: BTreeSet<Key> = keys.iter().filter(udp).copied().collect();
        if !datagrams.is_empty() {
            self.inet(UDP, &mut |key, socket| {
                if datagrams.contains(&key) {
                    each(key, socket);
                }
            })?;
        }
        Ok(())
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    fn send(&self, requests: &[u8]) -> Result<(), DiagError> {
        let kernel = NetlinkAddr::new(0, 0);
        sendto(self.socket.as_raw_fd(), requests, &kernel, MsgFlags::empty()).map_err(DiagError::Query)?;
        Ok(())
    }

    /// Reads the replies to one request for many sockets.
    fn receive_all(
        &mut self,
        sequence: u32,
        mut each: impl FnMut(&[u8]) -> Result<(), DiagError>,
    ) -> Result<Listed, DiagError> {
        loop {
            let length = self.receive()?;
            for message in Messages(&self.buffer[..length]) {
                let (header, body) = message?;
                match header.kind {
                    // Left over from a request that was given up.
                    _ if header.sequence != sequence => {}
                    wire::DONE => return Ok(Listed::All),
                    wire::ERROR if is_missing(errno_of(body)?) => return Ok(Listed::Unknown),
                    wire::ERROR => return Err(DiagError::Query(errno_of(body)?)),
                    wire::BY_FAMILY | wire::TCP_SOCKETS => each(body)?,
                    _ => return Err(DiagError::Malformed),
                }
            }
        }
    }

    /// Reads the reply to one request for one socket. A socket that does not exist any more is no error.
    fn receive_one(
        &mut self,
        sequence: u32,
        mut each: impl FnMut(&[u8]) -> Result<(), DiagError>,
    ) -> Result<(), DiagError> {
        loop {
            let length = self.receive()?;
            let mut messages = Messages(&self.buffer[..length]);
            let (header, body) = messages.next().ok_or(DiagError::Malformed)??;
            match header.kind {
                _ if header.sequence != sequence => {}
                wire::ERROR if is_gone(errno_of(body)?) => return Ok(()),
                wire::ERROR => return Err(DiagError::Query(errno_of(body)?)),
                wire::BY_FAMILY => return each(body),
                _ => return Err(DiagError::Malformed),
            }
        }
    }

    fn receive(&mut self) -> Result<usize, DiagError> {
        loop {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(length) => return Ok(length),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(DiagError::Query(errno)),
            }
        }
    }
}

/// The end of a list of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// All were listed.
    All,
    /// The kernel does not know the request, or has no diagnosis for this kind of sockets.
    Unknown,
}

/// Returns whether the kernel has no diagnosis for a kind of sockets.
fn is_missing(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::EAFNOSUPPORT)
}

/// Returns whether a socket does not exist any more, or has ended its connection.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ESTALE)
}

/// Returns the error in the body of an `NLMSG_ERROR`.
fn errno_of(body: &[u8]) -> Result<Errno, DiagError> {
    let (code, _) = i32::read_from_prefix(body).map_err(|_| DiagError::Malformed)?;
    Ok(Errno::from_raw(code.saturating_neg()))
}

/// The messages in a buffer: header and body of each.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<(MessageHeader, &'a [u8]), DiagError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let rest = core::mem::take(&mut self.0);
        let Ok((header, _)) = MessageHeader::read_from_prefix(rest) else {
            return Some(Err(DiagError::Malformed));
        };
        let length = header.length as usize;
        let Some(body) = rest.get(size_of::<MessageHeader>()..length) else {
            return Some(Err(DiagError::Malformed));
        };
        self.0 = rest.get(length.next_multiple_of(wire::ALIGNMENT)..).unwrap_or_default();
        Some(Ok((header, body)))
    }
}

/// Passes the internet socket in the body of a reply to `each`, unless no process has it.
fn each_inet(body: &[u8], protocol: u8, each: &mut impl FnMut(Key, Socket)) -> Result<(), DiagError> {
    let (reply, _) = InetReply::read_from_prefix(body).map_err(|_| DiagError::Malformed)?;
    if reply.inode == 0 {
        return Ok(());
    }
    let id = reply.id;
    let address = |bytes: [u8; 16], port: [u8; 2]| {
        let ip = if reply.family == FAMILIES[0] {
            let [a, b, c, d, ..] = bytes;
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        } else {
            // A socket for both families is known to the other end by its IPv4 address.
            Ipv6Addr::from(bytes).to_canonical()
        };
        SocketAddr::new(ip, u16::from_be_bytes(port))
    };
    let socket = Socket {
        inode: reply.inode.into(),
        occupancy: occupancy(reply.receive_queue, reply.send_queue),
        connection: Some(Connection {
            protocol,
            local: address(id.local, id.local_port),
            remote: address(id.remote, id.remote_port),
        }),
    };
    each(Key(Kind::Inet { family: reply.family, protocol, id }), socket);
    Ok(())
}

/// Passes the Unix socket in the body of a reply to `each`.
fn each_unix(body: &[u8], each: &mut impl FnMut(Key, Socket)) -> Result<(), DiagError> {
    let (reply, mut rest) = UnixReply::read_from_prefix(body).map_err(|_| DiagError::Malformed)?;
    let mut queues = None;
    while let Ok((header, _)) = AttributeHeader::read_from_prefix(rest) {
        let length = usize::from(header.length);
        let value = rest.get(size_of::<AttributeHeader>()..length).ok_or(DiagError::Malformed)?;
        if header.kind == wire::UNIX_QUEUES {
            queues = UnixQueues::read_from_prefix(value).ok().map(|(queues, _)| queues);
        }
        rest = rest.get(length.next_multiple_of(wire::ALIGNMENT)..).unwrap_or_default();
    }
    if let Some(queues) = queues {
        let socket = Socket {
            inode: reply.inode.into(),
            occupancy: occupancy(queues.receive, queues.send),
            connection: None,
        };
        each(Key(Kind::Unix { inode: reply.inode }), socket);
    }
    Ok(())
}

/// A queue that is not empty counts as one message, the least that it can hold: the kernel does not report the messages of a byte stream.
fn occupancy(received: u32, sent: u32) -> Occupancy {
    let queue = |bytes: u32| Queue { bytes: bytes.into(), messages: u64::from(bytes > 0) };
    Occupancy { received: queue(received), sent: queue(sent) }
}

#[cfg(test)]
mod tests;
