//! Empty polls, and an event that a sleep finds immediately.

use core::hint::black_box;
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Context as _;
use nix::sys::eventfd::EventFd;
use pronto::progress::{Engine, EngineDriver, Manager, Registration, Sleep, Source, Spec, Trigger};
use pronto_core::wait::Decision;
use pronto_core::{Clock, Nanos};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock;
use crate::sample::{Recorder, approximate};

/// An in-memory source that is always empty; it counts its polls.
struct Empty {
    word: Arc<AtomicU64>,
    polls: u64,
    counted: Arc<AtomicU64>,
}

impl Source for Empty {
    #[inline]
    fn poll(&mut self) -> usize {
        self.polls += 1;
        usize::from(self.word.load(Ordering::Acquire) != 0)
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        self.counted.fetch_add(self.polls, Ordering::Relaxed);
    }
}

/// A source with an event at each poll; it counts its polls.
struct Endless {
    polls: u64,
    counted: Arc<AtomicU64>,
}

impl Source for Endless {
    fn poll(&mut self) -> usize {
        self.polls += 1;
        1
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.counted.fetch_add(self.polls, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy)]
struct Real;

impl Clock for Real {
    fn now(&self) -> Nanos {
        Nanos(clock::shared_ns())
    }
}

/// An engine's thread that stops when its time is over, by its clock.
struct Timed {
    spin: Nanos,
    until: Nanos,
    over: AtomicBool,
}

impl EngineDriver for Timed {
    fn is_stopping(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn decide(&self) -> Decision {
        Decision::without_history(self.spin)
    }

    fn tick(&mut self, _: Nanos) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn next_tick(&self) -> Nanos {
        self.until
    }
}

pub(super) fn load(budget: Duration) -> anyhow::Result<f64> {
    let word = AtomicU64::new(0);
    in_a_row(budget, || {
        for _ in 0..INNER {
            if black_box(&word).load(Ordering::Acquire) != 0 {
                break;
            }
        }
    })
}

/// Returns the time of one of `INNER` operations. If another process has the CPU, a round may end before its first batch; then it is
/// repeated, for twice the time.
pub(super) fn in_a_row(budget: Duration, mut operations: impl FnMut()) -> anyhow::Result<f64> {
    let mut seen = Recorder::new();
    for doubled in 0..ATTEMPTS {
        seen.repeat(budget * (1 << doubled), &mut operations);
        let ns = seen.sample().batch_ns;
        if ns > 0.0 {
            return Ok(ns / f64::from(INNER));
        }
    }
    anyhow::bail!("no round reached its first batch: other threads use the CPU")
}

fn empties(manager: &Manager, sources: usize) -> anyhow::Result<(Vec<Registration>, Arc<AtomicU64>)> {
    let counted: Arc<AtomicU64> = Arc::default();
    let register = |_| {
        let empty = Empty { word: Arc::default(), polls: 0, counted: Arc::clone(&counted) };
        manager
            .register(Spec::memory("empty", Sleep::Notified), empty)
            .context("no source could be registered")
    };
    Ok(((0..sources).map(register).collect::<anyhow::Result<_>>()?, counted))
}

/// Returns the time of a poll of all sources by the engine's own loop.
pub(super) fn own_loop(sources: usize, budget: Duration) -> anyhow::Result<f64> {
    let manager = Manager::new(Engine::Idle, Real).context("no manager could be started")?;
    let (registered, counted) = empties(&manager, sources)?;
    let took = run_for(&manager, Nanos::NEVER, budget);
    drop(registered);
    drop(manager);
    let polls = counted.load(Ordering::Relaxed) / sources as u64;
    Ok(took / approximate(polls.max(1)))
}

/// Runs the engine in this thread. Returns its CPU time, which excludes other threads on this CPU.
fn run_for(manager: &Manager, spin: Nanos, budget: Duration) -> f64 {
    let until = Real.now() + Nanos(clock::nanos(budget));
    let started = clock::thread_ns();
    manager.run(Timed { spin, until, over: AtomicBool::new(false) });
    approximate(clock::thread_ns() - started)
}

/// Returns the time of a poll by a thread of the program: on yielding, or as a timer would.
pub(super) fn by_call(engine: Engine, sources: usize, budget: Duration) -> anyhow::Result<f64> {
    let manager = Manager::new(engine, Real).context("no manager could be started")?;
    let (_registered, _) = empties(&manager, sources)?;
    let trigger = if engine == Engine::None { Trigger::Yield } else { Trigger::Timer };
    in_a_row(budget, || {
        for _ in 0..INNER {
            black_box(manager.poll(black_box(trigger)));
        }
    })
}

pub(super) fn event(budget: Duration) -> anyhow::Result<f64> {
    let manager = Manager::new(Engine::Idle, Real).context("no manager could be started")?;
    let counted: Arc<AtomicU64> = Arc::default();
    let ready = OwnedFd::from(EventFd::from_value(1).context("no eventfd could be created")?);
    let endless = Endless { polls: 0, counted: Arc::clone(&counted) };
    let registered = manager
        .register(Spec::readable("endless", ready), endless)
        .context("no source could be registered")?;
    let (_empty, _) = empties(&manager, 1)?;
    let took = run_for(&manager, Nanos::ZERO, budget);
    drop(registered);
    let events = counted.load(Ordering::Relaxed);
    Ok(took / approximate(events.max(1)))
}

/// Operations within one that is timed: a load is shorter than the closure around it.
pub(super) const INNER: u32 = 64;
const ATTEMPTS: u32 = 8;
