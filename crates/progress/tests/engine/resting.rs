//! Sources that rest: the engine does not touch them, and no event or work is lost.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::Nanos;
use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;
use pronto_progress::{Cost, Engine, Registration, Sleep, Source, Spec};
use pronto_sync::atomic::{AtomicUsize, Ordering};

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
    dropped: Arc<()>,
}

impl Both {
    fn new() -> Self {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = Arc::new(EventFd::from_value_and_flags(0, flags).expect("a descriptor"));
        let counter = Arc::default;
        Self { event, work: counter(), seen: counter(), polls: counter(), dropped: Arc::default() }
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
        let came = self.event.read().map_or(0, |count| usize::try_from(count).expect("a few"));
        let taken = came + self.work.swap(0, Ordering::Acquire);
        self.seen.fetch_add(taken, Ordering::Release);
        taken
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
