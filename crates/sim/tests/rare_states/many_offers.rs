//! Offers return their credits when they arrive and get their responses much later, so that more responses may be in flight than requests
//! were granted.

use std::sync::Arc;

use pronto_core::Nanos;
use pronto_core::fabric::{Arrived, HeapMemory, Region, RemoteRange};
use pronto_core::session::{
    End, Event, Inbound, LeftSend, Limits, MAX_PARKED_LEN, MAX_SENDS, Offered, SendError, Sink,
};
use pronto_sim::{SimLease, SimOptions};
use pronto_wire::{Class, FailureCode};

use super::pair::{Pair, few, number};

const TAG: u64 = 9;

/// The side that gets the offers, and eager messages.
struct Receiver<'a>(&'a Pair);

impl Sink<SimLease> for Receiver<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        if inbound.payload.len() > 8 {
            return self.0.far.take_offer(inbound, TAG, Offered::Eager { skip: 8 }, &self.0.executor);
        }
        let remote = RemoteRange { key: number(&inbound), offset: 0, len: 1 << 20 };
        self.0.far.take_offer(inbound, TAG, Offered::ByReference(remote.into()), &self.0.executor);
    }

    fn event(&mut self, _event: Event) {}
}

/// Runs both sides until all messages have been processed.
fn turn(pair: &Pair) {
    for _ in 0..20 {
        pair.world.run_until(pair.world.now() + Nanos::from_millis(1));
        let near = pair.near.turn(64, || false, &mut super::pair::Nothing, &pair.executor);
        let far = pair.far.turn(64, || false, &mut Receiver(pair), &pair.executor);
        assert!(near.is_some() && far.is_some(), "no other thread holds the engine");
    }
}

fn offered() -> (Pair, Vec<pronto_wire::CallId>) {
    let limits = Limits { calls: 64, requests: [2, 2], first_requests: [2, 2], ..few() };
    let pair = Pair::new(SimOptions::like_tcp(), limits);
    let offer = |number| {
        pair.near.enter_send().expect("there may be more sends");
        let call = pair.call(number, Nanos::NEVER);
        turn(&pair);
        call
    };
    let calls = (0..u64::from(MAX_SENDS)).map(offer).collect::<Vec<_>>();
    assert_eq!(pair.far.transfers(&pair.executor), [calls.len(), 0, 0], "every offer waits for a receive");
    (pair, calls)
}

#[test]
fn the_responses_to_all_offers_may_be_in_flight_together() {
    let (pair, calls) = offered();
    let region = Region::new(Arc::new(HeapMemory::new(1)));
    for _ in &calls {
        pair.far.post_receive(TAG, &region, (0, 1), &pair.executor).expect("there may be as many receives");
    }
    turn_far(&pair);
    turn(&pair);
    assert_eq!(pair.world.overruns(), 0, "a response has no receive at the sender");
    assert!(calls.iter().all(|call| pair.near.has_ended(*call)), "the receives were too short");
}

/// Lets the receiving side respond while the sending side does not look.
fn turn_far(pair: &Pair) {
    for _ in 0..20 {
        let turned = pair.far.turn(64, || false, &mut Receiver(pair), &pair.executor);
        assert!(turned.is_some(), "no other thread holds the engine");
        pair.world.run_until(pair.world.now() + Nanos::from_millis(1));
    }
}

#[test]
fn a_send_that_was_given_up_counts_until_it_has_its_response() {
    let (pair, calls) = offered();
    let give_up = |call| {
        pair.near.abandon(call, Class::Control, &pair.executor);
        pair.near.leave_send(LeftSend { is_counted: true, call: Some(call), lent: None }, &pair.executor);
    };
    give_up(calls[0]);
    let refused = pair.near.enter_send();
    assert!(matches!(refused, Err(SendError::TooManyTransfers { .. })), "{refused:?}");
    turn(&pair);
    pair.near.enter_send().expect("the receiver has responded to the cancellation");
    let refused = pair.near.enter_send();
    assert!(matches!(refused, Err(SendError::TooManyTransfers { .. })), "only one send has ended");
}

/// The calls end with the link, which no message reports.
#[test]
fn sends_that_were_given_up_end_with_their_link() {
    let (mut pair, calls) = offered();
    for call in calls {
        pair.near.abandon(call, Class::Control, &pair.executor);
        pair.near.leave_send(LeftSend { is_counted: true, call: Some(call), lent: None }, &pair.executor);
    }
    assert!(pair.near.enter_send().is_err(), "all of them wait for their responses");
    pair.cut();
    // The event of the lost link has woken the serving thread.
    pair.turn();
    pair.near.enter_send().expect("no response can arrive any more");
}

/// A correct peer has no more sends without a response. Each would hold a receive buffer or a place in the table.
///
/// Shows: operations.unmatched
#[test]
fn a_peer_cannot_have_more_unmatched_messages_than_sends() {
    let limits = Limits { calls: 64, requests: [64, 64], ..few() };
    let pair = Pair::new(SimOptions::like_tcp(), limits);
    let most = MAX_SENDS as usize;
    let calls =
        (0..2 * u64::from(MAX_SENDS)).map(|number| pair.call(number, Nanos::NEVER)).collect::<Vec<_>>();
    turn(&pair);
    assert_eq!(pair.far.transfers(&pair.executor), [most, 0, 0]);
    let (waiting, refused) = calls.split_at(most);
    assert!(waiting.iter().all(|call| !pair.near.has_ended(*call)));
    for call in refused {
        assert!(pair.near.has_ended(*call));
        let end = pair.near.take(*call, &pair.executor);
        assert!(matches!(end, End::Failure { code: FailureCode::Cancelled, .. }), "{end:?}");
    }
}

/// Only short messages are copied to memory that no budget counts.
///
/// Shows: operations.unmatched
#[test]
fn a_long_eager_message_waits_in_its_receive_buffer() {
    let limits = Limits { max_payload: [128 << 10; 2], ..few() };
    let pair = Pair::new(SimOptions::like_tcp(), limits);
    let [short, long] = [0, 1].map(|more| pair.long_call(0, 8 + MAX_PARKED_LEN + more));
    turn(&pair);
    assert!(
        pair.near.has_ended(short) && !pair.near.has_ended(long),
        "the sender of a parked message has a reply"
    );
    assert_eq!(pair.far.transfers(&pair.executor), [2, 0, 0]);
    let region = Region::new(Arc::new(HeapMemory::new(MAX_PARKED_LEN + 1)));
    let len = region.len() as u64;
    let receives =
        [0, 1].map(|_| pair.far.post_receive(TAG, &region, (0, len), &pair.executor).expect("there is room"));
    turn(&pair);
    assert!(pair.near.has_ended(long) && receives.iter().all(|receive| pair.far.has_ended(*receive)));
}
