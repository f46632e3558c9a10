//! Requests submitted while the engine was about to lose its link. They were never posted: they leave after the older
//! requests that wait for their responses, in their own order, and end as not executed if there is no other link.

use pronto_core::Nanos;
use pronto_core::fabric::Arrived;
use pronto_core::session::{Event, Executed, Inbound, OutgoingPayload, Sink};
use pronto_sim::{Fault, SimLease, SimOptions};
use pronto_wire::{CallId, Class};

use super::pair::{Outcome, Pair, enough, few, key, spec};

/// A handler of the near side that makes two calls back, as handlers in a tree of nodes do.
struct CallsBack<'a> {
    pair: &'a Pair,
    timeout: Nanos,
    made: Vec<CallId>,
}

impl Sink<SimLease> for CallsBack<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        self.made.extend([2, 3].map(|number| self.pair.call(number, self.timeout)));
        inbound.token.finish();
    }

    fn event(&mut self, _event: Event) {}
}

/// Fate of the older request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Arrives,
    IsLost,
}

/// Request 1 was posted on the first link. Requests 2 and 3 were submitted while the engine was held, by a turn that
/// found the link lost. The slot of 3 is before that of 2, and that is before that of 1.
fn away(first_one: First, timeout: Nanos) -> (Pair, [CallId; 3]) {
    let mut pair = Pair::new(SimOptions::like_tcp(), few());
    // Slots are reused in the reverse order of their release.
    let others = [11, 12, 13].map(|number| pair.call(number, Nanos::NEVER));
    pair.turn();
    for asked in core::mem::take(&mut pair.callee.asked) {
        pair.respond(&asked);
    }
    pair.turn();
    assert_eq!(others.map(|call| pair.outcome(call)), [Outcome::Reply; 3]);
    // A request of the far side arrives together with the loss of the link.
    let payload = OutgoingPayload::inline(&[0; 8]).expect("eight bytes fit an inline message");
    let asks = pair.far.call(&spec(Class::Control, Nanos::NEVER), payload, &pair.executor);
    assert!(asks.is_ok(), "there is room for a call");
    pair.world.run_until(pair.world.now() + Nanos::from_millis(100));
    let first = pair.call(1, timeout);
    if first_one == First::Arrives {
        pair.world.run_until(pair.world.now() + Nanos::from_millis(100));
    }
    let [near, far] = pair.nodes;
    pair.world.inflict(Fault::CutBetween(near, far));
    pair.world.run_until(pair.world.now() + Nanos::from_millis(10));
    let mut handler = CallsBack { pair: &pair, timeout, made: Vec::new() };
    let turned = pair.near.turn(1, || false, &mut handler, &pair.executor);
    assert!(turned.is_some(), "no other thread holds the engine");
    let [second, third] = handler.made[..] else { panic!("the handler ran once: {:?}", handler.made) };
    assert!(
        [first, second, third].is_sorted_by(|a, b| a.slot > b.slot),
        "the slots are in the order of the calls"
    );
    let turned = pair.far.turn(1, || false, &mut pair.callee, &pair.executor);
    assert!(turned.is_some(), "no other thread holds the engine");
    let linked = [&pair.near, &pair.far].map(|session| session.is_linked(&pair.executor));
    assert_eq!(linked, [false; 2], "both turns lost the link");
    assert_eq!(pair.callee.numbers().len(), usize::from(first_one == First::Arrives));
    pair.callee.asked.clear();
    (pair, [first, second, third])
}

/// Shows: protocol.sent-again
#[test]
fn requests_leave_in_order_after_older_ones() {
    let (mut pair, _) = away(First::Arrives, Nanos::NEVER);
    pair.link(enough());
    pair.turn();
    assert_eq!(pair.callee.numbers(), [2, 3], "the first one is a duplicate");
}

/// As in the previous test, but the callee has not seen the first request: the older request comes first.
///
/// Shows: protocol.order, protocol.sent-again
#[test]
fn lost_older_requests_leave_first() {
    let (mut pair, calls) = away(First::IsLost, Nanos::NEVER);
    pair.link(enough());
    pair.turn();
    assert_eq!(pair.callee.numbers(), [1, 2, 3]);
    for asked in pair.callee.asked.clone() {
        pair.respond(&asked);
    }
    pair.turn();
    assert_eq!(calls.map(|call| pair.outcome(call)), [Outcome::Reply; 3]);
}

/// Shows: calls.ends-maybe, protocol.end-executed
#[test]
fn without_another_link_they_end_as_not_executed() {
    let (mut pair, calls) = away(First::Arrives, Nanos::NEVER);
    pair.end_session();
    let [first, second, third] = [Executed::Maybe, Executed::No, Executed::No].map(Outcome::PeerDown);
    assert_eq!(calls.map(|call| pair.outcome(call)), [first, second, third]);
}

#[test]
fn their_deadline_ends_them_as_not_executed() {
    let (mut pair, calls) = away(First::Arrives, Nanos::from_millis(500));
    pair.pass(Nanos::from_secs(1));
    let [first, second, third] = [Executed::Maybe, Executed::No, Executed::No].map(Outcome::Deadline);
    assert_eq!(calls.map(|call| pair.outcome(call)), [first, second, third]);
    pair.link(enough());
    pair.turn();
    assert_eq!(pair.callee.numbers(), [], "they were sent after their ends");
}

/// A handler of the near side that sends a notification back.
struct NotifiesBack<'a> {
    pair: &'a Pair,
    ran: u32,
}

impl Sink<SimLease> for NotifiesBack<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        let Self { pair, ran } = self;
        *ran += 1;
        let payload = OutgoingPayload::inline(&[0; 8]).expect("eight bytes fit an inline message");
        pair.near.notify(&key(), Class::Control, payload, &pair.executor).expect("the link seems to exist");
        inbound.token.finish();
    }

    fn event(&mut self, _event: Event) {}
}

/// A notification is not sent again, even if it never left.
#[test]
fn a_notification_is_lost_with_the_link() {
    let mut pair = Pair::new(SimOptions::like_tcp(), few());
    let payload = OutgoingPayload::inline(&[0; 8]).expect("eight bytes fit an inline message");
    pair.far.notify(&key(), Class::Control, payload, &pair.executor).expect("there is a credit");
    pair.world.run_until(pair.world.now() + Nanos::from_millis(100));
    let [near, far] = pair.nodes;
    pair.world.inflict(Fault::CutBetween(near, far));
    pair.world.run_until(pair.world.now() + Nanos::from_millis(10));
    let mut handler = NotifiesBack { pair: &pair, ran: 0 };
    let turned = pair.near.turn(1, || false, &mut handler, &pair.executor);
    assert!(turned.is_some(), "no other thread holds the engine");
    assert_eq!(handler.ran, 1);
    let turned = pair.far.turn(1, || false, &mut pair.callee, &pair.executor);
    assert!(turned.is_some(), "no other thread holds the engine");
    assert!(!pair.near.is_linked(&pair.executor), "the turn lost the link");
    pair.link(enough());
    pair.turn();
    assert_eq!(pair.near.stats().notifications_lost.count(), 1);
    assert_eq!(pair.callee.numbers(), [], "it was sent on another link");
}
