//! Oversubscription: whether more threads want to run than there are processors, judged by what was recorded.
//!
//! No system tells this directly, and looking must be cheap. What can be had is evidence: threads counted against
//! processors and quota; own threads taken off a processor against their will; time stolen by the host below; the
//! kernel's pressure figures; polling that lasted longer by the clock than in processor time. Evidence goes in as a record, so that a verdict can be looked at, and replayed, later. PIOMan decides by the
//! first of these only, "number of running threads and available CPUs" (section 3.4).

use super::share::Share;
use super::time::Nanos;

/// Samples are at least so far apart: evidence costs system calls, and is taken at 100 Hz at most, while somebody waits
/// adaptively. Ours.
pub const SAMPLE: Nanos = Nanos::from_millis(10);

/// For how long evidence holds: polling where it does no good costs more than sleeping where it was not needed. Ours.
pub const HOLDS: Nanos = Nanos::from_millis(1_000);

/// Preemptions between two samples that are no accident: one may be a daemon. Ours.
pub const PREEMPTIONS: u64 = 2;

/// The same for polls that overran.
pub const OVERRUNS: u64 = 2;

/// Time stolen, of the time between two samples: above what a host's timer takes. Ours.
pub const STOLEN: Share = Share::percent(5);

/// Share of time in which something waited for a processor (`some avg10` of `/proc/pressure/cpu`). Ours.
pub const PRESSURE: Share = Share::percent(10);

/// A poll that was off its processor for so long was taken off it: more than interrupts take, less than the shortest slice
/// that somebody else gets (0.7 ms on one processor in Linux 7.2, `kernel/sched/fair.c`).
pub const AWAY: Nanos = Nanos::from_micros(100);

/// What was seen since the sample before. What a system does not tell is zero or `None`, and convinces nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Threads that are known to want a processor: own ones that poll or compute, and one for each other node here.
    pub wanting: u32,
    /// Processors in the affinity mask.
    pub processors: u32,
    /// What the control group may use, if it is limited.
    pub quota: Option<Quota>,
    /// Involuntary context switches of own threads (`getrusage`).
    pub preempted: u64,
    /// Steal time of the machine, summed over processors (`/proc/stat`).
    pub stolen: Nanos,
    /// The kernel's pressure figure, where there is one.
    pub pressure: Option<Share>,
    /// Polls for which [`overran`] holds.
    pub overruns: u64,
}

/// Processor time per period, as control groups state it (`cpu.max`; `cpu.cfs_quota_us` and `cpu.cfs_period_us`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Of all processors together.
    pub time: Nanos,
    /// In which it may be used.
    pub period: Nanos,
}

/// How long a poll lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// How long it was to last at most.
    pub bound: Nanos,
    /// By the clock.
    pub lasted: Nanos,
    /// In processor time, or cycles as time.
    pub ran: Nanos,
}

/// Which evidence convinced. The first that does is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// More threads than processors.
    Threads,
    /// More threads than the quota has processors.
    Quota,
    /// Own threads were preempted.
    Preempted,
    /// Polls were taken off their processors.
    Overran,
    /// The host below took time.
    Stolen,
    /// The kernel reports pressure.
    Pressure,
}

/// What earlier evidence still says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oversubscription {
    sampled: Option<Nanos>,
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    reason: Reason,
    until: Nanos,
}

impl Oversubscription {
    /// No evidence.
    pub const NEW: Self = Self { sampled: None, held: None };

    /// When the next sample is worth its cost; now, if that has passed.
    pub fn next_sample(&self) -> Nanos {
        self.sampled.map_or(Nanos::ZERO, |sampled| sampled.after(SAMPLE))
    }

    /// A sample: oversubscribed for this reason, or not that one can tell. Counts are a matter of the moment; everything
    /// else holds for [`HOLDS`], and says nothing in the first sample, which has no time to compare with.
    #[must_use]
    pub fn handle(self, evidence: &Evidence, now: Nanos) -> (Self, Option<Reason>) {
        let events = self.sampled.and_then(|before| evidence.events(now.since(before)));
        let held = match events {
            Some(reason) => Some(Held { reason, until: now.after(HOLDS) }),
            None => self.held.filter(|held| now < held.until),
        };
        let verdict = evidence.counts().or_else(|| held.map(|held| held.reason));
        (Self { sampled: Some(now), held }, verdict)
    }

    /// Between samples: what earlier ones still say.
    pub fn at(&self, now: Nanos) -> Option<Reason> {
        self.held.filter(|held| now < held.until).map(|held| held.reason)
    }
}

impl Evidence {
    /// Threads against what they may run on.
    fn counts(&self) -> Option<Reason> {
        if self.wanting > self.processors && self.processors > 0 {
            return Some(Reason::Threads);
        }
        let quota = self.quota.filter(|quota| quota.period > Nanos::ZERO)?;
        // `wanting > time / period`, without division.
        let wanted = quota.period.times(u64::from(self.wanting));
        (wanted > quota.time).then_some(Reason::Quota)
    }

    /// What has happened within `span`.
    fn events(&self, span: Nanos) -> Option<Reason> {
        let all = span.times(u64::from(self.processors.max(1)));
        if self.preempted >= PREEMPTIONS {
            Some(Reason::Preempted)
        } else if self.overruns >= OVERRUNS {
            Some(Reason::Overran)
        } else if self.stolen > Nanos(STOLEN.of(all.0)) {
            Some(Reason::Stolen)
        } else if self.pressure.is_some_and(|pressure| pressure >= PRESSURE) {
            Some(Reason::Pressure)
        } else {
            None
        }
    }
}

/// Whether a poll overran its bound by the clock, but not in processor time: somebody else ran meanwhile.
pub fn overran(poll: &Poll) -> bool {
    poll.lasted > poll.bound && poll.ran <= poll.bound && poll.lasted.since(poll.ran) >= AWAY
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Evidence = Evidence {
        wanting: 2,
        processors: 2,
        quota: None,
        preempted: 1,
        stolen: Nanos::from_micros(1_000),
        pressure: Some(Share::percent(9)),
        overruns: 1,
    };

    /// The verdict on a second sample, 10 ms after a quiet first one.
    fn verdict(evidence: &Evidence) -> Option<Reason> {
        Oversubscription::NEW.handle(&QUIET, Nanos::ZERO).0.handle(evidence, SAMPLE).1
    }

    #[test]
    fn each_evidence_convinces_by_itself_and_accidents_do_not() {
        assert_eq!(verdict(&QUIET), None);
        assert_eq!(verdict(&Evidence::default()), None, "a system that tells nothing");
        let quota = |ms| Some(Quota { time: Nanos::from_millis(ms), period: Nanos::from_millis(100) });
        for (evidence, reason) in [
            (Evidence { wanting: 3, ..QUIET }, Reason::Threads),
            (Evidence { quota: quota(150), ..QUIET }, Reason::Quota),
            (Evidence { preempted: 2, ..QUIET }, Reason::Preempted),
            (Evidence { overruns: 2, ..QUIET }, Reason::Overran),
            (Evidence { stolen: Nanos(1_000_001), ..QUIET }, Reason::Stolen),
            (Evidence { pressure: Some(Share::percent(10)), ..QUIET }, Reason::Pressure),
        ] {
            assert_eq!(verdict(&evidence), Some(reason), "{evidence:?}");
        }
        assert_eq!(
            verdict(&Evidence { quota: quota(200), ..QUIET }),
            None,
            "two threads, two processors' time"
        );
    }

    #[test]
    fn events_hold_for_a_second_and_counts_for_the_moment() {
        let begun = Oversubscription::NEW.handle(&QUIET, Nanos::ZERO).0;
        let (state, _) = begun.handle(&Evidence { preempted: 5, ..QUIET }, SAMPLE);
        let last = SAMPLE.after(HOLDS).since(Nanos(1));
        assert_eq!(state.at(last), Some(Reason::Preempted));
        assert_eq!(state.handle(&QUIET, last).1, Some(Reason::Preempted));
        assert_eq!(state.at(SAMPLE.after(HOLDS)), None);
        let crowded = begun.handle(&Evidence { wanting: 9, ..QUIET }, SAMPLE).0;
        assert_eq!((crowded.at(SAMPLE), crowded.handle(&QUIET, SAMPLE.times(2)).1), (None, None));
    }

    #[test]
    fn the_first_sample_has_nothing_to_compare_with() {
        let since_boot = Evidence { preempted: 100_000, stolen: Nanos::NEVER, ..QUIET };
        let (state, verdict) = Oversubscription::NEW.handle(&since_boot, Nanos(5));
        assert_eq!((verdict, state.next_sample()), (None, Nanos(5).after(SAMPLE)));
    }

    #[test]
    fn a_poll_overran_if_it_was_away_and_not_if_it_was_slow() {
        let us = Nanos::from_micros;
        let poll = |lasted, ran| overran(&Poll { bound: us(20), lasted: us(lasted), ran: us(ran) });
        assert!(poll(720, 20));
        assert!(!poll(20, 20) && !poll(25, 15), "an interrupt");
        assert!(!poll(720, 700), "it ran all the time");
    }
}
