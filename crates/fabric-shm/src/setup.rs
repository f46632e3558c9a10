//! From a handshake to a link: each side creates its memory, passes it to the other, and checks what it receives.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use pronto_core::Class;
use pronto_core::fabric::{AtomicScope, Capabilities, ConnectionLimits, OneSided, Revocation};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::announce::Announcements;
use crate::bell::{Bell, SLEEP_WORDS, Sleep};
use crate::by_address::{self, OwnWords, PeerMemory};
use crate::error::{SetupError, SetupFault};
use crate::form;
use crate::handshake::{Handshake, Side};
use crate::layout::{self, Layout, MAX_GRANTS};
use crate::lease::Incoming;
use crate::map::{self, Access, Mapping, OwnArray, PeerArray, SendSegment, round_up};
use crate::memfd::{self, Demand};
use crate::one_sided::{Given, Held};
use crate::passed::PeerSocket;
use crate::queue_pair::ShmQueuePair;
use crate::receive::Receiving;
use crate::regions::PassedRegions;
use crate::send::Sending;

/// First bytes of an offer.
pub(crate) const MAGIC: [u8; 4] = *b"PSHM";
/// Version of the format of the segments.
pub(crate) const VERSION: u16 = 3;
/// Number of queue pairs of a link.
const CLASSES: usize = Class::ALL.len();
/// Descriptors per class: segment and send memory, and from the dialler also its offer of two sockets.
pub(crate) const ACCEPTOR_FDS: usize = 2;
const DIALLER_FDS: usize = 4;
/// Types of the sockets.
const BELL: SockType = SockType::Stream;
const ANNOUNCEMENTS: SockType = SockType::SeqPacket;

/// A link: one queue pair per class, and a lifeline that reports the peer's end.
#[derive(Debug)]
pub struct Link {
    /// The control connection.
    pub control: ShmQueuePair,
    /// The bulk connection.
    pub bulk: ShmQueuePair,
    /// Becomes readable when the peer process ends.
    pub lifeline: Lifeline,
}

/// Descriptors that become readable when the peer process ends or gives up the link.
///
/// The peer's death wakes a sleeping queue pair. A polling queue pair makes no system call and so does not notice it:
/// the owner of the lifeline must close the queue pair.
#[derive(Debug)]
pub struct Lifeline {
    socket: Arc<PeerSocket>,
    pidfd: Option<OwnedFd>,
}

impl Lifeline {
    /// Returns the descriptors to wait for: each becomes readable and stays so. The socket reports that every copy of
    /// the peer's end is closed. The pidfd reports that the process is dead, even if a child of it holds copies.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        core::iter::once((*self.socket).as_fd()).chain(self.pidfd.as_ref().map(AsFd::as_fd))
    }

    /// Returns whether the peer is gone.
    pub fn is_cut(&self) -> Result<bool, SetupError> {
        let mut fds: Vec<_> = self.descriptors().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        loop {
            match poll(&mut fds, PollTimeout::ZERO) {
                Err(Errno::EINTR) => {}
                ready => return ready.map(|ready| ready > 0).map_err(SetupError::system("poll")),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawOffer {
    pub(crate) magic: [u8; 4],
    pub(crate) version: U16,
    pub(crate) unused: U16,
    pub(crate) classes: [RawLimits; CLASSES],
}

/// Limits of one side for one class, from that side's view.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawLimits {
    pub(crate) send_depth: U32,
    pub(crate) receive_depth: U32,
    pub(crate) max_send_payload: U32,
    pub(crate) max_receive_payload: U32,
    pub(crate) send_memory: U32,
}

impl From<&ConnectionLimits> for RawLimits {
    fn from(limits: &ConnectionLimits) -> Self {
        Self {
            send_depth: limits.send_depth.into(),
            receive_depth: limits.receive_depth.into(),
            max_send_payload: limits.max_send_payload.into(),
            max_receive_payload: limits.max_receive_payload.into(),
            send_memory: limits.send_memory.into(),
        }
    }
}

/// Memory that this side created for one class.
#[derive(Debug)]
struct Own {
    limits: ConnectionLimits,
    layout: Layout,
    segment: OwnedFd,
    mapping: Arc<Mapping>,
    by_address: OwnWords,
    memory: Arc<SendSegment>,
    readable_memory: OwnedFd,
}

impl Own {
    fn new(limits: ConnectionLimits) -> Result<Self, SetupError> {
        let layout = Layout::own(&limits)?;
        let segment = memfd::create(layout.len()).map_err(SetupError::system("memfd_create"))?;
        memfd::commit(&segment, layout.len()).map_err(SetupError::system("fallocate"))?;
        let mapping = Mapping::new(segment.as_fd(), 0, layout.len(), Access::Write);
        let mapping = Arc::new(mapping.map_err(SetupError::system("mmap"))?);
        memfd::seal_owned(&segment).map_err(SetupError::system("fcntl"))?;
        let by_address = OwnWords::new(OwnArray::new(&mapping, layout::BY_ADDRESS, by_address::WORDS));

        let len = limits.send_memory as usize;
        let memory = memfd::create(len).map_err(SetupError::system("memfd_create"))?;
        memfd::seal_size(&memory).map_err(SetupError::system("fcntl"))?;
        let readable_memory = memfd::read_only(memory.as_fd()).map_err(SetupError::system("open"))?;
        let memory = Arc::new(SendSegment::new(memory, len).map_err(SetupError::system("mmap"))?);
        Ok(Self { limits, layout, segment, mapping, by_address, memory, readable_memory })
    }

    /// Checks that the peer has the same limits, and returns the size of its send memory.
    fn agree(&self, theirs: &RawLimits) -> Result<usize, SetupFault> {
        let ours = &self.limits;
        let pairs = [
            (theirs.send_depth, ours.receive_depth),
            (theirs.receive_depth, ours.send_depth),
            (theirs.max_send_payload, ours.max_receive_payload),
            (theirs.max_receive_payload, ours.max_send_payload),
        ];
        for (found, expected) in pairs {
            if found.get() != expected {
                return Err(SetupFault::Disagreement { found: found.get(), expected });
            }
        }
        Ok(theirs.send_memory.get() as usize)
    }

    /// Makes the queue pair from this side's memory and the peer's, whose length this function checks. `memory_len` is that of
    /// the peer's send memory.
    fn connect(self, memory_len: usize, peer: PeerFds) -> Result<ShmQueuePair, SetupError> {
        let layout = Layout::peer(&self.limits)?;
        let len = layout.len();
        memfd::check_len(peer.segment.as_fd(), Demand::Owned, len).map_err(SetupFault::from)?;
        memfd::check_len(peer.memory.as_fd(), Demand::FixedSize, memory_len).map_err(SetupFault::from)?;
        let readable = |fd: &OwnedFd, len| {
            Mapping::new(fd.as_fd(), 0, len, Access::Read).map_err(SetupError::system("mmap"))
        };
        let theirs = Arc::new(readable(&peer.segment, len)?);
        let their_memory = readable(&peer.memory, round_up(memory_len))?;

        let (own, ours) = (&self.mapping, &self.layout);
        let words = PeerArray::new(&theirs, layout::BY_ADDRESS, by_address::WORDS);
        let peer_memory = PeerMemory::new(peer.pid, words, self.by_address);
        let Sockets { bell, announcements } = peer.sockets;
        let bell = Bell::new(bell, PeerArray::new(&theirs, layout::SLEEP, SLEEP_WORDS));
        let done = OwnArray::new(own, layout::DONE, 1 + ours.tags);
        let state = PeerArray::new(&theirs, layout::STATE, 1);
        let incoming = Arc::new(Incoming::new((their_memory, state), done, bell));
        let lines = OwnArray::new(own, ours.first_line(), ours.lines);
        let slots = OwnArray::new(own, ours.first_slot(), ours.lines);
        let done = PeerArray::new(&theirs, layout::DONE, 1 + layout.tags);
        let tags = u32::try_from(layout.tags).expect("the layout keeps tables small");
        let limits = &self.limits;
        Ok(ShmQueuePair {
            capabilities: capabilities(limits),
            sending: Sending::new((lines, slots), done, tags, self.memory, limits.max_send_payload),
            receiving: Receiving::new(
                (
                    PeerArray::new(&theirs, layout.first_line(), layout.lines),
                    PeerArray::new(&theirs, layout.first_slot(), layout.lines),
                ),
                incoming,
                limits.max_receive_payload,
            ),
            sleep: Sleep(OwnArray::new(own, layout::SLEEP, SLEEP_WORDS)),
            state: OwnArray::new(own, layout::STATE, 1),
            peer_state: PeerArray::new(&theirs, layout::STATE, 1),
            peer_seen: 0,
            announcements: Announcements::new(announcements),
            passed: PassedRegions::default(),
            given: Given::new(OwnArray::new(own, ours.grants(), MAX_GRANTS)),
            held: Held::new(PeerArray::new(&theirs, layout.grants(), MAX_GRANTS), peer_memory),
            idle_wakes: 0,
            wakes: 0,
            ended: false,
            failure: None,
            original: map::original(),
            closed: false,
        })
    }
}

/// Descriptors that the peer passed for one class, and its process.
struct PeerFds {
    /// Process id of the peer.
    pid: i32,
    segment: OwnedFd,
    memory: OwnedFd,
    sockets: Sockets,
}

/// This side's end of the sockets of one class.
#[derive(Debug)]
struct Sockets {
    bell: PeerSocket,
    announcements: PeerSocket,
}

impl Sockets {
    /// Creates both ends. Returns those of the peer as descriptors.
    fn pair() -> Result<(Self, [OwnedFd; 2]), SetupError> {
        let pair = |kind| {
            let ends = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC);
            ends.map_err(SetupError::system("socketpair"))
        };
        let (bell, other_bell) = pair(BELL)?;
        let (announcements, other_announcements) = pair(ANNOUNCEMENTS)?;
        let ours = Self { bell: PeerSocket::new(bell), announcements: PeerSocket::new(announcements) };
        Ok((ours, [other_bell, other_announcements]))
    }
}

/// A link that was offered to the peer, before the peer's offer has arrived.
#[derive(Debug)]
pub(crate) struct Offered {
    handshake: Handshake,
    own: Vec<Own>,
    /// Sockets that the dialler created; those of the acceptor come with the offer.
    sockets: Vec<Sockets>,
}

impl Handshake {
    /// Makes the link: exchanges memory and sockets with the peer, which must call this with the mirrored limits.
    /// `limits` are those of control and of bulk.
    pub fn establish(self, limits: [ConnectionLimits; CLASSES]) -> Result<Link, SetupError> {
        self.offer(limits)?.finish()
    }

    pub(crate) fn offer(mut self, limits: [ConnectionLimits; CLASSES]) -> Result<Offered, SetupError> {
        let own = limits.into_iter().map(Own::new).collect::<Result<Vec<_>, _>>()?;
        let mut sockets = Vec::new();
        let mut shown = Vec::new();
        if self.side == Side::Dialler {
            for _ in Class::ALL {
                let (ours, theirs) = Sockets::pair()?;
                sockets.push(ours);
                shown.push(theirs);
            }
        }
        let mut fds = Vec::new();
        for (class, own) in own.iter().enumerate() {
            fds.extend([own.segment.as_raw_fd(), own.readable_memory.as_raw_fd()]);
            fds.extend(shown.get(class).iter().copied().flatten().map(AsRawFd::as_raw_fd));
        }
        let offer = RawOffer {
            magic: MAGIC,
            version: VERSION.into(),
            unused: 0.into(),
            classes: [(&own[0].limits).into(), (&own[1].limits).into()],
        };
        self.send_packet(offer.as_bytes(), &fds)?;
        Ok(Offered { handshake: self, own, sockets })
    }
}

impl Offered {
    pub(crate) fn finish(self) -> Result<Link, SetupError> {
        let Self { mut handshake, own, sockets } = self;
        let expected = CLASSES * if handshake.side == Side::Dialler { ACCEPTOR_FDS } else { DIALLER_FDS };
        let mut bytes = [0; size_of::<RawOffer>()];
        let mut fds = handshake.receive_exactly(&mut bytes, expected)?.into_iter();
        let offer: RawOffer = zerocopy::transmute!(bytes);
        if offer.magic != MAGIC {
            return Err(SetupFault::Malformed.into());
        }
        if offer.version.get() != VERSION {
            return Err(SetupFault::Version { found: offer.version.get(), spoken: VERSION }.into());
        }
        // Memory of another user's process is not read by address.
        let pid = if handshake.peer.same_user() { handshake.peer.pid } else { 0 };
        let mut sockets = sockets.into_iter();
        let mut queue_pairs = Vec::with_capacity(CLASSES);
        for (own, theirs) in own.into_iter().zip(&offer.classes) {
            let memory_len = own.agree(theirs)?;
            let mut next = || fds.next().expect("as many descriptors as were asked for");
            let segment = next().into_memory(Demand::Owned).map_err(SetupFault::from)?;
            let memory = next().into_memory(Demand::FixedSize).map_err(SetupFault::from)?;
            let sockets = match sockets.next() {
                Some(ours) => ours,
                None => Sockets {
                    bell: next().into_socket(BELL)?,
                    announcements: next().into_socket(ANNOUNCEMENTS)?,
                },
            };
            queue_pairs.push(own.connect(memory_len, PeerFds { pid, segment, memory, sockets })?);
        }
        let mut queue_pairs = queue_pairs.into_iter();
        let mut next = || queue_pairs.next().expect("one queue pair per class");
        let (control, bulk) = (next(), next());
        let lifeline = Lifeline { socket: handshake.socket, pidfd: handshake.peer.pidfd };
        Ok(Link { control, bulk, lifeline })
    }
}

impl Link {
    /// Returns two ends of one link within this process. `limits` are those of the first end, for control and bulk.
    pub fn pair(limits: [ConnectionLimits; CLASSES]) -> Result<(Self, Self), SetupError> {
        let (one, other) = Handshake::pair(crate::HANDSHAKE_LIMIT)?;
        let (one, other) = (one.offer(limits)?, other.offer(limits.map(ConnectionLimits::mirrored))?);
        Ok((one.finish()?, other.finish()?))
    }
}

fn capabilities(limits: &ConnectionLimits) -> Capabilities {
    Capabilities {
        provider: "shm",
        max_payload: limits.max_send_payload,
        receive_depth: limits.receive_depth,
        send_depth: limits.send_depth,
        polls_without_syscalls: true,
        visible_when_posted: true,
        by_reference: true,
        copies: limits.max_send_payload.min(u32::try_from(form::MAX_SHORT).expect("a slot is small")),
        pins_memory: false,
        ready_when_touched: false,
        one_sided: OneSided::Supported {
            passive_target: true,
            atomics: AtomicScope::Global,
            revocation: Revocation::Cooperative,
        },
    }
}
