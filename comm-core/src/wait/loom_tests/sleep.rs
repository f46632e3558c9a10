//! Loom models of arm, recheck, sleep for several sources, and mutants that loom must refute.
//!
//! The producer of one source wakes the sleeper by the sleeper's own word, that of the other source by a word in the source's memory, as in
//! a peer's segment. A sleeper that misses an event deadlocks, which loom reports.

use alloc::sync::Arc;

use loom::thread::{self, Thread};
use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_sync::{Event, WakeWord, WakeWordRef, peer_is_armed};

use crate::wait::{Recheck, Sleeper, Woken, arm_recheck_sleep};

struct World {
    own: WakeWord,
    /// Published before a check of `own`.
    notified: AtomicU32,
    /// Published before a check of `armed`.
    asked: AtomicU32,
    armed: AtomicU32,
}

struct Both<'a> {
    world: &'a World,
    order: Order,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The rules of every sleeper.
    Right,
    /// A source is rechecked before it is armed.
    RecheckFirst,
    /// A source is not armed.
    Forgotten,
}

impl World {
    fn found(&self) -> u32 {
        self.notified.load(Ordering::Acquire) + self.asked.load(Ordering::Acquire)
    }
}

impl Sleeper for Both<'_> {
    fn arm(&mut self) -> bool {
        self.world.own.arm();
        if self.order == Order::Right {
            WakeWordRef(&self.world.armed).arm();
        }
        true
    }

    fn recheck(&mut self) -> Recheck {
        let found = self.world.found() == EVENTS || !self.world.own.should_sleep();
        if self.order == Order::RecheckFirst {
            WakeWordRef(&self.world.armed).arm();
        }
        if found { Recheck::Found } else { Recheck::Empty }
    }

    fn sleep(&mut self) -> Woken {
        thread::park();
        Woken::Early
    }

    fn check_safety_net(&mut self) {}

    fn disarm(&mut self) {
        self.world.own.disarm();
        WakeWordRef(&self.world.armed).disarm();
    }
}

const EVENTS: u32 = 2;

fn model(order: Order) {
    loom::model(move || {
        let world = Arc::new(World {
            own: WakeWord::new(),
            notified: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            armed: AtomicU32::new(0),
        });
        let theirs = Arc::clone(&world);
        let sleeper = thread::spawn(move || {
            let mut both = Both { world: &theirs, order };
            while theirs.found() != EVENTS {
                arm_recheck_sleep(&mut both);
            }
        });
        let handle: Thread = sleeper.thread().clone();
        let theirs = Arc::clone(&world);
        let notifies = thread::spawn(move || {
            theirs.notified.store(1, Ordering::Release);
            if theirs.own.needs_wake() {
                handle.unpark();
            }
        });
        world.asked.store(1, Ordering::Release);
        if peer_is_armed(&world.armed, Event::Unsolicited) {
            sleeper.thread().unpark();
        }
        notifies.join().unwrap();
        sleeper.join().unwrap();
    });
}

#[test]
fn loom_no_event_of_any_source_is_lost() {
    model(Order::Right);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_recheck_before_everything_is_armed() {
    model(Order::RecheckFirst);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_source_that_is_not_armed() {
    model(Order::Forgotten);
}
