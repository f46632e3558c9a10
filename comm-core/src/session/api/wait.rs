//! Waiting for the end of a call: poll as the one who has the role, or sleep until it is over or the role is free.

use core::cell::Cell;

use pronto_wire::CallId;

use super::Session;
use super::entering::{EngineGuard, Patience};
use super::sleep::{Enlisted, RESCUE, RoleGuard};
use super::soon::LeavesIfUnwound;
use crate::executor::{Asked, Executor, Polled};
use crate::fabric::Armed;
use crate::fabric::QueuePair;
use crate::session::end::End;
use crate::session::engine::Progress;
use crate::session::engine::RECEIVE_BATCH;
use crate::session::inbound::Sink;
use crate::session::learned::{Decision, Sleep};
use crate::session::shared::Turn;
use crate::session::waiter::Waiter;
use crate::time::Nanos;

/// How often an idle poller looks before it reads the clock, which takes as long as a few looks, and lets others at the
/// engine.
pub(super) const SPINS_PER_LOOK: u32 = 64;

/// A wake-up that comes within this time after the net has caught the sleeper was late, not lost: a sender rings after a
/// whole batch, and may be taken off its processor before.
pub const LATE: Nanos = Nanos::from_millis(20);

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
        let spin = decision.polls_for();
        let mut wait = Wait {
            session: self,
            call,
            timeout,
            spin,
            decision,
            clock: None,
            polled: None,
            sleep: Sleep::Awake,
            caught: None,
            sink,
            executor,
        };
        if spin != Nanos::ZERO
            && let Some(end) = wait.at_once()
        {
            core::mem::forget(leaves);
            self.learned.ended_at_once(decision.teaches);
            self.leave_transfers(executor);
            return Waited::Ended(end);
        }
        let counted = self.arming.waiter();
        let ended = loop {
            if wait.caught.is_some() || self.has_ended(call) {
                break true;
            }
            if !wait.is_left_to_server() && self.role.claim() {
                let polled = wait.as_poller();
                self.serve_again(wait.sink, executor);
                match polled {
                    Polls::Ended => break true,
                    Polls::TimedOut => break false,
                    Polls::LeftToServer => continue,
                }
            }
            if wait.as_follower() {
                break false;
            }
        };
        // Before the slot is given back: see the invariants of `arming`.
        drop(counted);
        wait.teaches();
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
        if self.role.is_asleep() {
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

struct Wait<'a, Q: QueuePair, S, X> {
    session: &'a Session<Q>,
    call: CallId,
    timeout: Nanos,
    spin: Nanos,
    decision: Decision,
    /// When the wait began, when it ends by its timeout, and when polling does; set by the first reading of the clock.
    clock: Option<(Nanos, Nanos, Nanos)>,
    /// Since the first reading of the clock, while it polls within a bound: when the last one was, and how it polled.
    polled: Option<(Nanos, Polled)>,
    /// Whether it has slept.
    sleep: Sleep,
    /// The end of the call, if this thread took it in itself.
    caught: Option<End<Q::Lease>>,
    sink: &'a mut S,
    executor: &'a X,
}

impl<Q: QueuePair, S: Sink<Q::Lease>, X: Executor> Wait<'_, Q, S, X> {
    /// Reads the clock: now, when the wait ends by its timeout, when polling ends.
    fn clock(&mut self) -> (Nanos, Nanos, Nanos) {
        let now = self.executor.now();
        if let Some((last, polled)) = &mut self.polled {
            let since = now.since(*last);
            *polled = Polled { lasted: polled.lasted + since, longest: polled.longest.max(since) };
            *last = now;
        } else if self.clock.is_none() && self.spin != Nanos::ZERO && self.spin != Nanos::NEVER {
            self.polled = Some((now, Polled::default()));
        }
        let (_, deadline, spin_until) = *self.clock.get_or_insert((now, now + self.timeout, now + self.spin));
        (now, deadline, spin_until)
    }

    /// The thread is about to sleep.
    fn polls_no_more(&mut self) {
        self.sleep = Sleep::Slept;
        if self.polled.is_some() {
            self.clock();
            self.reports();
        }
    }

    /// What came has come, or the time is over. Who was taken off its processor finds it with its first look when it
    /// is back, so the clock is read once more; and after a sleep.
    fn teaches(&mut self) {
        if self.polled.is_none() && self.sleep == Sleep::Awake {
            return self.session.learned.ended_at_once(self.decision.teaches);
        }
        let (now, ..) = self.clock();
        self.reports();
        let begun = self.clock.map_or(now, |(begun, ..)| begun);
        self.session.learned.ended(self.decision, now.since(begun), self.sleep);
    }

    /// Says how the thread has polled.
    fn reports(&mut self) {
        if let Some((_, polled)) = self.polled.take() {
            self.executor.polled(polled);
        }
    }

    /// One turn for this call. Returns whether the call has ended, and what the turn did.
    #[inline]
    fn turn(&mut self, spins: u32) -> (bool, Option<Progress>) {
        let (session, call, caught) = (self.session, self.call, &mut self.caught);
        let mut caller = Caller { session, call, caught, counted: true };
        let progress = self.session.turn_as_poller(spins, &mut caller, self.sink, self.executor);
        (caller.is_done(), progress)
    }

    /// The answer that comes soon: some looks without the role, as the serving thread looks.
    #[inline]
    fn at_once(&mut self) -> Option<End<Q::Lease>> {
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

    /// Some looks while the holder of the role sleeps. Whoever spins does not wait until that one is awake.
    fn look_beside_sleeper(&mut self) -> bool {
        let session = self.session;
        if !session.role.is_asleep() {
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

    /// Whether it takes no part in polling any more, as the server polls for good: between the two of them, where they share a processor,
    /// it would take in what only the server may handle.
    fn is_left_to_server(&self) -> bool {
        let would_sleep =
            self.spin == Nanos::ZERO && self.timeout != Nanos::ZERO || self.sleep == Sleep::Slept;
        would_sleep && self.session.role.is_left_to_server()
    }

    /// Polls until the call has ended, or the time is over.
    fn as_poller(&mut self) -> Polls {
        let session = self.session;
        let role = RoleGuard { session, executor: self.executor, told: Cell::new(false) };
        // Asleep but for solicited events, the server is not disturbed by the answers that are polled for here.
        if session.arming.armed() == Armed::All {
            session.disarm_as_poller();
        }
        let sleeps_at_once = self.spin == Nanos::ZERO && self.timeout != Nanos::ZERO;
        let spins = if self.spin == Nanos::ZERO { 1 } else { SPINS_PER_LOOK };
        // A recheck comes before the sleep in any case.
        let mut looks = !sleeps_at_once;
        let mut patience = Patience::default();
        loop {
            let mut found_free = true;
            if looks {
                let (ended, looked) = self.turn(spins);
                found_free = looked.is_some();
                if found_free {
                    role.told.set(false);
                }
                if ended {
                    return Polls::Ended;
                }
            }
            looks = true;
            let (now, deadline, spin_until) = self.clock();
            if now >= deadline {
                return Polls::TimedOut;
            }
            session.be_patient(&mut patience, found_free, now, self.executor);
            if now >= spin_until {
                self.polls_no_more();
                if self.is_left_to_server() {
                    return Polls::LeftToServer;
                }
                if !self.sleep_in_channel(deadline.min(now + RESCUE), &role.told) {
                    return Polls::Ended;
                }
            }
        }
    }

    /// Sleeps until something comes. Returns false if the end had come before.
    fn sleep_in_channel(&mut self, until: Nanos, told: &Cell<bool>) -> bool {
        let (session, call, caught) = (self.session, self.call, &mut self.caught);
        let mut caller = Caller { session, call, caught, counted: true };
        session.sleep_in_channel(until, told, &mut caller, self.sink, self.executor)
    }

    /// Sleeps until the end has come, or the role is free and the server does not poll: look again. True if the time is over.
    fn as_follower(&mut self) -> bool {
        let (session, call) = (self.session, self.call);
        let something = || session.has_ended(call) || session.role.is_free();
        let (mut patience, mut awake) = (Patience::default(), None);
        loop {
            if !self.is_left_to_server() {
                if self.spin != Nanos::ZERO {
                    awake.get_or_insert_with(|| session.wanted.awaits());
                }
                for _ in 0..SPINS_PER_LOOK {
                    if something() {
                        return false;
                    }
                    pronto_sync::hint::spin_loop();
                }
                if self.spin != Nanos::ZERO && self.look_beside_sleeper() {
                    return false;
                }
            }
            let (now, deadline, spin_until) = self.clock();
            if now >= deadline {
                return true;
            }
            if now < spin_until {
                session.be_patient(&mut patience, false, now, self.executor);
            } else {
                awake = None;
                self.polls_no_more();
                session.role.enlist(call.slot);
                let enlisted = Enlisted { session, slot: call.slot, executor: self.executor };
                let until = deadline.min(now + RESCUE);
                let has_reason = || session.has_ended(call) || session.is_abandoned();
                session.calls().sleeper(call.slot).sleep_unless(has_reason, |word| {
                    self.executor.sleep(word, until);
                    if self.executor.now() >= until && session.overslept(call, word) {
                        self.executor.sleep(word, until + LATE);
                        if session.overslept(call, word) {
                            session.rescued(self.executor);
                        }
                    }
                });
                drop(enlisted);
                if session.has_ended(call) || self.executor.now() >= until && self.look_for_server() {
                    return false;
                }
            }
        }
    }

    /// One look, where the server has not found the end for as long as the net allows: it may be kept from its processor, or be in a
    /// handler for longer than handlers should take.
    fn look_for_server(&mut self) -> bool {
        let session = self.session;
        if !session.role.claim() {
            return false;
        }
        let role = RoleGuard { session, executor: self.executor, told: Cell::new(false) };
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
    /// It would sleep, and the server polls.
    LeftToServer,
}
