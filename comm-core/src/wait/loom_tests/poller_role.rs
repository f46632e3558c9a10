//! Loom models of the poller role: every waiting thread is served, and every thread that leaves hands the role over. Each mutant breaks one
//! rule, and loom must refute it.
//!
//! Followers park. A follower that is never woken is a deadlock, which loom reports. If followers polled their words instead, two of them
//! could starve the third one, and the model would not end.

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::{Mutex, OnceLock};

use loom::thread::{self, Thread};
use pronto_sync::WakeWord;
use pronto_sync::atomic::{AtomicU32, Ordering};

use super::preemptions;
use crate::wait::poller_role::{FREE, PollerRole, ServingState};
use crate::wait::{Recheck, Sleeper, Woken, arm_recheck_sleep};

/// The rules for passing the role on: the real ones, or those of a mutant.
#[derive(Clone, Copy)]
struct Rules {
    release: fn(&PollerRole) -> Option<u16>,
    withdraw: fn(&PollerRole, u16) -> Option<u16>,
    /// Called when the serving thread stops spinning.
    serving_sleeps: fn(&PollerRole) -> Option<u16>,
}

const RULES: Rules = Rules {
    release: PollerRole::release,
    withdraw: PollerRole::withdraw,
    serving_sleeps: |role| role.set_serving(ServingState::Sleeping),
};

/// The time when a waiter leaves without its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    Endless,
    /// After one poll as the poller, or by a timeout in its first sleep.
    Short,
}

struct Waiter {
    /// Nonzero after the waiter's end has arrived.
    ended: AtomicU32,
    word: WakeWord,
    thread: OnceLock<Thread>,
}

struct World {
    role: PollerRole,
    rules: Rules,
    waiters: Vec<Waiter>,
    /// The waiters whose ends have arrived and are not polled yet. The last one is polled next. Loom does not explore this mutex of the
    /// standard library: only the role excludes other threads.
    arrived: Mutex<Vec<u16>>,
}

impl World {
    fn has_ended(&self, waiter: u16) -> bool {
        self.waiters[usize::from(waiter)].ended.load(Ordering::Acquire) != 0
    }

    /// Runs one turn of the engine: takes one end and wakes its waiter.
    fn poll(&self) {
        let mut arrived =
            self.arrived.try_lock().expect("only the holder polls, after the last holder has finished");
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

    /// Waits like `Session::wait`: polls as the holder of the role, or sleeps as a follower.
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

/// Explores `threads` with `waiters` waiters. `arrived` lists the waiters whose ends have arrived. The last one is polled first.
fn explore(
    rules: Rules,
    waiters: u16,
    arrived: &'static [u16],
    threads: impl Fn(Arc<World>) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions(builder.preemption_bound));
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

/// Explores one thread per waiter, in the order of their slots.
fn all_are_served(rules: Rules, patience: [Patience; 3], arrived: &'static [u16]) {
    explore(rules, 3, arrived, move |world| {
        let others = [0, 1].map(|waiter| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.wait(waiter, patience[usize::from(waiter)]))
        });
        world.wait(2, patience[2]);
        for other in others {
            other.join().expect("the waiter was served, or left");
        }
    });
}

const ALL_STAY: [Patience; 3] = [Patience::Endless; 3];
/// The waiter in the lowest slot, which leaves, is named as successor first.
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
fn loom_refutes_releasing_the_role_without_a_check_for_a_successor() {
    let release = |role: &PollerRole| role.release().and(None);
    all_are_served(Rules { release, ..RULES }, ALL_STAY, &[2, 1, 0]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_leaving_the_list_without_a_check_of_the_role() {
    let withdraw = |role: &PollerRole, slot| role.withdraw(slot).and(None);
    all_are_served(Rules { withdraw, ..RULES }, ALL_STAY, &[2, 1, 0]);
}

/// The mutant has no fence. The holder releases the role and names a follower that has ended and is about to leave. That follower has left
/// the list and still sees the role held.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_leaving_the_list_without_fence() {
    let withdraw = |role: &PollerRole, slot: u16| {
        role.followers[0].fetch_and(!(1 << slot), Ordering::Relaxed);
        if role.is_free() { role.successor() } else { None }
    };
    all_are_served(Rules { withdraw, ..RULES }, ALL_STAY, &[2, 1, 0]);
}

/// The mutant has no fence. The holder does not see a follower that enlists at the same time, and that follower sees the role held.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_releasing_the_role_without_fence() {
    let release = |role: &PollerRole| {
        role.holder.store(FREE, Ordering::Release);
        let followers = role.followers[0].load(Ordering::Relaxed);
        (followers != 0).then(|| u16::try_from(followers.trailing_zeros()).expect("below 64"))
    };
    all_are_served(Rules { release, ..RULES }, ALL_STAY, &[2, 1, 0]);
}

/// Explores a spinning serving thread that takes one end and goes to sleep, while two waiters rely on it.
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
            waiter.join().expect("the waiter was served");
        }
    });
}

#[test]
fn loom_a_waiter_that_relied_on_the_serving_thread_takes_over() {
    a_server_hands_over(RULES, &[1, 0]);
    a_server_hands_over(RULES, &[0, 1]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_server_that_sleeps_without_waking_a_waiter() {
    let serving_sleeps = |role: &PollerRole| role.set_serving(ServingState::Sleeping).and(None);
    a_server_hands_over(Rules { serving_sleeps, ..RULES }, &[1, 0]);
}

/// The mutant has no fence. The waiter still sees a spinning serving thread, and the serving thread does not see the waiter.
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

/// The serving thread wakes a waiter that has already been served. In the mutant, that waiter leaves without checking whether another one
/// relied on the serving thread.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_leaving_the_list_without_a_check_after_the_serving_thread_sleeps() {
    let withdraw = |role: &PollerRole, slot| role.withdraw(slot).and(None);
    a_server_hands_over(Rules { withdraw, ..RULES }, &[1, 0]);
}
