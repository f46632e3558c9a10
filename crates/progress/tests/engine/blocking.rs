//! Calls that block: a spare thread takes over and returns the duty. A call that does not block wakes no spare.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

use pronto_core::{Clock as _, Nanos};
use pronto_progress::{BLOCKS_AFTER, Engine, Place, Sleep, Spec, Tasklet, Trigger};
use pronto_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::rig::{Real, Running, Word, eventually};

const LONG: Nanos = Nanos::from_secs(3_600);
const TRIGGERS: [Trigger; 2] = [Trigger::Idle, Trigger::Timer];

/// A registered word, whose events the test sends one at a time and awaits.
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

/// Returns a tasklet of its own kind that blocks until it gets a message.
fn blocks(engine: &Running, name: &'static str, ended: &Arc<AtomicUsize>) -> (Tasklet, Sender<()>) {
    let kind = engine.manager.kind(name, &TRIGGERS).expect("room");
    let (sender, receiver): (Sender<()>, Receiver<()>) = channel();
    let (receiver, manager, ended) = (Mutex::new(receiver), engine.manager.clone(), Arc::clone(ended));
    let tasklet = kind.tasklet(Place::Anywhere, move || {
        let receiver = receiver.lock().expect("no holder panics");
        manager.may_block(|| receiver.recv()).expect("the test sends a message in the end");
        ended.fetch_add(1, Ordering::Release);
    });
    (tasklet, sender)
}

/// Shows: operations.spares, sources.spare
#[test]
fn a_spare_serves_while_the_engine_thread_is_blocked_and_returns_the_duty() {
    for (engine, spin) in [
        (Engine::Idle, Nanos::ZERO),
        (Engine::Idle, Nanos::NEVER),
        (Engine::Timer(Nanos::from_millis(2)), Nanos::ZERO),
    ] {
        let engine = Running::with_spares(engine, spin, LONG);
        let mut word = Served::by(&engine);
        let ended = Arc::default();
        let (tasklet, sender) = blocks(&engine, "blocks", &ended);
        for round in 1..=20 {
            tasklet.schedule();
            eventually("a spare is the role holder", || engine.manager.counters().relieved == round as u64);
            assert!(engine.manager.is_blocked());
            word.is_served(5);
            sender.send(()).unwrap();
            eventually("the call ends", || ended.load(Ordering::Acquire) == round);
            eventually("the engine thread is the role holder again", || engine.own_thread_serves());
            word.is_served(5);
        }
        assert_eq!(engine.manager.counters().lost_wake_ups, 0);
        assert_eq!(engine.manager.counters().blocking, 20);
    }
}

/// Shows: operations.spares, sources.no-spare
#[test]
fn a_call_that_does_not_block_wakes_no_spare() {
    let engine = Running::with_spares(Engine::Idle, Nanos::ZERO, LONG);
    // The spare is started at the first such call, and waits.
    let kind = engine.manager.kind("short", &TRIGGERS).unwrap();
    let (count, long): (Arc<AtomicUsize>, Arc<AtomicU64>) = Default::default();
    let own: Arc<OnceLock<Tasklet>> = Arc::default();
    let (counts, longs, again) = (Arc::clone(&count), Arc::clone(&long), Arc::clone(&own));
    let manager = engine.manager.clone();
    let clock = Real::new();
    let tasklet = kind.tasklet(Place::Anywhere, move || {
        let since = clock.now();
        manager.may_block(|| ());
        // If another process has had the CPU meanwhile, the call is indistinguishable from one that blocked.
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

/// Shows: sources.spares
#[test]
fn calls_that_never_return_leave_the_others_served_up_to_the_bound() {
    let engine = Running::with_spares(Engine::Idle, Nanos::ZERO, LONG);
    let mut word = Served::by(&engine);
    let ended = Arc::default();
    let names = ["first", "second", "third", "fourth"];
    let stuck: Vec<_> = names.iter().map(|name| blocks(&engine, name, &ended)).collect();
    for (blocked, (tasklet, _)) in (1..).zip(&stuck) {
        tasklet.schedule();
        eventually("another spare is the role holder", || engine.manager.counters().relieved == blocked);
        word.is_served(100);
    }
    // A queued tasklet of a kind that is blocked does not keep the engine awake.
    stuck[0].0.schedule();
    let sleeps = engine.manager.counters().sleeps;
    word.is_served(20);
    eventually("the engine sleeps in between", || engine.manager.counters().sleeps > sleeps);
    assert_eq!(
        (ended.load(Ordering::Relaxed), engine.manager.counters().relieved),
        (0, 4),
        "no call has returned"
    );
    // Unblock them at the end, so that the threads of the test can end.
    stuck[0].1.send(()).unwrap();
    for (_, sender) in &stuck {
        sender.send(()).unwrap();
    }
    eventually("all have ended", || ended.load(Ordering::Acquire) == 5);
    word.is_served(10);
}

/// Shows: sources.only-call
#[test]
fn a_call_outside_of_a_tasklet_is_made_directly() {
    let engine = Running::with_spares(Engine::Idle, Nanos::ZERO, LONG);
    assert_eq!(engine.manager.may_block(|| 5), 5);
    assert_eq!(engine.manager.counters().blocking, 0);
}
