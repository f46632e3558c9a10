//! Spin or sleep: for how long to poll before a wait becomes a sleep.
//!
//! Polling for `b` and sleeping then costs the wait itself if it is at most `b`, else `b` and a wake-up. Who knew the
//! wait beforehand would pay the smaller of wait and wake-up. Polling for as long as a wake-up costs is never dearer than
//! twice that (the two-competitive rule: Karlin, Li, Manasse and Owicki, "Empirical studies of competitive spinning",
//! SOSP 1991). Sleeping at once is better where waits are long, and that is learned from the waits themselves: PIOMan
//! chooses by running threads, processors and what the upper layer asks for, and names the history of requests as the
//! smarter approach (section 3.4).
//!
//! # Invariants
//! 1. Of all waits whose end was reported, those that were decided here freely (adaptive and unforced) cost together at
//!    most twice the best choice for each, and one wake-up. For this, what was saved against twice the best is kept as
//!    credit, and a sleep at once, which may cost a wake-up for nothing, is tried only on credit.
//! 2. A thread that has or may get a real-time priority never polls: it would keep its processor from everybody else.

use super::share::Share;
use super::time::Nanos;

/// What the waiting thread was asked to do (the upper layer's preference in PIOMan, section 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preference {
    /// Poll until the end.
    Spin,
    /// Sleep at once.
    Block,
    /// Poll for about what a wake-up costs, then sleep.
    #[default]
    Adaptive,
}

/// What the thread's scheduling class permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It shares its processor with others.
    #[default]
    Ordinary,
    /// It has a real-time priority, or may be given one at any time, as a boost.
    RealTime,
}

/// Whether there is a processor to poll on; see [`super::oversubscription`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Processors {
    /// No evidence of the contrary.
    #[default]
    Enough,
    /// More threads want to run than there are processors.
    Oversubscribed,
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Poll until the end.
    Poll,
    /// Poll for so long, then sleep.
    PollFor(Nanos),
    /// Sleep at once.
    Sleep(Reason),
}

/// Why a thread sleeps at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It was asked to.
    Asked,
    /// It may hold a processor against everybody.
    RealTime,
    /// Others want the processor.
    Oversubscribed,
    /// Waits have been long lately.
    Learned,
}

/// How a wait ended; times from its begin until the thread could go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// While it polled.
    Polled(Nanos),
    /// While it slept, wake-up included.
    Slept(Nanos),
}

/// Bounds of what is believed to be the cost of a wake-up: a processor that sleeps deeply, or a measurement on a busy host,
/// says little. Ours, from 20 to 45 us measured on a virtual machine.
pub const LEAST_COST: Nanos = Nanos::from_micros(5);
/// See [`LEAST_COST`].
pub const MOST_COST: Nanos = Nanos::from_micros(50);

/// The weight of the past in what is learned: some eight waits are remembered. Ours.
const PAST: Share = Share::millionths(875_000);

/// Credit is kept for so many wake-ups at most: what was saved long ago does not pay for long. Ours.
const MOST_CREDIT: u64 = 8;

/// What one kind of wait has taught: one for each thread or connection that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// Of a wake-up.
    cost: Nanos,
    /// What waits would have cost lately, on average, had all of them polled first.
    polling: Nanos,
    /// By how much all waits together cost less than twice the best, and one wake-up.
    credit: Nanos,
}

impl Spin {
    /// Nothing learned but the cost of a wake-up here.
    pub fn new(cost: Nanos) -> Self {
        let cost = believed(cost);
        Self { cost, polling: Nanos::ZERO, credit: cost }
    }

    /// How to wait now.
    pub fn wait(&self, preference: Preference, standing: Standing, processors: Processors) -> Wait {
        match (preference, standing, processors) {
            (Preference::Block, ..) => Wait::Sleep(Reason::Asked),
            (_, Standing::RealTime, _) => Wait::Sleep(Reason::RealTime),
            (Preference::Spin, ..) => Wait::Poll,
            (Preference::Adaptive, _, Processors::Oversubscribed) => Wait::Sleep(Reason::Oversubscribed),
            (Preference::Adaptive, ..) if self.polling > self.cost && self.credit >= self.cost => {
                Wait::Sleep(Reason::Learned)
            }
            (Preference::Adaptive, ..) => Wait::PollFor(self.cost),
        }
    }

    /// A wait has ended that was decided by [`Self::wait`].
    #[must_use]
    pub fn ended(self, wait: Wait, end: End) -> Self {
        // A sleeper goes on one wake-up after what it waited for.
        let (waited, paid) = match (wait, end) {
            (_, End::Polled(waited)) => (waited, waited),
            (Wait::PollFor(bound), End::Slept(waited)) => {
                (waited.since(self.cost).max(bound), bound.after(self.cost))
            }
            (Wait::Poll | Wait::Sleep(_), End::Slept(waited)) => (waited.since(self.cost), self.cost),
        };
        let polled = if waited <= self.cost { waited } else { self.cost.times(2) };
        let polling = Nanos(PAST.of(self.polling.0).saturating_add(PAST.rest().of(polled.0)));
        let credit = match wait {
            Wait::PollFor(_) | Wait::Sleep(Reason::Learned) => {
                let best = waited.min(self.cost);
                self.credit.after(best.times(2)).since(paid).min(self.cost.times(MOST_CREDIT))
            }
            Wait::Poll | Wait::Sleep(Reason::Asked | Reason::RealTime | Reason::Oversubscribed) => {
                self.credit
            }
        };
        Self { polling, credit, ..self }
    }

    /// A wake-up took so long, from its cause to the woken thread.
    #[must_use]
    pub fn woken(self, took: Nanos) -> Self {
        let cost = PAST.of(self.cost.0).saturating_add(PAST.rest().of(believed(took).0));
        Self { cost: believed(Nanos(cost)), ..self }
    }

    /// What a wake-up is taken to cost.
    pub const fn cost(&self) -> Nanos {
        self.cost
    }
}

fn believed(cost: Nanos) -> Nanos {
    cost.max(LEAST_COST).min(MOST_COST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Nanos = Nanos::from_micros(20);

    fn adaptive(spin: &Spin) -> Wait {
        spin.wait(Preference::Adaptive, Standing::Ordinary, Processors::Enough)
    }

    /// What happens to a thread whose message comes `after` the begin of its wait.
    fn live(spin: Spin, after: Nanos) -> Spin {
        let wait = adaptive(&spin);
        let slept = End::Slept(after.after(spin.cost()));
        let end = match wait {
            Wait::PollFor(bound) if after > bound => slept,
            Wait::Sleep(_) => slept,
            Wait::Poll | Wait::PollFor(_) => End::Polled(after),
        };
        spin.ended(wait, end)
    }

    #[test]
    fn an_adaptive_wait_polls_for_the_cost_of_a_wake_up() {
        assert_eq!(adaptive(&Spin::new(COST)), Wait::PollFor(COST));
        assert_eq!(adaptive(&Spin::new(Nanos::ZERO)), Wait::PollFor(LEAST_COST));
        assert_eq!(adaptive(&Spin::new(Nanos::NEVER)), Wait::PollFor(MOST_COST));
    }

    #[test]
    fn what_may_not_poll_does_not() {
        let wait = |preference, standing, processors| Spin::new(COST).wait(preference, standing, processors);
        use {Preference as P, Processors as C, Standing as S};
        assert_eq!(wait(P::Spin, S::Ordinary, C::Oversubscribed), Wait::Poll, "it was asked for");
        assert_eq!(wait(P::Spin, S::RealTime, C::Enough), Wait::Sleep(Reason::RealTime));
        assert_eq!(wait(P::Adaptive, S::RealTime, C::Enough), Wait::Sleep(Reason::RealTime));
        assert_eq!(wait(P::Adaptive, S::Ordinary, C::Oversubscribed), Wait::Sleep(Reason::Oversubscribed));
        assert_eq!(wait(P::Block, S::RealTime, C::Oversubscribed), Wait::Sleep(Reason::Asked));
    }

    #[test]
    fn long_waits_are_slept_through_and_short_ones_bring_polling_back() {
        let mut spin = Spin::new(COST);
        for _ in 0..20 {
            spin = live(spin, Nanos::from_millis(10));
        }
        assert_eq!(adaptive(&spin), Wait::Sleep(Reason::Learned));
        for _ in 0..20 {
            spin = live(spin, Nanos::from_micros(3));
        }
        assert_eq!(adaptive(&spin), Wait::PollFor(COST));
    }

    #[test]
    fn without_credit_nothing_is_tried() {
        let mut spin = Spin::new(COST);
        spin = Spin { polling: COST.times(2), ..spin };
        assert_eq!(adaptive(&spin), Wait::Sleep(Reason::Learned));
        spin = live(spin, Nanos::ZERO);
        assert!(spin.credit < COST, "a wake-up for nothing");
        assert_eq!(adaptive(&Spin { polling: COST.times(2), ..spin }), Wait::PollFor(COST));
    }

    #[test]
    fn the_cost_of_a_wake_up_is_learned_and_bounded() {
        let after = |took| (0..50).fold(Spin::new(COST), |spin, _| spin.woken(took)).cost();
        let near = after(Nanos::from_micros(30));
        assert!(near > Nanos::from_micros(29) && near <= Nanos::from_micros(30), "{near:?}");
        assert!(after(Nanos::NEVER) <= MOST_COST && after(Nanos::ZERO) >= LEAST_COST);
    }
}
