//! A peer that performs the handshake by hand and passes any memory that a test wants.

use core::time::Duration;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};
use zerocopy::IntoBytes;

use super::LIMITS;
use crate::error::SetupError;
use crate::form::Words;
use crate::handshake::Handshake;
use crate::layout::{self, Layout};
use crate::memfd;
use crate::setup::{Link, MAGIC, RawOffer, VERSION};

/// The witness of the rogue's memory.
pub(super) static WITNESS: [u64; 2] = [0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321];

/// Bytes of a segment, before it is created.
pub(super) struct Segment {
    layout: Layout,
    bytes: Vec<u8>,
}

impl Segment {
    pub(super) fn new() -> Self {
        let layout = Layout::own(&LIMITS).unwrap();
        Self { layout, bytes: vec![0; layout.len()] }
    }

    /// Puts a line into the ring at index `slot`, published in lap `lap`.
    pub(super) fn line(mut self, slot: usize, lap: u32, form: u8, mut words: Words) -> Self {
        words[0] = words[0] & !u64::from(u32::MAX) | u64::from(lap << 8) | u64::from(form);
        let at = self.layout.first_line() + 64 * slot;
        self.bytes[at..at + 64].copy_from_slice(words.map(u64::to_le).as_bytes());
        self
    }

    /// Overwrites all lines.
    pub(super) fn lines(mut self, mut bytes: impl Iterator<Item = u8>) -> Self {
        let first = self.layout.first_line();
        self.bytes[first..].fill_with(|| bytes.next().unwrap());
        self
    }

    /// Sets the release count.
    pub(super) fn releases(mut self, count: u32) -> Self {
        self.bytes[layout::DONE..layout::DONE + 4].copy_from_slice(&count.to_le_bytes());
        self
    }

    /// Sets the number of announcements.
    pub(super) fn announcements(mut self, count: u64) -> Self {
        let state = count * layout::ANNOUNCEMENT;
        self.bytes[layout::STATE..layout::STATE + 8].copy_from_slice(&state.to_le_bytes());
        self
    }

    /// Marks the first `count` grants as live, with the generation 1.
    pub(super) fn live_grants(mut self, count: usize) -> Self {
        let at = self.layout.grants();
        self.bytes[at..at + 4 * count].as_chunks_mut().0.fill(1u32.to_le_bytes());
        self
    }

    /// Lets the victim read memory of this process by its address.
    pub(super) fn by_address(mut self) -> Self {
        let words = [core::ptr::from_ref(&WITNESS).addr() as u64, WITNESS[0], WITNESS[1]];
        self.bytes[layout::BY_ADDRESS..layout::BY_ADDRESS + 24].copy_from_slice(words.as_bytes());
        self
    }

    fn file(&self) -> OwnedFd {
        let fd = memfd::create(self.bytes.len()).unwrap();
        let file = File::from(fd);
        file.write_all_at(&self.bytes, 0).unwrap();
        let fd = OwnedFd::from(file);
        memfd::seal_owned(&fd).unwrap();
        fd
    }
}

/// Descriptors that the rogue passes for one class.
pub(super) struct Shown {
    pub(super) segment: OwnedFd,
    pub(super) memory: OwnedFd,
    /// Ends of each socket: the rogue's, and the victim's.
    pub(super) bell: (OwnedFd, OwnedFd),
    pub(super) announcements: (OwnedFd, OwnedFd),
}

impl Shown {
    /// Returns the descriptors of a correct peer whose segment has these contents.
    pub(super) fn good(segment: &Segment) -> Self {
        let memory = memfd::create(LIMITS.send_memory as usize).unwrap();
        memfd::seal_size(&memory).unwrap();
        let segment = segment.file();
        Self { segment, memory, bell: sockets(SockType::Stream), announcements: sockets(SockType::SeqPacket) }
    }
}

pub(super) fn sockets(kind: SockType) -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).unwrap()
}

pub(super) fn offer() -> RawOffer {
    RawOffer { magic: MAGIC, version: VERSION.into(), unused: 0.into(), classes: [(&LIMITS).into(); 2] }
}

/// Returns the victim, which accepts, and the rogue, which dials.
pub(super) fn meet() -> (Handshake, Handshake) {
    let (rogue, victim) = Handshake::pair(Duration::from_secs(60)).unwrap();
    (victim, rogue)
}

/// Returns the victim's link, or its error, when the rogue sends this packet.
pub(super) fn establish_with(offer: &[u8], fds: &[i32]) -> Result<Link, SetupError> {
    let (victim, mut rogue) = meet();
    let victim = victim.offer([LIMITS; 2])?;
    rogue.send_packet(offer, fds).unwrap();
    victim.finish()
}

/// Returns the victim's link, or its error, when the rogue sends a correct offer of this memory.
pub(super) fn establish(control: &Shown, bulk: &Shown) -> Result<Link, SetupError> {
    let fds: Vec<i32> = [control, bulk]
        .into_iter()
        .flat_map(|shown| [&shown.segment, &shown.memory, &shown.bell.1, &shown.announcements.1])
        .map(AsRawFd::as_raw_fd)
        .collect();
    establish_with(offer().as_bytes(), &fds)
}

/// Returns the victim's link to a rogue whose bulk segment has these contents, and the rogue's descriptors.
pub(super) fn victim_of(segment: &Segment) -> (Link, Shown) {
    let (control, bulk) = (Shown::good(&Segment::new()), Shown::good(segment));
    let link = establish(&control, &bulk).unwrap();
    (link, bulk)
}

/// Sends a packet with descriptors.
pub(super) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[i32]) {
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], rights, flags, None).unwrap();
}
