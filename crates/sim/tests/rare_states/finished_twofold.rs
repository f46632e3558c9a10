//! Requests that inline handlers and other threads finish: neither half alone is worth a message with credits, and no reply carries them.

use pronto_core::fabric::Arrived;
use pronto_core::session::{Event, Inbound, OutgoingPayload, Sink};
use pronto_sim::{SimLease, SimOptions};
use pronto_wire::Class;

use super::pair::{Callee, Pair, few, key, number};

/// A callee whose inline handlers finish every second notification. Other threads finish the rest.
struct Halves<'a>(&'a mut Callee);

impl Sink<SimLease> for Halves<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        if number(&inbound).is_multiple_of(2) { inbound.token.finish() } else { self.0.request(inbound) }
    }

    fn event(&mut self, _event: Event) {}
}

/// Shows: protocol.credit-message
#[test]
fn credits_of_both_kinds_of_handlers_are_returned_together() {
    let mut pair = Pair::new(SimOptions::like_tcp(), few());
    let window = few().requests[0];
    for number in 0..u64::from(window) {
        let payload =
            OutgoingPayload::inline(&number.to_le_bytes()).expect("eight bytes fit an inline message");
        pair.near.notify(&key(), Class::Control, payload, &pair.executor).expect("the window has room");
    }
    assert_eq!(pair.near.credits(Class::Control), 0);
    pair.world.run_until(pair.world.now() + pronto_core::Nanos::from_millis(1));
    let turned = pair.far.turn(64, || false, &mut Halves(&mut pair.callee), &pair.executor);
    assert!(turned.is_some_and(|progress| progress.moved == usize::from(window)), "{turned:?}");
    assert_eq!(pair.callee.asked.len(), usize::from(window / 2), "the other half has been finished");
    pair.turn();
    assert_eq!(pair.near.credits(Class::Control), 0, "half a window is not worth a message");
    pair.callee.asked.clear();
    pair.turn();
    assert!(
        pair.near.credits(Class::Control) >= u32::from(window / 4),
        "no message has returned the credits"
    );
}
