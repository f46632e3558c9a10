//! Descriptors of memory, passed from one end of a queue pair to the other.
//!
//! Each queue pair has one Unix socket pair of packets. The two engines use it when a region is granted, or is sent
//! from for the first time. The state word holds the number of announcements, so that the receiver makes a system call
//! only if there is one.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, Shutdown, sendmsg, shutdown};
use pronto_core::fabric::{PeerFault, Rights};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::fds;
use crate::memfd::Demand;
use crate::passed::PeerSocket;

const REGION: u8 = 1;
const GRANT: u8 = 2;
const MEMORY: u8 = 3;
const TRY: u8 = 4;

const READ: u8 = 1;
const WRITE: u8 = 2;
const ATOMIC: u8 = 4;

/// Wire format of an announcement.
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

/// Memory of the sender, announced to the peer together with its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// The sender will send payloads by reference to this memory.
    Region {
        /// Index in the table of regions.
        slot: u32,
        /// Generation of that index: counts its uses.
        generation: u32,
    },
    /// The peer may access this memory.
    Grant {
        /// Index in the table of grants.
        slot: u32,
        /// Generation of that index: counts its uses.
        generation: u32,
        /// Offset of the first byte in the file.
        start: u64,
        /// Length in bytes.
        len: u64,
        /// Operations that the peer may perform.
        rights: Rights,
    },
    /// The sender wants to know whether the peer can read its memory by address.
    Try,
    /// The peer may read this memory, which has no descriptor, by its address.
    Memory {
        /// Index in the table of grants.
        slot: u32,
        /// Generation of that index: counts its uses.
        generation: u32,
        /// Address of the first byte in the sender.
        address: u64,
        /// Length in bytes.
        len: u64,
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
            Self::Memory { slot, generation, address, len } => (MEMORY, 0, slot, generation, address, len),
            Self::Try => (TRY, 0, 0, 0, 0, 0),
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
            MEMORY => Ok(Self::Memory { slot, generation, address: raw.start.get(), len: raw.len.get() }),
            TRY => Ok(Self::Try),
            other => Err(PeerFault::UnknownForm(other)),
        }
    }

    /// Returns the number of descriptors that come with the announcement.
    const fn descriptors(self) -> usize {
        match self {
            Self::Memory { .. } | Self::Try => 0,
            Self::Region { .. } | Self::Grant { .. } => 1,
        }
    }
}

/// This side's end of the socket.
#[derive(Debug)]
pub(crate) struct Announcements(PeerSocket);

impl Announcements {
    pub(crate) fn new(socket: PeerSocket) -> Self {
        Self(socket)
    }

    /// Announces memory to the peer, with its descriptor if it has one. Returns `EAGAIN` if the socket is full because the peer has not received
    /// earlier ones.
    pub(crate) fn send(&self, what: Announcement, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let raw = what.emit();
        let fds: Vec<_> = fd.iter().map(AsRawFd::as_raw_fd).collect();
        let bytes = [IoSlice::new(raw.as_bytes())];
        let rights = [ControlMessage::ScmRights(&fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.0.as_fd().as_raw_fd(), &bytes, rights, flags, None).map(drop)
    }

    /// Returns the next announcement, with memory whose size is sealed if it comes with a descriptor. Returns `None` if there is none, also after the
    /// peer has closed its end.
    pub(crate) fn receive(&self) -> Result<Option<(Announcement, Option<OwnedFd>)>, PeerFault> {
        let mut bytes = [0; size_of::<RawAnnouncement>()];
        let mut received = fds::receive(self.0.as_fd(), &mut bytes);
        if let Err(Errno::ECONNRESET) = received {
            // The peer closed with unread announcements from this side. The kernel reports that once; the peer's own
            // announcements follow.
            received = fds::receive(self.0.as_fd(), &mut bytes);
        }
        // Any other socket error means that the peer is gone, which the bell and the state word report, too.
        let Ok(packet) = received else { return Ok(None) };
        match (packet.len, packet.fds.len()) {
            (0, 0) => Ok(None),
            (len, found @ 0..=1) if len == bytes.len() && !packet.truncated => {
                let what = Announcement::check(zerocopy::transmute!(bytes))?;
                let expected = what.descriptors();
                match found.cmp(&expected) {
                    core::cmp::Ordering::Less => return Err(PeerFault::UnknownForm(bytes[0])),
                    core::cmp::Ordering::Equal => {}
                    core::cmp::Ordering::Greater => return Err(PeerFault::Descriptors { found, expected }),
                }
                let passed = packet.fds.into_iter().next();
                let memory = passed.map(|passed| passed.into_memory(Demand::FixedSize)).transpose();
                Ok(Some((what, memory.map_err(|_| PeerFault::Unsealed)?)))
            }
            (_, found @ 2..) => Err(PeerFault::Descriptors { found, expected: 1 }),
            _ => Err(PeerFault::UnknownForm(bytes[0])),
        }
    }

    /// Shuts the socket down, including all copies in forked children.
    pub(crate) fn close(&self) {
        // Fails only if the peer has closed the other end, and then no peer is left to notify.
        let _ = shutdown(self.0.as_fd().as_raw_fd(), Shutdown::Write);
    }
}
