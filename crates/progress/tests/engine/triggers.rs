//! The triggers on which each engine polls, and the rate at which it checks descriptors.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::{Clock as _, Nanos};
use pronto_progress::{Engine, GROUP_INTERVAL, Manager, Sleep, Source, Spec, Trigger};
use pronto_sync::atomic::{AtomicUsize, Ordering};

use crate::rig::{Real, Running, Word, eventually};

const LONG: Nanos = Nanos::from_secs(3_600);

/// A source whose poll reads an eventfd.
pub(crate) struct Counted {
    pub(crate) event: Arc<EventFd>,
    pub(crate) taken: Arc<AtomicUsize>,
}

impl Counted {
    pub(crate) fn new() -> (Self, Spec) {
        let event =
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).expect("a descriptor");
        let spec = Spec::readable("eventfd", event.as_fd().try_clone_to_owned().expect("one more"));
        (Self { event: Arc::new(event), taken: Arc::default() }, spec)
    }
}

impl Source for Counted {
    fn poll(&mut self) -> usize {
        let taken = self.event.read().map_or(0, |count| usize::try_from(count).expect("small"));
        self.taken.fetch_add(taken, Ordering::Release);
        taken
    }
}

/// Shows: sources.triggers
#[test]
fn without_an_engine_only_threads_that_wait_or_yield_poll() {
    let engine = Running::start(Engine::None, Nanos::NEVER, Nanos::from_millis(1));
    let word = Word::default();
    let spec = Spec::memory("word", Sleep::Notified).on(&[Trigger::Yield]);
    let registered = engine.manager.register(spec, word.clone()).unwrap();
    word.sent.store(3, Ordering::Release);
    registered.notifier().notify();
    eventually("the driver ticks", || engine.ticks.load(Ordering::Relaxed) > 5);
    assert_eq!(word.polls.load(Ordering::Relaxed), 0);
    assert_eq!(engine.manager.poll(Trigger::Wait), Some(0), "`Wait` is not one of its triggers");
    assert_eq!(engine.manager.poll(Trigger::Yield), Some(3));
}

/// Shows: sources.timer
#[test]
fn a_timer_polls_for_a_program_that_never_calls() {
    let engine = Running::start(Engine::Timer(Nanos::from_millis(2)), Nanos::NEVER, LONG);
    let word = Word::default();
    let _registered = engine.manager.register(Spec::memory("word", Sleep::Notified), word.clone()).unwrap();
    let (counted, spec) = Counted::new();
    let (event, taken) = (Arc::clone(&counted.event), Arc::clone(&counted.taken));
    let _also = engine.manager.register(spec, counted).unwrap();
    for round in 1..=10 {
        word.sent.store(round, Ordering::Release);
        event.write(1).unwrap();
        eventually("both were polled", || {
            word.seen.load(Ordering::Acquire) == round && taken.load(Ordering::Acquire) == round
        });
    }
}

/// Shows: operations.group-polls, sources.group
#[test]
fn sources_behind_the_epoll_are_checked_once_per_interval_of_polling() {
    // Created before the engine, which polls from its first moment on.
    let clock = Real::new();
    let engine = Running::start(Engine::Idle, Nanos::NEVER, LONG);
    let (counted, spec) = Counted::new();
    let (event, taken) = (Arc::clone(&counted.event), Arc::clone(&counted.taken));
    let _registered = engine.manager.register(spec, counted).unwrap();
    let word = Word::default();
    let _word = engine.manager.register(Spec::memory("word", Sleep::Notified), word.clone()).unwrap();
    for round in 1..=200 {
        event.write(1).unwrap();
        eventually("the event is taken", || taken.load(Ordering::Acquire) == round);
    }
    let (asked, most) = (engine.manager.counters().group_looks, clock.now().0 / GROUP_INTERVAL.0 + 1);
    assert!(asked >= 200 && asked <= most, "{asked} checks, {most} allowed");
    assert!(word.polls.load(Ordering::Relaxed) as u64 > asked, "memory is polled meanwhile");
}

/// Shows: sources.group
#[test]
fn a_source_of_high_priority_is_polled_first_and_in_every_round() {
    let manager = Manager::new(Engine::None, Real::new()).unwrap();
    let order: Arc<std::sync::Mutex<Vec<&str>>> = Arc::default();
    struct Named(&'static str, Arc<std::sync::Mutex<Vec<&'static str>>>);
    impl Source for Named {
        fn poll(&mut self) -> usize {
            self.1.lock().unwrap().push(self.0);
            0
        }
    }
    let (_unused, spec) = Counted::new();
    let memory = |name| Spec::memory(name, Sleep::Notified);
    let _first = manager.register(memory("normal"), Named("normal", Arc::clone(&order))).unwrap();
    let _second = manager.register(memory("high"), Named("high", Arc::clone(&order))).unwrap();
    assert_eq!(manager.poll(Trigger::Idle), Some(0));
    assert_eq!(*order.lock().unwrap(), ["normal", "high"], "in the order of registration");
    order.lock().unwrap().clear();
    let _third = manager.register(memory("first").first(), Named("first", Arc::clone(&order))).unwrap();
    let _fourth = manager.register(spec.first(), Named("socket", Arc::clone(&order))).unwrap();
    assert_eq!(manager.poll(Trigger::Idle), Some(0));
    assert_eq!(*order.lock().unwrap(), ["first", "socket", "normal", "high"]);
}
