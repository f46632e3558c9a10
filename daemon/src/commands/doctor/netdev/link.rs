//! A generic netlink socket that requests a list and collects it.

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt::ReceiveTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::message::{
    CONTROL_FAMILY, Content, GET_FAMILY, GET_NAPI, Napi, NetlinkError, Part, family_of, family_request,
    napi_of, napis_request, parts,
};

/// Time limit for a reply, seconds. The kernel replies immediately.
const TIMEOUT_S: i64 = 1;
/// The kernel sends lists in pieces of at most 32 KiB (netlink(7)).
const PIECE: usize = 32 << 10;
/// The most pieces of one list: enough for several thousand queues.
const MAX_PIECES: usize = 256;

/// A generic netlink socket.
#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    sequence: u32,
}

impl Link {
    pub(super) fn open() -> Result<Self, NetlinkError> {
        let kind = (AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC);
        let socket = socket(kind.0, kind.1, kind.2, SockProtocol::NetlinkGeneric)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(TIMEOUT_S))?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Returns the queues of all devices.
    pub(super) fn napis(&mut self) -> Result<Vec<Napi>, NetlinkError> {
        let families =
            self.request(CONTROL_FAMILY, |sequence| family_request("netdev", sequence), GET_FAMILY)?;
        let family = families.iter().find_map(|body| family_of(body)).ok_or(NetlinkError::Garbled)?;
        let napis = self.request(family, |sequence| napis_request(family, sequence), GET_NAPI)?;
        Ok(napis.iter().filter_map(|body| napi_of(body)).collect())
    }

    /// Sends a request and returns the bodies of all replies.
    fn request(
        &mut self,
        family: u16,
        request: impl FnOnce(u32) -> Vec<u8>,
        command: u8,
    ) -> Result<Vec<Vec<u8>>, NetlinkError> {
        self.sequence += 1;
        send(self.socket.as_raw_fd(), &request(self.sequence), MsgFlags::empty())?;
        let mut bodies = Vec::new();
        let mut piece = vec![0; PIECE];
        for _ in 0..MAX_PIECES {
            let len = match recv(self.socket.as_raw_fd(), &mut piece, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                received => received?,
            };
            for part in parts(&piece[..len]) {
                let Part { kind, sequence, content } = part?;
                if sequence != self.sequence {
                    continue;
                }
                match content {
                    Content::End => return Ok(bodies),
                    Content::Refused(errno) => return Err(errno.into()),
                    Content::Body { command: found, attributes } if kind == family && found == command => {
                        bodies.push(attributes.to_vec());
                    }
                    Content::Body { .. } => {}
                }
            }
        }
        Err(NetlinkError::Garbled)
    }
}
