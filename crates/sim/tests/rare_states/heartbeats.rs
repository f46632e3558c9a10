//! Heartbeats: after one, the serving thread does not go on polling. Where links are made on demand, the last credits leave with it.

use pronto_core::session::OutgoingPayload;
use pronto_core::{Clock as _, Nanos};
use pronto_sim::SimOptions;
use pronto_wire::Class;

use super::pair::{Nothing, Pair, few, key};

#[test]
fn a_heartbeat_is_no_reason_to_go_on_polling() {
    let mut pair = Pair::new(SimOptions::like_tcp(), few());
    pair.turn();
    let flight = Nanos::from_millis(10);
    let turn = |pair: &mut Pair| {
        pair.world.run_until(pair.world.now() + flight);
        let progress = pair.far.turn(1, || false, &mut pair.callee, &pair.executor);
        progress.expect("no other thread holds the engine")
    };
    // Longer than the interval of heartbeats.
    let silence = Nanos::from_secs(2);
    pair.world.run_until(pair.world.now() + silence);
    let before = pair.near.stats().messages_sent.count();
    pair.near.tick(pair.executor.now(), silence, &mut Nothing, &pair.executor);
    assert_eq!(pair.near.stats().messages_sent.count() - before, 1, "a heartbeat");
    let progress = turn(&mut pair);
    assert_eq!((progress.moved, progress.responses), (1, 1), "{progress:?}");
    // A request is an event.
    pair.call(1, Nanos::NEVER);
    let progress = turn(&mut pair);
    assert_eq!((progress.moved, progress.responses), (1, 0), "{progress:?}");
}

/// The peer does not ask for a pause without all its credits.
///
/// Shows: protocol.pause
#[test]
fn the_last_credit_is_returned_with_a_heartbeat_where_links_are_made_on_demand() {
    let mut pair = Pair::new(SimOptions::like_tcp(), few());
    pair.far.set_on_demand();
    let window = u32::from(few().requests[1]);
    let payload = OutgoingPayload::inline(&[0; 8]).expect("eight bytes fit an inline message");
    pair.near.notify(&key(), Class::Bulk, payload, &pair.executor).expect("the window has room");
    pair.turn();
    pair.callee.asked.clear();
    pair.turn();
    assert_eq!(pair.near.credits(Class::Bulk), window - 1, "one credit is not worth a message");
    pair.pass(few().heartbeat);
    assert_eq!(pair.near.credits(Class::Bulk), window);
    let before = pair.far.stats().messages_sent.count();
    pair.pass(few().heartbeat);
    assert!(
        pair.far.stats().messages_sent.count() - before <= 2,
        "a heartbeat carries no credit message now"
    );
}
