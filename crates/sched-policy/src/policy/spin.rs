// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spin or sleep: the polling time before a wait becomes a sleep.
//!
//! A wait that polls for `b` and then sleeps costs its own length if that is at most `b`, otherwise `b` plus a wake-up.
//! The offline optimum is the smaller of wait and wake-up. If `b` is the cost of a wake-up, polling never costs more
//! than twice the optimum (the two-competitive rule: Karlin, Li, Manasse and Owicki, "Empirical studies of competitive
//! spinning", SOSP 1991). For long waits, sleeping immediately is better. The policy recognises them by the caller's
//! hint about the expected end, or by past waits. PIOMan chooses by running threads, CPUs and the request of the upper
//! layer, which knows best when a request will complete; it names the history of requests as the smarter approach
//! (section 3.4).
//!
//! The wait history is the geometric mean of waits, so one long wait among many short ones, or one short among many
//! long ones, changes little. Waits of a few wake-ups are no reason to sleep immediately: if both ends sleep, each
//! waits for the other's wake-up, which neither would have to do if both polled. The two-competitive polling time is
//! too short for them, because a reply takes the other end's wake-up plus its processing, slightly longer than one
//! wake-up. So if the mean wait is about one bound, a wait polls for twice the bound, on credit. If it catches the
//! reply, the other end is awake from then on.
//!
//! # Invariants
//! 1. The total cost of unforced adaptive waits without a hint, of those whose end was reported, is at most 33/16 of
//!    the offline optimum plus one wake-up. Savings against that bound are kept as credit. An immediate sleep or a
//!    longer poll may waste a wake-up, so it is tried only on credit. The extra 1/16 over the classical factor 2
//!    guarantees that a thread whose polls always fail can eventually afford a trial.
//! 2. A thread that has or may get a real-time priority never polls: it would keep all other threads off its CPU.
//! 3. A thread polls if its waits are shorter than half the bound, and sleeps immediately if they are at least twice
//!    [`FAR`] bounds long. Either takes effect after 32 such waits, whatever the earlier history.

use super::time::Nanos;

/// Wait policy requested by the caller (the upper layer's preference in PIOMan, section 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preference {
    /// Polls until the event arrives.
    Spin,
    /// Sleeps immediately.
    Block,
    /// Polls for about the cost of a wake-up, then sleeps: at most about twice the cost of the better choice. Polls for
    /// twice as long if recent waits were about that long. Sleeps immediately while there is contention, except in
    /// trials, and if recent waits were far longer.
    #[default]
    Adaptive,
}

impl Preference {
    /// Returns the policy of a wait within a handler. Of nested calls only the innermost can end soon; polling in the
    /// outer waits would take the CPUs that it needs.
    #[must_use]
    pub const fn nested(self) -> Self {
        match self {
            Self::Spin => Self::Adaptive,
            other @ (Self::Block | Self::Adaptive) => other,
        }
    }
}

/// A wait request: policy and hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitRequest {
    /// The wait policy.
    pub preference: Preference,
    /// Nanoseconds until the expected end, plus one; zero without a hint. The struct has two words, so that it is
    /// passed in registers.
    expected: u64,
}

impl WaitRequest {
    /// Returns the request with a hint: the end is expected `after` the begin of the wait. Only adaptive waits use it.
    #[must_use]
    pub const fn expecting(self, after: Nanos) -> Self {
        Self { expected: after.0.saturating_add(1), ..self }
    }

    /// Returns a request for a wait that is unlike those in the history: its end is expected immediately.
    #[must_use]
    pub const fn unlike_others(preference: Preference) -> Self {
        Self { preference, expected: 1 }
    }

    /// Returns the request with another policy.
    #[must_use]
    pub const fn by(self, preference: Preference) -> Self {
        Self { preference, ..self }
    }

    /// Returns the expected time from the begin of the wait to its end, if the caller gave one.
    #[inline]
    pub const fn expected(self) -> Option<Nanos> {
        match self.expected {
            0 => None,
            more => Some(Nanos(more.saturating_sub(1))),
        }
    }
}

impl From<Preference> for WaitRequest {
    #[inline]
    fn from(preference: Preference) -> Self {
        Self { preference, expected: 0 }
    }
}

/// Circumstances of a waiting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// Scheduling class of the thread.
    pub sched_class: SchedClass,
    /// Contention for CPUs.
    pub cpus: CpuSupply,
    /// Longest polling time that pays: the cost of a wake-up here ([`believed`]), unless the operator configured
    /// another.
    pub bound: Nanos,
}

/// The scheduling class of a thread, as far as polling is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchedClass {
    /// Shares its CPU with other threads.
    #[default]
    Ordinary,
    /// Has a real-time priority, or may be given one at any time, for example by a boost.
    RealTime,
}

/// The availability of a CPU to poll on; see [`super::contention`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CpuSupply {
    /// No evidence of contention.
    #[default]
    Enough,
    /// More threads want to run than there are CPUs.
    Oversubscribed,
}

/// A decision how to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Poll until the wait ends.
    Poll,
    /// Poll for this time, then sleep.
    PollFor(Nanos),
    /// Sleeps immediately.
    Sleep(Reason),
}

impl Wait {
    /// Returns the polling time: zero for a sleep, `NEVER` for an unlimited poll.
    #[inline]
    pub const fn polls_for(self) -> Nanos {
        match self {
            Self::Poll => Nanos::NEVER,
            Self::PollFor(bound) => bound,
            Self::Sleep(_) => Nanos::ZERO,
        }
    }
}

/// The reason for an immediate sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The caller requested it.
    Requested,
    /// The thread may be real-time, and would keep all other threads off its CPU.
    RealTime,
    /// Other threads want the CPU.
    Oversubscribed,
    /// The caller expects the end later than polling pays.
    Expected,
    /// Recent waits were long.
    Learned,
}

/// The end of a wait. Times are from its begin until the thread could continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Ended while the thread polled.
    Polled(Nanos),
    /// Ended while the thread slept; includes the wake-up.
    Slept(Nanos),
}

/// Polling time if the cost of a wake-up could not be measured: PIOMan's busy wait.
pub const BUSY_WAIT: Nanos = Nanos::from_micros(10);
/// Time between two polls, while polling, of sources whose poll is a system call: PIOMan's granularity on idle CPUs.
pub const IDLE_GRANULARITY: Nanos = Nanos::from_micros(20);
/// Safety-net timeout: the longest sleep while an event is expected, which bounds the effect of a lost wake-up.
/// PIOMan's timer.
pub const SAFETY_NET_TIMEOUT: Nanos = Nanos::from_millis(4);
/// Polling time of a serving thread after traffic, if it is configured to poll for long: Margo's spin-down
/// (`progress_spindown_msec`).
pub const SPIN_DOWN: Nanos = Nanos::from_millis(10);

/// Smallest wake-up cost that is believed; [`MOST_COST`] is the largest. A CPU in a deep sleep state or a busy host
/// distorts the measurement. Chosen by us from 20 to 45 us measured on a virtual machine.
pub const LEAST_COST: Nanos = Nanos::from_micros(5);
/// Largest wake-up cost that is believed; [`LEAST_COST`] gives the reason.
pub const MOST_COST: Nanos = Nanos::from_micros(50);

/// Returns a measured wake-up cost, limited to the believable range.
pub fn believed(cost: Nanos) -> Nanos {
    cost.max(LEAST_COST).min(MOST_COST)
}

/// Number of bounds from which a mean wait is far longer than polling pays. It is more than the two or three wake-ups
/// that a wait for a sleeping peer takes, with room for wake-ups that take longer than measured. Polling first adds at
/// most an eighth to such a wait. Chosen by us; no source.
pub const FAR: u64 = 8;

/// Polling time in bounds if the mean wait is between half a bound and this many bounds. An unsuccessful longer poll
/// costs one more bound, and a successful one saves one. Chosen by us; no source.
pub const LONGER: u64 = 2;

/// Binary logarithm of the nanoseconds up to which waits count as equal: 2 us, in which a thread polls some hundred
/// times before it first reads its clock.
const SHORT: u32 = 11;
/// Binary logarithm of the nanoseconds from which waits count as equal: about a second, so that a peer's long absence
/// does not dominate the history.
const LONG: u32 = 30;
/// Bits after the binary point of logarithms.
const STEP_BITS: u32 = 8;
/// Divisor of the running mean: the past has a weight of 7/8. Chosen by us; no source.
const MEMORY: u32 = 8;

/// Units of credit in one bound.
const BOUND: u64 = 1 << 16;
/// Most credit that is kept, worth eight wake-ups, so that old savings do not pay for long. Chosen by us; no source.
const MOST_CREDIT: u64 = 8 * BOUND;

/// Wait history of one kind of wait, one per waiting thread or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// Logarithm of the mean wait, in steps above [`SHORT`].
    gap: u32,
    /// Savings of all waits against 33/16 of the offline optimum plus one wake-up, in parts of the bound.
    credit: u32,
}

impl Default for Spin {
    fn default() -> Self {
        Self::NEW
    }
}

impl Spin {
    /// Empty history: waits are assumed to be short.
    pub const NEW: Self = Self { gap: 0, credit: 1 << 16 };

    /// Decides how to wait, for threads and for the simulator.
    #[inline]
    pub fn wait(&self, request: WaitRequest, here: Circumstances) -> Wait {
        let Circumstances { sched_class, cpus, bound } = here;
        match (request.preference, sched_class, cpus) {
            (Preference::Block, ..) => Wait::Sleep(Reason::Requested),
            (_, SchedClass::RealTime, _) => Wait::Sleep(Reason::RealTime),
            (Preference::Spin, ..) => Wait::Poll,
            (Preference::Adaptive, _, CpuSupply::Oversubscribed) => Wait::Sleep(Reason::Oversubscribed),
            (Preference::Adaptive, _, CpuSupply::Enough) => match request.expected() {
                Some(expected) if expected > bound => Wait::Sleep(Reason::Expected),
                None if self.sleeps_immediately(bound) => Wait::Sleep(Reason::Learned),
                Some(_) => Wait::PollFor(bound),
                None => Wait::PollFor(self.polls_for(bound)),
            },
        }
    }

    /// Returns the polling time of a wait without a hint.
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
    fn sleeps_immediately(&self, bound: Nanos) -> bool {
        self.gap != 0 && self.is_far(bound) && u64::from(self.credit) >= BOUND
    }

    fn is_far(&self, bound: Nanos) -> bool {
        self.gap() >= bound.times(FAR)
    }

    /// Records the end of a wait that [`Self::wait`] decided without a hint, for this bound.
    #[must_use]
    pub fn ended(self, wait: Wait, end: End, bound: Nanos) -> Self {
        // A sleeping thread continues one wake-up after its event.
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
            | Wait::Sleep(Reason::Requested | Reason::RealTime | Reason::Oversubscribed | Reason::Expected) => {
                self.credit
            }
        };
        Self { gap: self.gap_after(waited), credit }
    }

    /// Records a wait that ended too soon to be measured. Changes nothing if only such waits were recorded before.
    #[must_use]
    pub fn ended_immediately(self) -> Self {
        Self { gap: self.gap_after(Nanos::ZERO), ..self }
    }

    /// Returns whether [`Self::ended_immediately`] would change the history.
    #[inline]
    pub const fn takes_short_waits(&self) -> bool {
        self.gap == 0
    }

    fn gap_after(self, waited: Nanos) -> u32 {
        let steps = logarithm(waited).saturating_sub(SHORT << STEP_BITS).min((LONG - SHORT) << STEP_BITS);
        // Rounded towards the new value; otherwise the mean would never reach it.
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
            // A remainder is charged as a whole part.
            before.saturating_sub(parts(paid.since(allowed)).saturating_add(1))
        };
        u32::try_from(credit.min(MOST_CREDIT)).unwrap_or(u32::MAX)
    }

    /// Returns the geometric mean of recent waits. Waits shorter than about 2 us, and those too short to be measured,
    /// count as 2 us.
    pub fn gap(&self) -> Nanos {
        power(self.gap.saturating_add(SHORT << STEP_BITS))
    }

    /// Returns the state as one word, for storage that several threads write.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        let [a, b, c, d] = self.gap.to_le_bytes();
        let [e, f, g, h] = self.credit.to_le_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Restores the state from [`Self::to_bits`].
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
        Self { gap: u32::from_le_bytes([a, b, c, d]), credit: u32::from_le_bytes([e, f, g, h]) }
    }
}

/// Returns the binary logarithm of a span, in steps; linear between two powers of two, and zero for an empty span.
fn logarithm(span: Nanos) -> u32 {
    let span = span.0.max(1);
    let power = span.ilog2();
    // The bits below the highest one, from the top.
    let below = span.wrapping_shl(64_u32.saturating_sub(power));
    let steps = if power == 0 { 0 } else { below >> (64 - STEP_BITS) };
    (power << STEP_BITS) | u32::try_from(steps).unwrap_or(0)
}

/// Returns the span with this logarithm.
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
        Circumstances { sched_class: SchedClass::Ordinary, cpus: CpuSupply::Enough, bound: COST };

    fn adaptive(spin: &Spin) -> Wait {
        spin.wait(WaitRequest::default(), HERE)
    }

    /// Runs one wait of a thread whose message arrives `after` the begin of the wait.
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

    /// Shows: calls.adaptive
    #[test]
    fn an_adaptive_wait_polls_for_the_bound() {
        assert_eq!(adaptive(&Spin::NEW), Wait::PollFor(COST));
        assert_eq!([Nanos::ZERO, COST, Nanos::NEVER].map(believed), [LEAST_COST, COST, MOST_COST]);
        let spans = [Wait::Poll, Wait::PollFor(COST), Wait::Sleep(Reason::Requested)].map(Wait::polls_for);
        assert_eq!(spans, [Nanos::NEVER, COST, Nanos::ZERO]);
    }

    /// Shows: operations.real-time
    #[test]
    fn threads_that_may_not_poll_do_not() {
        let wait = |preference: Preference, sched_class, cpus| {
            Spin::NEW.wait(preference.into(), Circumstances { sched_class, cpus, bound: COST })
        };
        use {CpuSupply as C, Preference as P, SchedClass as S};
        assert_eq!(wait(P::Spin, S::Ordinary, C::Oversubscribed), Wait::Poll, "the caller requested it");
        assert_eq!(wait(P::Spin, S::RealTime, C::Enough), Wait::Sleep(Reason::RealTime));
        assert_eq!(wait(P::Adaptive, S::RealTime, C::Enough), Wait::Sleep(Reason::RealTime));
        assert_eq!(wait(P::Adaptive, S::Ordinary, C::Oversubscribed), Wait::Sleep(Reason::Oversubscribed));
        assert_eq!(wait(P::Block, S::RealTime, C::Oversubscribed), Wait::Sleep(Reason::Requested));
    }

    /// Shows: calls.expecting, calls.policies
    #[test]
    fn a_late_hint_sleeps_immediately_and_an_early_one_polls_whatever_the_history() {
        let expecting = |preference: Preference, expected| WaitRequest::from(preference).expecting(expected);
        let slow = after(40, Nanos::from_millis(10), Spin::NEW);
        for spin in [Spin::NEW, slow] {
            let wait = |preference, expected| spin.wait(expecting(preference, expected), HERE);
            let late = COST.after(Nanos(1));
            assert_eq!(wait(Preference::Adaptive, late), Wait::Sleep(Reason::Expected));
            assert_eq!(wait(Preference::Adaptive, COST), Wait::PollFor(COST));
            assert_eq!(wait(Preference::Spin, late), Wait::Poll, "the caller requested it");
            assert_eq!(wait(Preference::Block, COST), Wait::Sleep(Reason::Requested));
        }
        let crowded = Circumstances { cpus: CpuSupply::Oversubscribed, ..HERE };
        let soon = expecting(Preference::Adaptive, Nanos::ZERO);
        assert_eq!(Spin::NEW.wait(soon, crowded), Wait::Sleep(Reason::Oversubscribed));
    }

    /// Shows: operations.sleeps-after-long
    #[test]
    fn after_long_waits_it_sleeps_and_short_ones_bring_polling_back() {
        let slow = after(20, Nanos::from_millis(10), Spin::NEW);
        assert_eq!(adaptive(&slow), Wait::Sleep(Reason::Learned));
        assert_eq!(adaptive(&after(20, Nanos::from_micros(3), slow)), Wait::PollFor(COST));
    }

    /// Shows: calls.sleeps-after-long, operations.sleeps-after-long
    #[test]
    fn waits_of_a_few_wake_ups_are_no_reason_to_sleep() {
        for wake_ups in 1..FAR {
            let waits = after(100, COST.times(wake_ups), Spin::NEW);
            assert!(matches!(adaptive(&waits), Wait::PollFor(_)), "{wake_ups}");
        }
        assert_eq!(adaptive(&after(100, COST.times(FAR + 1), Spin::NEW)), Wait::Sleep(Reason::Learned));
    }

    /// A reply takes the replying thread's wake-up and 5 us, or 1 us if that thread still polls, which it does for the
    /// bound after its last wait. All of this is in the history of the caller.
    #[test]
    fn a_wait_for_another_threads_wake_up_is_eventually_polled_through() {
        let (wakes, awake) = (COST.after(Nanos::from_micros(5)), Nanos::from_micros(1));
        let (mut spin, mut answerer_sleeps, mut slept) = (Spin::NEW, true, [0; 2]);
        for call in 0..64 {
            let after = if answerer_sleeps { wakes } else { awake };
            // A caller that was woken calls again after the other thread went to sleep.
            answerer_sleeps = adaptive(&spin).polls_for() < after;
            slept[call / 32] += u32::from(answerer_sleeps);
            spin = live(spin, after);
        }
        assert!(slept[0] > 0 && slept[1] == 0, "{slept:?}");
    }

    /// Shows: calls.polls-twice, operations.polls-twice
    #[test]
    fn a_longer_poll_is_on_credit() {
        let about = after(20, COST.after(Nanos(COST.0 / 4)), Spin::NEW);
        assert_eq!(adaptive(&about), Wait::PollFor(COST.times(LONGER)));
        let spent = Spin { credit: (1 << 16) - 1, ..about };
        assert_eq!(adaptive(&spent), Wait::PollFor(COST));
        let failed = live(about, COST.times(3));
        assert!(failed.credit < about.credit - 15 * (1 << 12), "a wake-up, less a sixteenth");
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
    fn without_credit_nothing_is_tried_and_credit_recovers() {
        let long = Nanos::from_millis(10);
        let spent = Spin { credit: 0, ..after(40, long, Spin::NEW) };
        assert_eq!(adaptive(&spent), Wait::PollFor(COST));
        assert_eq!(adaptive(&after(15, long, spent)), Wait::PollFor(COST), "a sixteenth each time");
        assert_eq!(adaptive(&after(16, long, spent)), Wait::Sleep(Reason::Learned));
        let once = Spin { credit: Spin::NEW.credit, ..spent };
        assert!(live(once, Nanos::ZERO).credit == 0, "a wake-up for nothing");
    }

    #[test]
    fn forced_waits_and_unlimited_polls_cost_no_credit() {
        for wait in [Wait::Poll, Wait::Sleep(Reason::Requested), Wait::Sleep(Reason::Oversubscribed)] {
            let next = Spin::NEW.ended(wait, End::Slept(Nanos::from_millis(1)), COST);
            assert_eq!(next.credit, Spin::NEW.credit);
            assert!(next.gap() > Spin::NEW.gap(), "the history is updated");
        }
    }

    /// Shows: operations.reply-time
    #[test]
    fn the_gap_is_measured_and_bounded() {
        let learned = |each: Nanos| after(100, each, Spin::NEW).gap();
        for us in [3, 10, 100, 5_000, 900_000] {
            let (each, gap) = (Nanos::from_micros(us), learned(Nanos::from_micros(us)));
            assert!(gap <= each && gap.0 >= each.0 - each.0 / 100, "{us} us: {gap:?}");
        }
        assert_eq!(learned(Nanos::ZERO), Nanos(1 << SHORT));
        assert_eq!(learned(Nanos::NEVER), Nanos(1 << LONG));
        let slow = after(100, Nanos::NEVER, Spin::NEW);
        assert!(!slow.takes_short_waits());
        let short = (0..100).fold(slow, |spin, _| spin.ended_immediately());
        assert!(short.takes_short_waits() && short.gap() == Spin::NEW.gap());
    }

    #[test]
    fn a_word_holds_the_state() {
        for spin in [Spin::NEW, after(9, Nanos::from_micros(77), Spin::NEW)] {
            assert_eq!(Spin::from_bits(spin.to_bits()), spin);
        }
    }
}
