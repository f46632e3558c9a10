//! Sleeping in the completion channel, and waking followers.

use core::cell::Cell;

use pronto_sync::ARMED;
use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_wire::CallId;

use super::Session;
use super::wait::LATE;
use crate::completion::Server;
use crate::executor::{Channels, Executor};
use crate::fabric::Armed;
use crate::fabric::QueuePair;
use crate::note::{Note, What};
use crate::session::inbound::Sink;
use crate::session::waiter::Waiter;
use crate::time::Nanos;

/// The net under every sleep: a wake-up that was lost costs this much, and is counted.
pub const RESCUE: Nanos = Nanos(pronto_sched_policy::policy::spin::NET.0);

impl<Q: QueuePair> Session<Q> {
    /// Arm, recheck, sleep, for the holder of the role. Returns false if the recheck found what is waited for. Sets `told` if an event ended
    /// the sleep.
    pub(super) fn sleep_in_channel(
        &self,
        until: Nanos,
        told: &Cell<bool>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> bool {
        // Without the engine there is no sleep; the caller looks again.
        let Some(mut engine) = self.enter(executor) else { return true };
        self.role.holder_sleeps(Server::Sleeps);
        engine.arm(Armed::All, self);
        let channels = engine.callers_channels(self.peer.0.into());
        engine.release();
        self.look_once_more(executor);
        let slept = self.sleep_unless_done(until, &channels, told, waiter, sink, executor);
        self.role.holder_sleeps(Server::Awake);
        slept
    }

    fn sleep_unless_done(
        &self,
        until: Nanos,
        channels: &Channels,
        told: &Cell<bool>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> bool {
        let recheck = self.turn_as_poller(1, waiter, sink, executor);
        if waiter.is_done() {
            return false;
        }
        if recheck.is_some_and(|progress| progress.moved == 0) {
            let sleep = |until| {
                let which = executor.sleep_on_channels(channels, until);
                let woken = which.contains(&true);
                if woken {
                    told.set(true);
                    self.told(which, executor);
                }
                woken
            };
            if !sleep(until) && executor.now() >= until {
                self.look_after_net(sink, executor, || {
                    let late = executor.now() + LATE;
                    loop {
                        if sleep(late) {
                            break true;
                        }
                        if executor.now() >= late {
                            break false;
                        }
                    }
                });
            }
        }
        self.disarm_as_poller();
        true
    }

    /// Sleeps until something comes, or `until`, where the calling thread can have the role and the server does not poll. Returns whether it
    /// could: if not, another thread sees to what comes.
    pub(super) fn sleep_for(
        &self,
        done: impl Fn() -> bool,
        until: Nanos,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> bool {
        if self.role.is_left_to_server() || !self.role.claim() {
            return false;
        }
        let role = RoleGuard { session: self, executor, told: Cell::new(false) };
        let mut done = done;
        if self.sleep_in_channel(until, &role.told, &mut done, sink, executor)
            && self.turn_as_poller(1, &mut done, sink, executor).is_some()
        {
            role.told.set(false);
        }
        drop(role);
        self.serve_again(sink, executor);
        true
    }
}

/// Gives the role up when dropped, also by a panic in the sink.
pub(super) struct RoleGuard<'a, Q: QueuePair, X: Executor> {
    pub(super) session: &'a Session<Q>,
    pub(super) executor: &'a X,
    /// An event has woken this thread alone, and it has not looked since.
    pub(super) told: Cell<bool>,
}

impl<Q: QueuePair, X: Executor> Drop for RoleGuard<'_, Q, X> {
    fn drop(&mut self) {
        if let Some(follower) = self.session.role.release() {
            self.session.wake_follower(follower, self.executor);
        }
        if self.told.get() {
            self.executor.attend();
        }
    }
}

/// Strikes the waiter from the list of followers when dropped.
pub(super) struct Enlisted<'a, Q: QueuePair, X: Executor> {
    pub(super) session: &'a Session<Q>,
    pub(super) slot: u16,
    pub(super) executor: &'a X,
}

impl<Q: QueuePair, X: Executor> Drop for Enlisted<'_, Q, X> {
    fn drop(&mut self) {
        if let Some(follower) = self.session.role.strike(self.slot) {
            self.session.wake_follower(follower, self.executor);
        }
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Whether a follower that nobody has woken should be awake: its call has ended, or the role is free, the server does not poll,
    /// and no other follower is on the way to it.
    pub(super) fn overslept(&self, call: CallId, word: &AtomicU32) -> bool {
        let sleeps = |slot| self.calls.sleeper(slot).should_sleep();
        word.load(Ordering::Relaxed) == ARMED
            && (self.has_ended(call) || self.is_abandoned() && self.role.followers().all(sleeps))
    }

    /// Whether nobody takes in what arrives.
    pub(super) fn is_abandoned(&self) -> bool {
        self.role.is_free() && !self.role.is_left_to_server()
    }

    /// After a sleep that ended by the net, before anything is disarmed: one look. If something had arrived and the event
    /// for it does not come either (`woken` waits for it, [`LATE`] at most), a wake-up was lost. Unless another thread has armed or
    /// disarmed meanwhile: then it may have taken the event.
    pub fn look_after_net(
        &self,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
        woken: impl FnOnce() -> bool,
    ) {
        let changes = self.arming.changes();
        let peer_wakes = self.engine.try_lock().is_some_and(|engine| {
            let peer_wakes = engine.peer_wakes();
            engine.release();
            peer_wakes
        });
        let progress = self.turn_as_poller(1, &mut || false, sink, executor).unwrap_or_default();
        if peer_wakes && progress.arrived != 0 && !woken() && changes == self.arming.changes() {
            self.rescued(executor);
        }
    }

    /// A wake-up was lost.
    pub(super) fn rescued(&self, executor: &impl Executor) {
        self.stats.rescues.add(1);
        executor.note(Note::of_peer(What::Rescued, self.peer));
    }

    /// Whether nobody waits for this peer, so that what arrives is the server's to take in.
    pub fn is_servers(&self) -> bool {
        self.role.is_free()
    }

    pub(super) fn wake_follower(&self, slot: u16, executor: &impl Executor) {
        self.stats.handovers.add(1);
        let word = self.calls.sleeper(slot);
        if word.needs_wake() {
            executor.wake(word.by_ref().0);
        }
    }
}
