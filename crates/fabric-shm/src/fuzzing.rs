//! Fuzzing support: a peer in this process that passes any descriptors in the handshake, and writes anything to its memory.

use core::time::Duration;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, send, sendmsg, socketpair,
};
use pronto_core::fabric::ConnectionLimits;
use zerocopy::IntoBytes;

use crate::error::SetupError;
use crate::handshake::Handshake;
use crate::layout::{self, Layout};
use crate::map::{Access, Mapping, round_up};
use crate::memfd;
use crate::setup::{Link, MAGIC, RawOffer, VERSION};

/// Limits of both sides and both classes.
pub const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 4,
    receive_depth: 4,
    max_send_payload: 300,
    max_receive_payload: 300,
    send_memory: 5_000,
};

/// Number of descriptors that a dialler passes.
pub const DESCRIPTORS: usize = 8;

/// A descriptor that a peer passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// A sealed segment of the right length.
    Segment,
    /// A segment of the right length that other processes could map for writing.
    WritableSegment,
    /// Send memory of the right length whose size is sealed.
    Memory,
    /// Send memory of the right length that could shrink.
    ShrinkingMemory,
    /// A sealed segment of three pages more.
    Longer,
    /// An empty sealed file.
    Empty,
    /// A Unix socket of bytes.
    Socket,
    /// A device.
    Device,
    /// A Unix socket of packets.
    PacketSocket,
}

impl Passed {
    /// Every kind of descriptor.
    pub const ALL: [Self; 9] = [
        Self::Segment,
        Self::WritableSegment,
        Self::Memory,
        Self::ShrinkingMemory,
        Self::Longer,
        Self::Empty,
        Self::Socket,
        Self::Device,
        Self::PacketSocket,
    ];

    /// Returns the length of the file, if its size is sealed.
    pub fn fixed_size(self) -> Option<usize> {
        let segment = layout().len();
        match self {
            Self::Segment | Self::WritableSegment => Some(segment),
            Self::Memory => Some(round_up(LIMITS.send_memory as usize)),
            Self::Longer => Some(segment + 3 * crate::map::PAGE),
            Self::Empty => Some(0),
            Self::ShrinkingMemory | Self::Socket | Self::Device | Self::PacketSocket => None,
        }
    }

    fn open(self) -> OwnedFd {
        let file = |len: usize, seal: fn(&OwnedFd) -> Result<(), Errno>| {
            let fd = memfd::create(len).expect("a memory file");
            seal(&fd).expect("a file without seals takes any");
            fd
        };
        let segment = layout().len();
        match self {
            Self::Segment => file(segment, memfd::seal_owned),
            Self::WritableSegment => file(segment, memfd::seal_size),
            Self::Memory => file(LIMITS.send_memory as usize, memfd::seal_size),
            Self::ShrinkingMemory => file(LIMITS.send_memory as usize, |_| Ok(())),
            Self::Longer => file(segment + 3 * crate::map::PAGE, memfd::seal_owned),
            Self::Empty => file(1, |fd| {
                nix::unistd::ftruncate(fd, 0)?;
                memfd::seal_owned(fd)
            }),
            Self::Socket => sockets(SockType::Stream).0,
            Self::PacketSocket => sockets(SockType::SeqPacket).0,
            Self::Device => File::open("/dev/null").expect("every system has it").into(),
        }
    }
}

/// Layout of the segment of either side.
fn layout() -> Layout {
    Layout::own(&LIMITS).expect("the limits are small")
}

fn sockets(kind: SockType) -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).expect("a pair of sockets")
}

/// Returns the offer of a correct peer.
pub fn correct_offer() -> Vec<u8> {
    let offer =
        RawOffer { magic: MAGIC, version: VERSION.into(), unused: 0.into(), classes: [(&LIMITS).into(); 2] };
    offer.as_bytes().to_vec()
}

/// Returns the link of a side that accepts when the dialler sends this packet with these descriptors, or its error.
///
/// # Errors
/// The offer is refused.
pub fn accept(offer: &[u8], passed: &[Passed]) -> Result<Link, SetupError> {
    let fds: Vec<OwnedFd> = passed.iter().map(|passed| passed.open()).collect();
    accept_with(offer, &fds.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>())
}

fn accept_with(offer: &[u8], fds: &[i32]) -> Result<Link, SetupError> {
    let (mut dialler, acceptor) = Handshake::pair(Duration::from_secs(60))?;
    let acceptor = acceptor.offer([LIMITS; 2])?;
    dialler.send_packet(offer, fds)?;
    let accepted = acceptor.finish();
    // Kept until now: a socket that is closed with unread packets resets the connection.
    drop(dialler);
    accepted
}

/// A peer that can write anything to its segment and send memory of the bulk connection, and to its sockets.
#[derive(Debug)]
pub struct Hostile {
    segment: Mapping,
    memory: Mapping,
    bell: Option<OwnedFd>,
    announcements: Option<OwnedFd>,
    /// The peer's part of the control connection, which it does not use.
    _control: Ends,
}

/// The peer's ends of the sockets of one connection.
#[derive(Debug)]
struct Ends {
    bell: OwnedFd,
    announcements: OwnedFd,
}

impl Hostile {
    /// Returns a link of this process, and the peer at its other end, whose memory is zero.
    pub fn meet() -> (Link, Self) {
        let mut fds = Vec::new();
        let mut connection = || {
            let segment = memfd::create(layout().len()).expect("a memory file");
            // Mapped before it is sealed: afterwards, nobody can map it for writing.
            let mapped = Mapping::new(segment.as_fd(), 0, layout().len(), Access::Write).expect("memory");
            memfd::seal_owned(&segment).expect("a file without seals takes any");
            let memory = Passed::Memory.open();
            let len = round_up(LIMITS.send_memory as usize);
            let written = Mapping::new(memory.as_fd(), 0, len, Access::Write).expect("memory");
            let (bell, their_bell) = sockets(SockType::Stream);
            let (announcements, their_announcements) = sockets(SockType::SeqPacket);
            fds.extend([segment, memory, their_bell, their_announcements]);
            (mapped, written, Ends { bell, announcements })
        };
        let (_, _, control) = connection();
        let (segment, memory, Ends { bell, announcements }) = connection();
        let raw: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let link = accept_with(&correct_offer(), &raw).expect("the offer is correct");
        let hostile =
            Self { segment, memory, bell: Some(bell), announcements: Some(announcements), _control: control };
        (link, hostile)
    }

    /// Returns the length of the segment, bytes.
    pub fn segment_len() -> usize {
        layout().len()
    }

    /// Returns the length of the mapped send memory, bytes.
    pub fn memory_len() -> usize {
        round_up(LIMITS.send_memory as usize)
    }

    /// Returns the number of lines and the number of tags.
    pub fn lines_and_tags() -> (usize, usize) {
        (layout().lines, layout().tags)
    }

    /// Returns the offset of a line in the segment.
    pub fn line(index: usize) -> usize {
        layout().first_line() + 64 * index
    }

    /// Returns the offset of the slot next to a line.
    pub fn slot(index: usize) -> usize {
        layout().first_slot() + size_of::<crate::map::Slot>() * index
    }

    /// Returns the offset of the state word.
    pub const fn state() -> usize {
        layout::STATE
    }

    /// Writes to the segment.
    ///
    /// # Panics
    /// If the bytes are not within it.
    pub fn write_segment(&self, at: usize, bytes: &[u8]) {
        self.segment.write(at as u64, bytes).expect("within the segment");
    }

    /// Writes to the send memory.
    ///
    /// # Panics
    /// If the bytes are not within it.
    pub fn write_memory(&self, at: usize, bytes: &[u8]) {
        self.memory.write(at as u64, bytes).expect("within the memory");
    }

    /// Sends this number of wake-ups.
    pub fn wake(&self, count: usize) {
        if let Some(bell) = &self.bell {
            // A full socket takes fewer, and a closed one none.
            let _ = send(bell.as_raw_fd(), &vec![1; count], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
        }
    }

    /// Sends a packet as an announcement, with a descriptor or without.
    pub fn announce(&self, packet: &[u8], passed: Option<Passed>) {
        let Some(socket) = &self.announcements else { return };
        let fd = passed.map(Passed::open);
        let fds: Vec<i32> = fd.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        // A full socket takes none, and so does a closed one.
        let _ = sendmsg::<()>(socket.as_raw_fd(), &[std::io::IoSlice::new(packet)], rights, flags, None);
    }

    /// Closes the bell.
    pub fn close_bell(&mut self) {
        self.bell = None;
    }

    /// Closes the socket for announcements.
    pub fn close_announcements(&mut self) {
        self.announcements = None;
    }
}
