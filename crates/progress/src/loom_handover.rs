//! The duty passes to a spare and back, explored by loom; and the mutants that it must refute.
//!
//! A call that blocks ends only when an event is served that comes while it is under way. So a duty that nobody takes over, or that is
//! not given back, is a deadlock, which loom reports. The timer runs out as soon as it is set: at any time, as far as others see.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_sync::{TryLock, TryLockGuard, WakeWord};

use crate::handover::{Handover, Roles, Signals};
use pronto_core::wait::{Recheck, Sleeper, Woken, arm_recheck_sleep};

/// An event descriptor, or a timer that has run out: stays set until somebody who waits takes it.
struct Bell {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self { is_set: Mutex::new(false), changed: Condvar::new() }
    }

    fn set(&self) {
        *self.is_set.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn unset(&self) {
        *self.is_set.lock().unwrap() = false;
    }

    fn wait(&self) {
        let mut is_set = self.is_set.lock().unwrap();
        while !*is_set {
            is_set = self.changed.wait(is_set).unwrap();
        }
        *is_set = false;
    }
}

/// What goes on between the threads.
struct World {
    handover: Handover,
    role: Post,
    timer: Bell,
    /// What the thread on duty sleeps on.
    sleep: Bell,
    word: WakeWord,
    sent: AtomicU32,
    /// The first event was served.
    released: Bell,
    dismissed: Mutex<bool>,
    mutant: Mutant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// As it is.
    None,
    /// No timer is set before a call that may block.
    NoTimer,
    /// The thread that is back does not ring for the spare.
    NoRing,
    /// Ringing is not kept for a spare that is about to sleep.
    FleetingRing,
    /// A spare that finds that the engine's thread has been there does not set the timer anew.
    NoTimerAgain,
}

/// What the thread on duty knows.
struct Role {
    served: u32,
    turns: u32,
}

/// A lock of our own: loom lets a thread that tries loom's wait for it, where another one takes it first.
struct Post {
    role: TryLock<Role>,
    /// Set when the role is given up.
    free: Bell,
}

struct Taken<'a> {
    role: Option<TryLockGuard<'a, Role>>,
    post: &'a Post,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A model that was refuted has ended: nothing of loom's may be touched any more.
            core::mem::forget(self.role.take());
            return;
        }
        self.role = None;
        self.post.free.set();
    }
}

impl<'a> Roles<'a> for Post {
    type Role = Taken<'a>;

    fn try_take(&'a self) -> Option<Taken<'a>> {
        let role = self.role.try_lock()?;
        Some(Taken { role: Some(role), post: self })
    }

    fn take(&'a self) -> Taken<'a> {
        loop {
            if let Some(role) = self.try_take() {
                return role;
            }
            self.free.wait();
        }
    }
}

impl Taken<'_> {
    fn role(&mut self) -> &mut Role {
        self.role.as_mut().expect("until it is dropped")
    }
}

/// The signals of one call of the protocol: a mutant has less of them.
struct Heard<'a>(&'a World, Option<Mutant>);

impl Signals for Heard<'_> {
    fn set_timer(&self) {
        let dismissed = self.0.dismissed.lock().unwrap();
        if self.1 != Some(self.0.mutant) && !*dismissed {
            self.0.timer.set();
        }
    }

    fn unset_timer(&self) {
        let dismissed = self.0.dismissed.lock().unwrap();
        if !*dismissed {
            self.0.timer.unset();
        }
    }

    fn ring(&self) {
        match self.0.mutant {
            Mutant::NoRing => {}
            Mutant::FleetingRing => self.0.sleep.changed.notify_all(),
            _ => self.0.sleep.set(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Own,
    Spare,
}

/// The thread on duty, about to sleep.
struct OnDuty<'a> {
    world: &'a World,
    served: u32,
    who: Who,
}

impl Sleeper for OnDuty<'_> {
    fn arm(&mut self) -> bool {
        self.world.word.arm();
        true
    }

    fn recheck(&mut self) -> Recheck {
        let World { sent, handover, word, .. } = self.world;
        let found = sent.load(Ordering::Acquire) != self.served
            || self.who == Who::Spare && handover.is_wanted()
            || !word.should_sleep();
        if found { Recheck::Found } else { Recheck::Empty }
    }

    fn sleep(&mut self) -> Woken {
        self.world.sleep.wait();
        Woken::Early
    }

    fn check_safety_net(&mut self) {}

    fn disarm(&mut self) {
        self.world.word.disarm();
    }
}

impl World {
    fn new(mutant: Mutant) -> Arc<Self> {
        Arc::new(Self {
            handover: Handover::new(),
            role: Post { role: TryLock::new(Role { served: 0, turns: 0 }), free: Bell::new() },
            timer: Bell::new(),
            sleep: Bell::new(),
            word: WakeWord::new(),
            sent: AtomicU32::new(0),
            released: Bell::new(),
            dismissed: Mutex::new(false),
            mutant,
        })
    }

    /// Serves events, until so many were served or the spare is wanted elsewhere.
    fn serve(&self, role: &mut Role, until: u32, who: Who) {
        while role.served < until && !(who == Who::Spare && self.handover.is_wanted()) {
            let sent = self.sent.load(Ordering::Acquire);
            if sent == role.served {
                arm_recheck_sleep(&mut OnDuty { world: self, served: sent, who });
                continue;
            }
            if role.served == 0 {
                self.released.set();
            }
            role.served = sent;
        }
    }

    /// An event comes.
    fn send(&self) {
        self.sent.fetch_add(1, Ordering::Release);
        if self.word.needs_wake() {
            self.sleep.set();
        }
    }

    /// A call without the role.
    fn call(&self, blocks: impl FnOnce()) {
        self.handover.begins(|_| (), &Heard(self, Some(Mutant::NoTimer)));
        blocks();
        self.handover.ends(&Heard(self, None));
    }

    fn takes_back(&self) -> Taken<'_> {
        let mut role = self.handover.takes_back(&self.role, &Heard(self, None));
        role.role().turns += 1;
        role
    }

    fn dismiss(&self) {
        *self.dismissed.lock().unwrap() = true;
        self.timer.set();
    }

    /// A spare waits for its turns until it is dismissed.
    fn stand_in(&self) {
        loop {
            self.timer.wait();
            if *self.dismissed.lock().unwrap() {
                break;
            }
            if let Some(mut role) = self.handover.relieves(&self.role) {
                self.serve(role.role(), u32::MAX, Who::Spare);
            }
        }
    }
}

/// Three threads that wait for each other: with one involuntary switch less than other models, in a bounded run.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.map(|bound| bound.min(2));
    builder.check(model);
}

/// The engine's thread blocks in a call that ends with the first event, and serves the second one itself, or finds it served.
fn one_call(mutant: Mutant) {
    explore(move || {
        let world = World::new(mutant);
        let theirs = Arc::clone(&world);
        let spare = thread::spawn(move || theirs.stand_in());
        let theirs = Arc::clone(&world);
        let own = thread::spawn(move || {
            theirs.call(|| theirs.released.wait());
            let mut role = theirs.takes_back();
            theirs.serve(role.role(), 2, Who::Own);
            drop(role);
            theirs.dismiss();
        });
        world.send();
        world.send();
        own.join().unwrap();
        spare.join().unwrap();
    });
}

#[test]
fn loom_the_duty_is_taken_over_and_given_back() {
    one_call(Mutant::None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_call_without_a_timer() {
    one_call(Mutant::NoTimer);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_return_that_does_not_ring() {
    one_call(Mutant::NoRing);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_ring_that_only_sleepers_hear() {
    one_call(Mutant::FleetingRing);
}

/// The spare makes a call of its own while the engine's thread comes back and blocks again: the end of the spare's call takes back the
/// timer that is there for the other one.
fn two_calls(mutant: Mutant) {
    explore(move || {
        let world = World::new(mutant);
        // The spare has relieved the engine's thread in its first call, and runs a tasklet.
        world.handover.begins(|_| (), &Heard(&world, None));
        world.timer.wait();
        let turns = world.role.take().role().turns;
        let theirs = Arc::clone(&world);
        let spare = thread::spawn(move || {
            theirs.call(|| ());
            let is_still_its = |role: &Taken<'_>| role.role.as_ref().is_some_and(|role| role.turns == turns);
            let again = Heard(&theirs, Some(Mutant::NoTimerAgain));
            if let Some(mut role) = theirs.handover.stays(&theirs.role, is_still_its, &again) {
                theirs.serve(role.role(), u32::MAX, Who::Spare);
            }
            theirs.stand_in();
        });
        let theirs = Arc::clone(&world);
        let own = thread::spawn(move || {
            theirs.handover.ends(&Heard(&theirs, None));
            drop(theirs.takes_back());
            theirs.call(|| theirs.released.wait());
            drop(theirs.takes_back());
            theirs.dismiss();
        });
        world.send();
        own.join().unwrap();
        spare.join().unwrap();
    });
}

#[test]
fn loom_a_spare_that_leaves_leaves_the_duty_to_somebody() {
    two_calls(Mutant::None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_spare_that_takes_the_timer_of_another_call_with_it() {
    two_calls(Mutant::NoTimerAgain);
}
