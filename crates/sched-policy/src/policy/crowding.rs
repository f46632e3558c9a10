//! Crowding: whether threads that poll are taken off their processors meanwhile, and when polling is tried again.
//!
//! Who polls on a processor that others want is charged for it, and pays with a whole slice of each of them, at the time when
//! what it waits for arrives. One such poll is evidence at once: from then on threads sleep. As a thread that sleeps learns
//! nothing of processors, polling is tried again after a pause. A trial that fails makes the pause [`GROWTH`] times as long, and so
//! does evidence soon after a trial that did not. Both numbers of PIOMan, threads and processors (section 3.4), are thus seen by their effect. Ours.
//!
//! # Invariants
//! 1. Trials are bounded: a pause is at least [`FIRST`], and within [`REMEMBERED`] of the last evidence no shorter than the one
//!    before it, up to [`MOST`].
//! 2. Without evidence everybody polls, whatever else has happened: an idle machine is not misjudged for longer than a pause.

use super::time::Nanos;

/// A poll that was off its processor for so long was taken off it by somebody who computes: less than the shortest slice that one
/// gets (0.7 ms on one processor in Linux 7.2, `kernel/sched/fair.c`), more than interrupts take and than the absences of 100 to
/// 160 us that happen now and then on a machine that is idle otherwise.
pub const AWAY: Nanos = Nanos::from_micros(500);

/// The first pause: some slices of somebody else, and what an accident on an idle machine may cost. Ours.
pub const FIRST: Nanos = Nanos::from_millis(10);

/// The longest pause. A trial that fails costs its poller one slice of everybody on its processor, 8 to 12 ms beside two or three
/// at 4 ms; in so long a pause that is 2 in 100. Ours.
pub const MOST: Nanos = Nanos::from_millis(640);

/// How much longer each pause of a row is: 10, 80, 640 ms. An accident on an idle machine costs a short one; where processors are
/// short, trials are rare from the third on, so that they are no part of the slowest hundredth of waits. Ours.
pub const GROWTH: u64 = 8;

/// For how long threads must have polled, together, for a trial to end well: more than one slice at the 250 Hz of stock
/// kernels, after which a poller is taken off if anybody waits. Ours.
pub const TRIAL: Nanos = Nanos::from_millis(8);

/// Evidence that comes sooner than this after polling began again continues the row of pauses. Ours.
pub const REMEMBERED: Nanos = Nanos::from_millis(2_000);

/// Of the time in which a thread wanted a processor, the share that it waited for one, from which on others want it as much: one part
/// in so many. Beside one other that computes it is a half, on an idle machine less than a hundredth. Ours.
pub const SHARE: u64 = 10;

/// How long a thread waited for a processor, if that says that others want its processor; none otherwise. `ran` is for how long it had
/// one, in the same time: `sched_info` of the kernel, which `/proc/thread-self/schedstat` prints (`kernel/sched/stats.h`).
pub const fn waited_for_processor(ran: Nanos, waited: Nanos) -> Nanos {
    let all = ran.after(waited);
    if waited.0 >= AWAY.0 && waited.times(SHARE).0 >= all.0 {
        waited
    } else {
        Nanos::ZERO
    }
}

/// How a thread polled, until something came or its bound was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Poll {
    /// From its first look to its last.
    pub lasted: Nanos,
    /// The longest time between two looks, if the thread was taken off its processor in it; none if it was not. An interrupt,
    /// or a host below that takes its time, is not that. Or what [`waited_for_processor`] says of it lately.
    pub away: Nanos,
}

/// Whether threads may poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// They may.
    Polls,
    /// They may, and are watched: polls that end well end the trial.
    Tries,
    /// They sleep, until [`Crowding::asked`] says otherwise.
    Sleeps,
}

/// What polls have shown: one for all threads of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowding {
    phase: Phase,
    /// The last one; none before the first evidence.
    pause: Nanos,
    /// Outcomes, the last one in the lowest bit: set if polling was found to be in somebody's way.
    outcomes: u8,
    /// How many of them there were, 8 at most.
    judged: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Polls { since: Nanos },
    Sleeps { until: Nanos },
    Tries { polled: Nanos },
}

/// Outcomes that are told.
const OUTCOMES: u8 = 8;

impl Crowding {
    /// No evidence.
    pub const NEW: Self =
        Self { phase: Phase::Polls { since: Nanos::ZERO }, pause: Nanos::ZERO, outcomes: 0, judged: 0 };

    /// What holds until the next event.
    pub const fn verdict(&self) -> Verdict {
        match self.phase {
            Phase::Polls { .. } => Verdict::Polls,
            Phase::Sleeps { .. } => Verdict::Sleeps,
            Phase::Tries { .. } => Verdict::Tries,
        }
    }

    /// A thread is about to wait: a pause that is over ends in a trial.
    #[must_use]
    pub fn asked(self, now: Nanos) -> Self {
        match self.phase {
            Phase::Sleeps { until } if now >= until => {
                Self { phase: Phase::Tries { polled: Nanos::ZERO }, ..self }
            }
            Phase::Polls { .. } | Phase::Sleeps { .. } | Phase::Tries { .. } => self,
        }
    }

    /// A thread has polled, as it was allowed to.
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
            // Of several threads the first one has said it.
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

    /// Of the last judgements, up to eight, how many found polling in somebody's way; and how many there were.
    pub const fn outcomes(&self) -> (u32, u8) {
        (self.outcomes.count_ones(), self.judged)
    }

    /// The last pause; none without evidence so far.
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

    /// A pause, and a trial that fails at once.
    fn fails(crowding: Crowding, now: &mut Nanos) -> Crowding {
        let before = now.after(crowding.pause());
        assert_eq!(crowding.asked(before.since(Nanos(1))).verdict(), Verdict::Sleeps, "a pause is kept");
        *now = before.after(SLICE);
        let tries = crowding.asked(before);
        assert_eq!(tries.verdict(), Verdict::Tries);
        tries.polled(&badly(), *now)
    }

    #[test]
    fn one_poll_that_was_taken_off_is_evidence_at_once_and_short_absences_are_none() {
        for short in [AWAY.since(Nanos(1)), Nanos::from_micros(200)] {
            let short = Poll { lasted: SLICE, away: short };
            assert_eq!(Crowding::NEW.polled(&short, SLICE).verdict(), Verdict::Polls);
        }
        let crowded = Crowding::NEW.polled(&Poll { lasted: AWAY, away: AWAY }, SLICE);
        assert_eq!((crowded.verdict(), crowded.pause()), (Verdict::Sleeps, FIRST));
        assert_eq!(crowded.asked(SLICE.after(FIRST)).verdict(), Verdict::Tries);
    }

    #[test]
    fn trials_that_fail_get_rarer_up_to_a_bound() {
        let mut now = Nanos::ZERO;
        let mut crowding = Crowding::NEW.polled(&badly(), now);
        for failed in 1..8 {
            crowding = fails(crowding, &mut now);
            assert_eq!(crowding.pause(), FIRST.times(GROWTH.pow(failed)).min(MOST));
        }
        assert_eq!((crowding.pause(), crowding.outcomes()), (MOST, (8, 8)));
    }

    #[test]
    fn a_trial_ends_well_after_more_than_a_slice_of_polling_in_all() {
        let mut crowding = Crowding::NEW.polled(&badly(), Nanos::ZERO).asked(FIRST);
        for _ in 0..7 {
            crowding = crowding.polled(&well(Nanos::from_millis(1)), FIRST);
            assert_eq!(crowding.verdict(), Verdict::Tries);
        }
        crowding = crowding.polled(&well(Nanos::from_millis(1)), FIRST);
        assert_eq!((crowding.verdict(), crowding.outcomes()), (Verdict::Polls, (1, 2)));
    }

    #[test]
    fn evidence_soon_after_a_trial_continues_the_row_and_later_begins_a_new_one() {
        let mut now = Nanos::ZERO;
        let crowding = fails(Crowding::NEW.polled(&badly(), now), &mut now);
        now = now.after(crowding.pause());
        let polls = crowding.asked(now).polled(&well(TRIAL), now);
        let soon = polls.polled(&badly(), now.after(REMEMBERED).since(Nanos(1)));
        assert_eq!(soon.pause(), FIRST.times(GROWTH * GROWTH));
        assert_eq!(polls.polled(&badly(), now.after(REMEMBERED)).pause(), FIRST);
    }

    #[test]
    fn who_waits_for_a_processor_for_a_tenth_of_its_time_shares_it() {
        let ms = Nanos::from_millis;
        assert_eq!(waited_for_processor(ms(9), ms(1)), ms(1));
        assert_eq!(waited_for_processor(ms(9).after(Nanos(1)), ms(1)), Nanos::ZERO);
        assert_eq!(waited_for_processor(Nanos::from_micros(300), Nanos::from_micros(200)), Nanos::ZERO);
        assert_eq!(waited_for_processor(Nanos::ZERO, AWAY), AWAY);
        assert_eq!(
            waited_for_processor(Nanos::ZERO, AWAY.since(Nanos(1))),
            Nanos::ZERO,
            "some wake-ups take as long together"
        );
    }

    #[test]
    fn the_first_of_several_threads_says_it_for_all() {
        let once = Crowding::NEW.polled(&badly(), SLICE);
        assert_eq!(once.polled(&badly(), SLICE.times(2)), once);
        assert_eq!(once.polled(&well(TRIAL), SLICE), once, "who polled on proves nothing");
    }
}
