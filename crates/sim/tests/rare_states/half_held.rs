//! A thread that keeps a window of calls open and waits for the oldest, while the doorbells of new requests are held.

use pronto_core::Nanos;
use pronto_core::executor::WaitRequest;
use pronto_core::fabric::InlineMessage;
use pronto_core::session::ReplySlots;
use pronto_sim::SimOptions;
use pronto_wire::CallId;

use super::pair::{Nothing, Pair, few};

/// Polls once for a reply that has not arrived.
fn poll(pair: &Pair, call: CallId) {
    let (mut inline, mut end) = (InlineMessage::default(), None);
    let slots = ReplySlots { inline: &mut inline, short: |_: &[u8]| {}, end: &mut end };
    let found = pair.near.wait_fast(call, WaitRequest::default(), slots, &mut Nothing, &pair.executor);
    assert!(found.is_none(), "{found:?}");
}

#[test]
fn held_requests_leave_when_they_are_half_of_all_open_calls() {
    let mut pair = Pair::new(SimOptions::like_tcp(), few());
    let calls = [1, 2, 3].map(|number| pair.call(number, Nanos::NEVER));
    pair.receive();
    pair.near.hold_doorbells();
    for (number, arrived) in [(4, 3), (5, 3), (6, 6)] {
        pair.call(number, Nanos::NEVER);
        poll(&pair, calls[0]);
        pair.receive();
        assert_eq!(pair.callee.asked.len(), arrived, "after request {number}");
    }
    let awaited = pair.call(7, Nanos::NEVER);
    poll(&pair, awaited);
    pair.receive();
    assert_eq!(pair.callee.asked.len(), 7, "the thread waits for the held request itself");
    pair.near.release_doorbells(&pair.executor);
}
