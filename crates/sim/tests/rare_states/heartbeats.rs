//! A message that nobody waits for: after a heartbeat, the serving thread does not go on polling.

use pronto_core::{Clock as _, Nanos};
use pronto_sim::SimOptions;

use super::pair::{Nothing, Pair, few};

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
