//! A node's clock, which gives the times of its timer interrupts. Each node's clock starts at its own time and runs at
//! its own speed.

use pronto_sched_policy::policy::time::Nanos;

/// Timer interrupts at `phase`, `phase + period`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    phase: Nanos,
    period: Nanos,
}

impl Clock {
    /// Returns a clock whose interrupts are `period` apart by its own time, and which is `drift_ppm` millionths too
    /// slow.
    #[must_use]
    pub fn new(phase: Nanos, period: Nanos, drift_ppm: i64) -> Self {
        let drift = period.0.cast_signed().saturating_mul(drift_ppm) / 1_000_000;
        let period = Nanos(period.0.saturating_add_signed(drift).max(1));
        Self { phase: Nanos(phase.0 % period.0), period }
    }

    /// Returns the time between two interrupts.
    #[must_use]
    pub const fn period(&self) -> Nanos {
        self.period
    }

    /// Returns the time of the first interrupt after `now`.
    #[must_use]
    pub fn next(&self, now: Nanos) -> Nanos {
        self.after(now, 1)
    }

    /// Returns the time of the `count`-th interrupt after `now`.
    #[must_use]
    pub fn after(&self, now: Nanos, count: u64) -> Nanos {
        if now < self.phase {
            return self.phase.after(self.period.times(count.saturating_sub(1)));
        }
        let seen = now.since(self.phase).whole(self.period);
        self.phase.after(self.period.times(seen.saturating_add(count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_strictly_later() {
        let clock = Clock::new(Nanos(3), Nanos(10), 0);
        assert_eq!([0, 2, 3, 12, 13].map(|now| clock.next(Nanos(now)).0), [3, 3, 13, 13, 23]);
        assert_eq!(clock.after(Nanos(3), 2), Nanos(23));
        assert_eq!(Clock::new(Nanos(0), Nanos::from_millis(10), 30).period(), Nanos(10_000_300));
    }
}
