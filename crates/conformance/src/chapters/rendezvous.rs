//! Use of the fabric by a rendezvous: a long message moves in chunks into a posted buffer, with several chunks in
//! flight and messages between them. Then one side reports completion, and the grant ends.

use core::ops::Range;

use pronto_core::fabric::{GrantId, Operation, QueuePair, Region, RemoteRange, Rights, WrId};

use super::one_sided::{Refused, access, bytes_of, part};
use super::tests;
use crate::Harness;
use crate::random::payload;
use crate::rig::{End, Form, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "rendezvous",
        tests: tests![
            a_posted_buffer_is_written_and_its_owner_notified needs [OneSided],
            granted_bytes_are_read_and_given_back needs [OneSided],
            two_transfers_at_a_time_do_not_mix needs [OneSided],
        ],
    }
}

/// Length of a long message, bytes: not a multiple of the chunk or word size.
const LEN: u64 = (1 << 20) + 5;
const CHUNK: u64 = 64 << 10;
/// Maximum number of chunks in flight.
const UNDER_WAY: usize = 8;
/// Offset of the message in the region of either side.
const HERE: u64 = 3;
const THERE: u64 = 64;

fn region<H: Harness>(harness: &H, seed: u64) -> Region {
    let len = usize::try_from(LEN + 2 * THERE).expect("a megabyte");
    let region = harness.region(len);
    region.write(0, &payload(seed, len)).expect("the region is as long as asked for");
    region
}

/// Returns the range of the message in the region.
fn place(start: u64) -> Range<usize> {
    let at = |at| usize::try_from(at).expect("within the region");
    at(start)..at(start + LEN)
}

/// Grants `from`'s peer access to the range of a message in a region of `from`.
fn lend<H: Harness>(
    rig: &mut Rig<'_, H>,
    from: End,
    region: &Region,
    rights: Rights,
) -> (GrantId, RemoteRange) {
    let grant = rig.qp(from).grant(region, THERE..THERE + LEN, rights).expect("a region can be granted");
    (grant.id, grant.remote)
}

/// Transfers chunk after chunk, several at a time, with short messages between them. `operation` returns the operation
/// for a part.
fn in_chunks<'r, H: Harness>(
    rig: &mut Rig<'_, H>,
    from: End,
    remote: RemoteRange,
    operation: impl Fn(u64, RemoteRange) -> Operation<'r>,
) {
    let mut open: Vec<WrId> = Vec::new();
    for start in (0..LEN).step_by(usize::try_from(CHUNK).expect("a chunk is short")) {
        rig.wait("for a chunk to end", |rig| {
            open.retain(|wr| rig.at(from).ended(*wr).is_none());
            open.len() < UNDER_WAY
        });
        let chunk = part(remote, start, CHUNK.min(LEN - start));
        open.push(rig.one_sided(from, operation(start, chunk)).expect("a granted access can be posted"));
        rig.submit(from, Form::Inline, 20);
    }
    rig.ring(from);
}

/// Shows: protocol.order-write
fn a_posted_buffer_is_written_and_its_owner_notified<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (buffer, message) = (region(harness, 1), region(harness, 2));
    let mut expected = bytes_of(&buffer);
    expected[place(THERE)].copy_from_slice(&bytes_of(&message)[place(HERE)]);
    let (grant, remote) = lend(&mut rig, End::B, &buffer, Rights::READ_WRITE);
    in_chunks(&mut rig, End::A, remote, |start, chunk| Operation::Write {
        local: &message,
        local_offset: HERE + start,
        remote: chunk,
    });
    rig.send(End::A, Form::Inline, 0);
    rig.wait("for the message behind the writes", |rig| rig.at(End::B).expects() == 0);
    assert!(
        bytes_of(&buffer) == expected,
        "notified before the message was complete, or bytes outside were written"
    );
    rig.wait_idle();
    rig.qp(End::B).revoke(grant).expect("a grant can be revoked");
    rig.expect_failure();
    let late = Operation::Write { local: &message, local_offset: 0, remote: part(remote, 0, 8) };
    assert_eq!(access(&mut rig, End::A, late), Err(Refused));
    assert!(bytes_of(&buffer) == expected, "the buffer was written to after the grant had ended");
    rig.finish_closed();
}

fn granted_bytes_are_read_and_given_back<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (message, buffer) = (region(harness, 3), region(harness, 4));
    let mut expected = bytes_of(&buffer);
    expected[place(HERE)].copy_from_slice(&bytes_of(&message)[place(THERE)]);
    let (grant, remote) = lend(&mut rig, End::A, &message, Rights::READ);
    in_chunks(&mut rig, End::B, remote, |start, chunk| Operation::Read {
        local: &buffer,
        local_offset: HERE + start,
        remote: chunk,
    });
    rig.wait_idle();
    assert!(bytes_of(&buffer) == expected, "every chunk is done, but bytes are missing");
    rig.send(End::B, Form::Inline, 0);
    rig.wait_idle();
    rig.qp(End::A).revoke(grant).expect("a grant can be revoked");
    rig.expect_failure();
    let late = Operation::Read { local: &buffer, local_offset: 0, remote: part(remote, 0, 8) };
    assert_eq!(access(&mut rig, End::B, late), Err(Refused));
    assert!(bytes_of(&buffer) == expected, "the buffer changed after the grant had ended");
    rig.finish_closed();
}

/// One transfer in each direction, both carried out by the same side: it reads, and writes.
fn two_transfers_at_a_time_do_not_mix<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let [read, written, source, sink] = [5, 6, 7, 8].map(|seed| region(harness, seed));
    let (mut into_sink, mut into_written) = (bytes_of(&sink), bytes_of(&written));
    into_sink[place(HERE)].copy_from_slice(&bytes_of(&read)[place(THERE)]);
    into_written[place(THERE)].copy_from_slice(&bytes_of(&source)[place(HERE)]);
    let (_, from) = lend(&mut rig, End::B, &read, Rights::READ);
    let (_, to) = lend(&mut rig, End::B, &written, Rights::READ_WRITE);
    let step = usize::try_from(CHUNK).expect("a chunk is short");
    for start in (0..LEN).step_by(step) {
        let len = CHUNK.min(LEN - start);
        let local_offset = HERE + start;
        let operations = [
            Operation::Read { local: &sink, local_offset, remote: part(from, start, len) },
            Operation::Write { local: &source, local_offset, remote: part(to, start, len) },
        ];
        for operation in operations {
            rig.one_sided(End::A, operation).expect("a granted access can be posted");
        }
    }
    rig.wait_idle();
    assert!(bytes_of(&sink) == into_sink);
    assert!(bytes_of(&written) == into_written);
    rig.finish();
}
