//! A message that arrives while a serving thread sleeps, and whose event does not occur: the safety-net timeout finds it.

use pronto_core::Nanos;
use pronto_sim::SimOptions;

use super::pair::{Pair, few};

/// Lets a request arrive at the far side, whose serving thread sleeps, and then ends the sleep by its time limit. Returns the number of
/// lost wake-ups that the far side has counted. `woken` waits for the event and returns whether it occurs.
fn lost_wake_ups(woken: impl FnOnce(&Pair) -> bool) -> u64 {
    let mut pair = Pair::new(SimOptions::like_shm(), few());
    pair.turn();
    pair.far.arm();
    pair.call(1, Nanos::NEVER);
    pair.world.run_until(pair.world.now() + Nanos::from_millis(1));
    let mut callee = core::mem::take(&mut pair.callee);
    pair.far.check_safety_net(&mut callee, &pair.executor, || woken(&pair));
    assert_eq!(callee.numbers(), [1], "the poll finds the request");
    pair.far.stats().lost_wake_ups.count()
}

#[test]
fn a_message_without_its_event_is_a_lost_wake_up() {
    assert_eq!(lost_wake_ups(|_| false), 1);
    assert_eq!(lost_wake_ups(|_| true), 0, "the event was late");
}

#[test]
fn a_message_whose_event_another_thread_may_have_consumed_is_no_lost_wake_up() {
    let another_thread_disarms = |pair: &Pair| {
        pair.far.disarm();
        false
    };
    assert_eq!(lost_wake_ups(another_thread_disarms), 0);
}
