//! Threads of three users on one CPU, driven at random by a caller that meets every deadline: no cap is ever exceeded.

use pronto_sched_policy::policy::boost::{
    step, Action, Event, Phase, Terms, SLICE_TO_DISPATCH, SLICE_TO_LAST_TICK,
};
use pronto_sched_policy::policy::budget::Budget;
use pronto_sched_policy::policy::caps::{Accounts, CPU, THREAD, USER, WINDOW};
use pronto_sched_policy::policy::time::Nanos;
use proptest::prelude::*;

const THREADS: usize = 9;
const USERS: usize = 3;

/// One CPU, and the state of a scheduler with this policy.
struct World {
    terms: Terms,
    now: u64,
    threads: [(Phase, Budget); THREADS],
    users: [Budget; USERS],
    cpu: Budget,
    /// State according to the scheduler, not the policy.
    raised: [bool; THREADS],
    /// Boosted runs: thread, begin, end.
    runs: Vec<(usize, u64, u64)>,
}

impl World {
    fn new(slice: Nanos) -> Self {
        let terms = Terms { slice, ..Terms::standard() };
        let fresh = Accounts::new(&terms.caps, Nanos::ZERO);
        Self {
            terms,
            now: 0,
            threads: [(Phase::NEW, fresh.thread); THREADS],
            users: [fresh.user; USERS],
            cpu: fresh.cpu,
            raised: [false; THREADS],
            runs: Vec::new(),
        }
    }

    /// Reports an event and carries out the action; returns the deadline of a thread that continues to run boosted.
    fn report(&mut self, thread: usize, event: Event) -> Option<u64> {
        let user = thread % USERS;
        let (phase, own) = self.threads[thread];
        let accounts = Accounts { thread: own, user: self.users[user], cpu: self.cpu };
        let done = step(phase, accounts, event, Nanos(self.now), &self.terms);
        self.threads[thread] = (done.phase, done.accounts.thread);
        self.users[user] = done.accounts.user;
        self.cpu = done.accounts.cpu;
        for budget in [done.accounts.thread, done.accounts.user, done.accounts.cpu] {
            assert_eq!(budget.debt(), Nanos::ZERO, "deadlines were kept");
        }
        match done.action {
            Action::Raise(until) => {
                assert!(!self.raised[thread], "raised twice");
                self.raised[thread] = true;
                Some(until.0)
            }
            Action::Arm(until) => {
                assert!(self.raised[thread]);
                Some(until.0)
            }
            Action::Drop(_) => {
                assert!(self.raised[thread], "dropped twice");
                self.raised[thread] = false;
                self.report(thread, Event::Dropped)
            }
            Action::Forget => {
                assert!(self.raised[thread]);
                self.raised[thread] = false;
                None
            }
            Action::Refuse(_) => {
                assert!(!self.raised[thread]);
                None
            }
            Action::Nothing => {
                assert_eq!(self.raised[thread], done.phase.is_raised());
                None
            }
        }
    }

    /// Runs a thread for `span`, meeting its deadline.
    fn run(&mut self, thread: usize, span: u64, mut deadline: Option<u64>) -> Option<u64> {
        let end = self.now + span;
        while let (Some(until), true) = (deadline, self.raised[thread]) {
            let stop = until.min(end);
            self.runs.push((thread, self.now, stop));
            self.now = stop;
            if stop < until {
                return deadline;
            }
            deadline = self.report(thread, Event::Timer);
        }
        self.now = end;
        deadline
    }

    /// Returns the most boosted time within any window, over the runs that `counts` selects.
    fn dearest_window(&self, counts: impl Fn(usize) -> bool) -> u64 {
        let runs: Vec<_> = self.runs.iter().filter(|run| counts(run.0)).collect();
        let within = |begin: u64| {
            let end = begin + WINDOW.0;
            runs.iter().map(|run| run.2.min(end).saturating_sub(run.1.max(begin))).sum::<u64>()
        };
        // The dearest window begins with a run, or ends with one.
        runs.iter().flat_map(|run| [run.1, run.2.saturating_sub(WINDOW.0)]).map(within).max().unwrap_or(0)
    }
}

/// One turn of a thread on the CPU: (thread, idle before, run before the wait, run after, action).
type Turn = (usize, u64, u64, u64, u8);

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let span = |most: u64| prop_oneof![0..most / 100, 0..most];
    prop::collection::vec((0..THREADS, span(20_000_000), span(2_000_000), span(400_000), 0..20_u8), 1..300)
}

fn play(slice: Nanos, turns: Vec<Turn>) -> World {
    let mut world = World::new(slice);
    for (thread, idle, before, after, what) in turns {
        world.now += idle;
        let deadline = world.report(thread, Event::ScheduledIn);
        let deadline = world.run(thread, before, deadline);
        let deadline = match what {
            0 => world.report(thread, Event::Replaced),
            1 => world.report(thread, Event::Gone),
            2..=4 => deadline,
            _ => world.report(thread, Event::Wait),
        };
        world.run(thread, after, deadline);
        world.report(thread, Event::ScheduledOut);
    }
    world
}

proptest! {
    #[test]
    fn no_cap_is_broken_in_any_window(turns in turns(), slice in 0..4_u8) {
        let slice = match slice {
            0 => SLICE_TO_DISPATCH,
            1 => SLICE_TO_LAST_TICK,
            _ => Terms::standard().slice,
        };
        let world = play(slice, turns);
        for thread in 0..THREADS {
            prop_assert!(world.dearest_window(|other| other == thread) <= THREAD.of(WINDOW.0) + AHEAD);
        }
        for user in 0..USERS {
            prop_assert!(world.dearest_window(|other| other % USERS == user) <= USER.of(WINDOW.0) + AHEAD);
        }
        prop_assert!(world.dearest_window(|_| true) <= CPU.of(WINDOW.0) + AHEAD);
    }

    #[test]
    fn the_same_events_make_the_same_decisions(turns in turns()) {
        let (one, other) = (play(Terms::standard().slice, turns.clone()), play(Terms::standard().slice, turns));
        prop_assert_eq!((one.threads, one.users, one.runs), (other.threads, other.users, other.runs));
    }

    #[test]
    fn no_time_is_too_large(
        events in prop::collection::vec((0..7_u8, any::<u64>()), 1..50),
        slice in any::<u64>(),
    ) {
        let terms = Terms { slice: Nanos(slice), ..Terms::standard() };
        let (mut phase, mut accounts) = (Phase::NEW, Accounts::new(&terms.caps, Nanos::ZERO));
        for (event, now) in events {
            let event = [
                Event::Wait,
                Event::ScheduledIn,
                Event::ScheduledOut,
                Event::Timer,
                Event::Dropped,
                Event::Replaced,
                Event::Gone,
            ][usize::from(event)];
            let done = step(phase, accounts, event, Nanos(now), &terms);
            (phase, accounts) = (done.phase, done.accounts);
        }
    }
}

/// Threads that use all they can get: each waits, is woken immediately and runs for as long as it is permitted.
#[test]
fn hogs_get_most_of_their_cap_and_never_more() {
    let all: Vec<usize> = (0..THREADS).collect();
    let of_one_user: Vec<usize> = (0..THREADS).filter(|thread| thread % USERS == 0).collect();
    for (hogs, cap) in [(&all[..1], THREAD), (&of_one_user, USER), (&all, CPU)] {
        let mut world = World::new(SLICE_TO_LAST_TICK);
        while world.now < 10 * WINDOW.0 {
            for &thread in hogs {
                for (event, span) in
                    [(Event::Wait, 0), (Event::ScheduledOut, 0), (Event::ScheduledIn, 250_000)]
                {
                    let deadline = world.report(thread, event);
                    world.run(thread, span, deadline);
                }
                world.report(thread, Event::ScheduledOut);
            }
        }
        let dearest = world.dearest_window(|_| true);
        let cap = cap.of(WINDOW.0);
        // Ten twelfths, minus a rest that is too little for a slice at the end of an epoch.
        assert!(dearest <= cap && dearest >= cap / 4 * 3, "{hogs:?}: {dearest} ns of {cap}");
    }
}

/// Every history of five events, each 0 or 130 us after the previous one, in any order and with late timers: caller and
/// policy always agree about whether the thread is raised, and exactly the boosted time is charged.
#[test]
fn every_short_history_is_metered_and_never_misjudged() {
    const EVENTS: [Event; 7] = [
        Event::Wait,
        Event::ScheduledIn,
        Event::ScheduledOut,
        Event::Timer,
        Event::Dropped,
        Event::Replaced,
        Event::Gone,
    ];
    /// State of the caller.
    #[derive(Clone, Copy)]
    struct Caller {
        raised: bool,
        running: bool,
        boosted: u64,
    }
    fn histories(depth: u32, now: u64, phase: Phase, accounts: Accounts, caller: Caller, terms: &Terms) {
        if depth == 0 {
            return;
        }
        for (event, wait) in EVENTS.into_iter().flat_map(|event| [(event, 0), (event, 130_000)]) {
            let mut caller = caller;
            caller.boosted += if caller.raised && caller.running { wait } else { 0 };
            match event {
                Event::Wait | Event::ScheduledIn => caller.running = true,
                Event::ScheduledOut => caller.running = false,
                Event::Dropped => caller.raised = false,
                Event::Timer | Event::Replaced | Event::Gone => {}
            }
            let now = now + wait;
            let done = step(phase, accounts, event, Nanos(now), terms);
            match done.action {
                Action::Raise(until) => {
                    assert!(!caller.raised && until > Nanos(now));
                    caller.raised = true;
                }
                Action::Arm(until) => assert!(caller.raised && until > Nanos(now)),
                Action::Drop(_) => assert!(caller.raised),
                Action::Forget => {
                    assert!(caller.raised);
                    caller.raised = false;
                }
                Action::Refuse(_) => assert!(!caller.raised && event == Event::Wait),
                Action::Nothing => {}
            }
            assert_eq!(done.phase.is_raised(), caller.raised);
            // Within the first epoch nothing is earned, so every decrease is a charge.
            for (budget, terms) in [
                (done.accounts.thread, terms.caps.thread),
                (done.accounts.user, terms.caps.user),
                (done.accounts.cpu, terms.caps.cpu),
            ] {
                let balance = i128::from(budget.left().0) - i128::from(budget.debt().0);
                assert_eq!(balance, i128::from(terms.grant().0) - i128::from(caller.boosted));
            }
            histories(depth - 1, now, done.phase, done.accounts, caller, terms);
        }
    }
    for slice in [SLICE_TO_DISPATCH, Terms::standard().slice, SLICE_TO_LAST_TICK] {
        let terms = Terms { slice, ..Terms::standard() };
        let fresh = Accounts::new(&terms.caps, Nanos::ZERO);
        let caller = Caller { raised: false, running: false, boosted: 0 };
        histories(5, 0, Phase::NEW, fresh, caller, &terms);
    }
}

/// Time is charged after it has run, so a run that crosses the begin of an epoch is charged in the later one. The
/// excess is at most one deadline: the most that a thread's account holds.
const AHEAD: u64 = 1_666_666;
