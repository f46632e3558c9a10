//! Descriptors of memory, passed from one end of a queue pair to the other.
//!
//! One Unix socket pair of packets per queue pair, used by the two engines when a region is granted or sent from for the
//! first time. The state word says how many announcements there are, so that nobody asks the kernel in vain.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, Shutdown, sendmsg, shutdown};
use pronto_core::fabric::{PeerFault, Rights};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::fds;

const REGION: u8 = 1;
const GRANT: u8 = 2;

const READ: u8 = 1;
const WRITE: u8 = 2;
const ATOMIC: u8 = 4;

/// An announcement as it travels.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAnnouncement {
    kind: u8,
    rights: u8,
    unused: [u8; 2],
    slot: U32,
    generation: U32,
    start: U64,
    len: U64,
}

/// Memory of the sender's, announced to the peer together with its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// Payloads will be sent by reference to this memory.
    Region {
        /// Place in the table of regions.
        slot: u32,
        /// Which use of that place.
        generation: u32,
    },
    /// The peer may access this memory.
    Grant {
        /// Place in the table of grants.
        slot: u32,
        /// Which use of that place.
        generation: u32,
        /// First byte, in the file.
        start: u64,
        /// Length, bytes.
        len: u64,
        /// What is allowed.
        rights: Rights,
    },
}

impl Announcement {
    fn emit(self) -> RawAnnouncement {
        let (kind, rights, slot, generation, start, len) = match self {
            Self::Region { slot, generation } => (REGION, 0, slot, generation, 0, 0),
            Self::Grant { slot, generation, start, len, rights } => {
                let bits = if rights.read { READ } else { 0 }
                    | if rights.write { WRITE } else { 0 }
                    | if rights.atomic { ATOMIC } else { 0 };
                (GRANT, bits, slot, generation, start, len)
            }
        };
        RawAnnouncement {
            kind,
            rights,
            unused: [0; 2],
            slot: slot.into(),
            generation: generation.into(),
            start: start.into(),
            len: len.into(),
        }
    }

    fn check(raw: RawAnnouncement) -> Result<Self, PeerFault> {
        let (slot, generation) = (raw.slot.get(), raw.generation.get());
        match raw.kind {
            REGION => Ok(Self::Region { slot, generation }),
            GRANT => {
                let bit = |bit| raw.rights & bit != 0;
                let rights = Rights { read: bit(READ), write: bit(WRITE), atomic: bit(ATOMIC) };
                Ok(Self::Grant { slot, generation, start: raw.start.get(), len: raw.len.get(), rights })
            }
            other => Err(PeerFault::UnknownForm(other)),
        }
    }
}

/// This side's end of the socket.
#[derive(Debug)]
pub(crate) struct Announcements(OwnedFd);

impl Announcements {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Passes a descriptor to the peer. `EAGAIN` if the peer has not yet taken enough of those before.
    pub(crate) fn send(&self, what: Announcement, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let raw = what.emit();
        let fds = [fd.as_raw_fd()];
        let (bytes, rights) = ([IoSlice::new(raw.as_bytes())], [ControlMessage::ScmRights(&fds)]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.0.as_raw_fd(), &bytes, &rights, flags, None).map(drop)
    }

    /// The next announcement, if there is one; at the peer's end there is none.
    pub(crate) fn receive(&self) -> Result<Option<(Announcement, OwnedFd)>, PeerFault> {
        let mut bytes = [0; size_of::<RawAnnouncement>()];
        let mut received = fds::receive(self.0.as_fd(), &mut bytes);
        if let Err(Errno::ECONNRESET) = received {
            // The peer closed with announcements of ours unread. That is said once; its own are behind it.
            received = fds::receive(self.0.as_fd(), &mut bytes);
        }
        // Anything else that is wrong with the socket is the peer's end, which the bell and the state word tell as well.
        let Ok(packet) = received else { return Ok(None) };
        match (packet.len, packet.fds.len()) {
            (0, 0) => Ok(None),
            (len, 1) if len == bytes.len() && !packet.truncated => {
                let what = Announcement::check(zerocopy::transmute!(bytes))?;
                Ok(packet.fds.into_iter().next().map(|fd| (what, fd)))
            }
            _ => Err(PeerFault::UnknownForm(bytes[0])),
        }
    }

    /// Ends it, with all copies that a forked child may have.
    pub(crate) fn close(&self) {
        // It fails only if the peer has closed the other end, and then there is nobody to tell.
        let _ = shutdown(self.0.as_raw_fd(), Shutdown::Write);
    }
}
