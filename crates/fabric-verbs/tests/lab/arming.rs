//! What it takes of the device to sleep, again and again.
#![expect(unsafe_code, reason = "the seam names a channel by its number")]

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

/// Calls of each kind.
const CALLS: u64 = 50;

/// Whether there is an event within so many milliseconds.
fn has_event(qp: &VerbsQueuePair, millis: u16) -> bool {
    // SAFETY: the queue pair keeps the descriptor open, and is borrowed.
    let channel = unsafe { BorrowedFd::borrow_raw(qp.channel().unwrap().fd) };
    poll(&mut [PollFd::new(channel, PollFlags::POLLIN)], PollTimeout::from(millis)).unwrap() == 1
}

/// An answer, as a session sends it: unsolicited.
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

/// A caller sleeps for its answer and then leaves the channel to its node's own thread, which is there for requests alone: one request
/// for an event a call, and not one each. When the caller polls from then on, that thread is disturbed once.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn who_sleeps_for_each_answer_asks_once_for_each() {
    let [mut near, mut far] = Devices::open().link(LIMITS);
    let (caller, callee) = (&mut near.control, &mut far.control);
    caller.arm(Armed::Solicited).unwrap();
    let before = caller.counters().events_asked;
    for call in 0..CALLS {
        caller.arm(Armed::All).unwrap();
        assert!(poll_by_value(caller).unwrap().is_none());
        answer(callee);
        assert!(has_event(caller, 10_000), "asleep for ever in call {call}");
        receive(caller);
        caller.arm(Armed::Nothing).expect("disarming never fails");
        caller.arm(Armed::Solicited).unwrap();
    }
    let asked = caller.counters().events_asked - before;
    // The first call finds only solicited ones asked for, and of its sends nothing.
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
    assert!(disturbed <= 1, "{disturbed} events for {CALLS} answers that were polled for");
}
