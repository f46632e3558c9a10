//! A socket as a sensor sees it: its queues, and the connection to which it belongs.

use core::net::SocketAddr;

use pronto_sched_policy::policy::occupancy::Occupancy;

/// A connection: the addresses of its ends, and its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection {
    /// Protocol number of IP, 6 for TCP and 17 for UDP.
    pub protocol: u8,
    /// Address of the process whose socket it is.
    pub local: SocketAddr,
    /// Address of the other end; port 0 if a UDP socket has none.
    pub remote: SocketAddr,
}

/// A socket that can hold data, and its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Number of the socket: that of its link in `/proc/PID/fd`.
    pub inode: u64,
    /// Bytes and messages in both queues. A queue that is not empty has one message at least; sensors that cannot count messages report one.
    pub occupancy: Occupancy,
    /// End points; `None` for a Unix socket.
    pub connection: Option<Connection>,
}

impl Connection {
    /// Returns the connection as the other end sees it.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { protocol: self.protocol, local: self.remote, remote: self.local }
    }
}
