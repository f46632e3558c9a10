//! Writes with an immediate: the number comes when the bytes are there, once, in order, and not without them.

use pronto_core::fabric::{Operation, PostError, QueuePair, Region, RemoteRange, Rights, Status, WrId};

use super::one_sided::{Refused, access, bytes_of, granted, part};
use super::tests;
use crate::Harness;
use crate::random::payload;
use crate::rig::{End, Form, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "immediates",
        tests: tests![
            the_bytes_are_there_when_the_immediate_is needs [OneSided],
            immediates_come_in_the_order_of_their_writes needs [OneSided],
            whoever_has_a_message_finds_the_immediates_before_it needs [OneSided],
            an_immediate_takes_one_receive_and_gives_it_back needs [OneSided],
            both_ends_tell_each_other needs [OneSided],
            a_refused_write_has_none needs [OneSided],
            after_revocation_none_arrives needs [OneSided],
            a_write_of_nothing_has_none needs [OneSided],
            an_immediate_wakes needs [OneSided, Channel],
            close_flushes_and_what_was_done_was_told needs [OneSided],
        ],
    }
}

/// What a test's writes come from, bytes.
const SOURCE: usize = 400_000;

/// Bytes of one small write.
const WORD: u64 = 8;

fn source<H: Harness>(harness: &H, seed: u64, len: usize) -> Region {
    let source = harness.region(len);
    source.write(0, &payload(seed, len)).expect("the region is as long as asked for");
    source
}

fn write(local: &Region, local_offset: u64, remote: RemoteRange, immediate: u32) -> Operation<'_> {
    Operation::WriteWithImmediate { local, local_offset, remote, immediate }
}

#[track_caller]
fn post<H: Harness>(rig: &mut Rig<'_, H>, from: End, operation: Operation<'_>) -> WrId {
    rig.one_sided(from, operation).expect("a granted access can be posted")
}

/// Waits for the next immediates of one end.
#[track_caller]
fn immediates<H: Harness>(rig: &mut Rig<'_, H>, at: End, count: usize) -> Vec<u32> {
    rig.wait("for immediates", |rig| rig.at(at).immediates.len() >= count);
    core::mem::take(&mut rig.at(at).immediates)
}

/// The target looks alone, so that nothing that the writer does afterwards helps the bytes there.
fn the_bytes_are_there_when_the_immediate_is<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (target, remote) = granted(&mut rig, End::B, SOURCE, Rights::READ_WRITE);
    let mut expected = bytes_of(&target);
    for (at, len) in
        [(0, 1), (3, 7), (8, 8), (1, 63), (64, 64), (5, 4096), (9, 20_000), (1, 70_000), (7, 300_001)]
    {
        let local = source(harness, len, SOURCE);
        let [start, end] = [at, at + len].map(|at| usize::try_from(at).expect("within the region"));
        let immediate = u32::try_from(len).expect("a short write");
        let wr = post(&mut rig, End::A, write(&local, at + 2, part(remote, at, len), immediate));
        if !rig.alone(End::B, |side| !side.immediates.is_empty()) {
            // What the transport does not take at once needs both.
            rig.wait("for an immediate", |rig| !rig.at(End::B).immediates.is_empty());
        }
        expected[start..end].copy_from_slice(&bytes_of(&local)[start + 2..end + 2]);
        assert!(bytes_of(&target) == expected, "the immediate of {len} bytes came before them");
        assert_eq!(immediates(&mut rig, End::B, 1), [immediate]);
        rig.wait_idle();
        assert_eq!(rig.at(End::A).ended(wr), Some(Status::Done(0)));
    }
    rig.finish();
}

fn immediates_come_in_the_order_of_their_writes<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let depth = u64::from(rig.qp(End::A).capabilities().send_depth);
    let (target, remote) = granted(&mut rig, End::B, 64 * 16, Rights::READ_WRITE);
    let long = granted(&mut rig, End::B, 70_000, Rights::READ_WRITE).1;
    let local = source(harness, 4, 70_000);
    for lap in 0..5 {
        let mut sent = Vec::new();
        for i in 0..depth {
            // None is like its number in the order, and the ends of what 32 bits can be are among them.
            let number = match i {
                0 => u32::MAX,
                1 => 0,
                _ => u32::try_from(rig.random.next() >> 32).expect("32 bits are left"),
            };
            let at = i % 16 * 64;
            // Each behind one without, and one that takes long.
            let remote_at = part(remote, at, 32 + lap);
            post(&mut rig, End::A, Operation::Write { local: &local, local_offset: at, remote: remote_at });
            let (at, to) = if i == depth / 2 { (0, long) } else { (at + 40, part(remote, at + 40, WORD)) };
            post(&mut rig, End::A, write(&local, at, to, number));
            sent.push(number);
        }
        assert_eq!(immediates(&mut rig, End::B, sent.len()), sent);
        rig.wait_idle();
    }
    let (there, local) = (bytes_of(&target), bytes_of(&local));
    let parts = (0..depth.min(16)).flat_map(|i| [(i * 64, 36), (i * 64 + 40, 8)]);
    for (at, len) in parts.filter(|(at, _)| at % 64 == 0 || at / 64 != depth / 2) {
        let at = usize::try_from(at).expect("within the region");
        assert_eq!(there[at..at + len], local[at..at + len], "at {at}");
    }
    rig.finish();
}

fn whoever_has_a_message_finds_the_immediates_before_it<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (_, remote) = granted(&mut rig, End::B, 64, Rights::READ_WRITE);
    let local = source(harness, 5, 64);
    for (i, len) in [0, 40, 41, 232, 233, 3000, 100_000].into_iter().enumerate() {
        for form in [Form::Inline, Form::Ring, Form::Region] {
            let len = if form == Form::Inline { len.min(40) } else { len };
            let number = u32::try_from(i).expect("few");
            post(&mut rig, End::A, write(&local, 0, part(remote, 8, 8), number));
            let before = rig.at(End::B).received;
            rig.send(End::A, form, len);
            rig.wait("for the message", |rig| rig.at(End::B).received > before);
            let found = core::mem::take(&mut rig.at(End::B).immediates);
            assert_eq!(found, [number], "a message of {len} bytes came first");
        }
    }
    rig.finish();
}

/// Half of a window each, nobody polling; and more, one by one, than any store of receives has.
fn an_immediate_takes_one_receive_and_gives_it_back<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let depth = usize::try_from(rig.qp(End::A).capabilities().send_depth).expect("a depth is 32 bits");
    let (_, remote) = granted(&mut rig, End::B, 64, Rights::READ_WRITE);
    let local = source(harness, 6, 64);
    for _ in 0..3 {
        for i in 0..depth / 2 {
            let number = u32::try_from(i).expect("few");
            post(&mut rig, End::A, write(&local, 0, part(remote, 0, WORD), number));
            rig.post(End::A, Form::ALL[i % 4], 40).expect("messages up to the depth can be posted");
            rig.ring(End::A);
        }
        assert_eq!(immediates(&mut rig, End::B, depth / 2).len(), depth / 2);
        rig.wait_idle();
    }
    for number in 0..200 {
        post(&mut rig, End::A, write(&local, 0, part(remote, 0, WORD), number));
        assert_eq!(immediates(&mut rig, End::B, 1), [number]);
        rig.wait_idle();
    }
    for i in 0..2 * depth {
        rig.send(End::A, Form::ALL[i % 4], 40);
    }
    rig.finish();
}

fn both_ends_tell_each_other<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let [of_a, of_b] = End::BOTH.map(|owner| granted(&mut rig, owner, 4096, Rights::READ_WRITE));
    let locals = [source(harness, 7, 4096), source(harness, 8, 4096)];
    for (from, (_, remote)) in [(End::A, &of_b), (End::B, &of_a)] {
        for i in 0..8_u32 {
            let at = u64::from(i) * 512;
            post(
                &mut rig,
                from,
                write(&locals[from as usize], at, part(*remote, at, 512), i + from as u32 * 100),
            );
        }
    }
    for (end, first) in [(End::A, 100), (End::B, 0)] {
        assert_eq!(immediates(&mut rig, end, 8), Vec::from_iter(first..first + 8));
    }
    rig.wait_idle();
    assert!(bytes_of(&of_a.0) == bytes_of(&locals[1]));
    assert!(bytes_of(&of_b.0) == bytes_of(&locals[0]));
    rig.finish();
}

/// The write is refused, changes nothing, and nobody hears of it.
#[track_caller]
fn assert_untold<H: Harness>(mut rig: Rig<'_, H>, target: &Region, remote: RemoteRange, what: &str) {
    let local = source(rig.harness(), 10, SOURCE);
    let before = bytes_of(target);
    rig.expect_failure();
    assert_eq!(access(&mut rig, End::A, write(&local, 0, remote, 0xdead)), Err(Refused), "{what}");
    assert!(!rig.alone(End::B, |side| !side.immediates.is_empty()), "{what}: refused, and told");
    assert!(bytes_of(target) == before, "{what}: refused, and had an effect");
    rig.finish_closed();
}

fn a_refused_write_has_none<H: Harness>(harness: &H) {
    // The second reaches too far by a byte, and begins well: a transport that cuts it into pieces finds out early or late.
    for (offset, len) in [(200_000, 8), (1, 200_000), (199_993, 8), (u64::MAX - 7, 8)] {
        let mut rig = Rig::new(harness);
        let (target, remote) = granted(&mut rig, End::B, 200_000, Rights::READ_WRITE);
        assert_untold(rig, &target, RemoteRange { key: remote.key, offset, len }, "out of bounds");
    }
    let mut rig = Rig::new(harness);
    let (target, remote) = granted(&mut rig, End::B, 64, Rights::READ);
    assert_untold(rig, &target, part(remote, 0, WORD), "without the right to write");
    let mut rig = Rig::new(harness);
    let (target, remote) = granted(&mut rig, End::B, 64, Rights::READ_WRITE);
    let forged = RemoteRange { key: remote.key ^ 1, offset: 0, len: WORD };
    assert_untold(rig, &target, forged, "under a key that was never given");
}

fn after_revocation_none_arrives<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let target = harness.region(200_000);
    let grant =
        rig.qp(End::B).grant(&target, 0..200_000, Rights::READ_WRITE).expect("a region can be granted");
    let local = source(harness, 11, 64);
    post(&mut rig, End::A, write(&local, 0, part(grant.remote, 0, WORD), 1));
    assert_eq!(immediates(&mut rig, End::B, 1), [1], "not revoked yet");
    rig.wait_idle();
    rig.qp(End::B).revoke(grant.id).expect("a grant can be revoked");
    assert_untold(rig, &target, part(grant.remote, 64, 190_000), "after revocation");
}

fn a_write_of_nothing_has_none<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (_, remote) = granted(&mut rig, End::B, 64, Rights::READ_WRITE);
    let local = source(harness, 12, 64);
    let refused = rig.one_sided(End::A, write(&local, 0, part(remote, 0, 0), 1));
    assert_eq!(refused, Err(PostError::NotGranted));
    assert!(!rig.alone(End::B, |side| !side.immediates.is_empty()), "told of a write of nothing");
    rig.finish();
}

/// Nobody calls the target between its recheck and the event.
fn an_immediate_wakes<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (_, remote) = granted(&mut rig, End::B, 64, Rights::READ_WRITE);
    let local = source(harness, 13, 64);
    for number in 0..20 {
        // A target that is needed for the write hears of it twice, so it may sleep again.
        for woken in 0..100 {
            let armed = if number % 2 == 0 { rig.qp(End::B).arm() } else { rig.qp(End::B).arm_solicited() };
            armed.expect("a live queue pair can be armed");
            rig.at(End::B).poll();
            if woken == 0 {
                assert!(rig.at(End::B).immediates.is_empty());
                post(&mut rig, End::A, write(&local, 0, part(remote, 0, WORD), number));
            } else if !rig.at(End::B).immediates.is_empty() {
                break;
            }
            let mut event = false;
            for _ in 0..harness.patience() {
                event = harness.event(&rig.at(End::B).qp).unwrap_or(false);
                if event {
                    break;
                }
                if !rig.at(End::A).poll() {
                    rig.settle();
                }
            }
            assert!(event, "asleep for ever: an immediate came after the recheck, and no event");
            rig.at(End::B).poll();
            rig.qp(End::B).disarm();
        }
        rig.qp(End::B).disarm();
        assert_eq!(immediates(&mut rig, End::B, 1), [number]);
        rig.wait_idle();
    }
    rig.finish();
}

fn close_flushes_and_what_was_done_was_told<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (_, remote) = granted(&mut rig, End::B, 4096, Rights::READ_WRITE);
    let local = source(harness, 14, 4096);
    let posted: Vec<_> =
        (0..8).map(|number| post(&mut rig, End::A, write(&local, 0, remote, number))).collect();
    rig.expect_failure();
    rig.qp(End::A).close();
    let all = rig.alone(End::A, |side| side.open() == 0);
    assert!(all, "a closed queue pair keeps {} writes", rig.at(End::A).open());
    rig.wait("for the other end to notice", |rig| rig.at(End::B).failure.is_some());
    let done = posted.iter().filter(|wr| matches!(rig.at(End::A).ended(**wr), Some(Status::Done(_)))).count();
    let told = core::mem::take(&mut rig.at(End::B).immediates);
    assert!(told.len() >= done && told.len() <= posted.len(), "{done} were done, and {told:?} came");
    assert!(told.iter().zip(0..).all(|(told, posted)| *told == posted), "{told:?}");
    rig.finish_closed();
}
