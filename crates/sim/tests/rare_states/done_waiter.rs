//! Turns whose waiter is done before they begin, such as the last ones of a serving thread that stops: each makes progress.

use pronto_core::Nanos;
use pronto_sim::SimOptions;
use pronto_wire::Class;

use super::pair::{Pair, few};

#[test]
fn each_turn_takes_one_message_of_either_class() {
    for class in Class::ALL {
        let mut pair = Pair::new(SimOptions::like_tcp(), few());
        for number in [1, 2] {
            pair.call_in(class, number, Nanos::NEVER);
        }
        pair.world.run_until(pair.world.now() + Nanos::from_millis(1));
        for numbers in [&[1][..], &[1, 2]] {
            let turned = pair.far.turn(1, || true, &mut pair.callee, &pair.executor);
            assert!(turned.is_some_and(|progress| progress.moved == 1), "{class:?}: {turned:?}");
            assert_eq!(pair.callee.numbers(), numbers, "{class:?}");
        }
    }
}
