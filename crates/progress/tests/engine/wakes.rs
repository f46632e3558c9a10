//! No event is lost between polling and sleeping, and lost wake-ups are counted.

use pronto_core::Nanos;
use pronto_progress::{Engine, Sleep, Spec};
use pronto_sync::atomic::Ordering;

use crate::rig::{Running, Word, eventually};

const LONG: Nanos = Nanos::from_secs(3_600);

/// Shows: operations.sleeps, sources.notified
#[test]
fn an_event_of_any_source_wakes_a_sleeping_engine() {
    for spin in [Nanos::ZERO, Nanos::from_micros(20)] {
        // The next tick is an hour away, so only wake-ups end a sleep.
        let engine = Running::start(Engine::Idle, spin, LONG);
        let words = [Word::default(), Word::default(), Word::default()];
        let registered: Vec<_> = words
            .iter()
            .map(|word| engine.manager.register(Spec::memory("word", Sleep::Notified), word.clone()).unwrap())
            .collect();
        std::thread::scope(|scope| {
            for (word, registration) in words.iter().zip(&registered) {
                let (notifier, manager) = (registration.notifier(), &engine.manager);
                scope.spawn(move || {
                    for round in 1..=2_000 {
                        let slept = manager.counters().sleeps;
                        word.sent.store(round, Ordering::Release);
                        notifier.notify();
                        eventually("the event is seen", || word.seen.load(Ordering::Acquire) == round);
                        if round % 100 == 0 {
                            // The other threads may keep the engine awake, until they wait here, too, or have ended.
                            eventually("the engine sleeps in between", || manager.counters().sleeps > slept);
                        }
                    }
                });
            }
        });
        let counters = engine.manager.counters();
        assert_eq!((counters.lost_wake_ups, counters.panics), (0, 0));
    }
}

/// Shows: operations.engine-lost, sources.lost-wake-ups
#[test]
fn an_event_without_a_wake_up_is_found_after_the_time_limit_and_counted() {
    let engine = Running::start(Engine::Idle, Nanos::ZERO, Nanos::from_millis(20));
    let word = Word::default();
    let _registered = engine.manager.register(Spec::memory("silent", Sleep::Notified), word.clone()).unwrap();
    // An event published while the engine is awake is found by a normal poll: repeat until the engine sleeps.
    eventually("a lost wake-up is counted", || {
        let slept = engine.manager.counters().sleeps;
        eventually("the engine sleeps again", || engine.manager.counters().sleeps > slept);
        word.sent.fetch_add(1, Ordering::Release);
        eventually("the event is found", || {
            word.seen.load(Ordering::Acquire) == word.sent.load(Ordering::Relaxed)
        });
        engine.manager.counters().lost_wake_ups > 0
    });
}
