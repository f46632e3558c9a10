//! The layout of sock_diag messages: requests that we send, and the parts of replies that we read. Integers are in host order, ports and
//! addresses in network order (`sock_diag(7)`, `include/uapi/linux/{netlink,sock_diag,inet_diag,unix_diag}.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `SOCK_DIAG_BY_FAMILY`.
pub(super) const BY_FAMILY: u16 = 20;
/// `TCPDIAG_GETSOCK`: the older request, which lists the TCP sockets of both address families in one pass over the kernel's table.
pub(super) const TCP_SOCKETS: u16 = 18;
/// `NLMSG_ERROR`.
pub(super) const ERROR: u16 = 2;
/// `NLMSG_DONE`.
pub(super) const DONE: u16 = 3;
/// `NLM_F_REQUEST`.
pub(super) const REQUEST: u16 = 1;
/// `NLM_F_DUMP`.
pub(super) const DUMP: u16 = 0x300;

/// `TCP_ESTABLISHED`, which Unix sockets and connected UDP sockets have too.
const ESTABLISHED: u32 = 1 << 1;
/// `TCP_CLOSE`: a UDP or Unix datagram socket without a peer.
const CLOSE: u32 = 1 << 7;
/// `TCP_CLOSE_WAIT`: the peer has ended its direction, and data may be left to read.
const CLOSE_WAIT: u32 = 1 << 8;
/// States of sockets that can hold data. Sockets without a process (`TIME_WAIT`), which a busy host has by the thousand, are left out.
pub(super) const STATES: u32 = ESTABLISHED | CLOSE | CLOSE_WAIT;

/// `UDIAG_SHOW_RQLEN`.
const SHOW_QUEUES: u32 = 0x10;
/// `UNIX_DIAG_RQLEN`: the attribute with the lengths of both queues.
pub(super) const UNIX_QUEUES: u16 = 4;

/// Matches a socket whatever its cookie is (`INET_DIAG_NOCOOKIE`).
const ANY_COOKIE: [u32; 2] = [u32::MAX; 2];

/// `struct nlmsghdr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct MessageHeader {
    pub(super) length: u32,
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    port: u32,
}

/// `struct inet_diag_sockid`: the end points of a socket.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct InetId {
    pub(super) local_port: [u8; 2],
    pub(super) remote_port: [u8; 2],
    pub(super) local: [u8; 16],
    pub(super) remote: [u8; 16],
    interface: u32,
    pub(super) cookie: [u32; 2],
}

/// `struct inet_diag_req_v2`, with its header.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InetRequest {
    header: MessageHeader,
    family: u8,
    protocol: u8,
    extensions: u8,
    padding: u8,
    states: u32,
    id: InetId,
}

/// `struct inet_diag_req`, with its header.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct TcpRequest {
    header: MessageHeader,
    /// Of no use here: any family, any address, no extensions.
    unused: [u8; 4],
    id: InetId,
    states: u32,
    tables: u32,
}

/// `struct inet_diag_msg`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InetReply {
    pub(super) family: u8,
    state: u8,
    timer: u8,
    retransmissions: u8,
    pub(super) id: InetId,
    expires: u32,
    pub(super) receive_queue: u32,
    pub(super) send_queue: u32,
    uid: u32,
    pub(super) inode: u32,
}

/// `struct unix_diag_req`, with its header.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct UnixRequest {
    header: MessageHeader,
    family: u8,
    protocol: u8,
    padding: u16,
    states: u32,
    inode: u32,
    show: u32,
    cookie: [u32; 2],
}

/// `struct unix_diag_msg`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct UnixReply {
    family: u8,
    kind: u8,
    state: u8,
    padding: u8,
    pub(super) inode: u32,
    cookie: [u32; 2],
}

/// `struct nlattr`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct AttributeHeader {
    pub(super) length: u16,
    pub(super) kind: u16,
}

/// `struct unix_diag_rqlen`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct UnixQueues {
    pub(super) receive: u32,
    pub(super) send: u32,
}

/// Messages and attributes begin at multiples of this (`NLMSG_ALIGNTO`, `NLA_ALIGNTO`).
pub(super) const ALIGNMENT: usize = 4;

fn header(length: usize, flags: u16, sequence: u32) -> MessageHeader {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    MessageHeader { length, kind: BY_FAMILY, flags: REQUEST | flags, sequence, port: 0 }
}

impl InetId {
    const ANY: Self = Self {
        local_port: [0; 2],
        remote_port: [0; 2],
        local: [0; 16],
        remote: [0; 16],
        interface: 0,
        cookie: [0; 2],
    };
}

impl InetRequest {
    /// Requests all sockets of an address family and a protocol.
    pub(super) fn all(family: u8, protocol: u8, sequence: u32) -> Self {
        Self {
            header: header(size_of::<Self>(), DUMP, sequence),
            family,
            protocol,
            extensions: 0,
            padding: 0,
            states: STATES,
            id: InetId::ANY,
        }
    }

    /// Requests one socket, by its end points and its cookie, so that another socket with the same end points is not mistaken for it.
    pub(super) fn one(family: u8, protocol: u8, id: InetId, sequence: u32) -> Self {
        let header = header(size_of::<Self>(), 0, sequence);
        Self { header, family, protocol, extensions: 0, padding: 0, states: STATES, id }
    }
}

impl TcpRequest {
    /// Requests all TCP sockets.
    pub(super) fn all(sequence: u32) -> Self {
        let mut header = header(size_of::<Self>(), DUMP, sequence);
        header.kind = TCP_SOCKETS;
        Self { header, unused: [0; 4], id: InetId::ANY, states: STATES, tables: 0 }
    }
}

impl UnixRequest {
    /// Requests the queues of all Unix sockets that can hold data.
    pub(super) fn all(sequence: u32) -> Self {
        Self { states: STATES, ..Self::one(0, sequence).with(DUMP) }
    }

    /// Requests the queues of one Unix socket, by its inode.
    pub(super) fn one(inode: u32, sequence: u32) -> Self {
        Self {
            header: header(size_of::<Self>(), 0, sequence),
            family: 1,
            protocol: 0,
            padding: 0,
            states: STATES,
            inode,
            show: SHOW_QUEUES,
            cookie: ANY_COOKIE,
        }
    }

    fn with(mut self, flags: u16) -> Self {
        self.header.flags |= flags;
        self
    }
}
