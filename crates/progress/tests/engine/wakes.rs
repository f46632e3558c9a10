//! No event is lost between polling and sleeping; what the net finds is counted.

use pronto_core::Nanos;
use pronto_progress::{Engine, Sleep, Spec};
use pronto_sync::atomic::Ordering;

use crate::rig::{Running, Word, eventually};

const LONG: Nanos = Nanos::from_secs(3_600);

#[test]
fn every_event_wakes_a_sleeping_engine_whichever_source_it_comes_from() {
    for spin in [Nanos::ZERO, Nanos::from_micros(20)] {
        // Nothing but wake-ups ends a sleep.
        let engine = Running::start(Engine::Idle, spin, LONG);
        let words = [Word::default(), Word::default(), Word::default()];
        let registered: Vec<_> = words
            .iter()
            .map(|word| engine.manager.register(Spec::memory("word", Sleep::Notified), word.clone()).unwrap())
            .collect();
        std::thread::scope(|scope| {
            for (word, registration) in words.iter().zip(&registered) {
                let notifier = registration.notifier();
                scope.spawn(move || {
                    for round in 1..=2_000 {
                        word.sent.store(round, Ordering::Release);
                        notifier.notify();
                        eventually("the event is seen", || word.seen.load(Ordering::Acquire) == round);
                    }
                });
            }
        });
        let counters = engine.manager.counters();
        assert_eq!((counters.lost_wake_ups, counters.panics), (0, 0));
        assert!(counters.sleeps > 0, "it slept in between");
    }
}

#[test]
fn an_event_that_wakes_nobody_is_found_by_the_net_and_counted() {
    let engine = Running::start(Engine::Idle, Nanos::ZERO, Nanos::from_millis(20));
    let word = Word::default();
    let _registered = engine.manager.register(Spec::memory("silent", Sleep::Notified), word.clone()).unwrap();
    // Published while the engine is awake it is no rescue: try until it sleeps.
    eventually("a rescue", || {
        let slept = engine.manager.counters().sleeps;
        eventually("it sleeps again", || engine.manager.counters().sleeps > slept);
        word.sent.fetch_add(1, Ordering::Release);
        eventually("the net", || word.seen.load(Ordering::Acquire) == word.sent.load(Ordering::Relaxed));
        engine.manager.counters().lost_wake_ups > 0
    });
}
