//! Reads and writes of a peer's memory: all requested bytes, and no others.

use pronto_core::fabric::{
    Memory, OneSided, Operation, PostError, QueuePair, Region, RemoteRange, Rights, Status, WrId,
};

use super::tests;
use crate::Harness;
use crate::random::payload;
use crate::rig::{End, Form, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "one-sided",
        tests: tests![
            reads_and_writes_of_every_kind_of_length needs [OneSided],
            offsets_count_from_the_grants_start needs [OneSided],
            memory_of_the_program_is_read needs [OneSided],
            many_operations_among_messages needs [OneSided],
            both_ends_access_each_other needs [OneSided],
            a_local_buffer_outside_its_region_is_refused needs [OneSided],
            a_target_that_makes_no_call_is_passive_as_declared needs [OneSided],
            a_poll_reports_one_sided_work needs [OneSided],
            close_flushes_outstanding_accesses needs [OneSided],
        ],
    }
}

/// Error of an access that was not carried out because no grant covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// Returns a region of `owner` with known bytes, granted to the other end.
pub(super) fn granted<H: Harness>(
    rig: &mut Rig<'_, H>,
    owner: End,
    len: usize,
    rights: Rights,
) -> (Region, RemoteRange) {
    let region = rig.harness().region(len);
    region.write(0, &payload(9, len)).expect("the region is as long as asked for");
    let grant = rig.qp(owner).grant(&region, 0..len as u64, rights).expect("a region can be granted");
    assert_eq!((grant.remote.offset, grant.remote.len), (0, len as u64));
    (region, grant.remote)
}

pub(super) fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).expect("a region can be read whole");
    bytes
}

pub(super) fn part(remote: RemoteRange, start: u64, len: u64) -> RemoteRange {
    remote.part(start..start + len).expect("the part lies in the range")
}

/// Carries out one access and waits for its completion.
#[track_caller]
pub(super) fn access<H: Harness>(
    rig: &mut Rig<'_, H>,
    from: End,
    operation: Operation<'_>,
) -> Result<u64, Refused> {
    match rig.one_sided(from, operation) {
        Ok(wr) => outcome(rig, from, wr),
        Err(PostError::NotGranted | PostError::OutOfBounds(_)) => Err(Refused),
        Err(error) => panic!("{operation:?} could not be posted: {error}"),
    }
}

#[track_caller]
fn outcome<H: Harness>(rig: &mut Rig<'_, H>, from: End, wr: WrId) -> Result<u64, Refused> {
    let mut ended = None;
    rig.wait("for a one-sided operation", |rig| {
        ended = rig.at(from).ended(wr);
        ended.is_some()
    });
    match ended.expect("just waited for") {
        Status::Done(value) => Ok(value),
        Status::AccessRefused | Status::Unreadable => Err(Refused),
        Status::Flushed => panic!("flushed: it is unknown whether access was refused"),
    }
}

fn reads_and_writes_of_every_kind_of_length<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let size = 400_000;
    let (target, remote) = granted(&mut rig, End::B, size, Rights::READ_WRITE);
    let local = harness.region(size);
    for (at, len) in [(0, 1), (3, 7), (8, 8), (1, 63), (64, 64), (5, 4096), (4095, 65537), (1, 300_001)] {
        let [start, end] = [at, at + len].map(|at| usize::try_from(at).expect("within the region"));
        local.write(0, &payload(len, size)).expect("the region is as long as asked for");
        let (mut ours, mut theirs) = (bytes_of(&local), bytes_of(&target));
        let remote = part(remote, at, len);
        let write = Operation::Write { local: &local, local_offset: at + 2, remote };
        assert_eq!(access(&mut rig, End::A, write), Ok(0));
        theirs[start..end].copy_from_slice(&ours[start + 2..end + 2]);
        assert!(bytes_of(&target) == theirs, "a write of {len} bytes");
        let read = Operation::Read { local: &local, local_offset: 50_000, remote };
        assert_eq!(access(&mut rig, End::A, read), Ok(0));
        ours[50_000..50_000 + end - start].copy_from_slice(&theirs[start..end]);
        assert!(bytes_of(&local) == ours, "a read of {len} bytes");
    }
    rig.finish();
}

fn offsets_count_from_the_grants_start<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let target = harness.region(1000);
    let grant = rig.qp(End::B).grant(&target, 96..500, Rights::READ_WRITE).expect("a part can be granted");
    assert_eq!(grant.remote.len, 404);
    let local = harness.region(8);
    local.write(0, &[0xaa; 8]).expect("eight bytes");
    for at in [0, 13, 396] {
        let write = Operation::Write { local: &local, local_offset: 0, remote: part(grant.remote, at, 8) };
        assert_eq!(access(&mut rig, End::A, write), Ok(0));
    }
    let mut expected = vec![0; 1000];
    for at in [96, 96 + 13, 492] {
        expected[at..at + 8].fill(0xaa);
    }
    assert!(bytes_of(&target) == expected, "wrong bytes were written");
    rig.finish();
}

/// The provider has not allocated it, and may only read it.
fn memory_of_the_program_is_read<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let size = 300_000;
    let contents = payload(7, size);
    let memory = Memory::from_owner(contents.clone());
    let range = 96..u64::try_from(size).expect("a few pages");
    let grant = rig.qp(End::B).grant(memory.region(), range, Rights::READ).expect("memory can be granted");
    let local = harness.region(size);
    for (at, len) in [(0, 1), (3, 7), (100, 4096), (1, 65_537), (0, 299_904)] {
        let read = Operation::Read { local: &local, local_offset: 5, remote: part(grant.remote, at, len) };
        assert_eq!(access(&mut rig, End::A, read), Ok(0));
        let [at, len] = [at + 96, len].map(|number| usize::try_from(number).expect("within the memory"));
        assert!(bytes_of(&local)[5..5 + len] == contents[at..at + len], "a read of {len} bytes");
    }
    rig.finish();
}

fn many_operations_among_messages<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (target, remote) = granted(&mut rig, End::B, 64 * 100, Rights::READ_WRITE);
    let (source, sink) = (harness.region(64 * 100), harness.region(64 * 100));
    source.write(0, &payload(3, 64 * 100)).expect("the region is as long as asked for");
    let mut open = Vec::new();
    for i in 0..100 {
        let remote = part(remote, i * 64, 64);
        let write = Operation::Write { local: &source, local_offset: i * 64, remote };
        open.push(rig.one_sided(End::A, write).expect("a granted access can be posted"));
        rig.submit(End::A, Form::ALL[usize::from(i % 4 == 0)], 20);
    }
    for wr in open.drain(..) {
        assert_eq!(outcome(&mut rig, End::A, wr), Ok(0));
    }
    for i in 0..100 {
        let read = Operation::Read { local: &sink, local_offset: i * 64, remote: part(remote, i * 64, 64) };
        open.push(rig.one_sided(End::A, read).expect("a granted access can be posted"));
    }
    for wr in open {
        assert_eq!(outcome(&mut rig, End::A, wr), Ok(0));
    }
    assert!(bytes_of(&target) == payload(3, 64 * 100));
    assert!(bytes_of(&sink) == payload(3, 64 * 100));
    rig.finish();
}

fn both_ends_access_each_other<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let [of_a, of_b] = End::BOTH.map(|owner| granted(&mut rig, owner, 4096, Rights::READ_WRITE));
    let locals = [harness.region(4096), harness.region(4096)];
    for (from, (_, remote)) in [(End::A, &of_b), (End::B, &of_a)] {
        let local = &locals[from as usize];
        local.write(0, &payload(from as u64, 4096)).expect("the region is as long as asked for");
        for at in 0..8 {
            let remote = part(*remote, at * 512, 512);
            let write = Operation::Write { local, local_offset: at * 512, remote };
            rig.one_sided(from, write).expect("a granted access can be posted");
        }
    }
    rig.wait_idle();
    assert!(bytes_of(&of_a.0) == payload(End::B as u64, 4096));
    assert!(bytes_of(&of_b.0) == payload(End::A as u64, 4096));
    rig.finish();
}

fn a_local_buffer_outside_its_region_is_refused<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (target, remote) = granted(&mut rig, End::B, 128, Rights::READ_WRITE);
    let local = harness.region(100);
    for local_offset in [0, 1, 100, u64::MAX, u64::MAX - 64] {
        for operation in [
            Operation::Read { local: &local, local_offset, remote },
            Operation::Write { local: &local, local_offset, remote },
        ] {
            let refused = rig.one_sided(End::A, operation);
            assert!(matches!(refused, Err(PostError::OutOfBounds(_))), "at {local_offset}: {refused:?}");
        }
    }
    assert_eq!(bytes_of(&target), payload(9, 128));
    assert_eq!(bytes_of(&local), [0; 100]);
    rig.finish();
}

/// One poll of the target reports work that its polls have carried out; without such work, no poll reports any.
fn a_poll_reports_one_sided_work<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let OneSided::Supported { passive_target, .. } = rig.qp(End::A).capabilities().one_sided else {
        unreachable!("the test needs one-sided operations");
    };
    let (_target, remote) = granted(&mut rig, End::B, 100, Rights::READ_WRITE);
    let local = harness.region(100);
    let operations = [
        Operation::Read { local: &local, local_offset: 0, remote },
        Operation::Write { local: &local, local_offset: 0, remote },
    ];
    for operation in operations {
        let before = rig.at(End::B).served;
        assert_eq!(access(&mut rig, End::A, operation), Ok(0));
        if !passive_target {
            rig.wait("for a poll that reports one-sided work", |rig| rig.at(End::B).served != before);
        }
    }
    let served = rig.at(End::B).served;
    (0..100).for_each(|_| _ = rig.pump());
    assert_eq!(rig.at(End::B).served, served, "a poll reported work without a request");
    assert_eq!(rig.at(End::A).served, 0, "the requesting end has reported work");
    assert!(!passive_target || served == 0, "the target is declared passive, but does the work");
    rig.finish();
}

/// Tests both cases: a passive target is not called at all; a target that is not passive must be needed.
///
/// Shows: calls.one-sided-passive
fn a_target_that_makes_no_call_is_passive_as_declared<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let OneSided::Supported { passive_target, .. } = rig.qp(End::A).capabilities().one_sided else {
        unreachable!("the test needs one-sided operations");
    };
    let (target, remote) = granted(&mut rig, End::B, 256, Rights::ALL);
    let local = harness.region(128);
    local.write(0, &[0x11; 128]).expect("the region is as long as asked for");
    for operation in [
        Operation::Read { local: &local, local_offset: 64, remote: part(remote, 0, 64) },
        Operation::Write { local: &local, local_offset: 0, remote: part(remote, 64, 64) },
        Operation::FetchAdd { remote: part(remote, 128, 8), add: 1 },
    ] {
        let before = bytes_of(&target);
        let wr = rig.one_sided(End::A, operation).expect("a granted access can be posted");
        if passive_target {
            let rounds = harness.patience() / 256;
            let done = (0..rounds.max(1)).any(|_| rig.alone(End::A, |side| side.ended(wr).is_some()));
            assert!(done, "{operation:?} waits for a target that is declared passive");
        } else {
            let done = rig.alone(End::A, |side| side.ended(wr).is_some());
            assert!(
                !done,
                "{operation:?} completed without a call of the target, which is not declared passive"
            );
            assert_eq!(bytes_of(&target), before, "{operation:?} was carried out without the target");
        }
        outcome(&mut rig, End::A, wr).expect("a granted access is not refused");
    }
    rig.finish();
}

fn close_flushes_outstanding_accesses<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (_, remote) = granted(&mut rig, End::B, 4096, Rights::ALL);
    let local = harness.region(4096);
    for i in 0..8 {
        let read = Operation::Read { local: &local, local_offset: 0, remote };
        let add = Operation::FetchAdd { remote: part(remote, i * 8, 8), add: 1 };
        rig.one_sided(End::A, read).expect("a granted access can be posted");
        rig.one_sided(End::A, add).expect("a granted access can be posted");
    }
    rig.expect_failure();
    rig.qp(End::A).close();
    let all = rig.alone(End::A, |side| side.open() == 0);
    assert!(all, "a closed queue pair keeps {} accesses", rig.at(End::A).open());
    rig.finish_closed();
}
