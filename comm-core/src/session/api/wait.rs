//! Waiting for the end of a call: poll as the one who has the role, or sleep until it is over or the role is free.

use pronto_wire::CallId;

use super::Session;
use super::entering::EngineGuard;
use super::sleep::{FollowerSleeper, HeldRole};
use super::soon::LeavesIfUnwound;
use crate::executor::{Asked, Executor};
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

/// How often an idle poller looks before it reads the clock, which takes as long as a few looks, and lets others at the
/// engine.
pub(super) const SPINS_PER_LOOK: u32 = 64;

/// How a wait ended.
#[derive(Debug)]
pub enum Waited<L> {
    /// What was waited for has ended, like this; its slot is given back.
    Ended(End<L>),
    /// The timeout came first.
    TimedOut,
}

/// A thread that polls for the end of its own call.
pub(super) struct Caller<'a, Q: QueuePair> {
    pub(super) session: &'a Session<Q>,
    pub(super) call: CallId,
    pub(super) caught: &'a mut Option<End<Q::Lease>>,
    /// Counted as a waiter: it leaves the count before it gives the slot back, as `arming` wants it.
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
    /// Waits for the end of a call, or of a synchronous send, for `timeout` at most. Requests that arrive meanwhile go to the
    /// sink, which queues them: a waiting thread starts no handler. No clock is read before the first look was in vain.
    pub fn wait(
        &self,
        call: CallId,
        timeout: Nanos,
        asked: impl Into<Asked>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Waited<Q::Lease> {
        if self.has_ended(call) {
            // Of several calls that were answered together all but the first: nobody waits, and doorbells that are held stay so.
            self.leave_transfers(executor);
            return Waited::Ended(self.take(call));
        }
        // It may take long, and what the answer depends on may be held back.
        self.ring_if_held(executor);
        let leaves = LeavesIfUnwound { session: self, call };
        let decision = self.decide(asked.into(), executor);
        let (wait, watch) = (Wait::new(decision, timeout), PollWatch::default());
        let mut wait = CallerWait { session: self, call, timeout, wait, watch, caught: None, sink, executor };
        if decision.polls_for() != Nanos::ZERO
            && let Some(end) = wait.poll_at_once()
        {
            core::mem::forget(leaves);
            self.reply_waits.add_short(decision.teaches);
            self.leave_transfers(executor);
            return Waited::Ended(end);
        }
        let counted = self.arming.count_waiter();
        let ended = wait.run();
        // Before the slot is given back: see the invariants of `arming`.
        drop(counted);
        wait.add_to_history();
        self.leave_transfers(executor);
        core::mem::forget(leaves);
        match wait.caught {
            Some(end) => {
                self.calls.settle_caught(call);
                Waited::Ended(end)
            }
            None if ended => Waited::Ended(self.take(call)),
            None => Waited::TimedOut,
        }
    }

    /// Looks `spins` times, as long as `done` is false and not a whole batch has come, or anything where a look is a system call. None if another thread is at it, or sleeps until
    /// something comes. What senders hold back stays, unless it leaves with what the turn itself has posted: whoever waits for it calls
    /// [`Self::ring_if_held`] before.
    pub fn turn(
        &self,
        spins: u32,
        done: impl Fn() -> bool,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<Progress> {
        let engine = self.engine.try_lock()?;
        if self.role.holder_is_asleep() {
            let moved = self.move_for_sleeper(engine, executor);
            self.look_once_more(executor);
            return (moved != 0).then_some(Progress { moved, ..Progress::default() });
        }
        // A look that is a system call is worth more than what is saved by holding the engine on.
        let messages = if engine.peer_wakes() { RECEIVE_BATCH } else { 1 };
        Some(self.turn_with(engine, spins, messages, &mut { done }, sink, executor))
    }

    /// The same for the one who holds the role.
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

    /// Looks `spins` times, until so many `messages` have come: a call that is answered at once is soon followed by the next. Ends after a
    /// message, too, if another thread wants the engine.
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
            // No pause: a look at both queues is one, and a processor's takes a third as long again.
        }
        engine.release();
        self.look_once_more(executor);
        progress
    }
}

/// The wait of one caller: as holder of the poller role, or as follower.
struct CallerWait<'a, Q: QueuePair, S, X> {
    session: &'a Session<Q>,
    call: CallId,
    timeout: Nanos,
    wait: Wait,
    /// Runs while the thread polls for a limited time, until its first sleep.
    watch: PollWatch,
    /// The end of the call, if this thread took it in itself.
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

    /// The thread is about to sleep: reports how it has polled.
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

    /// The wait has ended or timed out: adds it to the history. The clock is read once more, as a thread that was preempted finds the end
    /// of its call with its first poll afterwards.
    fn add_to_history(&mut self) {
        let begun = self.wait.has_begun();
        let now = if begun { self.executor.now() } else { Nanos::ZERO };
        self.report(now);
        self.wait.ended(now, &self.session.reply_waits);
    }

    /// Waits for the end of the call. Returns whether it came in time; it is in `caught` or in the call's slot then.
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

    /// One turn for this call. Returns whether the call has ended, and what the turn did.
    #[inline]
    fn turn(&mut self, spins: u32) -> (bool, Option<Progress>) {
        let (session, call, caught) = (self.session, self.call, &mut self.caught);
        let mut caller = Caller { session, call, caught, counted: true };
        let progress = session.turn_as_poller(spins, &mut caller, self.sink, self.executor);
        (caller.is_done(), progress)
    }

    /// One poll batch without the role, as the serving thread polls: for a reply that comes soon.
    #[inline]
    fn poll_at_once(&mut self) -> Option<End<Q::Lease>> {
        let session = self.session;
        let engine = session.engine.try_lock()?;
        if !session.may_look(&engine) {
            engine.release();
            session.look_once_more(self.executor);
            return None;
        }
        let mut caller = Caller { session, call: self.call, caught: &mut self.caught, counted: false };
        session.turn_with(engine, SPINS_PER_LOOK, 1, &mut caller, self.sink, self.executor);
        self.caught.take()
    }

    /// One poll batch while the holder of the role sleeps: a polling thread does not wait until that one is awake. Returns whether the
    /// call has ended.
    fn poll_next_to_sleeper(&mut self) -> bool {
        let session = self.session;
        if !session.role.holder_is_asleep() {
            return false;
        }
        let Some(engine) = session.engine.try_lock() else { return false };
        if !session.may_look_beside(&engine) {
            engine.release();
            session.look_once_more(self.executor);
            return false;
        }
        let mut caller = Caller { session, call: self.call, caught: &mut self.caught, counted: true };
        session.turn_with(engine, SPINS_PER_LOOK, 1, &mut caller, self.sink, self.executor);
        caller.is_done()
    }

    /// Returns whether the thread takes no part in polling, because it would sleep and the serving thread spins. If the two share a CPU,
    /// the calling thread would take in what only the serving thread may handle.
    fn relies_on_serving_thread(&self) -> bool {
        let would_sleep =
            self.spin() == Nanos::ZERO && self.timeout != Nanos::ZERO || self.wait.slept() == Slept::Yes;
        would_sleep && self.session.role.serving_spins()
    }

    /// Polls and sleeps as the holder of the role, until the call has ended or the time is over.
    fn as_poller(&mut self, role: &HeldRole<'a, Q, X>) -> Polls {
        let session = self.session;
        // A serving thread that sleeps until a solicited event comes is not disturbed by the replies that are polled for here.
        if session.arming.armed() == Armed::All {
            session.disarm_as_poller();
        }
        let polls = self.spin() != Nanos::ZERO;
        let spins = if polls { SPINS_PER_LOOK } else { 1 };
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

    /// Waits as a follower, until the call has ended or the thread is to try for the role. Returns `true` if the time is over.
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
                for _ in 0..SPINS_PER_LOOK {
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

    /// Polls once, where the serving thread has not ended the call for as long as the safety net allows: it may be kept from its CPU, or be
    /// in a handler for longer than handlers should take. Returns whether the call has ended.
    fn poll_for_serving_thread(&mut self) -> bool {
        let session = self.session;
        let Some(role) = HeldRole::claim(session, self.executor) else { return false };
        let (ended, _) = self.turn(1);
        drop(role);
        session.serve_again(self.sink, self.executor);
        ended
    }
}

/// How a thread stopped to poll as the holder of the role.
enum Polls {
    /// What it waits for has ended.
    Ended,
    TimedOut,
    /// It would sleep, and the serving thread spins.
    LeftToServingThread,
}
