//! Sources that rest: the engine does not touch them, and no event or work is lost.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::Nanos;
use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;
use pronto_progress::{Cost, Engine, Registration, Sleep, Source, Spec};
use pronto_sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::rig::{Running, eventually};

const LONG: Nanos = Nanos::from_secs(3_600);
/// More than those that the engine polls in every round.
const MANY: usize = 40;

/// A source with a descriptor, and with work that no descriptor reports.
#[derive(Clone)]
struct Both {
    event: Arc<EventFd>,
    work: Arc<AtomicUsize>,
    seen: Arc<AtomicUsize>,
    polls: Arc<AtomicUsize>,
    /// Nobody waits for the events of its descriptor, so its polls do not report them.
    unawaited: Arc<AtomicBool>,
    /// While this is true, a poll does not return.
    held: Arc<AtomicBool>,
    dropped: Arc<()>,
}

impl Both {
    fn new() -> Self {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = Arc::new(EventFd::from_value_and_flags(0, flags).expect("a descriptor"));
        let counter = Arc::default;
        let (unawaited, held, dropped) = (Arc::default(), Arc::default(), Arc::default());
        Self { event, work: counter(), seen: counter(), polls: counter(), unawaited, held, dropped }
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::Acquire)
    }

    fn polls(&self) -> usize {
        self.polls.load(Ordering::Relaxed)
    }
}

impl Source for Both {
    fn poll(&mut self) -> usize {
        self.polls.fetch_add(1, Ordering::Relaxed);
        while self.held.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let came = self.event.read().map_or(0, |count| usize::try_from(count).expect("a few"));
        let taken = came + self.work.swap(0, Ordering::Acquire);
        self.seen.fetch_add(taken, Ordering::Release);
        if self.unawaited.load(Ordering::Relaxed) { 0 } else { taken }
    }

    fn may_rest(&mut self) -> bool {
        true
    }

    fn channels(&mut self) -> [Option<Channel>; 2] {
        let fd = self.event.as_fd().as_raw_fd();
        [Some(Channel { fd, interest: Interest::READABLE }), None]
    }
}

/// An engine with many sources, of which the first is busy while `then` runs.
fn with_many(then: impl FnOnce(&Running, &[Both], &mut Vec<Registration>, &dyn Fn())) {
    let engine = Running::start(Engine::Idle, Nanos::ZERO, LONG);
    let sources: Vec<_> = (0..MANY).map(|_| Both::new()).collect();
    let mut registered: Vec<_> = sources
        .iter()
        .map(|source| {
            let spec = Spec { cost: Cost::MemoryOfMany, ..Spec::memory("both", Sleep::Asked) };
            engine.manager.register(spec, source.clone()).expect("there is room")
        })
        .collect();
    let busy = || {
        let before = sources[0].seen();
        sources[0].event.write(1).expect("its count is small");
        eventually("the busy source has its event", || sources[0].seen() > before);
    };
    let others: Vec<_> = registered.iter().skip(1).map(Registration::rouse).collect();
    eventually("all but a few sources rest", || {
        busy();
        others.iter().filter(|other| other.rests()).count() >= MANY - 17
    });
    then(&engine, &sources, &mut registered, &busy);
    let counters = engine.manager.counters();
    assert_eq!((counters.lost_wake_ups, counters.panics), (0, 0));
}

/// Shows: sources.rests
#[test]
fn a_source_without_events_for_long_is_not_touched_until_it_has_one() {
    with_many(|_, sources, registered, busy| {
        let resting: Vec<_> = (1..MANY).filter(|at| registered[*at].rouse().rests()).collect();
        let before: Vec<_> = resting.iter().map(|at| sources[*at].polls()).collect();
        for _ in 0..100 {
            busy();
        }
        let after: Vec<_> = resting.iter().map(|at| sources[*at].polls()).collect();
        assert_eq!(before, after, "the engine has polled a resting source");
        for at in &resting {
            sources[*at].event.write(3).expect("its count is small");
            eventually("the event of a resting source is seen", || sources[*at].seen() == 3);
        }
    });
}

/// Shows: sources.rests
#[test]
fn work_that_no_descriptor_reports_is_found_by_rousing() {
    with_many(|engine, sources, registered, busy| {
        let (mut found_resting, mut total) = (0, 0);
        while found_resting < 200 {
            let at = 1 + total % (MANY - 1);
            let rouse = registered[at].rouse();
            if total % 3 != 0 {
                busy();
            }
            found_resting += usize::from(rouse.rests());
            let before = sources[at].seen();
            sources[at].work.store(1, Ordering::Release);
            rouse.rouse();
            engine.manager.wake();
            eventually("the work is done", || sources[at].seen() == before + 1);
            total += 1;
        }
    });
}

/// Such as heartbeats, which arrive together. The number of polls does not depend on how long the engine would poll for another event.
#[test]
fn events_that_nobody_waits_for_begin_no_polling() {
    const EVENTS: usize = 100;
    let engine = Running::start(Engine::Idle, Nanos::from_millis(50), LONG);
    let sources: Vec<_> = (0..=EVENTS).map(|_| Both::new()).collect();
    let registered: Vec<_> = sources
        .iter()
        .map(|source| {
            let spec = Spec { cost: Cost::MemoryOfMany, ..Spec::memory("both", Sleep::Asked) };
            engine.manager.register(spec, source.clone()).expect("there is room")
        })
        .collect();
    let (first, others) = sources.split_first().expect("there are some");
    eventually("the sources rest", || registered.iter().all(|one| one.rouse().rests()));
    sources.iter().for_each(|source| source.unawaited.store(true, Ordering::Relaxed));
    // All events arrive before the engine looks.
    first.held.store(true, Ordering::Relaxed);
    let (before, seen) = (first.polls(), first.seen());
    first.event.write(1).expect("its count is small");
    eventually("the engine polls the first source", || first.polls() > before);
    let polls = || others.iter().map(Both::polls).sum::<usize>();
    let before = polls();
    for source in others {
        source.event.write(1).expect("its count is small");
    }
    first.held.store(false, Ordering::Relaxed);
    eventually("all events are seen", || first.seen() > seen && others.iter().all(|one| one.seen() > 0));
    // Longer than the engine polls for an event that may follow another one.
    std::thread::park_timeout(core::time::Duration::from_millis(60));
    let after = polls() - before;
    // One poll finds the event, and one follows the arming.
    assert!(after < 3 * EVENTS, "{after} polls for {EVENTS} events");
    drop(registered);
}

#[test]
fn a_resting_source_can_be_removed() {
    with_many(|engine, sources, registered, busy| {
        let at = (1..MANY).find(|at| registered[*at].rouse().rests()).expect("some rest");
        drop(registered.remove(at));
        busy();
        assert_eq!(Arc::strong_count(&sources[at].dropped), 1, "the source was dropped");
        sources[at].event.write(1).expect("its count is small");
        busy();
        assert_eq!(sources[at].seen(), 0);
        assert_eq!(engine.manager.sources(), MANY - 1);
    });
}
