//! Grants that are revoked while they are used.

use std::sync::mpsc::channel;

use pronto_core::fabric::{Operation, PostError, QueuePair, Region, Rights, SendWork, Signal};

use super::LIMITS;
use crate::region::ShmRegion;
use crate::setup::Link;

/// A copy takes longer than the scheduler lets a thread run while another one waits, so that a revocation happens during the copy even if both
/// threads share a CPU.
const LEN: usize = 32 << 20;
/// Maximum number of attempts to revoke during a copy; one in a few succeeds.
const ROUNDS: u32 = 400;
/// Number of hits after which a test stops.
const HITS: u32 = 5;

fn ends(region: &Region) -> [u8; 2] {
    [0, LEN - 1].map(|at| {
        let mut byte = [0];
        region.read(at, &mut byte).unwrap();
        byte[0]
    })
}

/// The owner of a region writes to it as soon as it has revoked the grant. A read that overlaps with the write has old
/// and new bytes, and must not count as done.
#[test]
fn a_read_during_which_its_grant_is_revoked_is_not_done() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let (mut owner, mut reader) = Link::pair([LIMITS; 2]).unwrap();
    let (region, copy) = (ShmRegion::allocate(LEN).unwrap(), ShmRegion::allocate(LEN).unwrap());
    let mut hits = 0;
    std::thread::scope(|scope| {
        // The channels are made here, so that the other thread ends when this one panics.
        let ((begin, begun), (done, finished)) = (channel(), channel());
        let into = &copy;
        scope.spawn(move || {
            for remote in begun {
                let operation = Operation::Read { local: into, local_offset: 0, remote };
                done.send(reader.bulk.post(SendWork { signal: Signal::Unsignalled, operation })).unwrap();
            }
        });
        for _ in 0..ROUNDS {
            region.write(0, &[1; LEN]).unwrap();
            copy.write(0, &[0; LEN]).unwrap();
            let grant = owner.bulk.grant(&region, 0..LEN as u64, Rights::READ).unwrap();
            begin.send(grant.remote).unwrap();
            let mut read = None;
            while ends(&copy)[0] == 0 && read.is_none() {
                read = finished.try_recv().ok();
                std::thread::yield_now();
            }
            owner.bulk.revoke(grant.id).unwrap();
            // Only the last byte, as the write has to overtake the read.
            region.write(LEN - 1, &[2]).unwrap();
            let read = read.unwrap_or_else(|| finished.recv().unwrap());
            let [first, last] = ends(&copy);
            match read {
                Ok(()) => {
                    assert_eq!([first, last], [1, 1], "a completed read has bytes from after the revocation")
                }
                Err(error) => assert_eq!(error, PostError::NotGranted),
            }
            hits += u32::from([first, last] == [1, 2]);
            if hits == HITS {
                break;
            }
        }
    });
    assert!(hits > 0, "no revocation came during a read");
}

/// The owner of a region reads it after revoking the grant. A write that is not complete by then must not count as
/// done.
#[test]
fn a_write_during_which_its_grant_is_revoked_is_not_done() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let (mut owner, mut writer) = Link::pair([LIMITS; 2]).unwrap();
    let (region, bytes) = (ShmRegion::allocate(LEN).unwrap(), ShmRegion::allocate(LEN).unwrap());
    bytes.write(0, &[1; LEN]).unwrap();
    let mut hits = 0;
    std::thread::scope(|scope| {
        let ((begin, begun), (done, finished)) = (channel(), channel());
        let from = &bytes;
        scope.spawn(move || {
            for remote in begun {
                let operation = Operation::Write { local: from, local_offset: 0, remote };
                done.send(writer.bulk.post(SendWork { signal: Signal::Unsignalled, operation })).unwrap();
            }
        });
        for _ in 0..ROUNDS {
            region.write(0, &[0; LEN]).unwrap();
            let grant = owner.bulk.grant(&region, 0..LEN as u64, Rights::READ_WRITE).unwrap();
            begin.send(grant.remote).unwrap();
            let mut written = None;
            while ends(&region)[0] == 0 && written.is_none() {
                written = finished.try_recv().ok();
                std::thread::yield_now();
            }
            owner.bulk.revoke(grant.id).unwrap();
            let [first, last] = ends(&region);
            match written.unwrap_or_else(|| finished.recv().unwrap()) {
                Ok(()) => assert_eq!([first, last], [1, 1], "a completed write was not visible"),
                Err(error) => assert_eq!(error, PostError::NotGranted),
            }
            hits += u32::from([first, last] == [1, 0]);
            if hits == HITS {
                break;
            }
        }
    });
    assert!(hits > 0, "no revocation came during a write");
}
