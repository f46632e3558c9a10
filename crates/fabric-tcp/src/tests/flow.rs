//! Full sockets, full queues, exhausted pools, and the end of a connection.

use std::task::Wake;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_sync::atomic::{AtomicU32, Ordering};

use super::*;

#[test]
fn a_full_socket_blocks_output_and_completes_it_when_the_peer_reads() {
    let (mut a, mut b) = pair();
    let bytes = pattern(4 << 20, 1);
    let extent = compose(&a, 0, &bytes);
    let mut posted = 0;
    while !a.wants_write() {
        post(&mut a, posted, Gather::Ring(extent)).unwrap();
        a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        posted += 1;
    }
    assert!(a.interest().writable);
    let completed_early = core::iter::from_fn(|| a.poll_send()).count();
    assert!(completed_early < posted.into(), "the last message cannot be complete");
    let mut received = 0;
    until(&mut a, &mut b, |a, b| {
        if let Some(message) = poll_by_value(b).unwrap() {
            assert_eq!(message.payload.as_private(), Some(&bytes[..]));
            received += 1;
        }
        let late = a.poll_send().is_some();
        (late && a.interest() == pronto_core::fabric::Interest::READABLE).then_some(())
    });
    while received < posted {
        receive(&mut b).unwrap();
        received += 1;
    }
    assert!(a.counters().calls.sends > 1);
}

#[test]
fn a_sleeper_is_woken_when_output_begins_to_wait() {
    #[derive(Default)]
    struct Woken(AtomicU32);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (mut a, _b) = pair();
    let woken = Arc::new(Woken::default());
    a.on_blocked(Arc::clone(&woken).into());
    let extent = compose(&a, 0, &pattern(4 << 20, 1));
    for slot in 0.. {
        let was_blocked = a.wants_write();
        post(&mut a, slot, Gather::Ring(extent)).unwrap();
        a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed), u32::from(a.wants_write()));
        if was_blocked {
            break;
        }
    }
}

#[test]
fn a_full_queue_is_reported_and_has_room_after_the_doorbell() {
    let (mut a, mut b) = pair();
    let mut posted = 0;
    let refusal = loop {
        match post(&mut a, posted, Gather::Short(&[5; 40])) {
            Ok(()) => posted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal, PostError::Full);
    assert!(posted >= 256, "the agreed depth fits, but only {posted} messages did");
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    for slot in 0..posted {
        assert_eq!(a.poll_send(), done(slot));
        receive(&mut b).unwrap();
    }
    post(&mut a, 0, Gather::Short(&[5; 40])).unwrap();
}

/// One message may be in flight to this side.
const SHALLOW: ConnectionLimits = ConnectionLimits { receive_depth: 1, ..LIMITS };

#[test]
fn messages_within_the_receive_depth_arrive_although_no_lease_returns() {
    let (a, b) = streams();
    let pool = ReceivePool::new(256).unwrap();
    let mut a = over(a, &LIMITS, &ReceivePool::new(256).unwrap());
    let mut b = over(b, &ConnectionLimits { receive_depth: 8, ..LIMITS }, &pool);
    let extent = compose(&a, 0, &pattern(2000, 2));
    for slot in 0..9 {
        post(&mut a, slot, Gather::Ring(extent)).unwrap();
    }
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let held: Vec<_> = (0..8).map(|_| receive(&mut b).unwrap()).collect();
    assert!(pool.allocated() > pool.budget(), "the budget alone is too small for them");
    until(&mut a, &mut b, |_, b| {
        assert!(poll_by_value(b).unwrap().is_none());
        (!b.interest().readable).then_some(())
    });
    assert_eq!(b.counters().starved, 1, "one message beyond the depth waits");
    drop(held);
    assert_eq!(bytes_of(&receive(&mut b).unwrap()), pattern(2000, 2));
    assert!(pool.allocated() <= pool.budget(), "the surplus is freed");
}

#[test]
fn an_empty_pool_stops_reading_until_a_lease_returns() {
    let (a, b) = streams();
    let pool = ReceivePool::new(4 << 20).unwrap();
    let mut a = over(a, &LIMITS, &ReceivePool::new(4 << 20).unwrap());
    let mut b = over(b, &SHALLOW, &pool);
    for slot in 0..3 {
        let extent = compose(&a, 0, &pattern(4 << 20, 2));
        post(&mut a, slot, Gather::Ring(extent)).unwrap();
    }
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let first = until(&mut a, &mut b, |a, b| {
        a.poll_send();
        poll_by_value(b).unwrap()
    });
    until(&mut a, &mut b, |a, b| {
        a.poll_send();
        assert!(poll_by_value(b).unwrap().is_none());
        (!b.interest().readable).then_some(())
    });
    assert_eq!(b.counters().starved, 1);
    let calls = b.counters().calls;
    assert!(poll_by_value(&mut b).unwrap().is_none());
    assert_eq!(b.counters().calls, calls, "the socket is not polled");
    assert_eq!(pool.allocated(), 4 << 20);

    let event = |timeout| poll(&mut [PollFd::new(pool.channel(), PollFlags::POLLIN)], timeout).unwrap();
    assert_eq!(event(PollTimeout::ZERO), 0);
    std::thread::spawn(move || drop(first)).join().unwrap();
    assert_eq!(event(PollTimeout::from(PATIENCE_MS)), 1);
    pool.clear();
    for _ in 0..2 {
        let message = until(&mut a, &mut b, |a, b| {
            a.poll_send();
            poll_by_value(b).unwrap()
        });
        assert_eq!(bytes_of(&message), pattern(4 << 20, 2));
    }
    assert_eq!(pool.allocated(), 4 << 20, "one buffer is reused");
}

#[test]
fn a_starved_connection_notices_a_reset() {
    let (a, b) = streams();
    let mut b = over(b, &SHALLOW, &ReceivePool::new(256).unwrap());
    let mut a = over(a, &LIMITS, &ReceivePool::new(256).unwrap());
    let extent = compose(&a, 0, &pattern(200, 0));
    for slot in 0..2 {
        post(&mut a, slot, Gather::Ring(extent)).unwrap();
    }
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let held = receive(&mut b).unwrap();
    until(&mut a, &mut b, |_, b| {
        assert!(poll_by_value(b).unwrap().is_none());
        (!b.interest().readable).then_some(())
    });
    // Unread bytes turn the end of a connection into a reset.
    post(&mut b, 0, Gather::Short(b"unread")).unwrap();
    b.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    sleep(&a);
    drop(a);
    let error = loop {
        match poll_by_value(&mut b) {
            Ok(None) => {}
            Ok(Some(_)) => panic!("no buffer was available for the message"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, FabricError::Lost);
    drop(held);
}

#[test]
fn close_flushes_unsent_messages_and_the_peer_is_notified() {
    let (mut a, mut b) = pair();
    post(&mut a, 1, Gather::Short(b"out")).unwrap();
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    post(&mut a, 2, Gather::Short(b"posted only")).unwrap();
    let target = region(64);
    let remote = pronto_core::fabric::RemoteRange { key: 1, offset: 0, len: 8 };
    let operation = Operation::Read { local: &target, local_offset: 0, remote };
    a.post(SendWork { signal: Signal::Signalled(wr(3)), operation }).unwrap();
    a.close();
    assert_eq!(a.poll_send(), done(1));
    assert_eq!(a.poll_send(), Some(Completion { wr: wr(2), status: Status::Flushed }));
    assert_eq!(a.poll_send(), Some(Completion { wr: wr(3), status: Status::Flushed }));
    assert_eq!(a.poll_send(), None);
    assert_eq!(post(&mut a, 4, Gather::Short(b"")), Err(PostError::Failed(FabricError::Lost)));
    assert_eq!(poll_by_value(&mut a).unwrap_err(), FabricError::Lost);
    assert_eq!(bytes_of(&receive(&mut b).unwrap()), b"out");
    assert_eq!(receive(&mut b).unwrap_err(), FabricError::Lost);
}

#[test]
fn messages_that_arrived_before_the_peer_closed_are_delivered() {
    let (mut a, mut b) = pair();
    post(&mut a, 1, Gather::Short(b"last words")).unwrap();
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    drop(a);
    // Sending fails first: the peer's kernel responds with a reset.
    let mut slot = 0;
    while b.ring_doorbell(DoorbellEvent::Solicited).is_ok() {
        let _ = post(&mut b, slot, Gather::Short(b"anybody?"));
        slot += 1;
    }
    assert!(matches!(post(&mut b, slot, Gather::Short(b"")), Err(PostError::Failed(FabricError::Lost))));
    let completions: Vec<_> = core::iter::from_fn(|| b.poll_send()).collect();
    assert_eq!(completions.len(), slot.into(), "every message completes once");
    assert_eq!(completions.last().unwrap().status, Status::Flushed);
    assert_eq!(bytes_of(&receive(&mut b).unwrap()), b"last words");
    assert_eq!(receive(&mut b).unwrap_err(), FabricError::Lost);
}
