//! Packets and wake-ups from a hostile peer.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{MsgFlags, SockType, recv};
use pronto_core::fabric::{
    Armed, Extent, FabricError, Gather, Operation, PeerFault, QueuePair, Rights, SendWork, Signal, WrId,
    poll_by_value,
};

use super::LIMITS;
use super::rogue::{Segment, Shown, send, sockets, victim_of};
use crate::form::{self, Elsewhere, RegionName};
use crate::memfd;
use crate::region::ShmRegion;
use crate::setup::Link;

/// Arms and disarms until the victim fails.
#[track_caller]
fn fault_after(link: &mut Link, mut wake: impl FnMut()) -> FabricError {
    for _ in 0..10_000 {
        wake();
        if link.bulk.arm(Armed::All).is_err() {
            break;
        }
        link.bulk.arm(Armed::Nothing).expect("disarming never fails");
    }
    poll_by_value(&mut link.bulk).expect_err("the victim fails")
}

#[test]
fn a_flood_of_wake_ups_is_a_fault() {
    let (mut link, shown) = victim_of(&Segment::new());
    let fault = fault_after(&mut link, || send(&shown.bell.0, &[1], &[]));
    assert_eq!(fault, PeerFault::WakeFlood(1025).into());
    let (mut link, shown) = victim_of(&Segment::new());
    let fault = fault_after(&mut link, || send(&shown.bell.0, &[1; 200], &[]));
    assert_eq!(fault, PeerFault::WakeFlood(1200).into());
}

#[test]
fn an_unknown_packet_is_a_fault() {
    for packet in [&[0][..], &[9], &[1, 1], &[2; 27], &[2; 28], &[2; 29], &[9; 100]] {
        assert_eq!(announced_with(packet, &[]), PeerFault::UnknownForm(packet[0]).into());
    }
}

#[test]
fn descriptors_that_do_not_belong_are_closed_and_a_fault() {
    let (witness, passed) = sockets(SockType::Stream);
    let fault = announced_with(&announcement(1, 0, 0, 0), &[passed.as_raw_fd(); 200]);
    assert_eq!(fault, PeerFault::Descriptors { found: 200, expected: 1 }.into());
    drop(passed);
    assert_eq!(nix::unistd::read(&witness, &mut [0; 1]), Ok(0), "every copy was closed");
}

/// Returns the wire bytes of an announcement.
pub(super) fn announcement(kind: u8, slot: u32, start: u64, len: u64) -> Vec<u8> {
    let generation = 1u32;
    let mut bytes = vec![kind, 1, 0, 0];
    bytes.extend(slot.to_le_bytes());
    bytes.extend(generation.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes
}

#[track_caller]
fn announced(packet: &[u8], fd: &OwnedFd) -> FabricError {
    announced_with(packet, &[fd.as_raw_fd()])
}

/// Returns the fault that a packet causes when the state word counts one announcement.
#[track_caller]
fn announced_with(packet: &[u8], fds: &[i32]) -> FabricError {
    let (mut link, shown) = victim_of(&Segment::new().announcements(1));
    send(&shown.announcements.0, packet, fds);
    poll_by_value(&mut link.bulk).expect_err("the victim fails")
}

fn sealed(len: usize) -> OwnedFd {
    let fd = memfd::create(len).unwrap();
    memfd::seal_size(&fd).unwrap();
    fd
}

#[test]
fn announced_memory_that_could_shrink_is_a_fault() {
    let fd = memfd::create(4096).unwrap();
    for kind in [1, 2] {
        assert_eq!(announced(&announcement(kind, 0, 0, 4096), &fd), PeerFault::Unsealed.into());
    }
}

#[test]
fn announcements_outside_their_tables_and_files_are_faults() {
    let fd = sealed(8192);
    for slot in [128, u32::MAX] {
        let outside = PeerFault::Offset { offset: slot.into(), len: 128 };
        assert_eq!(announced(&announcement(1, slot, 0, 0), &fd), outside.into());
        assert_eq!(announced(&announcement(2, slot, 0, 8192), &fd), outside.into());
    }
    for (start, len) in [(0, 8193), (4096, 4097), (100, 1 << 60)] {
        let fault = announced(&announcement(2, 0, start, len), &fd);
        assert!(matches!(fault, FabricError::Peer(PeerFault::Length { .. })), "{start} {len}: {fault}");
    }
    for (start, len) in [(8192, 1), (1 << 40, 1), (100, u64::MAX - 50)] {
        let fault = announced(&announcement(2, 0, start, len), &fd);
        assert!(matches!(fault, FabricError::Peer(PeerFault::Offset { .. })), "{start} {len}: {fault}");
    }
    assert_eq!(announced(&announcement(7, 0, 0, 1), &fd), PeerFault::UnknownForm(7).into());
}

#[test]
fn a_payload_outside_its_region_is_a_fault() {
    let region = RegionName { slot: 5, generation: 1 };
    let place = Elsewhere { offset: 4096 - 40, len: 41, tag: 0, token: 1, region };
    let segment = Segment::new().line(0, 1, form::REGION, place.line(&Default::default()));
    let (mut link, shown) = victim_of(&segment);
    send(&shown.announcements.0, &announcement(1, 5, 0, 0), &[sealed(4096).as_raw_fd()]);
    let fault = poll_by_value(&mut link.bulk).unwrap_err();
    assert_eq!(fault, PeerFault::Offset { offset: 4096 - 40, len: 4096 }.into());
}

#[test]
fn nothing_but_disarm_takes_a_wake_up_away() {
    let (mut near, mut far) = Link::pair([LIMITS; 2]).unwrap();
    let payload = Gather::Ring(Extent { offset: 0, len: 100 });
    let operation = Operation::Send { header: &Default::default(), payload };
    let signal = Signal::Signalled(WrId { slot: 0, generation: 0 });
    near.bulk.post(SendWork { signal, operation }).unwrap();
    let held = poll_by_value(&mut far.bulk).unwrap().unwrap();

    near.bulk.arm(Armed::All).unwrap();
    assert_eq!(near.bulk.poll_send(), None);
    let region = ShmRegion::allocate(8).unwrap();
    far.bulk.grant(&region, 0..8, Rights::READ).unwrap();
    drop(held);
    assert!(
        poll_by_value(&mut near.bulk).unwrap().is_none(),
        "the poll takes the announcement and leaves the wake-up in the channel"
    );
    let mut packet = [0; 100];
    let channel = near.bulk.channel().unwrap().fd;
    let peek = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    assert!(recv(channel, &mut packet, peek).is_ok(), "the event is still in the channel");

    near.bulk.arm(Armed::Nothing).expect("disarming never fails");
    assert!(recv(channel, &mut packet, peek).is_err());
    assert!(near.bulk.poll_send().is_some());
    assert_eq!(near.bulk.counts().wakes, 1);
}

#[test]
fn the_bells_end_is_the_peers_end() {
    let (mut link, shown) = victim_of(&Segment::new().line(0, 1, 0, [0; 8]));
    let Shown { bell, .. } = shown;
    drop(bell);
    link.bulk.arm(Armed::All).unwrap();
    link.bulk.arm(Armed::Nothing).expect("disarming never fails");
    assert!(poll_by_value(&mut link.bulk).unwrap().is_some(), "published messages come first");
    assert_eq!(poll_by_value(&mut link.bulk).unwrap_err(), FabricError::Lost);
}
