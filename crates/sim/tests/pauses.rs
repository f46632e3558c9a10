//! Idle links end in agreement, and the next message gets another one. Nothing is lost while there is no other fault.

use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};
use pronto_sim::{SimOptions, Span};

/// Time after which an idle link ends.
const IDLE: Nanos = Nanos::from_millis(30);

fn on_demand(limits: Limits) -> Limits {
    Limits { pause_after: IDLE, heartbeat: Nanos::from_millis(50), ..limits }
}

/// Bursts with pauses in which links end.
fn rare() -> Traffic {
    Traffic { gap: Some(Span::millis(5, 400)), ..Traffic::mixed() }
}

/// Shows: protocol.pause, operations.on-demand
#[test]
fn idle_links_end_and_the_next_message_gets_another_one() {
    for_each_seed(400, |seed| {
        let limits = on_demand(Scenario::random_options(seed).1);
        let mut scenario = Scenario::new(seed, 3, SimOptions::like_tcp(), limits, rare());
        scenario.run(Nanos::from_secs(1));
        let before = scenario.ledger().tally();
        assert!(before.replies > 0, "the first messages have made links");
        scenario.set_traffic(rare().silent());
        scenario.run(Nanos::from_secs(2));
        for (a, b) in [(0, 1), (1, 2), (2, 0)] {
            let [near, far] = [scenario.peer_events(a, b), scenario.peer_events(b, a)];
            assert!(near.pauses > 0 && far.pauses > 0, "no idle link ended: {near:?} {far:?}");
            assert_eq!((near.losses, near.downs, near.ups), (0, 0, 1), "the session went on: {near:?}");
            assert_eq!(near.pauses, near.resumes + 1, "every link but the last was needed: {near:?}");
        }
        let lost = ["notifications_lost", "requests_resent", "links_lost"].map(|name| scenario.counted(name));
        assert_eq!(lost, [0; 3], "a pause loses no message, and none is sent again");
        assert!(scenario.ledger().tally().peer_downs == 0);
        scenario.finish()
    });
}
