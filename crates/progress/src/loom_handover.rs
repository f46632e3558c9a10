//! Loom model of the hand-over of the role to a spare and back, with mutants that loom must refute.
//!
//! A call that blocks ends only when an event is served that comes during the call. If no thread takes the role over, or the spare does
//! not return it, the model deadlocks, which loom reports. The timer expires as soon as it is set; for the other threads that can be
//! at any time.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_sync::{TryLock, TryLockGuard, WakeWord};

use crate::handover::{Handover, Roles, Signals};
use pronto_core::wait::{Recheck, Sleeper, Woken, arm_recheck_sleep};

/// An event descriptor or a timer: stays set until a waiting thread consumes it.
struct Event {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Event {
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

/// State that the threads of the model share.
struct World {
    handover: Handover,
    role: RoleLock,
    timer: Event,
    /// Descriptor on which the role holder sleeps.
    sleep: Event,
    word: WakeWord,
    sent: AtomicU32,
    /// The first event was served.
    released: Event,
    dismissed: Mutex<bool>,
    mutant: Mutant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// The protocol without a fault.
    None,
    /// No timer is set before a call that may block.
    NoTimer,
    /// The engine thread does not ring when it wants the role back.
    NoRing,
    /// A ring is lost if the spare does not sleep yet.
    FleetingRing,
    /// A spare that finds that the engine thread has held the role does not set the timer again.
    NoTimerAgain,
}

/// State of the engine role.
struct Role {
    served: u32,
    turns: u32,
}

/// The lock of the role. Not loom's mutex, because loom lets `try_lock` wait if another thread takes the lock first.
struct RoleLock {
    role: TryLock<Role>,
    /// Set when the role is released.
    free: Event,
}

struct Taken<'a> {
    role: Option<TryLockGuard<'a, Role>>,
    engine_threads: &'a RoleLock,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A refuted model has ended, and loom's objects must not be used any more.
            core::mem::forget(self.role.take());
            return;
        }
        self.role = None;
        self.engine_threads.free.set();
    }
}

impl<'a> Roles<'a> for RoleLock {
    type Role = Taken<'a>;

    fn try_take(&'a self) -> Option<Taken<'a>> {
        let role = self.role.try_lock()?;
        Some(Taken { role: Some(role), engine_threads: self })
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

/// Signals of one call of the protocol, without those that a mutant omits.
struct ModelSignals<'a>(&'a World, Option<Mutant>);

impl Signals for ModelSignals<'_> {
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
enum Holder {
    Own,
    Spare,
}

/// The role holder as a sleeper.
struct OnDuty<'a> {
    world: &'a World,
    served: u32,
    holder: Holder,
}

impl Sleeper for OnDuty<'_> {
    fn arm(&mut self) -> bool {
        self.world.word.arm();
        true
    }

    fn recheck(&mut self) -> Recheck {
        let World { sent, handover, word, .. } = self.world;
        let found = sent.load(Ordering::Acquire) != self.served
            || self.holder == Holder::Spare && handover.is_wanted()
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
            role: RoleLock { role: TryLock::new(Role { served: 0, turns: 0 }), free: Event::new() },
            timer: Event::new(),
            sleep: Event::new(),
            word: WakeWord::new(),
            sent: AtomicU32::new(0),
            released: Event::new(),
            dismissed: Mutex::new(false),
            mutant,
        })
    }

    /// Serves events until `until` were served, or the engine thread wants the role of a spare.
    fn serve(&self, role: &mut Role, until: u32, holder: Holder) {
        while role.served < until && !(holder == Holder::Spare && self.handover.is_wanted()) {
            let sent = self.sent.load(Ordering::Acquire);
            if sent == role.served {
                arm_recheck_sleep(&mut OnDuty { world: self, served: sent, holder });
                continue;
            }
            if role.served == 0 {
                self.released.set();
            }
            role.served = sent;
        }
    }

    /// Publishes an event.
    fn send(&self) {
        self.sent.fetch_add(1, Ordering::Release);
        if self.word.needs_wake() {
            self.sleep.set();
        }
    }

    /// Makes a call that may block, without the role.
    fn call(&self, blocks: impl FnOnce()) {
        self.handover.begin_call(|_| (), &ModelSignals(self, Some(Mutant::NoTimer)));
        blocks();
        self.handover.end_call(&ModelSignals(self, None));
    }

    fn take_back(&self) -> Taken<'_> {
        let mut role = self.handover.take_back(&self.role, &ModelSignals(self, None));
        role.role().turns += 1;
        role
    }

    fn dismiss(&self) {
        *self.dismissed.lock().unwrap() = true;
        self.timer.set();
    }

    /// Runs a spare until it is dismissed.
    fn run_spare(&self) {
        loop {
            self.timer.wait();
            if *self.dismissed.lock().unwrap() {
                break;
            }
            if let Some(mut role) = self.handover.relieve(&self.role) {
                self.serve(role.role(), u32::MAX, Holder::Spare);
            }
        }
    }
}

/// Explores a model of three threads, in bounded runs with one preemption less than other models.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.map(|bound| bound.min(2));
    builder.check(model);
}

/// The engine thread blocks in a call that ends with the first event. It serves the second event itself or finds it served.
fn one_call(mutant: Mutant) {
    explore(move || {
        let world = World::new(mutant);
        let theirs = Arc::clone(&world);
        let spare = thread::spawn(move || theirs.run_spare());
        let theirs = Arc::clone(&world);
        let own = thread::spawn(move || {
            theirs.call(|| theirs.released.wait());
            let mut role = theirs.take_back();
            theirs.serve(role.role(), 2, Holder::Own);
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
fn loom_the_role_is_taken_over_and_returned() {
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
fn loom_refutes_a_ring_that_only_sleeping_spares_get() {
    one_call(Mutant::FleetingRing);
}

/// The spare makes a call of its own while the engine thread takes the role back and blocks again. The end of the spare's call
/// cancels the timer of the engine thread's call.
fn two_calls(mutant: Mutant) {
    explore(move || {
        let world = World::new(mutant);
        // The spare has taken over during the engine thread's first call, and runs a tasklet.
        world.handover.begin_call(|_| (), &ModelSignals(&world, None));
        world.timer.wait();
        let turns = world.role.take().role().turns;
        let theirs = Arc::clone(&world);
        let spare = thread::spawn(move || {
            theirs.call(|| ());
            let is_still_its = |role: &Taken<'_>| role.role.as_ref().is_some_and(|role| role.turns == turns);
            let again = ModelSignals(&theirs, Some(Mutant::NoTimerAgain));
            if let Some(mut role) = theirs.handover.keep(&theirs.role, is_still_its, &again) {
                theirs.serve(role.role(), u32::MAX, Holder::Spare);
            }
            theirs.run_spare();
        });
        let theirs = Arc::clone(&world);
        let own = thread::spawn(move || {
            theirs.handover.end_call(&ModelSignals(&theirs, None));
            drop(theirs.take_back());
            theirs.call(|| theirs.released.wait());
            drop(theirs.take_back());
            theirs.dismiss();
        });
        world.send();
        own.join().unwrap();
        spare.join().unwrap();
    });
}

#[test]
fn loom_a_spare_that_leaves_does_not_leave_the_role_unattended() {
    two_calls(Mutant::None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_spare_that_cancels_the_timer_of_another_call() {
    two_calls(Mutant::NoTimerAgain);
}
