//! A generic netlink socket: asks for a list, and collects it.

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt::ReceiveTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::message::{
    CONTROL_FAMILY, GET_FAMILY, GET_NAPI, Got, Napi, NotAsked, Part, ask_family, ask_napis, family_of,
    napi_of, parts,
};

/// An answer of the kernel comes at once.
const PATIENCE_S: i64 = 1;
/// The kernel sends lists in pieces of at most 32 KiB (netlink(7)).
const PIECE: usize = 32 << 10;
/// Pieces of one list, at most: some thousand queues.
const MOST_PIECES: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    sequence: u32,
}

impl Link {
    pub(super) fn open() -> Result<Self, NotAsked> {
        let kind = (AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC);
        let socket = socket(kind.0, kind.1, kind.2, SockProtocol::NetlinkGeneric)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(PATIENCE_S))?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The queues of all devices.
    pub(super) fn napis(&mut self) -> Result<Vec<Napi>, NotAsked> {
        let families = self.ask(CONTROL_FAMILY, |sequence| ask_family("netdev", sequence), GET_FAMILY)?;
        let family = families.iter().find_map(|body| family_of(body)).ok_or(NotAsked::Garbled)?;
        let napis = self.ask(family, |sequence| ask_napis(family, sequence), GET_NAPI)?;
        Ok(napis.iter().filter_map(|body| napi_of(body)).collect())
    }

    /// Asks, and gives the bodies of all answers.
    fn ask(
        &mut self,
        family: u16,
        question: impl FnOnce(u32) -> Vec<u8>,
        command: u8,
    ) -> Result<Vec<Vec<u8>>, NotAsked> {
        self.sequence += 1;
        send(self.socket.as_raw_fd(), &question(self.sequence), MsgFlags::empty())?;
        let mut bodies = Vec::new();
        let mut piece = vec![0; PIECE];
        for _ in 0..MOST_PIECES {
            let len = match recv(self.socket.as_raw_fd(), &mut piece, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                received => received?,
            };
            for part in parts(&piece[..len]) {
                let Part { kind, sequence, got } = part?;
                if sequence != self.sequence {
                    continue;
                }
                match got {
                    Got::End => return Ok(bodies),
                    Got::Refused(errno) => return Err(errno.into()),
                    Got::Body { command: found, attributes } if kind == family && found == command => {
                        bodies.push(attributes.to_vec());
                    }
                    Got::Body { .. } => {}
                }
            }
        }
        Err(NotAsked::Garbled)
    }
}
