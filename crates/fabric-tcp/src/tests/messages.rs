//! Messages arrive whole, once and in order, with as few system calls as there are bursts.

use pronto_core::fabric::{Armed, OutOfBounds, poll_by_value};

use crate::socket::Calls;

use super::*;

const SIZES: [usize; 12] = [0, 1, 39, 40, 41, 300, 1024, 1025, 5000, 65_536, 70_001, 3 << 20];

#[test]
fn every_size_arrives_from_send_memory_and_from_a_region() {
    let (mut a, mut b) = pair();
    let source = region(4 << 20);
    for (n, size) in (0u16..).zip(SIZES) {
        let bytes = pattern(size, n.into());
        let extent = compose(&a, 4096, &bytes);
        source.write(3, &bytes).unwrap();
        let in_region = Gather::Region { region: &source, offset: 3, len: extent.len };
        post(&mut a, 2 * n, Gather::Ring(extent)).unwrap();
        post(&mut a, 2 * n + 1, in_region).unwrap();
        a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        let mut completions = Vec::new();
        let mut messages = Vec::new();
        until(&mut a, &mut b, |a, b| {
            completions.extend(a.poll_send());
            messages.extend(poll_by_value(b).unwrap());
            (completions.len() == 2 && messages.len() == 2).then_some(())
        });
        assert_eq!(completions, [done(2 * n).unwrap(), done(2 * n + 1).unwrap()]);
        for (m, message) in (2 * n..).zip(&messages) {
            assert_eq!(message.header.as_array()[4..], [u8::try_from(m).unwrap(); 20]);
            assert_eq!(bytes_of(message), bytes, "{size}");
        }
    }
    assert_eq!(a.poll_send(), None);
    assert!(poll_by_value(&mut b).unwrap().is_none());
}

#[test]
fn unsignalled_inline_messages_in_both_directions_have_no_completion() {
    let (mut a, mut b) = pair();
    let header = RawHeader::from_array([9; 24]);
    let operation = Operation::Send { header: &header, payload: Gather::Short(b"there") };
    a.post(SendWork { signal: Signal::Unsignalled, operation }).unwrap();
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    assert_eq!(bytes_of(&receive(&mut b).unwrap()), b"there");
    assert_eq!(a.poll_send(), None);
    post(&mut b, 1, Gather::Short(b"and back")).unwrap();
    b.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    assert_eq!(bytes_of(&receive(&mut a).unwrap()), b"and back");
    assert_eq!(b.poll_send(), done(1));
}

#[test]
fn a_burst_is_one_send_and_one_receive() {
    let (mut a, mut b) = pair();
    // The first burst is received with the short buffer of a quiet connection.
    for receives in [2, 1, 1] {
        let before = (a.counters().calls, b.counters().calls);
        for slot in 0..200 {
            post(&mut a, slot, Gather::Short(&[u8::try_from(slot).unwrap(); 40])).unwrap();
        }
        a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        for slot in 0..200 {
            let message =
                if slot == 0 { receive(&mut b).unwrap() } else { poll_by_value(&mut b).unwrap().unwrap() };
            assert_eq!(bytes_of(&message), [u8::try_from(slot).unwrap(); 40]);
            assert_eq!(a.poll_send(), done(slot));
        }
        assert!(poll_by_value(&mut b).unwrap().is_none());
        let calls = (a.counters().calls, b.counters().calls);
        assert_eq!(calls.0.sends - before.0.sends, 1);
        // A poll before the loopback interface delivered the bytes adds an empty receive, which is not counted.
        let useful = |calls: Calls| calls.receives - calls.empty_receives;
        assert_eq!(useful(calls.1) - useful(before.1), receives);
    }
}

#[test]
fn a_quiet_connection_goes_back_to_a_short_buffer() {
    let (mut a, mut b) = pair();
    let mut burst = |b: &mut TcpQueuePair| {
        for slot in 0..100 {
            post(&mut a, slot, Gather::Short(&[7; 40])).unwrap();
        }
        a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        let before = b.counters().calls;
        for slot in 0..100 {
            receive(b).unwrap();
            assert_eq!(a.poll_send(), done(slot));
        }
        let calls = b.counters().calls;
        calls.receives - calls.empty_receives - (before.receives - before.empty_receives)
    };
    assert_eq!((burst(&mut b), burst(&mut b)), (2, 1));
    b.arm(Armed::All).unwrap();
    assert_eq!(burst(&mut b), 1, "after a burst, one arming keeps the long buffer");
    b.arm(Armed::All).unwrap();
    b.arm(Armed::All).unwrap();
    assert_eq!(burst(&mut b), 2, "after two armings without a message between, the buffer is short");
}

#[test]
fn a_blocking_round_trip_makes_no_useless_call() {
    let (mut a, mut b) = pair();
    assert!(poll_by_value(&mut b).unwrap().is_none());
    for _ in 0..10 {
        post(&mut a, 1, Gather::Short(&[1; 32])).unwrap();
        a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        b.arm(Armed::All).unwrap();
        assert!(poll_by_value(&mut b).unwrap().is_none());
        sleep(&b);
        b.arm(Armed::Nothing).expect("disarming never fails");
        assert!(poll_by_value(&mut b).unwrap().is_some());
        assert!(poll_by_value(&mut b).unwrap().is_none());
    }
    let calls = b.counters().calls;
    assert_eq!((calls.receives, calls.empty_receives), (11, 1), "only the first receive was empty");
    assert_eq!(a.counters().calls.sends, 10);
}

#[test]
fn a_thread_that_arms_again_before_polling_finds_the_message_that_woke_it() {
    let (mut a, mut b) = pair();
    for slot in 0..3 {
        post(&mut a, slot, Gather::Short(&[1; 32])).unwrap();
        a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        let mut turns = 0;
        while poll_by_value(&mut b).unwrap().is_none() {
            sleep(&b);
            b.arm(Armed::Nothing).expect("disarming never fails");
            b.arm(Armed::All).unwrap();
            turns += 1;
            assert!(turns < 3, "woken repeatedly without a message");
        }
        b.arm(Armed::All).unwrap();
    }
}

#[test]
fn a_long_payload_is_received_into_its_buffer() {
    let (mut a, mut b) = pair();
    let bytes = pattern(4 << 20, 3);
    let extent = compose(&a, 0, &bytes);
    post(&mut a, 1, Gather::Ring(extent)).unwrap();
    post(&mut a, 2, Gather::Short(b"behind")).unwrap();
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let message = until(&mut a, &mut b, |a, b| {
        a.poll_send();
        poll_by_value(b).unwrap()
    });
    assert_eq!(bytes_of(&message), bytes);
    assert_eq!(bytes_of(&receive(&mut b).unwrap()), b"behind");
    drop(message);
}

#[test]
fn invalid_messages_are_rejected_and_nothing_of_them_is_sent() {
    let (mut a, mut b) = pair();
    let long = Gather::Short(&[0; 41]);
    assert_eq!(post(&mut a, 0, long), Err(PostError::TooLong { len: 41, max: 40 }));
    let outside = Gather::Ring(Extent { offset: (16 << 20) - 100, len: 101 });
    let memory = 16 << 20;
    let refused = OutOfBounds { offset: memory - 100, wanted: 101, len: memory };
    assert_eq!(post(&mut a, 0, outside), Err(refused.into()));
    let beyond = Gather::Ring(Extent { offset: 0, len: (4 << 20) + 1 });
    assert_eq!(post(&mut a, 0, beyond), Err(PostError::TooLong { len: (4 << 20) + 1, max: 4 << 20 }));
    let source = region(64);
    let outside = Gather::Region { region: &source, offset: 60, len: 5 };
    let refused = OutOfBounds { offset: 60, wanted: 5, len: 64 };
    assert_eq!(post(&mut a, 0, outside), Err(refused.into()));
    let header = RawHeader::default();
    let operation = Operation::Send { header: &header, payload: Gather::Ring(Extent { offset: 0, len: 1 }) };
    let unsignalled = a.post(SendWork { signal: Signal::Unsignalled, operation });
    assert_eq!(unsignalled, Err(PostError::Unsupported));
    post(&mut a, 1, Gather::Short(b"ok")).unwrap();
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    assert_eq!(bytes_of(&receive(&mut b).unwrap()), b"ok");
    assert_eq!(a.poll_send(), done(1));
}
