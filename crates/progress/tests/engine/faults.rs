//! Sources that misbehave do not affect other sources.

use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pronto_core::Nanos;
use pronto_progress::{AfterPanic, Engine, Manager, Registration, Sleep, Source, Spec, Trigger};
use pronto_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::rig::{Real, Running, Set, Word, eventually};
use crate::triggers::Counted;

const LONG: Nanos = Nanos::from_secs(3_600);

struct Panics(Arc<AtomicUsize>);

impl Source for Panics {
    fn poll(&mut self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("it cannot count to {}", 3)
    }
}

/// Panics every other time, and recovers.
struct Recovers {
    polls: Arc<AtomicUsize>,
    recovered: Arc<AtomicUsize>,
}

impl Source for Recovers {
    fn poll(&mut self) -> usize {
        if self.polls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            panic!("it cannot count to {}", 4)
        }
        1
    }

    fn panicked(&mut self, why: &str) -> AfterPanic {
        assert_eq!(why, "it cannot count to 4");
        self.recovered.fetch_add(1, Ordering::Relaxed);
        AfterPanic::Keep
    }
}

#[test]
fn a_source_that_recovers_from_its_panics_is_kept_and_others_are_polled() {
    let manager = Manager::new(Engine::None, Real::new()).unwrap();
    let before = Word::default();
    let _before = manager.register(Spec::memory("before", Sleep::Notified), before.clone()).unwrap();
    let (polls, recovered) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let recovers = || Recovers { polls: Arc::clone(&polls), recovered: Arc::clone(&recovered) };
    let source = manager.register(Spec::memory("in memory", Sleep::Notified), recovers()).unwrap();
    let after = Word::default();
    let _after = manager.register(Spec::memory("after", Sleep::Notified), after.clone()).unwrap();
    for _ in 0..20 {
        let _taken = manager.poll(Trigger::Yield);
    }
    assert_eq!(manager.counters().panics, 10);
    assert_eq!((polls.load(Ordering::Relaxed), recovered.load(Ordering::Relaxed)), (20, 10));
    assert_eq!(before.polls.load(Ordering::Relaxed), 20);
    assert_eq!(
        after.polls.load(Ordering::Relaxed),
        10,
        "it is polled whenever the source before it does not panic"
    );
    drop(source);
    let (event, spec) = Counted::new();
    event.event.write(1).unwrap();
    let _socket = manager.register(spec, recovers()).unwrap();
    eventually("it is kept behind the epoll, too", || {
        let _taken = manager.poll(Trigger::Yield);
        manager.counters().panics >= 12
    });
    assert_eq!(recovered.load(Ordering::Relaxed) as u64, manager.counters().panics);
    assert!(manager.failures().is_empty());
}

/// A source that never reads its descriptor.
struct NeverReads(Counted);

impl Source for NeverReads {
    fn poll(&mut self) -> usize {
        self.0.taken.fetch_add(1, Ordering::Relaxed);
        0
    }
}

/// Shows: operations.engine-panics, sources.panics
#[test]
fn a_source_that_panics_is_removed_and_reported_and_others_are_polled() {
    let engine = Running::start(Engine::Idle, Nanos::ZERO, LONG);
    let word = |name| {
        let word = Word::default();
        let registered = engine.manager.register(Spec::memory(name, Sleep::Notified), word.clone()).unwrap();
        (word, registered)
    };
    let before = word("before");
    let polls: Arc<AtomicUsize> = Arc::default();
    let _memory = engine
        .manager
        .register(Spec::memory("in memory", Sleep::Notified), Panics(Arc::clone(&polls)))
        .unwrap();
    let after = word("after");
    let (counted, spec) = Counted::new();
    counted.event.write(1).unwrap();
    let _socket = engine.manager.register(spec, Panics(Arc::clone(&polls))).unwrap();
    eventually("both have panicked", || engine.manager.counters().panics == 2);
    for round in 1..=100 {
        for (word, registered) in [&before, &after] {
            word.sent.store(round, Ordering::Release);
            registered.notifier().notify();
            eventually("the others are polled", || word.seen.load(Ordering::Acquire) == round);
        }
    }
    assert_eq!(polls.load(Ordering::Relaxed), 2, "neither was called again");
    let failures = engine.manager.failures();
    assert!(failures.iter().all(|failure| failure.why == "it cannot count to 3"), "{failures:?}");
    assert!(failures.iter().any(|failure| failure.name == "in memory"));
    let text = engine.manager.to_string();
    assert!(
        text.starts_with("idle, sources: 4; ") && text.contains("in memory was removed: it cannot"),
        "{text}"
    );
}

/// Shows: operations.muted, sources.descriptor
#[test]
fn a_descriptor_that_stays_readable_neither_starves_others_nor_keeps_the_engine_awake() {
    for priority_first in [false, true] {
        let engine = Running::start(Engine::Idle, Nanos::ZERO, LONG);
        let (stuck, spec) = Counted::new();
        stuck.event.write(1).unwrap();
        let polls = Arc::clone(&stuck.taken);
        let spec = if priority_first { spec.first() } else { spec };
        let _stuck = engine.manager.register(spec, NeverReads(stuck)).unwrap();
        let (counted, spec) = Counted::new();
        let (event, taken) = (Arc::clone(&counted.event), Arc::clone(&counted.taken));
        let _healthy = engine.manager.register(spec, counted).unwrap();
        for round in 1..=500 {
            event.write(1).unwrap();
            eventually("the other source is polled", || taken.load(Ordering::Acquire) == round);
        }
        eventually("it is left out", || engine.manager.counters().muted > 3);
        // The time until the next trial doubles each time, so there are few trials within 16 ms.
        eventually("it is left out for longer", || engine.manager.counters().muted > 6);
        let tried = polls.load(Ordering::Relaxed);
        eventually("it is tried again", || polls.load(Ordering::Relaxed) > tried);
    }
}

#[test]
fn ten_thousand_sources_are_all_served() {
    const IN_MEMORY: usize = 10_000;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(soft.max(4_096)), hard).unwrap();
    let engine = Running::start(Engine::Idle, Nanos::ZERO, LONG);
    let words: Vec<Word> = (0..IN_MEMORY).map(|_| Word::default()).collect();
    let mut registered: Vec<Registration> = words
        .iter()
        .map(|word| engine.manager.register(Spec::memory("word", Sleep::Notified), word.clone()).unwrap())
        .collect();
    // As many descriptors as the system allows, up to a thousand.
    let sockets: Vec<_> = (0..1_000)
        .map_while(|_| nix::sys::eventfd::EventFd::new().ok())
        .map(|event| {
            drop(event);
            let (counted, spec) = Counted::new();
            let seen = (Arc::clone(&counted.event), Arc::clone(&counted.taken));
            registered.push(engine.manager.register(spec, counted).unwrap());
            seen
        })
        .collect();
    assert!(sockets.len() >= 400, "{} descriptors", sockets.len());
    for round in 1..=3 {
        for (word, registration) in words.iter().zip(&registered).step_by(7) {
            word.sent.store(round, Ordering::Release);
            registration.notifier().notify();
        }
        for (event, _) in &sockets {
            event.write(1).unwrap();
        }
        eventually("all sources in memory are polled", || {
            words.iter().step_by(7).all(|word| word.seen.load(Ordering::Acquire) == round)
        });
        eventually("all descriptors are polled", || {
            sockets.iter().all(|(_, taken)| taken.load(Ordering::Acquire) == round)
        });
    }
    assert_eq!(engine.manager.counters().lost_wake_ups, 0);
    registered.clear();
    eventually("all are dropped", || words.iter().all(|word| Arc::strong_count(&word.sent) == 1));
}

#[test]
fn sources_come_and_go_while_they_are_polled() {
    for spin in [Nanos::ZERO, Nanos::NEVER] {
        let engine = Running::start(Engine::Idle, spin, LONG);
        let steady = Word::default();
        let kept = engine.manager.register(Spec::memory("steady", Sleep::Notified), steady.clone()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let word = Word::default();
                        word.sent.store(1, Ordering::Release);
                        let spec = Spec::memory("passing", Sleep::Notified);
                        let registered = engine.manager.register(spec, word.clone()).unwrap();
                        eventually("polled", || word.seen.load(Ordering::Acquire) == 1);
                        drop(registered);
                        eventually("dropped", || Arc::strong_count(&word.sent) == 1);
                        let polls = word.polls.load(Ordering::Relaxed);
                        steady.sent.fetch_add(1, Ordering::Release);
                        kept.notifier().notify();
                        assert_eq!(word.polls.load(Ordering::Relaxed), polls, "never polled again");
                    }
                });
            }
        });
        eventually("all seen", || steady.seen.load(Ordering::Acquire) == 400);
    }
}

#[test]
fn a_source_may_register_and_remove_from_within_its_poll() {
    struct Breeds {
        manager: Manager,
        child: Option<Registration>,
        word: Word,
    }
    impl Source for Breeds {
        fn poll(&mut self) -> usize {
            if self.child.take().is_none() {
                let spec = Spec::memory("child", Sleep::Notified);
                self.child = Some(self.manager.register(spec, self.word.clone()).unwrap());
            }
            0
        }
    }
    let manager = Manager::new(Engine::None, Real::new()).unwrap();
    let word = Word::default();
    let breeds = Breeds { manager: manager.clone(), child: None, word: word.clone() };
    let parent = manager.register(Spec::memory("parent", Sleep::Notified), breeds).unwrap();
    let polls: Vec<usize> = (0..4)
        .map(|_| {
            assert_eq!(manager.poll(Trigger::Yield), Some(0));
            word.polls.load(Ordering::Relaxed)
        })
        .collect();
    assert_eq!(polls, [0, 1, 1, 2], "the child is registered every other time");
    drop(parent);
    assert_eq!(manager.sources(), 0);
}

#[test]
fn after_a_suspension_missed_ticks_are_not_made_up_for() {
    let now: Arc<AtomicU64> = Arc::default();
    for engine in [Engine::Idle, Engine::Timer(Nanos::from_millis(1)), Engine::None] {
        let running = Running::with_clock(engine, Nanos::NEVER, Nanos::from_secs(1), Set(Arc::clone(&now)));
        let word = Word::default();
        let _registered = running.manager.register(Spec::memory("word", Sleep::Notified), word.clone());
        let ticks = || running.ticks.load(Ordering::Relaxed);
        for jumps in 1..=3 {
            // About eight hours.
            now.fetch_add(Nanos::from_secs(30_000).0, Ordering::Relaxed);
            running.manager.alert();
            eventually("the driver ticks", || ticks() == jumps);
            let polls = word.polls.load(Ordering::Relaxed);
            if engine == Engine::Idle {
                eventually("the engine polls on", || word.polls.load(Ordering::Relaxed) > polls + 100);
            }
            assert_eq!(ticks(), jumps, "one tick for all missed ones");
        }
    }
}
