//! An idle engine sleeps.

use core::time::Duration;
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::Nanos;
use pronto_progress::{Engine, Registration, Sleep, Spec};
use pronto_sync::atomic::Ordering;

use crate::rig::{Running, Word, eventually};
use crate::triggers::Counted;

#[test]
fn an_idle_engine_with_a_thousand_sources_sleeps() {
    let engine = Running::start(Engine::Idle, Nanos::from_micros(20), Nanos::from_secs(3_600));
    let words: Vec<Word> = (0..900).map(|_| Word::default()).collect();
    let mut registered: Vec<Registration> = words
        .iter()
        .map(|word| engine.manager.register(Spec::memory("word", Sleep::Notified), word.clone()).unwrap())
        .collect();
    for _ in 0..100 {
        let (counted, spec) = Counted::new();
        registered.push(engine.manager.register(spec, counted).unwrap());
    }
    let (counted, spec) = Counted::new();
    let event: Arc<EventFd> = Arc::clone(&counted.event);
    let taken = Arc::clone(&counted.taken);
    registered.push(engine.manager.register(spec, counted).unwrap());
    // Traffic first, which must not keep the engine awake afterwards.
    for round in 1..=100 {
        event.write(1).unwrap();
        words[0].sent.store(round, Ordering::Release);
        registered[0].notifier().notify();
        eventually("traffic", || {
            words[0].seen.load(Ordering::Acquire) == round && taken.load(Ordering::Acquire) == round
        });
    }
    let rest = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
    let sleep = |span: Duration| {
        let timeout = nix::sys::time::TimeSpec::from_duration(span);
        let fd = nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&rest), nix::poll::PollFlags::POLLIN);
        assert_eq!(nix::poll::ppoll(&mut [fd], Some(timeout), None), Ok(0));
    };
    sleep(Duration::from_millis(200));
    let (slept, polls) = (engine.manager.counters().sleeps, words[1].polls.load(Ordering::Relaxed));
    sleep(Duration::from_secs(4));
    let woken = engine.manager.counters().sleeps - slept;
    let polls = words[1].polls.load(Ordering::Relaxed) - polls;
    // The engine wakes not at all. A debugger or a freezer wakes the threads of a process.
    assert!(woken <= 4 && polls <= 1_000, "{woken} wake-ups and {polls} polls without an event");
    assert_eq!(engine.manager.counters().lost_wake_ups, 0);
}
