//! Calls that block: a spare takes the duty over and gives it back; a call that does not block wakes none.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

use pronto_core::{Clock as _, Nanos};
use pronto_progress::{BLOCKS_AFTER, Engine, Place, Sleep, Spec, Tasklet, Trigger};
use pronto_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::rig::{Real, Running, Word, eventually};

const LONG: Nanos = Nanos::from_secs(3_600);
const TRIGGERS: [Trigger; 2] = [Trigger::Idle, Trigger::Timer];

/// A word that is served, and each of whose events is awaited.
struct Served(Word, pronto_progress::Registration, usize);

impl Served {
    fn by(engine: &Running) -> Self {
        let word = Word::default();
        let registered =
            engine.manager.register(Spec::memory("word", Sleep::Notified), word.clone()).expect("room");
        Self(word, registered, 0)
    }

    fn is_served(&mut self, times: usize) {
        for _ in 0..times {
            self.2 += 1;
            self.0.sent.store(self.2, Ordering::Release);
            self.1.notifier().notify();
            eventually("an event is seen", || self.0.seen.load(Ordering::Acquire) == self.2);
        }
    }
}

/// A tasklet of a kind of its own that blocks until it is told something, or for ever.
fn blocks(engine: &Running, name: &'static str, ended: &Arc<AtomicUsize>) -> (Tasklet, Sender<()>) {
    let kind = engine.manager.kind(name, &TRIGGERS).expect("room");
    let (tell, told): (Sender<()>, Receiver<()>) = channel();
    let (told, manager, ended) = (Mutex::new(told), engine.manager.clone(), Arc::clone(ended));
    let tasklet = kind.tasklet(Place::Anywhere, move || {
        let told = told.lock().expect("no holder panics");
        manager.may_block(|| told.recv()).expect("it is told in the end");
        ended.fetch_add(1, Ordering::Release);
    });
    (tasklet, tell)
}

#[test]
fn a_spare_serves_while_the_engines_thread_is_blocked_and_gives_the_duty_back() {
    for (engine, spin) in [
        (Engine::Idle, Nanos::ZERO),
        (Engine::Idle, Nanos::NEVER),
        (Engine::Timer(Nanos::from_millis(2)), Nanos::ZERO),
    ] {
        let engine = Running::with_spares(engine, spin, LONG);
        let mut word = Served::by(&engine);
        let ended = Arc::default();
        let (tasklet, tell) = blocks(&engine, "blocks", &ended);
        for round in 1..=20 {
            tasklet.schedule();
            eventually("a spare is on duty", || engine.manager.counters().relieved == round as u64);
            assert!(engine.manager.is_blocked());
            word.is_served(5);
            tell.send(()).unwrap();
            eventually("the call ends", || ended.load(Ordering::Acquire) == round);
            eventually("the engine's thread has its duty back", || engine.own_thread_serves());
            word.is_served(5);
        }
        assert_eq!(engine.manager.counters().lost_wake_ups, 0);
        assert_eq!(engine.manager.counters().blocking, 20);
    }
}

#[test]
fn a_call_that_does_not_block_wakes_no_spare() {
    let engine = Running::with_spares(Engine::Idle, Nanos::ZERO, LONG);
    // The thread is hired at the first such call, and stands by.
    let kind = engine.manager.kind("short", &TRIGGERS).unwrap();
    let (count, long): (Arc<AtomicUsize>, Arc<AtomicU64>) = Default::default();
    let own: Arc<OnceLock<Tasklet>> = Arc::default();
    let (counts, longs, again) = (Arc::clone(&count), Arc::clone(&long), Arc::clone(&own));
    let manager = engine.manager.clone();
    let clock = Real::new();
    let tasklet = kind.tasklet(Place::Anywhere, move || {
        let since = clock.now();
        manager.may_block(|| ());
        // Another process may have had the processor meanwhile: then it has blocked, as far as anybody can see.
        let took = clock.now().since(since);
        longs.fetch_add(u64::from(u128::from(took.0) >= BLOCKS_AFTER.as_nanos()), Ordering::Relaxed);
        if counts.fetch_add(1, Ordering::Release) < 9_999 {
            again.get().unwrap().schedule();
        }
    });
    own.set(tasklet.clone()).unwrap();
    tasklet.schedule();
    eventually("all have been made", || count.load(Ordering::Acquire) == 10_000);
    let counters = engine.manager.counters();
    assert_eq!(counters.blocking, 10_000);
    let long = long.load(Ordering::Relaxed);
    assert!(counters.spares <= long && long < 1_000, "{} woken, {long} long", counters.spares);
}

#[test]
fn calls_that_never_return_leave_the_others_served_up_to_the_bound() {
    let engine = Running::with_spares(Engine::Idle, Nanos::ZERO, LONG);
    let mut word = Served::by(&engine);
    let ended = Arc::default();
    let names = ["first", "second", "third"];
    let stuck: Vec<_> = names.iter().map(|name| blocks(&engine, name, &ended)).collect();
    for (blocked, (tasklet, _)) in (1..).zip(&stuck) {
        tasklet.schedule();
        eventually("another spare is on duty", || engine.manager.counters().relieved == blocked);
        word.is_served(100);
    }
    // A kind that is stuck keeps no engine awake, though more of it waits.
    stuck[0].0.schedule();
    let sleeps = engine.manager.counters().sleeps;
    word.is_served(20);
    eventually("it sleeps in between", || engine.manager.counters().sleeps > sleeps);
    assert_eq!((ended.load(Ordering::Relaxed), engine.manager.counters().relieved), (0, 3), "none came back");
    // They may in the end: the test's threads are to go.
    stuck[0].1.send(()).unwrap();
    for (_, tell) in &stuck {
        tell.send(()).unwrap();
    }
    eventually("all have ended", || ended.load(Ordering::Acquire) == 4);
    word.is_served(10);
}

#[test]
fn elsewhere_a_call_is_just_made() {
    let engine = Running::with_spares(Engine::Idle, Nanos::ZERO, LONG);
    assert_eq!(engine.manager.may_block(|| 5), 5);
    assert_eq!(engine.manager.counters().blocking, 0);
}
