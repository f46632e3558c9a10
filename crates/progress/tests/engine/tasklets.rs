//! Tasklets run soon, one of a kind at a time, on the requested CPU.

use std::sync::Arc;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use pronto_core::Nanos;
use pronto_progress::{Engine, Manager, Place, Tasklet, Trigger};
use pronto_sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::rig::{Real, Running, eventually};

const LONG: Nanos = Nanos::from_secs(3_600);

/// Shows: operations.tasklets, sources.tasklet
#[test]
fn tasklets_of_one_kind_exclude_each_other_and_run_as_often_as_scheduled() {
    let manager = Manager::new(Engine::None, Real::new()).unwrap();
    let kind = manager.kind("counting", &[Trigger::Yield]).unwrap();
    let (inside, count): (Arc<AtomicBool>, Arc<AtomicUsize>) = Default::default();
    let tasklets: Vec<Tasklet> = (0..4)
        .map(|_| {
            let (inside, count) = (Arc::clone(&inside), Arc::clone(&count));
            kind.tasklet(Place::Anywhere, move || {
                assert!(!inside.swap(true, Ordering::AcqRel), "two at a time");
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
                inside.store(false, Ordering::Release);
            })
        })
        .collect();
    std::thread::scope(|scope| {
        for tasklet in &tasklets {
            let (manager, count) = (&manager, &count);
            scope.spawn(move || {
                for _ in 0..300 {
                    let before = count.load(Ordering::Relaxed);
                    tasklet.schedule();
                    manager.poll(Trigger::Yield);
                    eventually("the tasklet runs", || {
                        manager.poll(Trigger::Yield);
                        count.load(Ordering::Relaxed) > before
                    });
                }
            });
        }
    });
    while manager.poll(Trigger::Yield) != Some(0) {}
    assert_eq!(manager.counters().panics, 0);
    let ran = count.load(Ordering::Relaxed);
    assert!((300..=1_200).contains(&ran), "{ran}");
    assert_eq!(usize::try_from(manager.counters().tasklets), Ok(ran));
}

/// Shows: sources.blocking
#[test]
fn a_tasklet_that_schedules_itself_runs_again() {
    let engine = Running::start(Engine::Idle, Nanos::ZERO, LONG);
    let kind = engine.manager.kind("again", &[Trigger::Idle]).unwrap();
    let count: Arc<AtomicUsize> = Arc::default();
    let own: Arc<std::sync::OnceLock<Tasklet>> = Arc::default();
    let (theirs, counts) = (Arc::clone(&own), Arc::clone(&count));
    let tasklet = kind.tasklet(Place::Anywhere, move || {
        if counts.fetch_add(1, Ordering::Relaxed) < 999 {
            theirs.get().unwrap().schedule();
        }
    });
    own.set(tasklet.clone()).unwrap();
    tasklet.schedule();
    eventually("it runs a thousand times", || count.load(Ordering::Relaxed) == 1_000);
    eventually("the engine sleeps", || engine.manager.counters().sleeps > 0);
    tasklet.schedule();
    eventually("the engine wakes for a tasklet", || count.load(Ordering::Relaxed) == 1_001);
}

/// Shows: sources.submitter
#[test]
fn a_tasklet_runs_on_the_cpu_of_the_thread_that_scheduled_it() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let allowed: Vec<usize> = (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu).unwrap()).collect();
    let manager = Manager::new(Engine::None, Real::new()).unwrap();
    let kind = manager.kind("local", &[Trigger::Yield]).unwrap();
    let ran_on: Arc<AtomicUsize> = Arc::default();
    let seen = Arc::clone(&ran_on);
    let tasklet = kind.tasklet(Place::Submitter, move || {
        seen.store(sched_getcpu().unwrap() + 1, Ordering::Relaxed);
    });
    for submitter in &allowed {
        let pinned = |cpu: usize| {
            let mut set = CpuSet::new();
            set.set(cpu).unwrap();
            sched_setaffinity(Pid::from_raw(0), &set).unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pinned(*submitter);
                tasklet.schedule();
            });
        });
        ran_on.store(0, Ordering::Relaxed);
        assert_eq!(manager.poll(Trigger::Yield), Some(1));
        assert_eq!(ran_on.load(Ordering::Relaxed), submitter + 1);
        assert_eq!(
            sched_getaffinity(Pid::from_raw(0)).unwrap(),
            all,
            "the affinity of the poller is restored"
        );
    }
}

/// Shows: operations.engine-panics
#[test]
fn a_tasklet_that_panics_is_removed_and_its_kind_is_kept() {
    let manager = Manager::new(Engine::None, Real::new()).unwrap();
    let kind = manager.kind("fragile", &[Trigger::Yield]).unwrap();
    let bad = kind.tasklet(Place::Anywhere, || panic!("no good"));
    let count: Arc<AtomicUsize> = Arc::default();
    let counts = Arc::clone(&count);
    let good = kind.tasklet(Place::Anywhere, move || {
        counts.fetch_add(1, Ordering::Relaxed);
    });
    for _ in 0..3 {
        bad.schedule();
        good.schedule();
        manager.poll(Trigger::Yield);
    }
    assert_eq!(count.load(Ordering::Relaxed), 3);
    assert_eq!(manager.counters().panics, 1);
    assert_eq!(manager.failures()[0].why, "no good");
}
