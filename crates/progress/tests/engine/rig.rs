//! What the tests share: a clock, a keeper, an engine's thread, and sources that count.

use core::time::Duration;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use pronto_core::{Clock, Nanos};
use pronto_progress::{Engine, Keeper, Manager, Source};
use pronto_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// No wait of a test is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The real clock.
#[derive(Clone, Copy)]
pub(crate) struct Real(Instant);

impl Real {
    #[expect(clippy::disallowed_methods, reason = "a test with threads of its own")]
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Real {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.0.elapsed().as_nanos()).expect("centuries"))
    }
}

/// A clock that a test sets.
#[derive(Clone, Default)]
pub(crate) struct Set(pub(crate) Arc<AtomicU64>);

impl Clock for Set {
    fn now(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed))
    }
}

/// An engine's thread, ended when dropped.
pub(crate) struct Running {
    pub(crate) manager: Manager,
    stop: Arc<AtomicBool>,
    pub(crate) ticks: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

struct TestKeeper<C> {
    stop: Arc<AtomicBool>,
    ticks: Arc<AtomicU64>,
    clock: C,
    spin: Nanos,
    every: Nanos,
    next: Nanos,
}

impl<C: Clock> Keeper for TestKeeper<C> {
    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn spin_time(&self) -> Nanos {
        self.spin
    }

    fn tick(&mut self, _: Nanos) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        self.next = self.clock.now() + self.every;
    }

    fn next_tick(&self) -> Nanos {
        self.next
    }
}

impl Running {
    /// An engine that polls for `spin` before it sleeps, and lets time pass `every` so often.
    pub(crate) fn start(engine: Engine, spin: Nanos, every: Nanos) -> Self {
        Self::with_clock(engine, spin, every, Real::new())
    }

    pub(crate) fn with_clock(
        engine: Engine,
        spin: Nanos,
        every: Nanos,
        clock: impl Clock + Clone + 'static,
    ) -> Self {
        let manager = Manager::new(engine, clock.clone()).expect("descriptors");
        let (stop, ticks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let next = clock.now() + every;
        let mut keeper =
            TestKeeper { stop: Arc::clone(&stop), ticks: Arc::clone(&ticks), clock, spin, every, next };
        let theirs = manager.clone();
        let thread = std::thread::spawn(move || theirs.run(&mut keeper));
        Self { manager, stop, ticks, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.manager.alert();
        let joined = self.thread.take().expect("joined once").join();
        assert!(joined.is_ok() || std::thread::panicking(), "the engine's thread panicked");
    }
}

/// A source in memory: whoever publishes counts `sent` up, polls count `seen` up.
#[derive(Clone, Default)]
pub(crate) struct Word {
    pub(crate) sent: Arc<AtomicUsize>,
    pub(crate) seen: Arc<AtomicUsize>,
    pub(crate) polls: Arc<AtomicUsize>,
}

impl Source for Word {
    fn poll(&mut self) -> usize {
        self.polls.fetch_add(1, Ordering::Relaxed);
        let sent = self.sent.load(Ordering::Acquire);
        sent - self.seen.swap(sent, Ordering::Release)
    }
}

/// Waits for something that another thread does.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Real::new();
    while !holds() {
        assert!(clock.now().0 < u64::try_from(PATIENCE.as_nanos()).expect("centuries"), "never: {what}");
        std::thread::yield_now();
    }
}
