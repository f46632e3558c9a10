//! Loom models of a task that joins the queue while a thread frees room, and mutants that loom must refute.

use alloc::sync::Arc;

use loom::thread;
use pronto_sync::atomic::{AtomicU32, Ordering, fence};

use super::*;
use crate::executor::{ASLEEP, Channels, Circumstances, WaitPolicy};
use crate::time::Clock;

struct Thread;

impl Clock for Thread {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
}

impl Executor for Thread {
    fn circumstances(&self, _: WaitPolicy) -> Circumstances {
        ASLEEP
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {
        unreachable!("no thread sleeps in this model")
    }

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {
        thread::yield_now();
    }

    fn back_off(&self, _: Nanos) {
        thread::yield_now();
    }

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        unreachable!("no thread sleeps in this model")
    }
}

#[derive(Default)]
struct World {
    admission: Admission,
    wanted: Wanted,
    credits: AtomicU32,
}

impl World {
    fn admits(&self) {
        let room = || {
            let credits = [self.credits.load(Ordering::Relaxed), 0];
            Available::Up(Room { credits, ..Room::default() })
        };
        while self.admission.give(room, &Thread).is_some() {}
    }

    fn joins(&self) -> RoomTicket {
        let room = RoomFor::Notification(Class::Control);
        let request = RoomRequest { room, deadline: Nanos::NEVER, when_down: WhenDown::Fails };
        let (ticket, _) = self.admission.join(request, &self.wanted, &Thread);
        ticket
    }

    fn has_room(&self, ticket: &RoomTicket) -> bool {
        self.admission.poll(ticket, Waker::noop(), &Thread).0 == RoomState::Given
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fences {
    Both,
    /// The task that joins looks for room without a fence.
    FreeingOnly,
    /// The thread that frees room looks at the flag without a fence.
    JoiningOnly,
}

/// A task joins while a credit comes back. It must get room.
fn joining_against_freeing(fences: Fences) {
    loom::model(move || {
        let world = Arc::new(World::default());
        let shared = Arc::clone(&world);
        let frees = thread::spawn(move || {
            shared.credits.fetch_add(1, Ordering::Relaxed);
            if fences != Fences::JoiningOnly {
                fence(Ordering::SeqCst);
            }
            if shared.wanted.wants_room() {
                shared.admits();
            }
        });
        let ticket = world.joins();
        if fences != Fences::FreeingOnly {
            fence(Ordering::SeqCst);
        }
        world.admits();
        frees.join().expect("the thread ends");
        assert!(world.has_room(&ticket), "room was lost");
    });
}

#[test]
fn loom_a_task_that_joins_while_room_is_freed_gets_it() {
    joining_against_freeing(Fences::Both);
}

#[test]
#[should_panic(expected = "room was lost")]
fn loom_room_is_lost_if_the_joining_task_does_not_fence() {
    joining_against_freeing(Fences::FreeingOnly);
}

#[test]
#[should_panic(expected = "room was lost")]
fn loom_room_is_lost_if_the_freeing_thread_does_not_fence() {
    joining_against_freeing(Fences::JoiningOnly);
}

/// Two tasks wait, and the first, which has room, leaves while a second credit comes back. The other must get room.
#[test]
fn loom_a_task_that_leaves_passes_its_room_on() {
    loom::model(|| {
        let world = Arc::new(World::default());
        world.credits.store(1, Ordering::Relaxed);
        let (first, second) = (world.joins(), world.joins());
        world.admits();
        let shared = Arc::clone(&world);
        let leaves = thread::spawn(move || {
            // It uses its room.
            shared.credits.fetch_sub(1, Ordering::Relaxed);
            shared.admission.leave(&first, &shared.wanted, &Thread);
            fence(Ordering::SeqCst);
            if shared.wanted.wants_room() {
                shared.admits();
            }
        });
        world.credits.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if world.wanted.wants_room() {
            world.admits();
        }
        leaves.join().expect("the thread ends");
        assert!(world.has_room(&second), "room was lost");
        world.admission.leave(&second, &world.wanted, &Thread);
        assert!(!world.wanted.wants_room());
    });
}
