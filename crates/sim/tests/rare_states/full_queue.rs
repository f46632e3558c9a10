//! A cancellation finds the submission queue full, because another thread holds the engine. The next tick notices that
//! the waiter has left, and notifies the callee.

use pronto_core::Nanos;
use pronto_core::fabric::Arrived;
use pronto_core::session::{Event, Inbound, Limits, OutgoingPayload, SendError, Sink};
use pronto_sim::{SimLease, SimOptions};
use pronto_wire::{CallId, Class};

use super::pair::{Outcome, Pair, key, spec};

/// Room for more notifications than the submission queue takes.
fn many() -> Limits {
    Limits {
        calls: 8,
        requests: [512, 8],
        first_requests: [512, 8],
        send_memory: [1 << 20; 2],
        ..Limits::default()
    }
}

/// A handler of the near side that fills the submission queue and then abandons calls.
struct GivesUp<'a> {
    pair: &'a Pair,
    calls: Vec<CallId>,
    notified: usize,
}

impl Sink<SimLease> for GivesUp<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        let Pair { near, executor, .. } = self.pair;
        let refused = loop {
            let payload = OutgoingPayload::inline(&[0; 8]).expect("eight bytes fit an inline message");
            match near.notify(&key(), Class::Control, payload, executor) {
                Ok(()) => self.notified += 1,
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, SendError::Busy), "{refused:?}");
        for call in self.calls.drain(..) {
            near.abandon(call, Class::Control, executor);
        }
        inbound.token.finish();
    }

    fn event(&mut self, _event: Event) {}
}

#[test]
fn a_cancellation_without_room_is_sent_later() {
    let mut pair = Pair::new(SimOptions::like_shm(), many());
    let [given_up, kept] = [1, 2].map(|number| pair.call(number, Nanos::NEVER));
    pair.turn();
    let asked = core::mem::take(&mut pair.callee.asked);
    let payload = OutgoingPayload::inline(&[0; 8]).expect("eight bytes fit an inline message");
    let asks = pair.far.call(&spec(Class::Control, Nanos::NEVER), payload, &pair.executor);
    assert!(asks.is_ok(), "there is room for a call");
    pair.world.run_until(pair.world.now() + Nanos::from_millis(1));
    let mut handler = GivesUp { pair: &pair, calls: vec![given_up], notified: 0 };
    let turned = pair.near.turn(1, || false, &mut handler, &pair.executor);
    assert!(turned.is_some() && handler.calls.is_empty(), "the handler ran");
    let notified = handler.notified;
    pair.turn();
    assert_eq!(pair.callee.asked.len(), notified, "the queue was emptied");
    assert!(!pair.far.is_cancelled(given_up), "its cancellation found no room");
    pair.pass(Nanos::from_millis(8));
    assert!(pair.far.is_cancelled(given_up) && !pair.far.is_cancelled(kept));
    assert_eq!(pair.callee.cancelled, [given_up], "the sink is notified once");
    asked.iter().for_each(|asked| pair.respond(asked));
    pair.turn();
    assert_eq!(pair.outcome(kept), Outcome::Reply);
    assert_eq!(pair.near.open_calls(), 0, "each slot is free again");
}
