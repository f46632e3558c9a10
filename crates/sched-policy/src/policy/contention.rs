// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contention: whether polling threads are preempted, and when polling is tried again.
//!
//! A thread that polls on a contended CPU uses up its time slice and is then preempted for a full slice of each
//! competitor, just when its message arrives. One preempted poll is sufficient evidence: from then on, threads sleep. A
//! sleeping thread learns nothing about contention, so polling is tried again after a pause. A failed trial makes the
//! pause [`GROWTH`] times as long, and so does new evidence soon after a successful trial. PIOMan counts threads and
//! CPUs instead (section 3.4); here both are observed by their effect. Chosen by us; no source.
//!
//! # Invariants
//! 1. Trials are bounded: a pause is at least [`FIRST`]. Within [`REMEMBERED`] of the last evidence it is no shorter
//!    than the previous pause, up to [`MOST`].
//! 2. Without evidence all threads poll, so an idle machine is misjudged for one pause at most.

use super::time::Nanos;

/// Absence from the CPU from which a poll counts as preempted by a computing thread. It is less than the shortest slice
/// of such a thread (0.7 ms on one CPU in Linux 7.2, `kernel/sched/fair.c`). It is more than interrupts take, and more
/// than the absences of 100 to 160 us that occasionally occur on an otherwise idle machine.
pub const AWAY: Nanos = Nanos::from_micros(500);

/// First pause: a few slices of another thread, and an acceptable cost of a false alarm on an idle machine. Chosen by
/// us; no source.
pub const FIRST: Nanos = Nanos::from_millis(10);

/// Longest pause. A failed trial costs the poller one slice of every thread on its CPU: 8 to 12 ms with two or three
/// others at 4 ms, which is at most 2 % of this pause. Chosen by us; no source.
pub const MOST: Nanos = Nanos::from_millis(640);

/// Growth of successive pauses: 10, 80, 640 ms. A false alarm on an idle machine costs a short pause. On a contended
/// machine trials are rare from the third on, so they do not affect the 99th percentile of waits. Chosen by us; no
/// source.
pub const GROWTH: u64 = 8;

/// Total polling time of all threads after which a trial has succeeded. It is more than one slice at the 250 Hz of
/// stock kernels, after which a poller is preempted if another thread is runnable. Chosen by us; no source.
pub const TRIAL: Nanos = Nanos::from_millis(8);

/// Time after a successful trial within which new evidence continues the growth of pauses. Chosen by us; no source.
pub const REMEMBERED: Nanos = Nanos::from_millis(2_000);

/// Divisor for the share of runnable time spent waiting for a CPU: from one part in `SHARE` on, the CPU is contended.
/// The share is a half next to one computing thread, and less than a hundredth on an idle machine. Chosen by us; no
/// source.
pub const SHARE: u64 = 10;

/// Returns `waited` if it shows that other threads want the CPU, otherwise zero. `ran` is the time that the thread ran
/// and `waited` the time that it was runnable without a CPU, over one interval. Both come from the kernel's
/// `sched_info`, which `/proc/thread-self/schedstat` prints (`kernel/sched/stats.h`).
pub const fn waited_for_cpu(ran: Nanos, waited: Nanos) -> Nanos {
    let all = ran.after(waited);
    if waited.0 >= AWAY.0 && waited.times(SHARE).0 >= all.0 {
        waited
    } else {
        Nanos::ZERO
    }
}

/// A polling phase, which ended with a message or at its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Poll {
    /// Time from the first poll to the last.
    pub lasted: Nanos,
    /// Longest time between two polls, if the thread was preempted in it; otherwise zero. An interrupt or a slow
    /// hypervisor is no preemption. The caller may report a recent result of [`waited_for_cpu`] here instead.
    pub away: Nanos,
}

/// The current permission to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Threads may poll.
    Polls,
    /// Threads may poll, as a trial: polls without a preemption end it.
    Tries,
    /// Threads sleep until [`Contention::before_wait`] begins a trial.
    Sleeps,
}

/// Evidence from polls, shared by all threads of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention {
    phase: Phase,
    /// Last pause; zero before the first evidence.
    pause: Nanos,
    /// Outcomes, one bit each, the last one in the lowest bit. A set bit means that a poll was preempted.
    outcomes: u8,
    /// Number of outcomes, at most 8.
    judged: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Polls { since: Nanos },
    Sleeps { until: Nanos },
    Tries { polled: Nanos },
}

/// Number of outcomes that are kept.
const OUTCOMES: u8 = 8;

impl Contention {
    /// Initial state, without evidence.
    pub const NEW: Self =
        Self { phase: Phase::Polls { since: Nanos::ZERO }, pause: Nanos::ZERO, outcomes: 0, judged: 0 };

    /// Returns the verdict until the next event.
    pub const fn verdict(&self) -> Verdict {
        match self.phase {
            Phase::Polls { .. } => Verdict::Polls,
            Phase::Sleeps { .. } => Verdict::Sleeps,
            Phase::Tries { .. } => Verdict::Tries,
        }
    }

    /// Handles a thread that is about to wait: begins a trial if the pause is over.
    #[must_use]
    pub fn before_wait(self, now: Nanos) -> Self {
        match self.phase {
            Phase::Sleeps { until } if now >= until => {
                Self { phase: Phase::Tries { polled: Nanos::ZERO }, ..self }
            }
            Phase::Polls { .. } | Phase::Sleeps { .. } | Phase::Tries { .. } => self,
        }
    }

    /// Handles a polling phase of a thread.
    #[must_use]
    pub fn polled(self, poll: &Poll, now: Nanos) -> Self {
        if poll.away >= AWAY {
            return self.taken_off(now);
        }
        match self.phase {
            Phase::Tries { polled } => {
                let polled = polled.after(poll.lasted);
                if polled < TRIAL {
                    Self { phase: Phase::Tries { polled }, ..self }
                } else {
                    Self { phase: Phase::Polls { since: now }, ..self.judged(0) }
                }
            }
            Phase::Polls { .. } | Phase::Sleeps { .. } => self,
        }
    }

    fn taken_off(self, now: Nanos) -> Self {
        let pause = match self.phase {
            // If several threads are preempted at the same time, only the first counts.
            Phase::Sleeps { .. } => return self,
            Phase::Polls { since } if now.since(since) >= REMEMBERED => FIRST,
            Phase::Polls { .. } | Phase::Tries { .. } => self.pause.times(GROWTH).max(FIRST).min(MOST),
        };
        Self { phase: Phase::Sleeps { until: now.after(pause) }, pause, ..self.judged(1) }
    }

    fn judged(self, outcome: u8) -> Self {
        let judged = self.judged.saturating_add(1).min(OUTCOMES);
        Self { outcomes: self.outcomes << 1 | outcome, judged, ..self }
    }

    /// Returns how many of the last outcomes, eight at most, were preemptions, and the number of outcomes.
    pub const fn outcomes(&self) -> (u32, u8) {
        (self.outcomes.count_ones(), self.judged)
    }

    /// Returns the last pause; zero if there is no evidence so far.
    pub const fn pause(&self) -> Nanos {
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Nanos = Nanos::from_millis(4);

    fn well(lasted: Nanos) -> Poll {
        Poll { lasted, away: Nanos::ZERO }
    }

    fn badly() -> Poll {
        Poll { lasted: SLICE, away: SLICE }
    }

    /// Runs a pause and a trial that fails immediately.
    fn fails(contention: Contention, now: &mut Nanos) -> Contention {
        let before = now.after(contention.pause());
        assert_eq!(
            contention.before_wait(before.since(Nanos(1))).verdict(),
            Verdict::Sleeps,
            "a pause is kept"
        );
        *now = before.after(SLICE);
        let tries = contention.before_wait(before);
        assert_eq!(tries.verdict(), Verdict::Tries);
        tries.polled(&badly(), *now)
    }

    /// Shows: operations.contention
    #[test]
    fn one_preempted_poll_is_evidence_and_short_absences_are_none() {
        for short in [AWAY.since(Nanos(1)), Nanos::from_micros(200)] {
            let short = Poll { lasted: SLICE, away: short };
            assert_eq!(Contention::NEW.polled(&short, SLICE).verdict(), Verdict::Polls);
        }
        let crowded = Contention::NEW.polled(&Poll { lasted: AWAY, away: AWAY }, SLICE);
        assert_eq!((crowded.verdict(), crowded.pause()), (Verdict::Sleeps, FIRST));
        assert_eq!(crowded.before_wait(SLICE.after(FIRST)).verdict(), Verdict::Tries);
    }

    /// Shows: operations.pauses
    #[test]
    fn trials_that_fail_get_rarer_up_to_a_bound() {
        let mut now = Nanos::ZERO;
        let mut contention = Contention::NEW.polled(&badly(), now);
        for failed in 1..8 {
            contention = fails(contention, &mut now);
            assert_eq!(contention.pause(), FIRST.times(GROWTH.pow(failed)).min(MOST));
        }
        assert_eq!((contention.pause(), contention.outcomes()), (MOST, (8, 8)));
    }

    #[test]
    fn a_trial_ends_well_after_more_than_a_slice_of_polling_in_all() {
        let mut contention = Contention::NEW.polled(&badly(), Nanos::ZERO).before_wait(FIRST);
        for _ in 0..7 {
            contention = contention.polled(&well(Nanos::from_millis(1)), FIRST);
            assert_eq!(contention.verdict(), Verdict::Tries);
        }
        contention = contention.polled(&well(Nanos::from_millis(1)), FIRST);
        assert_eq!((contention.verdict(), contention.outcomes()), (Verdict::Polls, (1, 2)));
    }

    #[test]
    fn evidence_soon_after_a_trial_lengthens_the_pause_and_later_evidence_does_not() {
        let mut now = Nanos::ZERO;
        let contention = fails(Contention::NEW.polled(&badly(), now), &mut now);
        now = now.after(contention.pause());
        let polls = contention.before_wait(now).polled(&well(TRIAL), now);
        let soon = polls.polled(&badly(), now.after(REMEMBERED).since(Nanos(1)));
        assert_eq!(soon.pause(), FIRST.times(GROWTH * GROWTH));
        assert_eq!(polls.polled(&badly(), now.after(REMEMBERED)).pause(), FIRST);
    }

    /// Shows: operations.contention
    #[test]
    fn waiting_a_tenth_of_the_time_for_a_cpu_is_contention() {
        let ms = Nanos::from_millis;
        assert_eq!(waited_for_cpu(ms(9), ms(1)), ms(1));
        assert_eq!(waited_for_cpu(ms(9).after(Nanos(1)), ms(1)), Nanos::ZERO);
        assert_eq!(waited_for_cpu(Nanos::from_micros(300), Nanos::from_micros(200)), Nanos::ZERO);
        assert_eq!(waited_for_cpu(Nanos::ZERO, AWAY), AWAY);
        assert_eq!(
            waited_for_cpu(Nanos::ZERO, AWAY.since(Nanos(1))),
            Nanos::ZERO,
            "several wake-ups may take as long in total"
        );
    }

    #[test]
    fn only_the_first_of_several_preempted_threads_counts() {
        let once = Contention::NEW.polled(&badly(), SLICE);
        assert_eq!(once.polled(&badly(), SLICE.times(2)), once);
        assert_eq!(
            once.polled(&well(TRIAL), SLICE),
            once,
            "a poll that ends after the evidence proves nothing"
        );
    }
}
