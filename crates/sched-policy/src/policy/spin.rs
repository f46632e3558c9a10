//! Spin or sleep: for how long to poll before a wait becomes a sleep.
//!
//! Polling for `b` and sleeping then costs the wait itself if it is at most `b`, else `b` and a wake-up. Who knew the
//! wait beforehand would pay the smaller of wait and wake-up. Polling for as long as a wake-up costs is never dearer than
//! twice that (the two-competitive rule: Karlin, Li, Manasse and Owicki, "Empirical studies of competitive spinning",
//! SOSP 1991). Sleeping at once is better where waits are long. That is known from who waits, if it says when it expects an
//! end, or learned from the waits themselves: PIOMan chooses by running threads, processors and what the upper layer asks for, which
//! knows best when a request will complete, and names the history of requests as the smarter approach (section 3.4).
//!
//! What is learned is the geometric mean of waits, so that one long wait among many short ones changes little, and one short among
//! many long ones does not either. Waits of a few wake-ups are no reason to sleep at once: where both ends sleep, each waits for the other's
//! wake-up, and would have no reason to do so if both polled. Nor do they poll long enough by the rule: an answer takes the other's wake-up and
//! its own time, just longer than a wake-up. So where waits are about as long as polling pays, a wait polls for twice that, on credit; one
//! that catches its answer finds the other end awake from then on.
//!
//! # Invariants
//! 1. Of all waits whose end was reported, those that were decided here freely (adaptive, without a hint and unforced) cost together at
//!    most 33/16 of the best choice for each, and one wake-up. For this, what was saved against that is kept as
//!    credit, and a sleep at once or a longer poll, which may cost a wake-up for nothing, is tried only on credit. The sixteenth beyond the
//!    rule's two has who polls in vain afford a trial in the end.
//! 2. A thread that has or may get a real-time priority never polls: it would keep its processor from everybody else.
//! 3. Who waits for less than half the bound, again and again, polls; who waits for twice [`FAR`] bounds and longer sleeps at once. Both
//!    after 32 such waits, whatever was before.

use super::time::Nanos;

/// What the waiting thread was asked to do (the upper layer's preference in PIOMan, section 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preference {
    /// Poll until it comes.
    Spin,
    /// Sleep at once.
    Block,
    /// Poll for about what a wake-up costs here, then sleep: at most about twice the cost of the better choice. Twice as long where waits
    /// have been about as long lately. Sleeps at once while others want the processors, until a trial shows the contrary; and where
    /// waits have been far longer lately.
    #[default]
    Adaptive,
}

impl Preference {
    /// The policy of a wait within a handler. Of nested calls only the innermost has anything to wait for soon; the waits
    /// around it would take the processors that it needs.
    #[must_use]
    pub const fn nested(self) -> Self {
        match self {
            Self::Spin => Self::Adaptive,
            other @ (Self::Block | Self::Adaptive) => other,
        }
    }
}

/// What is asked of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asked {
    /// How to wait.
    pub preference: Preference,
    /// One more than the nanoseconds after which the end is expected; zero if nobody knows. Two words in all are passed in registers.
    expected: u64,
}

impl Asked {
    /// The same, of which the end is expected so long after its begin. Counts for adaptive waits.
    #[must_use]
    pub const fn expecting(self, after: Nanos) -> Self {
        Self { expected: after.0.saturating_add(1), ..self }
    }

    /// A wait of which the usual ones say nothing: as if its end were expected at once.
    #[must_use]
    pub const fn unlike_others(preference: Preference) -> Self {
        Self { preference, expected: 1 }
    }

    /// The same by another policy.
    #[must_use]
    pub const fn by(self, preference: Preference) -> Self {
        Self { preference, ..self }
    }

    /// After how long the end is expected, from the begin of the wait, if the caller knows.
    #[inline]
    pub const fn expected(self) -> Option<Nanos> {
        match self.expected {
            0 => None,
            more => Some(Nanos(more.saturating_sub(1))),
        }
    }
}

impl From<Preference> for Asked {
    #[inline]
    fn from(preference: Preference) -> Self {
        Self { preference, expected: 0 }
    }
}

/// What a thread that waits finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// What its class permits.
    pub standing: Standing,
    /// Whether there is one for it.
    pub processors: Processors,
    /// For how long polling pays: what a wake-up costs here ([`believed`]), unless somebody has said otherwise.
    pub bound: Nanos,
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

/// Whether there is a processor to poll on; see [`super::crowding`].
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

impl Wait {
    /// For how long to poll: not at all, for ever (`NEVER`), or so long.
    #[inline]
    pub const fn polls_for(self) -> Nanos {
        match self {
            Self::Poll => Nanos::NEVER,
            Self::PollFor(bound) => bound,
            Self::Sleep(_) => Nanos::ZERO,
        }
    }
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
    /// Its caller expects the end later than polling pays.
    Expected,
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

/// For how long to poll where nobody could measure a wake-up: PIOMan's busy wait.
pub const BUSY_WAIT: Nanos = Nanos::from_micros(10);
/// How often to look, while polling, at what costs a system call: PIOMan's granularity of idle processors.
pub const IDLE_GRANULARITY: Nanos = Nanos::from_micros(20);
/// The longest sleep while an event is waited for: PIOMan's timer, the net under wake-ups that are lost.
pub const NET: Nanos = Nanos::from_millis(4);
/// For how long who serves others polls after traffic before it sleeps, where that is to be long: Margo's spin-down
/// (`progress_spindown_msec`).
pub const SPIN_DOWN: Nanos = Nanos::from_millis(10);

/// Bounds of what is believed to be the cost of a wake-up: a processor that sleeps deeply, or a measurement on a busy host,
/// says little. Ours, from 20 to 45 us measured on a virtual machine.
pub const LEAST_COST: Nanos = Nanos::from_micros(5);
/// See [`LEAST_COST`].
pub const MOST_COST: Nanos = Nanos::from_micros(50);

/// What a measured cost of a wake-up is taken for.
pub fn believed(cost: Nanos) -> Nanos {
    cost.max(LEAST_COST).min(MOST_COST)
}

/// Waits are far longer than polling pays from so many bounds on: more than the two or three wake-ups that who waits for somebody
/// asleep waits for, with room for wake-ups that take longer than they were measured to. Polling first adds an eighth to such a wait
/// at most. Ours.
pub const FAR: u64 = 8;

/// A wait polls for so many bounds where waits are about as long as one: from half of it on. What is not caught by then costs a bound more, and
/// what is caught saves one. Ours.
pub const LONGER: u64 = 2;

/// Waits up to this are alike: binary logarithm of nanoseconds. 2 us, in which a thread looks some hundred times before it reads
/// its clock for the first time.
const SHORT: u32 = 11;
/// Waits from this on are alike: the same. A second, that of a peer that was away one does not learn for long.
const LONG: u32 = 30;
/// Logarithms have so many steps between two powers of two, as a power itself: 8 bits.
const STEP_BITS: u32 = 8;
/// The weight of the past in what is learned is 7 parts of so many. Ours.
const MEMORY: u32 = 8;

/// Credit is counted in parts of the bound.
const BOUND: u64 = 1 << 16;
/// Credit is kept for so many wake-ups at most: what was saved long ago does not pay for long. Ours.
const MOST_CREDIT: u64 = 8 * BOUND;

/// What one kind of wait has taught: one for each thread or connection that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// How long waits are, as logarithm: in steps above [`SHORT`].
    gap: u32,
    /// By how much all waits together cost less than 33/16 of the best, and one wake-up; in parts of the bound.
    credit: u32,
}

impl Default for Spin {
    fn default() -> Self {
        Self::NEW
    }
}

impl Spin {
    /// Nothing learned: waits are taken to be short.
    pub const NEW: Self = Self { gap: 0, credit: 1 << 16 };

    /// How to wait now. This is the decision, of threads and of the simulator.
    #[inline]
    pub fn wait(&self, asked: Asked, here: Circumstances) -> Wait {
        let Circumstances { standing, processors, bound } = here;
        match (asked.preference, standing, processors) {
            (Preference::Block, ..) => Wait::Sleep(Reason::Asked),
            (_, Standing::RealTime, _) => Wait::Sleep(Reason::RealTime),
            (Preference::Spin, ..) => Wait::Poll,
            (Preference::Adaptive, _, Processors::Oversubscribed) => Wait::Sleep(Reason::Oversubscribed),
            (Preference::Adaptive, _, Processors::Enough) => match asked.expected() {
                Some(expected) if expected > bound => Wait::Sleep(Reason::Expected),
                None if self.sleeps_at_once(bound) => Wait::Sleep(Reason::Learned),
                Some(_) => Wait::PollFor(bound),
                None => Wait::PollFor(self.polls_for(bound)),
            },
        }
    }

    /// For how long a wait polls of which nobody has said anything.
    #[inline]
    fn polls_for(&self, bound: Nanos) -> Nanos {
        if self.gap != 0 && self.is_about(bound) && u64::from(self.credit) >= BOUND {
            bound.times(LONGER)
        } else {
            bound
        }
    }

    fn is_about(&self, bound: Nanos) -> bool {
        let gap = self.gap();
        gap.times(2) >= bound && gap < bound.times(LONGER)
    }

    #[inline]
    fn sleeps_at_once(&self, bound: Nanos) -> bool {
        self.gap != 0 && self.is_far(bound) && u64::from(self.credit) >= BOUND
    }

    fn is_far(&self, bound: Nanos) -> bool {
        self.gap() >= bound.times(FAR)
    }

    /// A wait has ended that was decided by [`Self::wait`] without a hint, for this bound.
    #[must_use]
    pub fn ended(self, wait: Wait, end: End, bound: Nanos) -> Self {
        // A sleeper goes on one wake-up after what it waited for.
        let (waited, paid) = match (wait, end) {
            (_, End::Polled(waited)) => (waited, waited),
            (Wait::PollFor(polled), End::Slept(waited)) => {
                (waited.since(bound).max(polled), polled.after(bound))
            }
            (Wait::Poll | Wait::Sleep(_), End::Slept(waited)) => (waited.since(bound), bound),
        };
        let credit = match wait {
            Wait::PollFor(_) | Wait::Sleep(Reason::Learned) => {
                self.credit_after(waited.min(bound), paid, bound)
            }
            Wait::Poll
            | Wait::Sleep(Reason::Asked | Reason::RealTime | Reason::Oversubscribed | Reason::Expected) => {
                self.credit
            }
        };
        Self { gap: self.gap_after(waited), credit }
    }

    /// A wait has ended so soon that nobody has measured it. For who has learned nothing else that changes nothing.
    #[must_use]
    pub fn ended_at_once(self) -> Self {
        Self { gap: self.gap_after(Nanos::ZERO), ..self }
    }

    /// Whether [`Self::ended_at_once`] changes anything.
    #[inline]
    pub const fn takes_short_waits(&self) -> bool {
        self.gap == 0
    }

    fn gap_after(self, waited: Nanos) -> u32 {
        let steps = logarithm(waited).saturating_sub(SHORT << STEP_BITS).min((LONG - SHORT) << STEP_BITS);
        // Rounded towards what has come, or it were never reached.
        let past = self.gap.saturating_mul(MEMORY - 1).saturating_add(steps);
        let rises = steps > self.gap;
        past.saturating_add(if rises { MEMORY - 1 } else { 0 }) / MEMORY
    }

    fn credit_after(self, best: Nanos, paid: Nanos, bound: Nanos) -> u32 {
        let allowed = best.times(2).after(Nanos(best.0 / 16));
        let parts = |span: Nanos| span.times(BOUND).whole(bound);
        let before = u64::from(self.credit);
        let credit = if allowed >= paid {
            before.saturating_add(parts(allowed.since(paid)))
        } else {
            // What is left of a part is paid as one.
            before.saturating_sub(parts(paid.since(allowed)).saturating_add(1))
        };
        u32::try_from(credit.min(MOST_CREDIT)).unwrap_or(u32::MAX)
    }

    /// How long waits are, lately: their geometric mean. All that are shorter than some 2 us, and those that nobody has waited for, are
    /// taken for 2 us.
    pub fn gap(&self) -> Nanos {
        power(self.gap.saturating_add(SHORT << STEP_BITS))
    }

    /// As a word, for who keeps it where several threads write it.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        let [a, b, c, d] = self.gap.to_le_bytes();
        let [e, f, g, h] = self.credit.to_le_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// What [`Self::to_bits`] has made a word of.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
        Self { gap: u32::from_le_bytes([a, b, c, d]), credit: u32::from_le_bytes([e, f, g, h]) }
    }
}

/// The binary logarithm of a span, in steps; linear between two powers of two, and zero of nothing.
fn logarithm(span: Nanos) -> u32 {
    let span = span.0.max(1);
    let power = span.ilog2();
    // The bits below the highest one, from the top.
    let below = span.wrapping_shl(64_u32.saturating_sub(power));
    let steps = if power == 0 { 0 } else { below >> (64 - STEP_BITS) };
    (power << STEP_BITS) | u32::try_from(steps).unwrap_or(0)
}

/// The span that has this logarithm.
#[inline]
fn power(steps: u32) -> Nanos {
    let whole = steps >> STEP_BITS;
    let rest = u64::from(steps & ((1 << STEP_BITS) - 1));
    let mantissa = (1 << STEP_BITS) | rest;
    Nanos(mantissa.checked_shl(whole).unwrap_or(u64::MAX) >> STEP_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Nanos = Nanos::from_micros(20);
    const HERE: Circumstances =
        Circumstances { standing: Standing::Ordinary, processors: Processors::Enough, bound: COST };

    fn adaptive(spin: &Spin) -> Wait {
        spin.wait(Asked::default(), HERE)
    }

    /// What happens to a thread whose message comes `after` the begin of its wait.
    fn live(spin: Spin, after: Nanos) -> Spin {
        let wait = adaptive(&spin);
        let slept = End::Slept(after.after(COST));
        let end = match wait {
            Wait::PollFor(polls) if after > polls => slept,
            Wait::Sleep(_) => slept,
            Wait::Poll | Wait::PollFor(_) => End::Polled(after),
        };
        spin.ended(wait, end, COST)
    }

    fn after(waits: u32, each: Nanos, spin: Spin) -> Spin {
        (0..waits).fold(spin, |spin, _| live(spin, each))
    }

    #[test]
    fn an_adaptive_wait_polls_for_the_bound() {
        assert_eq!(adaptive(&Spin::NEW), Wait::PollFor(COST));
        assert_eq!([Nanos::ZERO, COST, Nanos::NEVER].map(believed), [LEAST_COST, COST, MOST_COST]);
        let spans = [Wait::Poll, Wait::PollFor(COST), Wait::Sleep(Reason::Asked)].map(Wait::polls_for);
        assert_eq!(spans, [Nanos::NEVER, COST, Nanos::ZERO]);
    }

    #[test]
    fn what_may_not_poll_does_not() {
        let wait = |preference: Preference, standing, processors| {
            Spin::NEW.wait(preference.into(), Circumstances { standing, processors, bound: COST })
        };
        use {Preference as P, Processors as C, Standing as S};
        assert_eq!(wait(P::Spin, S::Ordinary, C::Oversubscribed), Wait::Poll, "it was asked for");
        assert_eq!(wait(P::Spin, S::RealTime, C::Enough), Wait::Sleep(Reason::RealTime));
        assert_eq!(wait(P::Adaptive, S::RealTime, C::Enough), Wait::Sleep(Reason::RealTime));
        assert_eq!(wait(P::Adaptive, S::Ordinary, C::Oversubscribed), Wait::Sleep(Reason::Oversubscribed));
        assert_eq!(wait(P::Block, S::RealTime, C::Oversubscribed), Wait::Sleep(Reason::Asked));
    }

    #[test]
    fn who_expects_the_end_late_sleeps_at_once_and_who_expects_it_soon_polls_whatever_was_before() {
        let expecting = |preference: Preference, expected| Asked::from(preference).expecting(expected);
        let slow = after(40, Nanos::from_millis(10), Spin::NEW);
        for spin in [Spin::NEW, slow] {
            let wait = |preference, expected| spin.wait(expecting(preference, expected), HERE);
            let late = COST.after(Nanos(1));
            assert_eq!(wait(Preference::Adaptive, late), Wait::Sleep(Reason::Expected));
            assert_eq!(wait(Preference::Adaptive, COST), Wait::PollFor(COST));
            assert_eq!(wait(Preference::Spin, late), Wait::Poll, "it was asked for");
            assert_eq!(wait(Preference::Block, COST), Wait::Sleep(Reason::Asked));
        }
        let crowded = Circumstances { processors: Processors::Oversubscribed, ..HERE };
        let soon = expecting(Preference::Adaptive, Nanos::ZERO);
        assert_eq!(Spin::NEW.wait(soon, crowded), Wait::Sleep(Reason::Oversubscribed));
    }

    #[test]
    fn long_waits_are_slept_through_and_short_ones_bring_polling_back() {
        let slow = after(20, Nanos::from_millis(10), Spin::NEW);
        assert_eq!(adaptive(&slow), Wait::Sleep(Reason::Learned));
        assert_eq!(adaptive(&after(20, Nanos::from_micros(3), slow)), Wait::PollFor(COST));
    }

    #[test]
    fn waits_of_a_few_wake_ups_are_no_reason_to_sleep() {
        for wake_ups in 1..FAR {
            let waits = after(100, COST.times(wake_ups), Spin::NEW);
            assert!(matches!(adaptive(&waits), Wait::PollFor(_)), "{wake_ups}");
        }
        assert_eq!(adaptive(&after(100, COST.times(FAR + 1), Spin::NEW)), Wait::Sleep(Reason::Learned));
    }

    /// An answer takes the wake-up of who gives it and 5 us, or 1 us if that one still polls: for the bound after the last one. All of them in
    /// the history of who waits.
    #[test]
    fn who_waits_for_another_ones_wake_up_polls_through_it_in_the_end() {
        let (wakes, awake) = (COST.after(Nanos::from_micros(5)), Nanos::from_micros(1));
        let (mut spin, mut answerer_sleeps, mut slept) = (Spin::NEW, true, [0; 2]);
        for call in 0..64 {
            let after = if answerer_sleeps { wakes } else { awake };
            // Who is woken calls again when the other one sleeps.
            answerer_sleeps = adaptive(&spin).polls_for() < after;
            slept[call / 32] += u32::from(answerer_sleeps);
            spin = live(spin, after);
        }
        assert!(slept[0] > 0 && slept[1] == 0, "{slept:?}");
    }

    #[test]
    fn a_longer_poll_is_on_credit() {
        let about = after(20, COST.after(Nanos(COST.0 / 4)), Spin::NEW);
        assert_eq!(adaptive(&about), Wait::PollFor(COST.times(LONGER)));
        let spent = Spin { credit: (1 << 16) - 1, ..about };
        assert_eq!(adaptive(&spent), Wait::PollFor(COST));
        let vain = live(about, COST.times(3));
        assert!(vain.credit < about.credit - 15 * (1 << 12), "a wake-up, but for a sixteenth");
        let caught = live(Spin { credit: 1 << 16, ..about }, COST.after(Nanos(COST.0 / 4)));
        assert!(caught.credit > 1 << 16);
    }

    #[test]
    fn one_wait_that_is_not_like_the_others_changes_nothing() {
        let one_long = live(after(20, Nanos::from_micros(1), Spin::NEW), Nanos::from_millis(60_000));
        assert!(matches!(adaptive(&one_long), Wait::PollFor(_)));
        let one_short = live(after(20, Nanos::from_millis(10), Spin::NEW), Nanos::ZERO);
        assert_eq!(adaptive(&one_short), Wait::Sleep(Reason::Learned));
    }

    #[test]
    fn without_credit_nothing_is_tried_and_it_comes_back() {
        let long = Nanos::from_millis(10);
        let spent = Spin { credit: 0, ..after(40, long, Spin::NEW) };
        assert_eq!(adaptive(&spent), Wait::PollFor(COST));
        assert_eq!(adaptive(&after(15, long, spent)), Wait::PollFor(COST), "a sixteenth each time");
        assert_eq!(adaptive(&after(16, long, spent)), Wait::Sleep(Reason::Learned));
        let once = Spin { credit: Spin::NEW.credit, ..spent };
        assert!(live(once, Nanos::ZERO).credit == 0, "a wake-up for nothing");
    }

    #[test]
    fn what_was_forced_or_polled_for_ever_costs_no_credit() {
        for wait in [Wait::Poll, Wait::Sleep(Reason::Asked), Wait::Sleep(Reason::Oversubscribed)] {
            let next = Spin::NEW.ended(wait, End::Slept(Nanos::from_millis(1)), COST);
            assert_eq!(next.credit, Spin::NEW.credit);
            assert!(next.gap() > Spin::NEW.gap(), "it teaches all the same");
        }
    }

    #[test]
    fn the_gap_is_learned_and_bounded() {
        let learned = |each: Nanos| after(100, each, Spin::NEW).gap();
        for us in [3, 10, 100, 5_000, 900_000] {
            let (each, gap) = (Nanos::from_micros(us), learned(Nanos::from_micros(us)));
            assert!(gap <= each && gap.0 >= each.0 - each.0 / 100, "{us} us: {gap:?}");
        }
        assert_eq!(learned(Nanos::ZERO), Nanos(1 << SHORT));
        assert_eq!(learned(Nanos::NEVER), Nanos(1 << LONG));
        let slow = after(100, Nanos::NEVER, Spin::NEW);
        assert!(!slow.takes_short_waits());
        let short = (0..100).fold(slow, |spin, _| spin.ended_at_once());
        assert!(short.takes_short_waits() && short.gap() == Spin::NEW.gap());
    }

    #[test]
    fn a_word_holds_it() {
        for spin in [Spin::NEW, after(9, Nanos::from_micros(77), Spin::NEW)] {
            assert_eq!(Spin::from_bits(spin.to_bits()), spin);
        }
    }
}
