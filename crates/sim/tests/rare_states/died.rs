//! The end of a peer's process. The thread that sees it names the session of the process's link, because another thread may have begun a
//! session with the peer's next process meanwhile.

use pronto_core::Nanos;
use pronto_sim::SimOptions;
use pronto_wire::SessionId;

use super::pair::{Nothing, Outcome, Pair, few};

#[test]
fn the_end_of_an_earlier_process_does_not_end_the_session_of_the_next() {
    let pair = Pair::new(SimOptions::like_shm(), few());
    let present = pair.near.info(&pair.executor).expect("the session has begun").session;
    let earlier = SessionId(present.0 - 1);
    assert!(!pair.near.take_down_died(earlier, &mut Nothing, &pair.executor));
    assert!(pair.near.is_linked(&pair.executor), "the session of the living process is not affected");
    assert!(pair.near.take_down_died(present, &mut Nothing, &pair.executor));
    assert!(!pair.near.is_up(), "the session of the process that ended has ended");
    assert!(!pair.near.take_down_died(present, &mut Nothing, &pair.executor), "it ends once");
}

/// The event of the end may have woken the serving thread before it polled for the messages that the process sent last.
#[test]
fn what_a_process_sent_before_its_end_is_received_although_the_provider_would_skip_a_poll() {
    let mut pair = Pair::new(SimOptions::like_shm(), few());
    let call = pair.call(1, Nanos::NEVER);
    pair.turn();
    let asked = pair.callee.asked.remove(0);
    pair.respond(&asked);
    pair.world.run_until(pair.world.now() + Nanos::from_millis(10));
    pair.world.skip_polls(pair.nodes[0]);
    let present = pair.near.info(&pair.executor).expect("the session has begun").session;
    assert!(pair.near.take_down_died(present, &mut Nothing, &pair.executor));
    assert_eq!(pair.outcome(call), Outcome::Reply);
}
