//! Wake-ups by unsolicited messages.

use pronto_core::fabric::{
    Armed, DoorbellEvent, Gather, Operation, QueuePair, SendWork, Signal, poll_by_value,
};
use pronto_wire::RawHeader;

use super::LIMITS;
use crate::queue_pair::ShmQueuePair;
use crate::setup::Link;

fn post(from: &mut ShmQueuePair) {
    let operation = Operation::Send { header: &RawHeader::default(), payload: Gather::Short(&[]) };
    from.post(SendWork { signal: Signal::Unsignalled, operation }).unwrap();
}

/// Returns the number of wake-ups and of messages received.
fn arrived(at: &mut ShmQueuePair) -> (u64, usize) {
    at.arm(Armed::Nothing).expect("disarming never fails");
    let messages = core::iter::from_fn(|| poll_by_value(at).unwrap()).count();
    (at.counts().wakes, messages)
}

#[test]
fn an_unsolicited_message_does_not_wake_a_sleeper_armed_for_solicited_ones() {
    let (mut near, mut far) = Link::pair([LIMITS; 2]).unwrap();
    let (a, b) = (&mut near.bulk, &mut far.bulk);
    b.arm(Armed::Solicited).unwrap();
    post(a);
    a.ring_doorbell(DoorbellEvent::Unsolicited).unwrap();
    assert_eq!(arrived(b), (0, 1));
    b.arm(Armed::Solicited).unwrap();
    post(a);
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    assert_eq!(arrived(b), (1, 1));
    b.arm(Armed::All).unwrap();
    post(a);
    a.ring_doorbell(DoorbellEvent::Unsolicited).unwrap();
    assert_eq!(arrived(b), (2, 1));
}
