//! The poller role: every waiting thread is served, and every thread that leaves hands the role over. The mutants break one rule each,
//! and loom must refute them.
//!
//! Followers park. A follower that no thread wakes any more is a deadlock, which loom reports. If followers polled their words instead,
//! two of them could keep the third one from running for ever, and the model would not end.

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::{Mutex, OnceLock};

use loom::thread::{self, Thread};
use pronto_sync::WakeWord;
use pronto_sync::atomic::{AtomicU32, Ordering};

use crate::wait::poller_role::{FREE, PollerRole, ServingState};
use crate::wait::{Recheck, Sleeper, Woken, arm_recheck_sleep};

/// The rules by which the role changes hands: the real ones, or those of a mutant.
#[derive(Clone, Copy)]
struct Rules {
    release: fn(&PollerRole) -> Option<u16>,
    withdraw: fn(&PollerRole, u16) -> Option<u16>,
    /// The serving thread stops spinning.
    serving_sleeps: fn(&PollerRole) -> Option<u16>,
}

const RULES: Rules = Rules {
    release: PollerRole::release,
    withdraw: PollerRole::withdraw,
    serving_sleeps: |role| role.set_serving(ServingState::Sleeping),
};

/// When a waiter leaves although its end has not come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    Endless,
    /// After one poll as the poller, or by a timeout in its first sleep.
    Short,
}

struct Waiter {
    /// Its end has come.
    ended: AtomicU32,
    word: WakeWord,
    thread: OnceLock<Thread>,
}

struct World {
    role: PollerRole,
    rules: Rules,
    waiters: Vec<Waiter>,
    /// Waiters whose ends have arrived and were not polled yet; the last one is polled next. The mutex is that of the standard library,
    /// which loom does not explore: the role alone keeps other threads out.
    arrived: Mutex<Vec<u16>>,
}

impl World {
    fn has_ended(&self, waiter: u16) -> bool {
        self.waiters[usize::from(waiter)].ended.load(Ordering::Acquire) != 0
    }

    /// One turn of the engine: takes one end in and wakes its waiter.
    fn poll(&self) {
        let mut arrived =
            self.arrived.try_lock().expect("the holder alone polls, and sees the last one gone");
        let Some(waiter) = arrived.pop() else { return };
        drop(arrived);
        self.waiters[usize::from(waiter)].ended.store(1, Ordering::Release);
        self.wake(Some(waiter));
    }

    fn wake(&self, waiter: Option<u16>) {
        let Some(waiter) = waiter else { return };
        let Waiter { word, thread, .. } = &self.waiters[usize::from(waiter)];
        if word.needs_wake() {
            thread.get().expect("a waiter names its thread before it arms").unpark();
        }
    }

    /// Waits as `Session::wait` does: polls as the holder of the role, or sleeps as a follower.
    fn wait(&self, waiter: u16, patience: Patience) {
        let Waiter { thread, .. } = &self.waiters[usize::from(waiter)];
        thread.get_or_init(thread::current);
        while !self.has_ended(waiter) {
            if !self.role.serving_spins() && self.role.claim() {
                loop {
                    self.poll();
                    if self.has_ended(waiter) || patience == Patience::Short {
                        break;
                    }
                }
                self.wake((self.rules.release)(&self.role));
                return;
            }
            arm_recheck_sleep(&mut Follower { world: self, waiter, patience });
            if patience == Patience::Short {
                return;
            }
        }
    }
}

/// A follower, as in `session::api::sleep`.
struct Follower<'a> {
    world: &'a World,
    waiter: u16,
    patience: Patience,
}

impl Follower<'_> {
    fn word(&self) -> &WakeWord {
        &self.world.waiters[usize::from(self.waiter)].word
    }
}

impl Sleeper for Follower<'_> {
    fn arm(&mut self) -> bool {
        self.world.role.enlist(self.waiter);
        self.word().arm();
        true
    }

    fn recheck(&mut self) -> Recheck {
        let World { role, .. } = self.world;
        let has_reason = self.world.has_ended(self.waiter) || role.is_abandoned();
        if !has_reason && self.word().should_sleep() { Recheck::Empty } else { Recheck::Found }
    }

    fn sleep(&mut self) -> Woken {
        if self.patience == Patience::Endless {
            thread::park();
        }
        Woken::Early
    }

    fn check_safety_net(&mut self) {}

    fn disarm(&mut self) {
        self.word().disarm();
        self.world.wake((self.world.rules.withdraw)(&self.world.role, self.waiter));
    }
}

/// Preemptions explored: enough to refute every mutant below. Each further one takes ten times as long, as three threads run. If
/// `LOOM_MAX_PREEMPTIONS` sets a bound, these models stay one below it.
const PREEMPTIONS: usize = 2;

/// Explores `threads` in a world of `waiters` waiters. `arrived` lists the waiters whose ends are polled, the last one first.
fn explore(
    rules: Rules,
    waiters: u16,
    arrived: &'static [u16],
    threads: impl Fn(Arc<World>) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound =
        Some(builder.preemption_bound.map_or(PREEMPTIONS, |asked| asked.saturating_sub(1)));
    builder.check(move || {
        let waiter = || Waiter { ended: AtomicU32::new(0), word: WakeWord::new(), thread: OnceLock::new() };
        let world = Arc::new(World {
            role: PollerRole::new(waiters),
            rules,
            waiters: (0..waiters).map(|_| waiter()).collect(),
            arrived: Mutex::new(arrived.to_vec()),
        });
        threads(Arc::clone(&world));
        assert!(arrived.iter().all(|&waiter| world.has_ended(waiter)));
        assert!(world.role.is_free());
    });
}

/// One thread for each waiter, in the order of their slots.
fn all_are_served(rules: Rules, patience: [Patience; 3], arrived: &'static [u16]) {
    explore(rules, 3, arrived, move |world| {
        let others = [0, 1].map(|waiter| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.wait(waiter, patience[usize::from(waiter)]))
        });
        world.wait(2, patience[2]);
        for other in others {
            other.join().expect("it was served, or left");
        }
    });
}

const ALL_STAY: [Patience; 3] = [Patience::Endless; 3];
/// The waiter in the lowest slot is the one that is named first.
const FIRST_LEAVES: [Patience; 3] = [Patience::Short, Patience::Endless, Patience::Endless];

#[test]
fn loom_three_waiters_are_all_served() {
    all_are_served(RULES, ALL_STAY, &[2, 1, 0]);
}

#[test]
fn loom_a_waiter_that_gives_up_hands_over() {
    all_are_served(RULES, FIRST_LEAVES, &[2, 1]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_giving_the_role_up_without_looking_for_a_successor() {
    let release = |role: &PollerRole| role.release().and(None);
    all_are_served(Rules { release, ..RULES }, ALL_STAY, &[2, 1, 0]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_leaving_the_list_without_looking_at_the_role() {
    let withdraw = |role: &PollerRole, slot| role.withdraw(slot).and(None);
    all_are_served(Rules { withdraw, ..RULES }, ALL_STAY, &[2, 1, 0]);
}

/// The holder, having released the role, names a follower that has ended and is about to leave; that one, having left the
/// list, still sees the role held.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_leaving_the_list_without_fence() {
    let withdraw = |role: &PollerRole, slot: u16| {
        role.followers[0].fetch_and(!(1 << slot), Ordering::Relaxed);
        if role.is_free() { role.successor() } else { None }
    };
    all_are_served(Rules { withdraw, ..RULES }, ALL_STAY, &[2, 1, 0]);
}

/// The holder does not see a follower that enlists meanwhile and sees the role held.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_giving_the_role_up_without_fence() {
    let release = |role: &PollerRole| {
        role.holder.store(FREE, Ordering::Release);
        let followers = role.followers[0].load(Ordering::Relaxed);
        (followers != 0).then(|| u16::try_from(followers.trailing_zeros()).expect("below 64"))
    };
    all_are_served(Rules { release, ..RULES }, ALL_STAY, &[2, 1, 0]);
}

/// A spinning serving thread takes one end in and goes to sleep. Two waiters have relied on it.
fn a_server_hands_over(rules: Rules, arrived: &'static [u16]) {
    explore(rules, 2, arrived, move |world| {
        assert_eq!(world.role.set_serving(ServingState::Spinning), None);
        let waiters = [0, 1].map(|waiter| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.wait(waiter, Patience::Endless))
        });
        world.poll();
        world.wake((rules.serving_sleeps)(&world.role));
        for waiter in waiters {
            waiter.join().expect("it was served");
        }
    });
}

#[test]
fn loom_who_relied_on_the_server_takes_over() {
    a_server_hands_over(RULES, &[1, 0]);
    a_server_hands_over(RULES, &[0, 1]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_server_that_sleeps_without_waking_a_waiter() {
    let serving_sleeps = |role: &PollerRole| role.set_serving(ServingState::Sleeping).and(None);
    a_server_hands_over(Rules { serving_sleeps, ..RULES }, &[1, 0]);
}

/// The waiter still sees a spinning serving thread, and the serving thread does not see the waiter.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_server_that_sleeps_without_fence() {
    let serving_sleeps = |role: &PollerRole| {
        role.serving.store(ServingState::Sleeping as u32, Ordering::Relaxed);
        let followers = role.followers[0].load(Ordering::Relaxed);
        (role.is_free() && followers != 0)
            .then(|| u16::try_from(followers.trailing_zeros()).expect("below 64"))
    };
    a_server_hands_over(Rules { serving_sleeps, ..RULES }, &[1, 0]);
}

/// The waiter that the serving thread wakes has been served already, and leaves without checking whether another one relied on the
/// serving thread.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_leaving_the_list_without_looking_at_a_server_that_sleeps() {
    let withdraw = |role: &PollerRole, slot| role.withdraw(slot).and(None);
    a_server_hands_over(Rules { withdraw, ..RULES }, &[1, 0]);
}
