//! Sleeping callers: the holder of the poller role sleeps in the completion channels, a follower on its own word.

use core::cell::Cell;

use pronto_sync::ARMED;
use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_wire::CallId;

use super::Session;
use crate::executor::{Channels, Executor};
use crate::fabric::{Armed, QueuePair};
use crate::note::{Note, What};
use crate::session::engine::Progress;
use crate::session::inbound::Sink;
use crate::session::waiter::Waiter;
use crate::time::Nanos;
use crate::wait::{LATE, Outcome, Recheck, Sleeper, Woken, arm_recheck_sleep};

/// A guard that holds the poller role for the calling thread until it is dropped, including by a panic in the sink.
pub(super) struct HeldRole<'a, Q: QueuePair, X: Executor> {
    session: &'a Session<Q>,
    executor: &'a X,
    /// True if an event has woken only this thread, and it has not polled since.
    woken: Cell<bool>,
}

impl<'a, Q: QueuePair, X: Executor> HeldRole<'a, Q, X> {
    /// Takes the role of a session. `None` if another thread holds it.
    pub(super) fn claim(session: &'a Session<Q>, executor: &'a X) -> Option<Self> {
        session.role.claim().then(|| Self { session, executor, woken: Cell::new(false) })
    }

    /// Records that the thread has polled, so that every event that has woken it is processed.
    pub(super) fn has_polled(&self) {
        self.woken.set(false);
    }

    /// Arms, rechecks and sleeps in the completion channels, at most until `until`.
    pub(super) fn sleep(
        &self,
        until: Nanos,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Outcome {
        let mut sleeper = ChannelSleeper { role: self, until, waiter, sink, channels: None };
        let outcome = arm_recheck_sleep(&mut sleeper);
        self.session.role.holder_polls();
        outcome
    }

    /// Sleeps until an event occurs, or `until`. Returns whether an event occurred.
    fn sleep_on(&self, channels: &Channels, until: Nanos) -> bool {
        let which = self.executor.sleep_on_channels(channels, until);
        let woken = which.contains(&true);
        if woken {
            self.woken.set(true);
            self.session.notify_woken(which, self.executor);
        }
        woken
    }
}

impl<Q: QueuePair, X: Executor> Drop for HeldRole<'_, Q, X> {
    fn drop(&mut self) {
        if let Some(follower) = self.session.role.release() {
            self.session.wake_follower(follower, self.executor);
        }
        if self.woken.get() {
            self.executor.wake_serving_thread(self.session.peer);
        }
    }
}

struct ChannelSleeper<'a, 'r, Q: QueuePair, W, S, X: Executor> {
    role: &'a HeldRole<'r, Q, X>,
    until: Nanos,
    waiter: &'a mut W,
    sink: &'a mut S,
    /// The channels while they are armed.
    channels: Option<Channels>,
}

impl<Q, W, S, X> Sleeper for ChannelSleeper<'_, '_, Q, W, S, X>
where
    Q: QueuePair,
    W: Waiter<Q::Lease>,
    S: Sink<Q::Lease>,
    X: Executor,
{
    fn arm(&mut self) -> bool {
        let &HeldRole { session, executor, .. } = self.role;
        let Some(mut engine) = session.enter(executor) else { return false };
        session.role.holder_sleeps();
        engine.arm(Armed::All, session);
        self.channels = Some(engine.callers_channels(session.peer.0.into()));
        engine.release();
        session.recheck(executor);
        true
    }

    fn recheck(&mut self) -> Recheck {
        let &HeldRole { session, executor, .. } = self.role;
        let progress = session.turn_as_poller(1, self.waiter, self.sink, executor);
        if self.waiter.is_done() {
            return Recheck::Done;
        }
        // `None` means that another thread polls.
        if progress.is_some_and(|progress| progress.moved == 0) { Recheck::Empty } else { Recheck::Found }
    }

    fn sleep(&mut self) -> Woken {
        let channels = self.channels.as_ref().expect("armed before the sleep");
        let early = self.role.sleep_on(channels, self.until) || self.role.executor.now() < self.until;
        if early { Woken::Early } else { Woken::Limit }
    }

    fn check_safety_net(&mut self) {
        let Self { role, sink, channels, .. } = self;
        let &HeldRole { session, executor, .. } = *role;
        let channels = channels.as_ref().expect("armed before the sleep");
        session.check_safety_net(*sink, executor, || {
            let late = executor.now() + LATE;
            loop {
                if role.sleep_on(channels, late) {
                    break true;
                }
                if executor.now() >= late {
                    break false;
                }
            }
        });
    }

    fn disarm(&mut self) {
        self.role.session.disarm_as_poller();
    }
}

/// A caller without the role, which sleeps on the word of its call's slot until the call has ended or no thread polls for it.
pub(super) struct FollowerSleeper<'a, Q: QueuePair, X: Executor> {
    pub(super) session: &'a Session<Q>,
    pub(super) call: CallId,
    pub(super) until: Nanos,
    pub(super) executor: &'a X,
}

impl<Q: QueuePair, X: Executor> FollowerSleeper<'_, Q, X> {
    fn has_reason_to_poll(&self) -> bool {
        self.session.has_ended(self.call) || self.session.role.is_abandoned()
    }

    fn word(&self) -> &AtomicU32 {
        self.session.calls.sleeper(self.call.slot).by_ref().0
    }

    /// Returns whether the thread should be awake and no thread has woken it: its call has ended, or the role is abandoned and no other
    /// follower is about to take it.
    fn has_overslept(&self) -> bool {
        let Self { session, call, .. } = *self;
        let sleeps = |slot| session.calls.sleeper(slot).should_sleep();
        self.word().load(Ordering::Relaxed) == ARMED
            && (session.has_ended(call)
                || session.role.is_abandoned() && session.role.followers().all(sleeps))
    }
}

impl<Q: QueuePair, X: Executor> Sleeper for FollowerSleeper<'_, Q, X> {
    fn arm(&mut self) -> bool {
        self.session.role.enlist(self.call.slot);
        self.session.calls.sleeper(self.call.slot).arm();
        true
    }

    fn recheck(&mut self) -> Recheck {
        let sleeps = !self.has_reason_to_poll() && self.session.calls.sleeper(self.call.slot).should_sleep();
        if sleeps { Recheck::Empty } else { Recheck::Found }
    }

    fn sleep(&mut self) -> Woken {
        self.executor.sleep(self.word(), self.until);
        if self.executor.now() < self.until { Woken::Early } else { Woken::Limit }
    }

    fn check_safety_net(&mut self) {
        if self.has_overslept() {
            self.executor.sleep(self.word(), self.until + LATE);
            if self.has_overslept() {
                self.session.count_lost_wake_up(self.executor);
            }
        }
    }

    fn disarm(&mut self) {
        self.session.calls.sleeper(self.call.slot).disarm();
        if let Some(follower) = self.session.role.withdraw(self.call.slot) {
            self.session.wake_follower(follower, self.executor);
        }
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Sleeps until something arrives, or until `until`, if the calling thread gets the role and the serving thread does not spin. Returns
    /// whether it slept. If it did not, another thread processes what arrives.
    pub(super) fn sleep_for(
        &self,
        mut done: impl Fn() -> bool,
        until: Nanos,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> bool {
        if self.role.serving_spins() {
            return false;
        }
        let Some(role) = HeldRole::claim(self, executor) else { return false };
        if role.sleep(until, &mut done, sink) != Outcome::Done
            && self.turn_as_poller(1, &mut done, sink, executor).is_some()
        {
            role.has_polled();
        }
        drop(role);
        self.serve_again(sink, executor);
        true
    }

    /// Polls once after a sleep that ended by its time limit, before the fabric is disarmed. Counts a lost wake-up if something had arrived
    /// and its wake-up does not occur within [`LATE`], for which `woken` waits. Does not count one if another thread has armed or disarmed
    /// the fabric meanwhile, as this may have consumed the event.
    pub fn check_safety_net(
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
            self.count_lost_wake_up(executor);
        }
    }

    fn count_lost_wake_up(&self, executor: &impl Executor) {
        self.stats.lost_wake_ups.add(1);
        executor.note(Note::of_peer(What::Rescued, self.peer));
    }

    /// Returns whether the serving thread must poll again before it sleeps, after a poll with this result that followed its arming. A poll
    /// that found the engine locked has found out nothing, and messages that arrived before the arming cause no event. A thread without
    /// the poller role may hold the engine only to send. The holder of the role polls once more when it leaves, for the serving thread.
    pub fn must_poll_again(&self, progress: Option<Progress>) -> bool {
        // A holder that sleeps has armed and polled by itself.
        if progress.is_some() || self.role.holder_is_asleep() {
            return false;
        }
        self.arming.owe_recheck();
        self.role.is_free()
    }

    /// Returns whether no caller waits for this peer, so that the serving thread processes what arrives.
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
