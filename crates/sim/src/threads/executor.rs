//! Waiting of simulated threads: sleeps in virtual time.

use core::cell::Cell;
use std::sync::Arc;

use pronto_core::executor::{Channels, Circumstances, Executor, WaitPolicy};
use pronto_core::note::{Note, What};
use pronto_core::{Clock, Nanos};
use pronto_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use pronto_sync::{ARMED, WakeWord};
use pronto_wire::NodeId;

use super::resting::Announcements;
use super::scheduler::{self, LostWakeUps, Why};
use super::thread::{Asleep, SleepOn};
use crate::world::{SimClock, SimNode, SimWorld};

thread_local! {
    /// True while the thread runs code that must not wait, because it holds an engine.
    static HOLDS_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// Executor of a node with simulated threads.
#[derive(Clone, Debug)]
pub(super) struct ThreadExecutor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: SimClock,
    place: SimNode,
    circumstances: Circumstances,
    lost_wake_ups: LostWakeUps,
    /// The word of the serving thread, which it arms before it sleeps.
    serving: WakeWord,
    /// A holder of an engine has panicked.
    failed: AtomicBool,
    /// The peers that rest, if idle ones do.
    resting: Option<Announcements>,
    /// Number of times that a thread has held a notification for the serving thread.
    held: AtomicU64,
}

impl ThreadExecutor {
    pub(super) fn new(
        world: &SimWorld,
        place: SimNode,
        circumstances: Circumstances,
        lost_wake_ups: LostWakeUps,
        resting: Option<Announcements>,
    ) -> Self {
        let (clock, serving, failed) = (world.clock_of(place), WakeWord::new(), AtomicBool::new(false));
        let held = AtomicU64::new(0);
        let shared = Shared { clock, place, circumstances, lost_wake_ups, serving, failed, resting, held };
        Self(Arc::new(shared))
    }

    /// Returns the announcements of the peers that rest. Returns none if no peer ever does.
    pub(super) fn resting(&self) -> Option<&Announcements> {
        self.0.resting.as_ref()
    }

    /// Returns how often a thread has held a notification for the serving thread.
    pub(super) fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Wakes the serving thread and makes it poll this peer, for work that no event reports.
    pub(super) fn wake_server_for(&self, peer: NodeId) {
        if let Some(resting) = &self.0.resting {
            resting.rouse(peer);
        }
        self.wake_server();
    }

    /// Returns the word of the serving thread.
    pub(super) fn serving(&self) -> &WakeWord {
        &self.0.serving
    }

    /// Returns whether a session has failed since the last call.
    pub(super) fn takes_failure(&self) -> bool {
        self.0.failed.load(Ordering::Relaxed) && self.0.failed.swap(false, Ordering::AcqRel)
    }

    pub(super) fn has_failure(&self) -> bool {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Returns a time of the node's clock in the world's time.
    pub(super) fn in_world(&self, time: Nanos) -> Nanos {
        self.0.clock.in_world(time)
    }

    /// Wakes the serving thread, if it sleeps.
    pub(super) fn wake_server(&self) {
        if self.0.serving.needs_wake() {
            scheduler::alert(self.0.place);
        }
    }

    /// The program's own pause.
    pub(super) fn pause(&self, span: Nanos) {
        let until = self.in_world(self.now() + span);
        scheduler::sleep(Asleep { on: SleepOn::Pause, until }, |_| true);
    }
}

/// Runs code that must not wait, such as an inline handler.
pub(super) fn holding_engine<R>(run: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            HOLDS_ENGINE.set(self.0);
        }
    }
    let _restore = Restore(HOLDS_ENGINE.replace(true));
    run()
}

impl Clock for ThreadExecutor {
    fn now(&self) -> Nanos {
        scheduler::switch(Why::Point);
        self.0.clock.now()
    }
}

impl Executor for ThreadExecutor {
    fn circumstances(&self, _: WaitPolicy) -> Circumstances {
        self.0.circumstances
    }

    fn sleep(&self, word: &AtomicU32, until: Nanos) {
        let until = self.in_world(until);
        let on = SleepOn::Word(core::ptr::from_ref(word).addr());
        scheduler::sleep(Asleep { on, until }, |_| word.load(Ordering::Relaxed) == ARMED);
    }

    fn wake(&self, word: &AtomicU32) {
        scheduler::wake_word(core::ptr::from_ref(word).addr());
    }

    fn yield_now(&self) {
        scheduler::switch(Why::Yield);
    }

    fn back_off(&self, span: Nanos) {
        let until = self.in_world(self.now() + span);
        scheduler::sleep(Asleep { on: SleepOn::BackOff, until }, |_| true);
    }

    fn may_block(&self) -> bool {
        !HOLDS_ENGINE.get()
    }

    fn foreign(&self, run: impl FnOnce()) {
        holding_engine(run);
    }

    fn sleep_on_channels(&self, channels: &Channels, until: Nanos) -> [bool; 2] {
        let until = self.in_world(until);
        let each = channels.each.map(|channel| channel.map(|channel| channel.fd));
        let on = SleepOn::Channels(each.into_iter().flatten().collect());
        let woken = scheduler::sleep(Asleep { on, until }, |_| true);
        each.map(|channel| channel.is_some_and(|channel| woken.ready.contains(&channel)))
    }

    fn wake_serving_thread(&self, peer: NodeId) {
        self.wake_server_for(peer);
    }

    fn ring_soon(&self, peer: NodeId) -> bool {
        self.0.held.fetch_add(1, Ordering::Relaxed);
        self.wake_server_for(peer);
        true
    }

    fn engine_failed(&self) {
        self.0.failed.store(true, Ordering::Release);
        self.wake_server();
    }

    fn note(&self, note: Note) {
        let has_lost = note.what == What::Rescued && self.0.lost_wake_ups == LostWakeUps::Fail;
        assert!(!has_lost, "the session has counted a lost wake-up");
    }
}
