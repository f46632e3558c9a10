//! Event requests that repeated sleeping makes to the device.
#![expect(unsafe_code, reason = "the fabric names a channel by its number")]

use std::os::fd::BorrowedFd;
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_core::fabric::{
    Armed, DoorbellEvent, Gather, Operation, QueuePair, SendWork, Signal, poll_by_value,
};
use pronto_fabric_verbs::VerbsQueuePair;
use pronto_wire::RawHeader;

use crate::grants::LIMITS;
use crate::pair::Devices;

/// Number of calls of each kind.
const CALLS: u64 = 50;

/// Returns whether there is an event within `millis` milliseconds.
fn has_event(qp: &VerbsQueuePair, millis: u16) -> bool {
    // SAFETY: the queue pair keeps the descriptor open, and is borrowed.
    let channel = unsafe { BorrowedFd::borrow_raw(qp.channel().unwrap().fd) };
    poll(&mut [PollFd::new(channel, PollFlags::POLLIN)], PollTimeout::from(millis)).unwrap() == 1
}

/// Sends a reply as a session does: unsolicited.
fn answer(from: &mut VerbsQueuePair) {
    let operation = Operation::Send { header: &RawHeader::default(), payload: Gather::Short(b"") };
    from.post(SendWork { signal: Signal::Unsignalled, operation }).unwrap();
    from.ring_doorbell(DoorbellEvent::Unsolicited).unwrap();
    from.poll_send();
}

fn receive(at: &mut VerbsQueuePair) {
    for _ in 0..2_000_000 {
        if poll_by_value(at).unwrap().is_some() {
            return;
        }
        thread::yield_now();
    }
    panic!("no message");
}

/// A caller sleeps for its reply and then leaves the channel to the serving thread, which needs only requests. Each
/// call requests one event, not one for each thread. When the caller polls from then on, the serving thread gets one
/// unneeded event.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn sleeping_for_each_reply_requests_one_event_per_call() {
    let [mut near, mut far] = Devices::open().link(LIMITS);
    let (caller, callee) = (&mut near.control, &mut far.control);
    caller.arm(Armed::Solicited).unwrap();
    let before = caller.counters().events_asked;
    for call in 0..CALLS {
        caller.arm(Armed::All).unwrap();
        assert!(poll_by_value(caller).unwrap().is_none());
        answer(callee);
        assert!(has_event(caller, 10_000), "no event in call {call}");
        receive(caller);
        caller.arm(Armed::Nothing).expect("disarming never fails");
        caller.arm(Armed::Solicited).unwrap();
    }
    let asked = caller.counters().events_asked - before;
    // In the first call, only solicited events are requested, and none for sends.
    assert!((CALLS..CALLS + 4).contains(&asked), "{asked} requests for {CALLS} calls");
    let mut disturbed = 0;
    for _ in 0..CALLS {
        answer(callee);
        receive(caller);
        if has_event(caller, 0) {
            disturbed += 1;
            caller.arm(Armed::Nothing).expect("disarming never fails");
            caller.arm(Armed::Solicited).unwrap();
        }
    }
    assert!(disturbed <= 1, "{disturbed} events for {CALLS} replies that were polled for");
}
