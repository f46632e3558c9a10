//! Memory of the program, which the peer reads by its address.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockType, recv};
use pronto_core::fabric::{
    FabricError, Memory, Operation, PeerFault, PostError, QueuePair, Region, RemoteRange, Rights, SendWork,
    Signal, poll_by_value,
};
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::LIMITS;
use super::announce::announcement;
use super::rogue::{Segment, WITNESS, send, sockets, victim_of};
use crate::by_address::{self, OwnWords, PeerMemory};
use crate::map::{Access, Mapping, OwnArray, PeerArray};
use crate::memfd;
use crate::queue_pair::ShmQueuePair;
use crate::region::ShmRegion;
use crate::setup::Link;

const LEN: usize = 100_000;

fn pattern() -> Vec<u8> {
    (0..LEN).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect()
}

fn read(qp: &mut ShmQueuePair, local: &Region, remote: RemoteRange) -> Result<(), PostError> {
    let operation = Operation::Read { local, local_offset: 0, remote };
    qp.post(SendWork { signal: Signal::Unsignalled, operation })
}

/// Shows: calls.by-address
#[test]
fn memory_of_the_program_is_read_without_a_copy_at_its_owner() {
    let (mut owner, mut reader) = Link::pair([LIMITS; 2]).unwrap();
    let memory = Memory::from_owner(pattern());
    // Only a program that sends from such memory makes its peer try.
    assert_eq!(reader.bulk.reads_by_address(), None);
    let first = owner.bulk.grant(memory.region(), 0..1, Rights::READ).unwrap();
    assert_eq!(owner.bulk.given.copies(), 1);
    assert!(poll_by_value(&mut reader.bulk).unwrap().is_none());
    assert_eq!(reader.bulk.reads_by_address(), Some(Ok(())), "a process can read its own memory");
    owner.bulk.revoke(first.id).unwrap();
    let grant = owner.bulk.grant(memory.region(), 7..LEN as u64, Rights::READ).unwrap();
    assert_eq!(owner.bulk.given.copies(), 0);
    let into = ShmRegion::allocate(LEN).unwrap();
    read(&mut reader.bulk, &into, grant.remote).unwrap();
    let mut bytes = vec![0; LEN - 7];
    into.read(0, &mut bytes).unwrap();
    assert!(bytes == pattern()[7..]);
    // Only what is granted, only for reading, and only until the end of the grant.
    let beyond = RemoteRange { offset: 1, ..grant.remote };
    assert_eq!(read(&mut reader.bulk, &into, beyond), Err(PostError::NotGranted));
    let write = Operation::Write { local: &into, local_offset: 0, remote: grant.remote };
    let write = SendWork { signal: Signal::Unsignalled, operation: write };
    assert_eq!(reader.bulk.post(write), Err(PostError::NotGranted));
    let add = Operation::FetchAdd { remote: RemoteRange { len: 8, ..grant.remote }, add: 1 };
    let add = SendWork { signal: Signal::Unsignalled, operation: add };
    assert_eq!(reader.bulk.post(add), Err(PostError::NotGranted));
    owner.bulk.revoke(grant.id).unwrap();
    assert_eq!(read(&mut reader.bulk, &into, grant.remote), Err(PostError::NotGranted));
    assert!(!memory.is_held_elsewhere());
}

/// `tests/processes.rs` has a peer that is forbidden to read by address.
///
/// Shows: calls.by-address-forbidden
#[test]
fn a_peer_that_cannot_read_by_address_gets_a_copy() {
    // It is of an older version: it has no witness, and is not asked.
    let (mut link, shown) = victim_of(&Segment::new());
    let memory = Memory::from_owner(pattern());
    let grant = link.bulk.grant(memory.region(), 5..LEN as u64, Rights::READ).unwrap();
    assert_eq!((grant.remote.len, link.bulk.given.copies()), (LEN as u64 - 5, 1));
    assert!(!memory.is_held_elsewhere(), "the copy is granted");
    link.bulk.revoke(grant.id).unwrap();
    assert_eq!(link.bulk.given.copies(), 0);
    let mut packet = [0; 100];
    let received = recv(shown.announcements.0.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT).unwrap();
    assert_eq!((received, packet[0]), (28, 2), "the announcement of the region");
}

#[test]
fn memory_that_is_not_there_is_an_error_and_no_end_of_the_link() {
    let (mut link, shown) = victim_of(&Segment::new().by_address().live_grants(4).announcements(1));
    // The first pages of an address space are not mapped.
    let mut packet = announcement(3, 3, 4096, 8192);
    packet[8..12].copy_from_slice(&1_u32.to_le_bytes());
    send(&shown.announcements.0, &packet, &[]);
    let into = ShmRegion::allocate(8192).unwrap();
    let remote = RemoteRange { key: 1 << 32 | 3, offset: 0, len: 8192 };
    assert!(poll_by_value(&mut link.bulk).unwrap().is_none());
    assert_eq!(read(&mut link.bulk, &into, remote), Err(PostError::Unreadable));
    assert!(poll_by_value(&mut link.bulk).unwrap().is_none(), "the link is alive");
}

#[test]
fn announcements_of_memory_are_checked() {
    let announced = |packet: &[u8], fds: &[i32]| {
        let (mut link, shown) = victim_of(&Segment::new().announcements(1));
        send(&shown.announcements.0, packet, fds);
        poll_by_value(&mut link.bulk).expect_err("the victim fails")
    };
    let outside = PeerFault::Offset { offset: 128, len: 128 };
    assert_eq!(announced(&announcement(3, 128, 0, 1), &[]), outside.into());
    let too_long = announced(&announcement(3, 0, 2, u64::MAX - 1), &[]);
    assert!(matches!(too_long, FabricError::Peer(PeerFault::Length { .. })), "{too_long}");
    let (_one, other) = sockets(SockType::Stream);
    let passed = [other.as_raw_fd()];
    let descriptors = PeerFault::Descriptors { found: 1, expected: 0 };
    for kind in [3, 4] {
        assert_eq!(announced(&announcement(kind, 0, 0, 1), &passed), descriptors.into());
    }
}

/// Returns a segment's words as their writer and as its peer see them.
fn words() -> (OwnArray<AtomicU64>, PeerArray<AtomicU64>) {
    let fd = memfd::create(4096).unwrap();
    let mapping = Arc::new(Mapping::new(fd.as_fd(), 0, 4096, Access::Write).unwrap());
    (OwnArray::new(&mapping, 0, by_address::WORDS), PeerArray::new(&mapping, 0, by_address::WORDS))
}

#[test]
fn another_process_under_the_id_of_the_peer_is_recognised() {
    let pid = i32::try_from(std::process::id()).unwrap();
    let result_of = |pid, [address, first, second]: [u64; 3]| {
        let ((own, seen), (theirs, peer)) = (words(), words());
        for (word, value) in theirs.iter().zip([address, first, second]) {
            word.store(value, Ordering::Relaxed);
        }
        let mut memory = PeerMemory::new(pid, peer, OwnWords::new(own));
        assert_eq!((memory.tried(), seen.load(3, Ordering::Relaxed)), (None, 0));
        memory.try_once();
        let result = memory.tried().unwrap();
        assert_eq!(
            seen.load(3, Ordering::Relaxed),
            if result.is_ok() { 1 } else { 2 },
            "the peer learns of it"
        );
        result
    };
    let [first, second] = WITNESS;
    let address = core::ptr::from_ref(&WITNESS).addr() as u64;
    assert_eq!(result_of(pid, [address, first, second]), Ok(()));
    // Another process has other bytes at the address of the witness, or none.
    assert_eq!(result_of(pid, [address, first, second + 1]), Err(Errno::ESTALE));
    assert_eq!(result_of(pid, [4096, first, second]), Err(Errno::EFAULT));
    // A process of another namespace has no id here. An older peer has no witness.
    assert_eq!(result_of(0, [address, first, second]), Err(Errno::ENOENT));
    assert_eq!(result_of(pid, [0; 3]), Err(Errno::ENOENT));
}
