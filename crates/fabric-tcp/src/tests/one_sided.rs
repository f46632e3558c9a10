//! One-sided access: carried out where granted, rejected elsewhere, and without delaying messages.

use pronto_core::fabric::{
    GrantError, InlineMessage, MessageSlot, OutOfBounds, PollOutcome, RemoteRange, Rights, ShortMessage,
    poll_by_value,
};

use super::*;

fn request(qp: &mut TcpQueuePair, slot: u16, operation: Operation<'_>) {
    qp.post(SendWork { signal: Signal::Signalled(wr(slot)), operation }).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
}

/// Returns the status of an operation of `a`, while `b` polls.
fn outcome(a: &mut TcpQueuePair, b: &mut TcpQueuePair, operation: Operation<'_>) -> Status {
    request(a, 5, operation);
    until(a, b, |a, b| {
        assert!(poll_by_value(b).unwrap().is_none());
        b.poll_send();
        assert!(poll_by_value(a).unwrap().is_none());
        a.poll_send().map(|completion| completion.status)
    })
}

/// Shows: protocol.write-result
#[test]
fn reads_and_writes_of_every_length() {
    let (mut a, mut b) = pair();
    let (near, far) = (region(1 << 20), region(1 << 20));
    let grant = b.grant(&far, 16..1 << 20, Rights::READ_WRITE).unwrap();
    for len in [0, 1, 7, 8, 100, 65_535, 65_536, 65_537, 300_000, 1_000_000] {
        let bytes = pattern(usize::try_from(len).unwrap(), 1);
        let remote = grant.remote.part(100..100 + len).unwrap();
        near.write(0, &bytes).unwrap();
        let write = Operation::Write { local: &near, local_offset: 0, remote };
        assert_eq!(outcome(&mut a, &mut b, write), Status::Done(0), "{len}");
        let end = 116 + bytes.len();
        assert_eq!(contents(&far)[116..end], bytes);
        near.write(8, &vec![0; bytes.len()]).unwrap();
        let read = Operation::Read { local: &near, local_offset: 8, remote };
        assert_eq!(outcome(&mut a, &mut b, read), Status::Done(0), "{len}");
        assert_eq!(contents(&near)[8..8 + bytes.len()], bytes);
    }
    assert_eq!(contents(&far)[..116], [0; 116], "bytes before the range are unchanged");
}

/// Polls a connection on which no messages arrive. Returns whether it reports one-sided work.
fn reports_work(qp: &mut TcpQueuePair) -> bool {
    let (mut inline, mut short) = (InlineMessage::default(), ShortMessage::default());
    match qp.poll(MessageSlot { inline: &mut inline, short: &mut short }).unwrap() {
        PollOutcome::Nothing => false,
        PollOutcome::OneSided => true,
        message => panic!("unexpected message {message:?}"),
    }
}

/// The poller at the target of a read is notified that its poll has done work, so that it lets other threads use the
/// connection.
#[test]
fn a_poll_reports_answered_reads_once() {
    let (mut a, mut b) = pair();
    let (near, far) = (region(1 << 20), region(1 << 20));
    let grant = b.grant(&far, 0..1 << 20, Rights::READ_WRITE).unwrap();
    request(&mut a, 5, Operation::Read { local: &near, local_offset: 0, remote: grant.remote });
    let mut answered = 0;
    until(&mut a, &mut b, |a, b| {
        answered += u32::from(reports_work(b));
        b.poll_send();
        assert!(!reports_work(a), "the reader reports no work");
        a.poll_send()
    });
    assert!(answered > 0);
    // The last part of the answer may have been sent after the last report.
    reports_work(&mut b);
    assert!(!reports_work(&mut b), "no request arrived since");
}

/// Between two polls, a thread looks at the other connection of the link. So a poll moves little data for reads, on either side.
#[test]
fn a_poll_moves_at_most_a_chunk_of_data_for_reads() {
    const READS: u16 = 8;
    let (mut a, mut b) = pair();
    let (near, far) = (region(1 << 20), region(1 << 20));
    far.write(0, &pattern(1 << 20, 7)).unwrap();
    let grant = b.grant(&far, 0..1 << 20, Rights::READ).unwrap();
    for slot in 0..READS {
        let at = u64::from(slot) << 17;
        let remote = grant.remote.part(at..at + (1 << 17)).unwrap();
        request(&mut a, slot, Operation::Read { local: &near, local_offset: at, remote });
    }
    let (mut done, mut sent, mut received) = (0, 0, 0);
    until(&mut a, &mut b, |a, b| {
        for polls in 0..2 {
            let before = b.counters().calls.sends;
            if polls == 0 {
                assert!(poll_by_value(b).unwrap().is_none());
            } else {
                assert_eq!(b.poll_send(), None);
            }
            let calls = b.counters().calls.sends - before;
            assert!(calls <= 1, "a poll has sent {calls} times");
            sent += calls;
        }
        let before = contents(&near);
        assert!(poll_by_value(a).unwrap().is_none());
        let moved = contents(&near).iter().zip(&before).filter(|(now, before)| now != before).count();
        // A receive may follow one that had less than half a chunk.
        assert!(moved <= 2 * (64 << 10), "a poll has received {moved} bytes of data");
        received = received.max(moved);
        while a.poll_send().is_some() {
            done += 1;
        }
        (done == READS).then_some(())
    });
    assert!(sent >= 16, "the data takes one send for each chunk");
    assert!(received > 0 && contents(&near) == contents(&far));
}

#[test]
fn atomics_return_the_previous_value_and_are_atomic_with_the_owners() {
    let (mut a, mut b) = pair();
    let far = region(64);
    let grant = b.grant(&far, 0..64, Rights::ALL).unwrap();
    let remote = grant.remote.part(8..16).unwrap();
    let add = |add| Operation::FetchAdd { remote, add };
    assert_eq!(outcome(&mut a, &mut b, add(5)), Status::Done(0));
    far.word(8).unwrap().fetch_add(1, pronto_sync::atomic::Ordering::SeqCst);
    assert_eq!(outcome(&mut a, &mut b, add(u64::MAX)), Status::Done(6));
    let swap = |expected, desired| Operation::CompareSwap { remote, expected, desired };
    assert_eq!(outcome(&mut a, &mut b, swap(4, 100)), Status::Done(5));
    assert_eq!(outcome(&mut a, &mut b, swap(5, 100)), Status::Done(5));
    assert_eq!(contents(&far)[8..16], 100u64.to_le_bytes());
}

/// Shows: protocol.write-result
#[test]
fn ungranted_access_is_refused_and_the_connection_survives() {
    let (mut a, mut b) = pair();
    let (near, far) = (region(4096), region(4096));
    near.write(0, &[0xee; 4096]).unwrap();
    let read_only = b.grant(&far, 1024..2048, Rights::READ).unwrap().remote;
    let write = b.grant(&far, 1024..2048, Rights { read: false, write: true, atomic: false }).unwrap().remote;
    let all = b.grant(&far, 1024..2048, Rights::ALL).unwrap().remote;
    let local = (&near, 0);
    let read = |remote| Operation::Read { local: local.0, local_offset: local.1, remote };
    let write_to = |remote| Operation::Write { local: local.0, local_offset: local.1, remote };
    let beyond = RemoteRange { offset: 1000, len: 25, ..all };
    let overflowing = RemoteRange { offset: u64::MAX - 3, len: 8, ..all };
    // Aligned relative to the start of the grant, but not in memory: only the target can detect it.
    let crooked = RemoteRange { len: 8, ..b.grant(&far, 1028..2048, Rights::ALL).unwrap().remote };
    let unknown = RemoteRange { key: all.key ^ 1, ..all };
    for operation in [
        read(write),
        write_to(read_only),
        read(beyond),
        write_to(beyond),
        read(overflowing),
        write_to(overflowing),
        read(unknown),
        write_to(unknown),
        Operation::FetchAdd { remote: crooked, add: 1 },
        Operation::FetchAdd { remote: RemoteRange { len: 8, ..read_only }, add: 1 },
        Operation::CompareSwap { remote: RemoteRange { len: 8, ..write }, expected: 0, desired: 1 },
    ] {
        assert_eq!(outcome(&mut a, &mut b, operation), Status::AccessRefused, "{operation:?}");
    }
    assert_eq!(contents(&far), [0; 4096], "a write that exceeds the grant changes nothing");
    post(&mut a, 1, Gather::Short(b"still here")).unwrap();
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    assert_eq!(bytes_of(&receive(&mut b).unwrap()), b"still here");
}

#[test]
fn a_third_peer_with_the_right_key_is_refused() {
    let (mut a, mut b) = pair();
    let (mut c, mut d) = pair();
    let (near, far) = (region(64), region(64));
    let remote = b.grant(&far, 0..64, Rights::ALL).unwrap().remote;
    let read = Operation::Read { local: &near, local_offset: 0, remote };
    assert_eq!(outcome(&mut a, &mut b, read), Status::Done(0));
    assert_eq!(outcome(&mut c, &mut d, read), Status::AccessRefused);
}

/// The kernel reads the bytes of a frame from the region, after its header has announced them. Those that are left when the grant ends are
/// the bytes from before its end.
#[test]
fn a_frame_that_has_begun_keeps_its_bytes_when_its_grant_ends() {
    const READS: u16 = 60;
    const LEN: u64 = 64 << 10;
    let (mut a, mut b) = pair();
    let all = usize::from(READS) << 16;
    let (near, far) = (region(all), region(all));
    far.write(0, &vec![1; all]).unwrap();
    let grant = b.grant(&far, 0..all as u64, Rights::READ).unwrap();
    for slot in 0..READS {
        let at = u64::from(slot) * LEN;
        let remote = grant.remote.part(at..at + LEN).unwrap();
        request(&mut a, slot, Operation::Read { local: &near, local_offset: at, remote });
    }
    // The reader does not poll, until the socket is full in the middle of a frame.
    let begun = core::iter::repeat_with(|| {
        assert!(poll_by_value(&mut b).unwrap().is_none());
        b.poll_send();
        b.is_inside_a_frame()
    });
    assert!(begun.take(100_000).any(|begun| begun), "no frame was interrupted");
    b.revoke(grant.id).unwrap();
    far.write(0, &vec![2; all]).unwrap();
    let mut statuses = Vec::new();
    until(&mut a, &mut b, |a, b| {
        assert!(poll_by_value(b).unwrap().is_none());
        b.poll_send();
        assert!(poll_by_value(a).unwrap().is_none());
        statuses.extend(core::iter::from_fn(|| a.poll_send()).map(|completion| completion.status));
        (statuses.len() == usize::from(READS)).then_some(())
    });
    let done = statuses.iter().take_while(|status| **status == Status::Done(0)).count();
    assert!(done > 0 && statuses[done..].iter().all(|status| *status == Status::AccessRefused));
    assert!(done < statuses.len(), "the grant had ended");
    let mut expected = vec![1; done << 16];
    expected.resize(all, 0);
    assert!(contents(&near) == expected, "a read has bytes from after the end of its grant");
}

#[test]
fn a_revoked_grant_is_invalid_even_in_the_middle_of_a_read() {
    let (mut a, mut b) = pair();
    let (near, far) = (region(8 << 20), region(8 << 20));
    let grant = b.grant(&far, 0..8 << 20, Rights::READ).unwrap();
    let read = Operation::Read { local: &near, local_offset: 0, remote: grant.remote };
    request(&mut a, 1, read);
    until(&mut a, &mut b, |_, b| {
        assert!(poll_by_value(b).unwrap().is_none());
        b.wants_write().then_some(())
    });
    b.revoke(grant.id).unwrap();
    far.write(0, &vec![1; 8 << 20]).unwrap();
    let status = until(&mut a, &mut b, |a, b| {
        b.poll_send();
        assert!(poll_by_value(a).unwrap().is_none());
        a.poll_send().map(|completion| completion.status)
    });
    assert_eq!(status, Status::AccessRefused);
    assert!(contents(&near).iter().all(|byte| *byte == 0), "no byte was read after the revocation");
    assert_eq!(outcome(&mut a, &mut b, read), Status::AccessRefused);
    assert_eq!(b.revoke(grant.id), Err(GrantError::Unknown));
}

#[test]
fn messages_pass_between_the_pieces_of_a_long_read() {
    let (mut a, mut b) = pair();
    let (near, far) = (region(8 << 20), region(8 << 20));
    let remote = b.grant(&far, 0..8 << 20, Rights::READ).unwrap().remote;
    request(&mut a, 1, Operation::Read { local: &near, local_offset: 0, remote });
    until(&mut a, &mut b, |_, b| {
        assert!(poll_by_value(b).unwrap().is_none());
        b.wants_write().then_some(())
    });
    post(&mut b, 2, Gather::Short(b"let me through")).unwrap();
    b.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    until(&mut a, &mut b, |a, b| {
        b.poll_send();
        assert_eq!(a.poll_send(), None, "the read is not complete yet");
        poll_by_value(a).unwrap()
    });
}

/// Shows: protocol.order-write
#[test]
fn a_message_posted_after_a_write_arrives_after_its_bytes() {
    let (mut a, mut b) = pair();
    let (near, far) = (region(1 << 20), region(1 << 20));
    near.write(0, &vec![7; 1 << 20]).unwrap();
    let remote = b.grant(&far, 0..1 << 20, Rights::READ_WRITE).unwrap().remote;
    let operation = Operation::Write { local: &near, local_offset: 0, remote };
    a.post(SendWork { signal: Signal::Signalled(wr(1)), operation }).unwrap();
    post(&mut a, 2, Gather::Short(b"it is there")).unwrap();
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    until(&mut a, &mut b, |a, b| {
        a.poll_send();
        poll_by_value(b).unwrap()
    });
    assert!(contents(&far).iter().all(|byte| *byte == 7));
}

#[test]
fn operations_beyond_the_depth_are_refused_until_one_is_done() {
    let (mut a, mut b) = pair();
    let far = region(64);
    let remote = b.grant(&far, 0..8, Rights::ALL).unwrap().remote;
    let add = Operation::FetchAdd { remote, add: 1 };
    let mut posted = 0;
    let refusal = loop {
        match a.post(SendWork { signal: Signal::Signalled(wr(posted)), operation: add }) {
            Ok(()) => posted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((refusal, posted), (PostError::Full, 64));
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    for slot in 0..posted {
        let completion = until(&mut a, &mut b, |a, b| {
            assert!(poll_by_value(b).unwrap().is_none());
            assert!(poll_by_value(a).unwrap().is_none());
            a.poll_send()
        });
        assert_eq!(completion, Completion { wr: wr(slot), status: Status::Done(slot.into()) });
    }
    assert_eq!(outcome(&mut a, &mut b, add), Status::Done(64));
}

#[test]
fn a_local_range_that_is_too_short_is_refused_immediately() {
    let (mut a, _b) = pair();
    let near = region(64);
    let remote = RemoteRange { key: 1, offset: 0, len: 33 };
    let operation = Operation::Read { local: &near, local_offset: 32, remote };
    let refused = a.post(SendWork { signal: Signal::Signalled(wr(1)), operation });
    assert_eq!(refused, Err(OutOfBounds { offset: 32, wanted: 33, len: 64 }.into()));
}
