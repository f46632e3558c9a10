//! Bounds of the memory that a peer announces, and that this side announces to a peer.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use pronto_core::fabric::{
    FabricError, Gather, GrantError, Operation, PeerFault, PostError, QueuePair, Region, Rights, SendWork,
    Signal, WrId, poll_by_value,
};

use zerocopy::IntoBytes;

use super::LIMITS;
use super::announce::announcement;
use super::rogue::{Segment, send, victim_of};
use crate::form::{self, Elsewhere, RegionName};
use crate::fuzzing::{Hostile, Passed};
use crate::lease::MAX_COPIED;
use crate::map::RegionSegment;
use crate::memfd;
use crate::regions::{MAX_ANNOUNCED, MAX_REGIONS};
use crate::setup::Link;

/// Half of what a connection may announce. The files have no memory, so that their length costs nothing.
const HALF: usize = (MAX_ANNOUNCED / 2) as usize;

/// Length of a message, bytes.
const LEN: u32 = 300;

fn sealed(len: usize) -> OwnedFd {
    let fd = memfd::create(len).unwrap();
    memfd::seal_size(&fd).unwrap();
    fd
}

/// Returns a region without memory.
fn region(len: usize) -> Region {
    Region::new(Arc::new(RegionSegment::new(sealed(len), len).unwrap()))
}

/// Returns the error of a link to which these files are announced, each in a slot of its own. The first `live` grants are not revoked.
fn announced(kind: u8, files: &[usize], live: usize) -> Option<FabricError> {
    let (mut link, shown) = victim_of(&Segment::new().announcements(files.len() as u64).live_grants(live));
    for (slot, len) in (0..).zip(files) {
        send(&shown.announcements.0, &announcement(kind, slot, 0, 1), &[sealed(*len).as_raw_fd()]);
    }
    poll_by_value(&mut link.bulk).err()
}

/// Shows: operations.announced-memory
#[test]
fn more_memory_than_a_connection_may_announce_is_a_fault() {
    let too_much = |announced: usize, max| {
        let announced = announced as u64;
        Some(FabricError::from(PeerFault::TooMuchMemory { announced, max }))
    };
    let [regions, grants] = [1, 2];
    assert_eq!(announced(regions, &[HALF; 4], 0), None);
    assert_eq!(
        announced(regions, &[HALF, HALF, HALF, HALF, 4096], 0),
        too_much(4 * HALF + 4096, 2 * MAX_ANNOUNCED)
    );
    assert_eq!(announced(regions, &[1 << 60], 0), too_much(1 << 60, 2 * MAX_ANNOUNCED));
    assert_eq!(announced(grants, &[HALF, HALF, 4096], 3), too_much(2 * HALF + 4096, MAX_ANNOUNCED));
    // The victim unmaps the regions of revoked grants.
    assert_eq!(announced(grants, &[HALF; 4], 0), None);
    assert_eq!(announced(grants, &[HALF; 4], 1), None);
    assert_eq!(announced(grants, &[2 * HALF, 2 * HALF + 4096], 0), too_much(2 * HALF + 4096, MAX_ANNOUNCED));
}

/// A peer that sends a message from a region, and replaces the region while the message is in use.
///
/// Shows: operations.announced-memory
#[test]
fn regions_that_are_replaced_while_in_use_are_bounded() {
    let (mut link, hostile) = Hostile::meet();
    let (lines, _) = Hostile::lines_and_tags();
    let mut held = Vec::new();
    let mut number = 0;
    let mut receive = |form: u8, region: RegionName| -> Result<(), FabricError> {
        let place = Elsewhere { offset: 0, len: LEN, tag: 0, token: number, region };
        let mut words = place.line(&Default::default());
        let (at, lap) = (number as usize % lines, number / u32::try_from(lines).unwrap() + 1);
        words[0] = words[0] & !u64::from(u32::MAX) | u64::from(lap << 8) | u64::from(form);
        hostile.write_segment(Hostile::line(at), words.map(u64::to_le).as_bytes());
        number += 1;
        held.push(poll_by_value(&mut link.bulk)?.expect("a message was written"));
        Ok(())
    };
    // With this number of copies, further payloads stay where they are.
    let copies = u32::try_from(MAX_COPIED).unwrap() / LEN;
    for _ in 0..2 * copies {
        receive(form::RING, RegionName::default()).unwrap();
    }
    let fault = (1..10 * u32::try_from(MAX_REGIONS).unwrap()).find_map(|generation| {
        let mut packet = announcement(1, 5, 0, 0);
        packet[8..12].copy_from_slice(&generation.to_le_bytes());
        hostile.announce(&packet, Some(Passed::Memory));
        receive(form::REGION, RegionName { slot: 5, generation }).err()
    });
    let replaced = held.len() - 2 * copies as usize;
    assert_eq!(fault, Some(PeerFault::TooManyRegions(MAX_REGIONS).into()));
    assert_eq!(replaced, MAX_REGIONS + 1);
}

/// Shows: operations.announced-memory
#[test]
fn this_side_keeps_to_the_limit_itself() {
    let (mut near, mut far) = Link::pair([LIMITS; 2]).unwrap();
    let regions = [region(HALF), region(HALF), region(HALF)];
    let first = near.bulk.grant(&regions[0], 0..8, Rights::READ).unwrap();
    // Several grants of a region count once.
    for at in 1..10 {
        near.bulk.grant(&regions[1], at..8 + at, Rights::READ).unwrap();
    }
    let refused = near.bulk.grant(&regions[2], 0..8, Rights::READ);
    assert_eq!(refused, Err(GrantError::TooMuchMemory(MAX_ANNOUNCED)));
    assert!(poll_by_value(&mut far.bulk).is_ok_and(|message| message.is_none()));
    near.bulk.revoke(first.id).unwrap();
    near.bulk.grant(&regions[2], 0..8, Rights::READ).unwrap();
    assert!(
        poll_by_value(&mut far.bulk).is_ok_and(|message| message.is_none()),
        "the revoked one is unmapped"
    );
    // The limit also holds for regions from which it sends.
    let mut send = |region: &Region| {
        let payload = Gather::Region { region, offset: 0, len: 300 };
        let operation = Operation::Send { header: &Default::default(), payload };
        near.bulk.post(SendWork { signal: Signal::Signalled(WrId { slot: 0, generation: 0 }), operation })
    };
    assert_eq!([0, 1].map(|at| send(&regions[at])), [Ok(()), Ok(())]);
    assert_eq!(send(&regions[2]), Err(PostError::Unsupported), "the caller copies the bytes");
    assert_eq!(send(&regions[0]), Ok(()));
}

#[test]
fn a_peer_that_has_ended_is_no_limit_of_grants() {
    let (mut link, mut hostile) = Hostile::meet();
    hostile.close_announcements();
    let refused = link.bulk.grant(&region(HALF), 0..8, Rights::READ);
    assert_eq!(refused, Err(GrantError::Failed(FabricError::Lost)));
}
