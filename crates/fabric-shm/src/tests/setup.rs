//! Handshakes with peers that violate the protocol.

use core::time::Duration;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::{HUGETLBFS_MAGIC, PROC_SUPER_MAGIC};
use nix::unistd::ftruncate;
use zerocopy::IntoBytes;

use super::LIMITS;
use super::rogue::{Segment, Shown, establish, establish_with, meet, offer};
use crate::error::{SegmentFault, SetupError, SetupFault};
use crate::handshake::Handshake;
use crate::layout::Layout;
use crate::memfd::{self, Demand};
use crate::setup::{ACCEPTOR_FDS, RawOffer};

#[track_caller]
fn refused(bulk: Shown, why: SegmentFault) {
    let error = establish(&Shown::good(&Segment::new()), &bulk).unwrap_err();
    assert_eq!(error, SetupError::Peer(SetupFault::Segment(why)));
}

fn good() -> Shown {
    Shown::good(&Segment::new())
}

/// Shows: operations.sealed
#[test]
fn memory_that_could_shrink_is_refused() {
    let len = Layout::own(&LIMITS).unwrap().len();
    refused(Shown { segment: memfd::create(len).unwrap(), ..good() }, SegmentFault::NotSealed);
    let memory = memfd::create(LIMITS.send_memory as usize).unwrap();
    refused(Shown { memory, ..good() }, SegmentFault::NotSealed);
}

#[test]
fn memory_that_was_truncated_is_refused() {
    let segment = memfd::create(Layout::own(&LIMITS).unwrap().len()).unwrap();
    ftruncate(&segment, 0).unwrap();
    refused(Shown { segment, ..good() }, SegmentFault::NotSealed);
}

/// Shows: operations.sealed
#[test]
fn a_segment_that_others_could_write_is_refused() {
    let segment = memfd::create(Layout::own(&LIMITS).unwrap().len()).unwrap();
    memfd::seal_size(&segment).unwrap();
    refused(Shown { segment, ..good() }, SegmentFault::NotSealed);
}

#[test]
fn other_files_than_memory_files_are_refused() {
    let device = OwnedFd::from(File::open("/dev/zero").unwrap());
    refused(Shown { segment: device, ..good() }, SegmentFault::NotSealed);
    let (pipe, _) = nix::unistd::pipe().unwrap();
    refused(Shown { memory: pipe, ..good() }, SegmentFault::NotSealed);
}

/// If the owner of a huge page frees it and no huge page is available, it is not replaced by zeros: an access is a
/// SIGBUS.
#[test]
fn memory_on_huge_pages_is_refused() {
    const HUGE: i64 = 2 << 20;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_HUGETLB;
    let Ok(huge) = memfd_create(c"huge", flags) else {
        return pronto_skip::because("this kernel has no huge pages");
    };
    ftruncate(&huge, 4 * HUGE).unwrap();
    memfd::seal_size(&huge).unwrap();
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&huge, hole, 0, HUGE).expect("its seals let its owner free pages");
    let checked = memfd::check(huge.as_fd(), Demand::FixedSize);
    assert_eq!(checked, Err(SegmentFault::NotPlain { magic: HUGETLBFS_MAGIC.0 }));
    refused(Shown { memory: huge, ..good() }, SegmentFault::NotPlain { magic: HUGETLBFS_MAGIC.0 });
}

#[test]
fn only_ordinary_memory_is_plain() {
    memfd::is_plain(memfd::create(4096).unwrap().as_fd()).unwrap();
    let other = File::open("/proc/self/maps").unwrap();
    let magic = PROC_SUPER_MAGIC.0;
    assert_eq!(memfd::is_plain(other.as_fd()), Err(SegmentFault::NotPlain { magic }));
}

#[test]
fn memory_of_another_size_is_refused() {
    let expected = Layout::own(&LIMITS).unwrap().len() as u64;
    for found in [expected + 4096, 64 * expected] {
        let segment = memfd::create(usize::try_from(found).unwrap()).unwrap();
        memfd::seal_owned(&segment).unwrap();
        refused(Shown { segment, ..good() }, SegmentFault::Size { found, expected });
    }
    let memory = memfd::create(4096).unwrap();
    memfd::seal_size(&memory).unwrap();
    let expected = u64::from(LIMITS.send_memory);
    refused(Shown { memory, ..good() }, SegmentFault::Size { found: 4096, expected });
}

#[test]
fn too_few_and_too_many_descriptors_are_refused() {
    let device = File::open("/dev/null").unwrap();
    for found in [0, 1, 7, 9, 253] {
        let error = establish_with(offer().as_bytes(), &vec![device.as_raw_fd(); found]).unwrap_err();
        assert_eq!(error, SetupFault::Descriptors { found, expected: 8 }.into());
    }
}

#[test]
fn a_malformed_offer_is_refused() {
    let device = File::open("/dev/null").unwrap();
    let fds = [device.as_raw_fd(); 8];
    let good = offer();
    let mut other_magic = good;
    other_magic.magic = *b"HTTP";
    let long = [good.as_bytes(), &[0]].concat();
    for bytes in [other_magic.as_bytes(), &good.as_bytes()[1..], &long] {
        assert_eq!(establish_with(bytes, &fds).unwrap_err(), SetupFault::Malformed.into());
    }
    let mut newer = good;
    newer.version = 4.into();
    let error = establish_with(newer.as_bytes(), &fds).unwrap_err();
    assert_eq!(error, SetupFault::Version { found: 4, spoken: 3 }.into());
    let mut deeper = good;
    deeper.classes[0].send_depth = 1000.into();
    let error = establish_with(deeper.as_bytes(), &fds).unwrap_err();
    assert_eq!(error, SetupFault::Disagreement { found: 1000, expected: 4 }.into());
}

#[test]
fn a_message_is_refused_by_its_announced_length() {
    let (mut victim, mut rogue) = meet();
    rogue.send_packet(&u32::MAX.to_le_bytes(), &[]).unwrap();
    let fault = SetupFault::Oversized { len: u32::MAX.into(), max: 1000 };
    assert_eq!(victim.receive(1000).unwrap_err(), fault.into());
}

#[test]
fn a_message_in_wrong_pieces_is_refused() {
    for pieces in [&[&[10, 0, 0, 0][..], &[1; 9]][..], &[&[10, 0, 0, 0], &[1; 11]], &[&[10, 0, 0]]] {
        let (mut victim, mut rogue) = meet();
        pieces.iter().for_each(|piece| rogue.send_packet(piece, &[]).unwrap());
        assert_eq!(victim.receive(1000).unwrap_err(), SetupFault::Malformed.into());
    }
}

#[test]
fn messages_of_every_length_arrive() {
    let (mut victim, mut rogue) = meet();
    for len in [0, 1, 4, 5, 16 << 10, (16 << 10) + 1, 100_000] {
        let message: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
        rogue.send(&message).unwrap();
        assert_eq!(victim.receive(100_000).unwrap(), message);
    }
}

#[test]
fn a_silent_peer_times_out_and_a_dead_one_is_reported() {
    let (silent, victim) = Handshake::pair(Duration::from_millis(20)).unwrap();
    assert_eq!(victim.establish([LIMITS; 2]).unwrap_err(), SetupError::TimedOut);
    drop(silent);
    let (gone, mut victim) = Handshake::pair(Duration::from_secs(60)).unwrap();
    drop(gone);
    assert_eq!(victim.receive(10).unwrap_err(), SetupError::Closed);
}

/// Shows: operations.first-bytes
#[test]
fn the_first_bytes_have_a_limit_of_their_own() {
    let limit = Duration::from_secs(60);
    let (silent, victim) = Handshake::pair(limit).unwrap();
    assert_eq!(victim.begin(limit).unwrap_err(), SetupError::TimedOut);
    drop(silent);
    let (mut rogue, victim) = Handshake::pair(limit).unwrap();
    rogue.send_packet(&[0; 3], &[]).unwrap();
    let mut victim = victim.begin(limit).unwrap();
    assert_eq!(victim.receive(10).unwrap_err(), SetupFault::Malformed.into(), "the first bytes are not lost");
    let (gone, victim) = Handshake::pair(limit).unwrap();
    drop(gone);
    assert_eq!(victim.begin(limit).unwrap().receive(10).unwrap_err(), SetupError::Closed);
}

#[test]
fn an_incomplete_message_times_out() {
    let (mut rogue, victim) = Handshake::pair(Duration::from_secs(60)).unwrap();
    let mut victim = victim.within(Duration::from_millis(20)).unwrap();
    rogue.send_packet(&40_000u32.to_le_bytes(), &[]).unwrap();
    rogue.send_packet(&[0; 16 << 10], &[]).unwrap();
    assert_eq!(victim.receive(40_000).unwrap_err(), SetupError::TimedOut);
}

#[test]
fn a_handshake_can_be_cancelled_while_it_waits() {
    let (mut rogue, victim) = Handshake::pair(Duration::from_secs(60)).unwrap();
    let canceller = victim.canceller();
    let establishing = std::thread::spawn(move || victim.establish([LIMITS; 2]));
    rogue.receive_exactly(&mut [0; size_of::<RawOffer>()], 2 * ACCEPTOR_FDS).unwrap();
    canceller.cancel();
    assert_eq!(establishing.join().unwrap().unwrap_err(), SetupError::Closed);
    assert_eq!(rogue.receive(10).unwrap_err(), SetupError::Closed, "the dialler is notified");
}
