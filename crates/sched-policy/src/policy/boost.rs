// SPDX-License-Identifier: MIT OR Apache-2.0
//! The boost of one thread: raised when it waits on a flagged descriptor, metered while it runs, dropped after a slice.
//!
//! Expedite (section 3.3) marks a thread in `select` or `read` on a flagged socket, ranks it above all others when it
//! wakes, and ranks it normally again once it is dispatched. A sleeping thread does not compete, so raising it *before*
//! it blocks has the same effect, and needs no work when the message arrives.
//!
//! The caller reports events in the order in which they happen to the thread, and carries out the action of each. Each
//! thread has one boost, however many flagged descriptors it waits on.
//!
//! # Invariants
//! 1. A thread is raised from the action [`Action::Raise`] until the event [`Event::Dropped`] or [`Event::Replaced`].
//! 2. All time for which a raised thread runs is charged, including that between the decision to drop it and the drop.
//! 3. A raised thread that runs has a deadline, which the last [`Action::Raise`] or [`Action::Arm`] named.
//! 4. Other time of the thread is charged by [`Meter::All`] only, to the thread only, and never leads into debt.
//! 5. If every deadline is kept and every drop is immediate, no account falls into debt, and so every cap holds.

use super::caps::{Accounts, Caps, Payer};
use super::time::Nanos;

/// Dispatch slice: how long a thread runs raised after a wait. The paper means "a few hundred microseconds" that `top`
/// does not notice (section 1.2). The slice is long enough for a handler of 30 us, and short against a stock slice (1.4
/// ms on two CPUs). Chosen by us, to be measured.
pub const SLICE: Nanos = Nanos::from_micros(200);

/// Slice according to section 3.3 of the paper: none, because the boost ends when the thread is dispatched. On today's
/// kernels a thread that is lowered at that instant competes again before it has read its message.
pub const SLICE_TO_DISPATCH: Nanos = Nanos::ZERO;

/// Slice according to section 3.4 of the paper: at most a tick, "as `schedule()` is called upon every timer interrupt".
pub const SLICE_ONE_TICK: Nanos = Nanos::from_millis(10);

/// Slice according to the paper's kernel: in Linux 2.4 (`kernel/timer.c`) a tick requests `schedule()` only when the
/// counter has reached zero, so only the budget ends the slice. The statement of section 3.4 is a slip.
pub const SLICE_TO_LAST_TICK: Nanos = Nanos::NEVER;

/// Longest time that a raised thread may run before it waits, for the path into a system call and to sleep, which takes
/// some microseconds. A thread that takes longer is dropped. Chosen by us; no source.
pub const ENTRY: Nanos = Nanos::from_micros(200);

/// The part of a thread's time that its own account pays for. The accounts of user and CPU always pay for boosted time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Meter {
    /// Time that it runs raised, which it takes from others. A handler may compute without limit, as long as it
    /// competes for the CPU.
    #[default]
    Boosted,
    /// All time that it runs, as in the paper: boosts are for "processes that consume little CPU time" (sections 3.1
    /// and 4.4), and ticks are lost whatever the priority.
    All,
}

/// Limits of a boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time that a thread runs raised after each wait.
    pub slice: Nanos,
    /// Caps that bound boosts over time.
    pub caps: Caps,
    /// Part of the thread's time that counts.
    pub meter: Meter,
}

impl Terms {
    /// Returns terms with slices of [`SLICE`] under the standard caps.
    pub fn standard() -> Self {
        Self { slice: SLICE, caps: Caps::standard(SLICE), meter: Meter::Boosted }
    }

    /// Returns terms for threads that use little of a CPU in total, as the paper requires; see [`super::caps::LITTLE`].
    pub fn for_sleepers() -> Self {
        Self { slice: SLICE, caps: Caps::for_sleepers(SLICE), meter: Meter::All }
    }
}

/// The state of a thread's boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not raised: competes like any other thread.
    Normal {
        /// Time up to which its running time is charged; `None` while it does not run, or if that was not reported.
        since: Option<Nanos>,
    },
    /// Raised, and running on its way into the wait. The slice begins with the next dispatch.
    Entering {
        /// Time up to which it is charged.
        since: Nanos,
        /// Time left to begin the wait; then the thread is dropped.
        left: Nanos,
        /// Slice after the wait.
        slice: Nanos,
    },
    /// Raised and not running: it waits, or was preempted.
    Off {
        /// Rest of the slice.
        left: Nanos,
    },
    /// Raised, and running.
    On {
        /// Time up to which it is charged.
        since: Nanos,
        /// Rest of the slice at `since`; zero once the drop was requested.
        left: Nanos,
    },
}

impl Phase {
    /// Phase of a thread that was never raised.
    pub const NEW: Self = Self::Normal { since: None };

    /// Returns whether the thread is raised, as far as the caller has reported.
    pub const fn is_raised(&self) -> bool {
        !matches!(self, Self::Normal { .. })
    }
}

impl Default for Phase {
    fn default() -> Self {
        Self::NEW
    }
}

/// An event of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It runs, and is about to wait on a flagged descriptor.
    Wait,
    /// It was scheduled on a CPU.
    ScheduledIn,
    /// It was preempted, or yielded its CPU.
    ScheduledOut,
    /// Its time is over, or may be: early and late timers are both harmless.
    Timer,
    /// It is no longer raised: a drop was carried out, or a raise failed.
    Dropped,
    /// Another program set its scheduling policy. The values saved at the raise must not be restored.
    Replaced,
    /// It ends, or its last flagged descriptor is gone.
    Gone,
}

/// The action to carry out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// No action.
    Nothing,
    /// Raise the thread, and report [`Event::Timer`] at this time if it still runs.
    Raise(Nanos),
    /// Keep the thread as it is; report [`Event::Timer`] at this time instead.
    Arm(Nanos),
    /// Do not raise the thread: this account is too low.
    Refuse(Payer),
    /// Lower the thread as soon as possible, and report [`Event::Dropped`].
    Drop(Reason),
    /// The thread is no longer raised; forget the values saved for its drop.
    Forget,
}

/// The reason for the end of a boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The thread used up its slice.
    Slice,
    /// The thread waits again, and this account is too low for another slice.
    Spent(Payer),
    /// The thread ends, or its last flagged descriptor is gone.
    Gone,
}

/// The state after an event, and the action to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Phase of the thread.
    pub phase: Phase,
    /// Accounts, charged and refilled.
    pub accounts: Accounts,
    /// Action to carry out before the thread's next event.
    pub action: Action,
}

/// Processes one event of a thread. Updates the accounts first; then the phase decides.
pub fn step(phase: Phase, accounts: Accounts, event: Event, now: Nanos, terms: &Terms) -> Step {
    let Metered { phase, now, boosted, other } = metered(phase, now);
    let counted = if terms.meter == Meter::All { other.min(accounts.thread.left()) } else { Nanos::ZERO };
    let thread = accounts.thread.charged(counted);
    let accounts = Accounts { thread, ..accounts }.settled(&terms.caps, boosted, now);
    let (phase, action) = match event {
        Event::Wait => wait(phase, &accounts, now, terms),
        Event::ScheduledIn => scheduled_in(phase, &accounts, now),
        Event::ScheduledOut => scheduled_out(phase),
        Event::Timer => timer(phase),
        Event::Dropped => (lowered(phase), Action::Nothing),
        Event::Replaced if phase.is_raised() => (lowered(phase), Action::Forget),
        Event::Replaced => (phase, Action::Nothing),
        Event::Gone => gone(phase),
    };
    Step { phase, accounts, action }
}

/// A phase, and the time that has passed in it.
struct Metered {
    phase: Phase,
    /// Time of the event; never earlier than the last one, even if the clock went back.
    now: Nanos,
    /// Time that it ran raised.
    boosted: Nanos,
    /// Time that it ran without being raised.
    other: Nanos,
}

fn metered(phase: Phase, now: Nanos) -> Metered {
    let none = Nanos::ZERO;
    match phase {
        Phase::Normal { since: None } | Phase::Off { .. } => {
            Metered { phase, now, boosted: none, other: none }
        }
        Phase::Normal { since: Some(since) } => {
            let (now, other) = (now.max(since), now.since(since));
            Metered { phase: Phase::Normal { since: Some(now) }, now, boosted: none, other }
        }
        Phase::Entering { since, left, slice } => {
            let (now, boosted) = (now.max(since), now.since(since));
            let phase = Phase::Entering { since: now, left: left.since(boosted), slice };
            Metered { phase, now, boosted, other: none }
        }
        Phase::On { since, left } => {
            let (now, boosted) = (now.max(since), now.since(since));
            Metered { phase: Phase::On { since: now, left: left.since(boosted) }, now, boosted, other: none }
        }
    }
}

/// Starts a new slice for a thread that waits, as long as its accounts can pay. The cheap steady state changes no
/// scheduling class.
fn wait(phase: Phase, accounts: &Accounts, now: Nanos, terms: &Terms) -> (Phase, Action) {
    match accounts.allowance(&terms.caps) {
        Ok(allowance) => {
            let (left, slice) = (ENTRY.min(allowance), terms.slice.min(allowance));
            let until = now.after(left);
            let action = if phase.is_raised() { Action::Arm(until) } else { Action::Raise(until) };
            (Phase::Entering { since: now, left, slice }, action)
        }
        Err(payer) if phase.is_raised() => {
            (Phase::On { since: now, left: Nanos::ZERO }, Action::Drop(Reason::Spent(payer)))
        }
        Err(payer) => (Phase::Normal { since: Some(now) }, Action::Refuse(payer)),
    }
}

/// Begins or resumes the slice. Other threads may have spent from the shared accounts meanwhile.
fn scheduled_in(phase: Phase, accounts: &Accounts, now: Nanos) -> (Phase, Action) {
    match phase {
        Phase::Normal { .. } => (Phase::Normal { since: Some(now) }, Action::Nothing),
        Phase::Entering { left, .. } => (phase, deadline(now, left)),
        Phase::Off { left } | Phase::On { left, .. } => {
            let left = left.min(accounts.left());
            (Phase::On { since: now, left }, deadline(now, left))
        }
    }
}

fn scheduled_out(phase: Phase) -> (Phase, Action) {
    match phase {
        Phase::Normal { .. } => (Phase::NEW, Action::Nothing),
        Phase::Off { .. } => (phase, Action::Nothing),
        Phase::Entering { slice, .. } => (Phase::Off { left: slice }, Action::Nothing),
        Phase::On { left, .. } if left > Nanos::ZERO => (Phase::Off { left }, Action::Nothing),
        Phase::On { .. } => (Phase::Off { left: Nanos::ZERO }, Action::Drop(Reason::Slice)),
    }
}

fn timer(phase: Phase) -> (Phase, Action) {
    match phase {
        Phase::Normal { .. } | Phase::Off { .. } => (phase, Action::Nothing),
        Phase::Entering { since, left, .. } if left > Nanos::ZERO => (phase, deadline(since, left)),
        Phase::Entering { since, left, .. } | Phase::On { since, left } => {
            (Phase::On { since, left }, deadline(since, left))
        }
    }
}

/// Returns the phase of a thread that is no longer raised.
const fn lowered(phase: Phase) -> Phase {
    match phase {
        Phase::Normal { .. } => phase,
        Phase::Off { .. } => Phase::NEW,
        Phase::Entering { since, .. } | Phase::On { since, .. } => Phase::Normal { since: Some(since) },
    }
}

fn gone(phase: Phase) -> (Phase, Action) {
    let lower = Action::Drop(Reason::Gone);
    match phase {
        Phase::Normal { .. } => (phase, Action::Nothing),
        Phase::Off { .. } => (Phase::Off { left: Nanos::ZERO }, lower),
        Phase::Entering { since, .. } | Phase::On { since, .. } => {
            (Phase::On { since, left: Nanos::ZERO }, lower)
        }
    }
}

/// Returns the deadline of a thread that runs from `now` and has `left` time.
fn deadline(now: Nanos, left: Nanos) -> Action {
    if left == Nanos::ZERO {
        Action::Drop(Reason::Slice)
    } else {
        Action::Arm(now.after(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread with its accounts, and the time.
    struct Thread {
        terms: Terms,
        phase: Phase,
        accounts: Accounts,
    }

    impl Thread {
        fn new(slice: Nanos) -> Self {
            Self::under(Terms { slice, ..Terms::standard() })
        }

        fn under(terms: Terms) -> Self {
            Self { terms, phase: Phase::NEW, accounts: Accounts::new(&terms.caps, Nanos::ZERO) }
        }

        fn at(&mut self, us: u64, event: Event) -> Action {
            let step = step(self.phase, self.accounts, event, Nanos::from_micros(us), &self.terms);
            (self.phase, self.accounts) = (step.phase, step.accounts);
            step.action
        }
    }

    fn arm(us: u64) -> Action {
        Action::Arm(Nanos::from_micros(us))
    }

    #[test]
    fn a_handler_that_waits_in_time_stays_raised_without_a_change_of_class() {
        let mut handler = Thread::new(SLICE);
        assert_eq!(handler.at(0, Event::Wait), Action::Raise(Nanos::from_micros(200)));
        for ping in 0..20 {
            let start = ping * 50_000;
            assert_eq!(handler.at(start + 5, Event::ScheduledOut), Action::Nothing);
            assert_eq!(handler.at(start + 49_000, Event::ScheduledIn), arm(start + 49_200));
            assert_eq!(handler.at(start + 49_030, Event::Wait), arm(start + 49_230));
            assert_eq!(handler.at(start + 49_032, Event::ScheduledOut), Action::Nothing);
        }
        assert_eq!(handler.accounts.thread.debt(), Nanos::ZERO);
    }

    /// Shows: operations.module
    #[test]
    fn a_slice_is_cpu_time_and_ends_in_a_drop() {
        let mut handler = Thread::new(SLICE);
        handler.at(0, Event::Wait);
        handler.at(10, Event::ScheduledOut);
        assert_eq!(handler.at(1_000, Event::ScheduledIn), arm(1_200), "the way into the wait costs no slice");
        handler.at(1_150, Event::ScheduledOut);
        assert_eq!(
            handler.at(9_000, Event::ScheduledIn),
            arm(9_050),
            "the time without a CPU costs no slice"
        );
        assert_eq!(handler.at(9_020, Event::Timer), arm(9_050), "an early timer is set again");
        assert_eq!(handler.at(9_050, Event::Timer), Action::Drop(Reason::Slice));
        assert_eq!(
            handler.at(9_055, Event::ScheduledOut),
            Action::Drop(Reason::Slice),
            "until the drop is done"
        );
        assert_eq!(handler.at(9_060, Event::Dropped), Action::Nothing);
        assert_eq!(
            handler.accounts.thread.left(),
            Nanos(833_333 - 215_000),
            "including the time that the drop took"
        );
        assert_eq!(handler.at(9_100, Event::ScheduledIn), Action::Nothing);
        assert_eq!(
            handler.at(9_100, Event::Wait),
            Action::Raise(Nanos::from_micros(9_300)),
            "with the next wait"
        );
    }

    #[test]
    fn an_early_timer_on_the_way_into_the_wait_costs_no_slice() {
        let mut handler = Thread::new(SLICE);
        handler.at(0, Event::Wait);
        assert_eq!(handler.at(150, Event::Timer), arm(200));
        handler.at(160, Event::ScheduledOut);
        assert_eq!(handler.at(1_000, Event::ScheduledIn), arm(1_200));
    }

    /// Runs the paper's ping-pong (section 4.4): a message every 50 ms, and `extra` microseconds of computation after
    /// each reply. Returns how many of forty messages find the thread raised.
    fn raised_of_forty(terms: Terms, extra: u64) -> usize {
        let mut handler = Thread::under(terms);
        // The thread starts after a second, so that its initial budget does not matter.
        handler.at(1_000_000, Event::Wait);
        handler.at(1_000_000, Event::ScheduledOut);
        let mut raised = 0;
        for ping in 1..=40 {
            let (begin, work) = (1_000_000 + ping * 50_000, 30 + extra);
            raised += usize::from(handler.phase.is_raised());
            let deadline = handler.at(begin, Event::ScheduledIn);
            if let Action::Arm(until) = deadline {
                if until < Nanos::from_micros(begin + work) {
                    handler.at(until.0 / 1_000, Event::Timer);
                    handler.at(until.0 / 1_000, Event::Dropped);
                }
            }
            handler.at(begin + work, Event::Wait);
            handler.at(begin + work, Event::ScheduledOut);
        }
        raised
    }

    #[test]
    fn a_thread_that_computes_1600_us_per_message_loses_its_boost_if_all_its_time_counts() {
        assert_eq!(raised_of_forty(Terms::for_sleepers(), 0), 40, "Expedite, figure 2");
        assert_eq!(raised_of_forty(Terms::for_sleepers(), 400), 40, "below 2 %");
        let lost = raised_of_forty(Terms::for_sleepers(), 1_600);
        assert_eq!(lost, 4, "Expedite, figure 5, once its savings are spent");
        assert_eq!(
            raised_of_forty(Terms::standard(), 1_600),
            40,
            "if only boosted time counts, it uses one slice per message"
        );
    }

    #[test]
    fn time_that_is_not_boosted_leads_into_no_debt() {
        let mut hog = Thread::under(Terms::for_sleepers());
        hog.at(0, Event::ScheduledIn);
        hog.at(3_600_000_000, Event::ScheduledOut);
        assert_eq!(hog.accounts.thread.debt(), Nanos::ZERO);
        assert_eq!(
            hog.accounts.user.left(),
            hog.terms.caps.user.grant().times(2).since(Nanos(1)),
            "nor is it the user's"
        );
    }

    #[test]
    fn a_thread_that_does_not_wait_is_dropped() {
        let mut hog = Thread::new(SLICE_TO_LAST_TICK);
        hog.at(0, Event::Wait);
        assert_eq!(hog.at(200, Event::Timer), Action::Drop(Reason::Slice));
    }

    #[test]
    fn a_thread_that_spends_too_much_is_dropped_and_refused_until_it_has_earned_enough() {
        let mut hog = Thread::new(SLICE);
        hog.at(0, Event::Wait);
        hog.at(0, Event::ScheduledOut);
        hog.at(0, Event::ScheduledIn);
        let thread = Reason::Spent(Payer::Thread);
        assert_eq!(hog.at(700, Event::Wait), Action::Drop(thread), "133 us are left, less than a slice");
        hog.at(700, Event::Dropped);
        assert_eq!(hog.at(800, Event::Wait), Action::Refuse(Payer::Thread));
        assert_eq!(hog.at(10_000, Event::Wait), Action::Raise(Nanos::from_micros(10_200)));
    }

    #[test]
    fn the_readings_of_the_paper_differ_in_when_the_boost_ends() {
        let dispatched = |slice| {
            let mut handler = Thread::new(slice);
            handler.at(0, Event::Wait);
            handler.at(0, Event::ScheduledOut);
            handler.at(10_000, Event::ScheduledIn)
        };
        assert_eq!(dispatched(SLICE_TO_DISPATCH), Action::Drop(Reason::Slice), "section 3.3");
        let whole_budget = Action::Arm(Nanos::from_micros(10_000).after(Nanos(833_333)));
        assert_eq!(dispatched(SLICE_ONE_TICK), whole_budget, "section 3.4, but the budget is smaller");
        assert_eq!(dispatched(SLICE_TO_LAST_TICK), whole_budget, "Linux 2.4");
    }

    #[test]
    fn a_policy_set_by_another_program_is_not_overwritten() {
        let mut handler = Thread::new(SLICE);
        assert_eq!(handler.at(0, Event::Replaced), Action::Nothing);
        handler.at(0, Event::Wait);
        assert_eq!(handler.at(5, Event::Replaced), Action::Forget);
        assert!(!handler.phase.is_raised());
        assert_eq!(handler.at(300, Event::Timer), Action::Nothing);
    }

    #[test]
    fn a_thread_that_ends_is_lowered() {
        let mut handler = Thread::new(SLICE);
        assert_eq!(handler.at(0, Event::Gone), Action::Nothing);
        handler.at(0, Event::Wait);
        handler.at(5, Event::ScheduledOut);
        assert_eq!(handler.at(50, Event::Gone), Action::Drop(Reason::Gone));
        assert_eq!(handler.at(60, Event::ScheduledIn), Action::Drop(Reason::Slice), "nor does it come back");
    }
}
