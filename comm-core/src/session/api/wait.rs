//! Waiting for the end of a call: as the holder of the poller role, or as a follower until the call has ended or the role is free.

use pronto_wire::CallId;

use super::Session;
use super::engine_lock::EngineGuard;
use super::fast_path::LeavesIfUnwound;
use super::sleep::{FollowerSleeper, HeldRole};
use crate::executor::{Executor, WaitRequest};
use crate::fabric::Armed;
use crate::fabric::QueuePair;
use crate::session::end::End;
use crate::session::engine::Progress;
use crate::session::engine::RECEIVE_BATCH;
use crate::session::inbound::Sink;
use crate::session::shared::Turn;
use crate::session::waiter::Waiter;
use crate::time::Nanos;
use crate::wait::{Next, Outcome, PollWatch, Slept, Wait, YieldTimer, arm_recheck_sleep};

/// Number of polls in a poll batch. After each batch without a message a poller reads the clock, which takes as long as a few polls, and
/// other threads can take the engine lock. A model of loom has fewer steps.
pub(super) const POLL_BATCH: u32 = if cfg!(loom) { 1 } else { 64 };

/// The outcome of a wait.
#[derive(Debug)]
pub enum WaitOutcome<L> {
    /// The call or send has ended, and its slot is freed.
    Ended(End<L>),
    /// The timeout passed first.
    TimedOut,
}

/// A thread that polls for the end of its own call.
pub(super) struct Caller<'a, Q: QueuePair> {
    pub(super) session: &'a Session<Q>,
    pub(super) call: CallId,
    pub(super) caught: &'a mut Option<End<Q::Lease>>,
    /// True if the thread is counted as a waiter. It must leave the count before it frees the slot, as `arming` requires.
    pub(super) counted: bool,
}

impl<Q: QueuePair> Waiter<Q::Lease> for Caller<'_, Q> {
    #[inline]
    fn is_done(&self) -> bool {
        self.caught.is_some() || self.session.has_ended(self.call)
    }

    #[inline]
    fn waits_for(&self, call: CallId) -> bool {
        self.call == call
    }

    #[inline]
    fn catch(&mut self, end: End<Q::Lease>) {
        *self.caught = Some(end);
    }

    #[inline]
    fn leaves_its_slot(&self) -> bool {
        !self.counted
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Waits for the end of a call, or of a synchronous send, for at most `timeout`. Passes requests that arrive meanwhile to the
    /// sink, which queues them, as a waiting thread starts no handler. Reads no clock unless the first poll batch finds no end.
    pub fn wait(
        &self,
        call: CallId,
        timeout: Nanos,
        request: impl Into<WaitRequest>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> WaitOutcome<Q::Lease> {
        if self.has_ended(call) {
            // The response has already arrived, for example together with the response to an earlier call. As the thread does not wait,
            // held doorbells stay held.
            self.leave_transfers(executor);
            return WaitOutcome::Ended(self.take(call, executor));
        }
        // The wait may take long, and messages that the response depends on may be held.
        self.ring_if_held(executor);
        let leaves = LeavesIfUnwound { session: self, call };
        let decision = self.decide(request.into(), executor);
        let (wait, watch) = (Wait::new(decision, timeout), PollWatch::default());
        let mut wait = CallerWait { session: self, call, timeout, wait, watch, caught: None, sink, executor };
        if decision.polls_for() != Nanos::ZERO
            && let Some(end) = wait.poll_without_role()
        {
            core::mem::forget(leaves);
            self.reply_waits.add_short(decision.history_update);
            self.leave_transfers(executor);
            return WaitOutcome::Ended(end);
        }
        let counted = self.arming.count_waiter();
        let ended = wait.run();
        // This must be done before the slot is freed: see the invariants of `arming`.
        drop(counted);
        wait.add_to_history();
        self.leave_transfers(executor);
        core::mem::forget(leaves);
        match wait.caught {
            Some(end) => {
                self.calls.settle_caught(call);
                self.slot_was_freed(executor);
                WaitOutcome::Ended(end)
            }
            None if ended => WaitOutcome::Ended(self.take(call, executor)),
            None => WaitOutcome::TimedOut,
        }
    }

    /// Polls up to `spins` times. Stops earlier if `done` returns true, if a full batch was received, or, where a poll is a system call, if
    /// anything was received. Returns `None` if another thread holds the engine, or sleeps in the channel and no transfer made progress.
    /// Held doorbells stay held, except on connections on which the turn itself posts. A thread that waits for held messages must call
    /// [`Self::ring_if_held`] before.
    pub fn turn(
        &self,
        spins: u32,
        done: impl Fn() -> bool,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<Progress> {
        let mut engine = self.engine.try_lock()?;
        if self.holds.streams() {
            engine.ring_streams(self);
        }
        if self.role.holder_is_asleep() {
            let moved = self.move_for_sleeper(engine, executor);
            self.recheck(executor);
            return (moved != 0).then_some(Progress { moved, ..Progress::default() });
        }
        // If a poll is a system call, it costs more than is saved by keeping the engine lock.
        let messages = if engine.peer_wakes() { RECEIVE_BATCH } else { 1 };
        Some(self.turn_with(engine, spins, messages, &mut { done }, sink, executor))
    }

    /// Polls up to `spins` times as the holder of the poller role, until a message was received. Returns `None` if another thread holds the
    /// engine.
    #[inline]
    pub(super) fn turn_as_poller(
        &self,
        spins: u32,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<Progress> {
        let engine = self.engine.try_lock()?;
        Some(self.turn_with(engine, spins, 1, waiter, sink, executor))
    }

    /// Polls up to `spins` times, until `messages` messages were received. More messages often follow the first. But if other threads have
    /// left work or want the engine, ends after any message.
    #[inline]
    fn turn_with(
        &self,
        mut engine: EngineGuard<'_, Q>,
        spins: u32,
        messages: usize,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Progress {
        let mut progress = Progress::default();
        for _ in 0..spins.max(1) {
            if !engine.is_quiet(self) {
                progress = progress.and(engine.turn(None, Turn::new(self, executor), waiter, sink));
            }
            let goes_on = progress.moved == 0 || progress.moved < messages && !self.work_is_left();
            if !goes_on || waiter.is_done() {
                break;
            }
            // There is no pause instruction, as polling both queues is pause enough. The instruction would add a third to the time.
        }
        engine.release();
        self.recheck(executor);
        progress
    }
}

/// The wait of one caller: as holder of the poller role, or as follower.
struct CallerWait<'a, Q: QueuePair, S, X> {
    session: &'a Session<Q>,
    call: CallId,
    timeout: Nanos,
    wait: Wait,
    /// A stopwatch that runs while the thread polls for a limited time, until its first sleep.
    watch: PollWatch,
    /// The end of the call, if this thread received it itself.
    caught: Option<End<Q::Lease>>,
    sink: &'a mut S,
    executor: &'a X,
}

impl<'a, Q: QueuePair, S: Sink<Q::Lease>, X: Executor> CallerWait<'a, Q, S, X> {
    fn spin(&self) -> Nanos {
        self.wait.decision().polls_for()
    }

    /// Reads the clock and returns the time and the next step.
    fn next(&mut self) -> (Nanos, Next) {
        let now = self.executor.now();
        if self.wait.decision().is_bounded() && self.wait.slept() == Slept::No {
            self.watch.clock_was_read(now);
        }
        (now, self.wait.next(now))
    }

    /// Called before a sleep. Reports how the thread has polled.
    fn sleeps(&mut self) {
        self.wait.sleeps();
        if self.watch.is_running() {
            self.report(self.executor.now());
        }
    }

    fn report(&mut self, now: Nanos) {
        if self.watch.is_running() {
            self.watch.clock_was_read(now);
        }
        if let Some(polled) = self.watch.stop() {
            self.executor.polled(polled);
        }
    }

    /// Adds the wait to the history, after it has ended or timed out. Reads the clock again, because a preempted thread finds the end of
    /// its call only with its first poll after the preemption.
    fn add_to_history(&mut self) {
        let begun = self.wait.has_begun();
        let now = if begun { self.executor.now() } else { Nanos::ZERO };
        self.report(now);
        self.wait.ended(now, &self.session.reply_waits);
    }

    /// Waits for the end of the call. Returns whether it came in time; if so, it is in `caught` or in the call's slot.
    fn run(&mut self) -> bool {
        let session = self.session;
        loop {
            if self.caught.is_some() || session.has_ended(self.call) {
                return true;
            }
            if !self.relies_on_serving_thread()
                && let Some(role) = HeldRole::claim(session, self.executor)
            {
                let polled = self.as_poller(&role);
                drop(role);
                session.serve_again(self.sink, self.executor);
                match polled {
                    Polls::Ended => return true,
                    Polls::TimedOut => return false,
                    Polls::LeftToServingThread => continue,
                }
            }
            if self.as_follower() {
                return false;
            }
        }
    }

    /// Runs one turn for this call. Returns whether the call has ended, and the progress of the turn.
    #[inline]
    fn turn(&mut self, spins: u32) -> (bool, Option<Progress>) {
        let (session, call, caught) = (self.session, self.call, &mut self.caught);
        let mut caller = Caller { session, call, caught, counted: true };
        let progress = session.turn_as_poller(spins, &mut caller, self.sink, self.executor);
        (caller.is_done(), progress)
    }

    /// Polls one batch without the poller role, as the serving thread does, for a reply that arrives soon.
    #[inline]
    fn poll_without_role(&mut self) -> Option<End<Q::Lease>> {
        let session = self.session;
        let engine = session.engine.try_lock()?;
        if !session.may_poll(&engine) {
            engine.release();
            session.recheck(self.executor);
            return None;
        }
        let mut caller = Caller { session, call: self.call, caught: &mut self.caught, counted: false };
        session.turn_with(engine, POLL_BATCH, 1, &mut caller, self.sink, self.executor);
        self.caught.take()
    }

    /// Polls one batch while the holder of the poller role sleeps, so that a polling thread need not wait until the holder is awake.
    /// Returns whether the call has ended.
    fn poll_next_to_sleeper(&mut self) -> bool {
        let session = self.session;
        if !session.role.holder_is_asleep() {
            return false;
        }
        let Some(engine) = session.engine.try_lock() else { return false };
        if !session.may_poll_with_sleeper(&engine) {
            engine.release();
            session.recheck(self.executor);
            return false;
        }
        let mut caller = Caller { session, call: self.call, caught: &mut self.caught, counted: true };
        session.turn_with(engine, POLL_BATCH, 1, &mut caller, self.sink, self.executor);
        caller.is_done()
    }

    /// Returns whether the thread takes no part in polling, because it would sleep and the serving thread spins. If the two share a CPU,
    /// the calling thread would receive messages that only the serving thread may handle.
    fn relies_on_serving_thread(&self) -> bool {
        let would_sleep =
            self.spin() == Nanos::ZERO && self.timeout != Nanos::ZERO || self.wait.slept() == Slept::Yes;
        would_sleep && self.session.role.serving_spins()
    }

    /// Polls and sleeps as the holder of the role, until the call has ended or the time is over.
    fn as_poller(&mut self, role: &HeldRole<'a, Q, X>) -> Polls {
        let session = self.session;
        // Disarms, so that the replies for which this thread polls do not wake the serving thread.
        if session.arming.armed() == Armed::All {
            session.disarm_as_poller();
        }
        let polls = self.spin() != Nanos::ZERO;
        let spins = if polls { POLL_BATCH } else { 1 };
        // A thread that sleeps immediately polls in the recheck.
        let mut poll = polls || self.timeout == Nanos::ZERO;
        let mut yields = YieldTimer::default();
        loop {
            let mut engine_was_free = true;
            if poll {
                let (ended, progress) = self.turn(spins);
                engine_was_free = progress.is_some();
                if engine_was_free {
                    role.has_polled();
                }
                if ended {
                    return Polls::Ended;
                }
            }
            poll = true;
            let (now, next) = self.next();
            if next == Next::TimedOut {
                return Polls::TimedOut;
            }
            yields.after_poll(engine_was_free, &session.wanted, now, self.executor);
            if let Next::Sleep { until } = next {
                self.sleeps();
                if self.relies_on_serving_thread() {
                    return Polls::LeftToServingThread;
                }
                let (call, caught) = (self.call, &mut self.caught);
                let mut caller = Caller { session, call, caught, counted: true };
                if role.sleep(until, &mut caller, self.sink) == Outcome::Done {
                    return Polls::Ended;
                }
            }
        }
    }

    /// Waits as a follower, until the call has ended or the thread should try to take the role. Returns `true` if the time limit was
    /// reached first.
    fn as_follower(&mut self) -> bool {
        let (session, call) = (self.session, self.call);
        let has_reason = || session.has_ended(call) || session.role.is_free();
        let (mut yields, mut awake) = (YieldTimer::default(), None);
        loop {
            if !self.relies_on_serving_thread() {
                let polls = self.spin() != Nanos::ZERO;
                if polls {
                    awake.get_or_insert_with(|| session.wanted.awaits());
                }
                for _ in 0..POLL_BATCH {
                    if has_reason() {
                        return false;
                    }
                    pronto_sync::hint::spin_loop();
                }
                if polls && self.poll_next_to_sleeper() {
                    return false;
                }
            }
            let until = match self.next() {
                (_, Next::TimedOut) => return true,
                (now, Next::Poll) => {
                    yields.after_poll(false, &session.wanted, now, self.executor);
                    continue;
                }
                (_, Next::Sleep { until }) => until,
            };
            awake = None;
            self.sleeps();
            arm_recheck_sleep(&mut FollowerSleeper { session, call, until, executor: self.executor });
            if session.has_ended(call) || self.executor.now() >= until && self.poll_for_serving_thread() {
                return false;
            }
        }
    }

    /// Polls once, after the serving thread has not ended the call within the safety-net timeout: it may be preempted, or busy in a long
    /// handler. Returns whether the call has ended.
    fn poll_for_serving_thread(&mut self) -> bool {
        let session = self.session;
        let Some(role) = HeldRole::claim(session, self.executor) else { return false };
        let (ended, _) = self.turn(1);
        drop(role);
        session.serve_again(self.sink, self.executor);
        ended
    }
}

/// The reason why a thread stopped polling as the holder of the poller role.
enum Polls {
    /// The call or send has ended.
    Ended,
    TimedOut,
    /// The thread would sleep, and the serving thread spins.
    LeftToServingThread,
}

#[cfg(all(test, loom))]
mod loom_tests;
