//! Shared parts of the tests: clocks, a driver, an engine thread, and sources that count.

use core::time::Duration;
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, ThreadId};
use std::time::Instant;

use pronto_core::wait::Decision;
use pronto_core::{Clock, Nanos};
use pronto_progress::{Engine, EngineDriver, EngineThreads, MAX_SPARES, Manager, Source};
use pronto_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Longest wait of a test.
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

/// An engine thread, which ends when this is dropped.
pub(crate) struct Running {
    pub(crate) manager: Manager,
    stop: Arc<AtomicBool>,
    pub(crate) ticks: Arc<AtomicU64>,
    run_with_role: Arc<Mutex<Option<ThreadId>>>,
    spares: Arc<Mutex<Vec<JoinHandle<()>>>>,
    thread: Option<JoinHandle<()>>,
}

struct TestKeeper<C> {
    stop: Arc<AtomicBool>,
    ticks: Arc<AtomicU64>,
    clock: C,
    spin: Nanos,
    every: Nanos,
    next: Nanos,
    run_with_role: Arc<Mutex<Option<ThreadId>>>,
}

impl<C: Clock> EngineDriver for TestKeeper<C> {
    fn refresh(&mut self) {
        *self.run_with_role.lock().expect("no holder panics") = Some(std::thread::current().id());
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn decide(&self) -> Decision {
        Decision::without_history(self.spin)
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
    /// Starts an engine that polls for `spin` before it sleeps, and ticks once per `every`.
    pub(crate) fn start(engine: Engine, spin: Nanos, every: Nanos) -> Self {
        Self::with_clock(engine, spin, every, Real::new())
    }

    pub(crate) fn with_clock(
        engine: Engine,
        spin: Nanos,
        every: Nanos,
        clock: impl Clock + Clone + 'static,
    ) -> Self {
        let (mut running, driver) = Self::not_yet(engine, spin, every, clock);
        let theirs = running.manager.clone();
        running.thread = Some(std::thread::spawn(move || theirs.run(driver)));
        running
    }

    /// Starts an engine with spares.
    pub(crate) fn with_spares(engine: Engine, spin: Nanos, every: Nanos) -> Self {
        let (mut running, driver) = Self::not_yet(engine, spin, every, Real::new());
        let engine_threads = Arc::new(EngineThreads::new(running.manager.clone(), driver));
        let (spares, threads) = (Arc::downgrade(&engine_threads), Arc::clone(&running.spares));
        running.manager.spares(Box::new(move || {
            let engine_threads = spares.upgrade().expect("the engine runs");
            let mut threads = threads.lock().expect("no holder panics");
            assert!(threads.len() < MAX_SPARES);
            threads.push(std::thread::spawn(move || engine_threads.run_spare()));
            true
        }));
        running.thread = Some(std::thread::spawn(move || engine_threads.serve()));
        running
    }

    /// Returns whether the engine thread held the role last.
    pub(crate) fn own_thread_serves(&self) -> bool {
        let own = self.thread.as_ref().map(|thread| thread.thread().id());
        *self.run_with_role.lock().expect("no holder panics") == own
    }

    fn not_yet<C: Clock + Clone + 'static>(
        engine: Engine,
        spin: Nanos,
        every: Nanos,
        clock: C,
    ) -> (Self, TestKeeper<C>) {
        let manager = Manager::new(engine, clock.clone()).expect("descriptors");
        let (stop, ticks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let next = clock.now() + every;
        let run_with_role: Arc<Mutex<Option<ThreadId>>> = Arc::default();
        let driver = TestKeeper {
            stop: Arc::clone(&stop),
            ticks: Arc::clone(&ticks),
            clock,
            spin,
            every,
            next,
            run_with_role: Arc::clone(&run_with_role),
        };
        (Self { manager, stop, ticks, run_with_role, spares: Arc::default(), thread: None }, driver)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.manager.alert();
        self.manager.dismiss_spares();
        if std::thread::panicking() {
            // A call may be blocked for ever, and the failure must be reported.
            return;
        }
        let spares = core::mem::take(&mut *self.spares.lock().expect("no holder panics"));
        for thread in self.thread.take().into_iter().chain(spares) {
            assert!(thread.join().is_ok(), "a thread of the engine panicked");
        }
    }
}

/// A source in memory: the publisher increments `sent`, polls increase `seen`.
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

/// Waits until a condition holds that another thread brings about.
pub(crate) fn eventually(condition: &str, mut holds: impl FnMut() -> bool) {
    let clock = Real::new();
    while !holds() {
        assert!(
            clock.now().0 < u64::try_from(PATIENCE.as_nanos()).expect("centuries"),
            "not in time: {condition}"
        );
        std::thread::yield_now();
    }
}
