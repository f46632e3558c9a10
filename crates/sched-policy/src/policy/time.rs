// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time: nanoseconds since the start of the caller's clock, and spans of them.

/// A point in time or a span, in nanoseconds. Arithmetic saturates: 584 years count as for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all; also the clock's start.
    pub const ZERO: Self = Self(0);
    /// Later than everything.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns a span of microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// Returns a span of milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later, which happens between the clocks of two
    /// CPUs.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// Returns the point in time `span` after this one, or the sum of two spans.
    #[must_use]
    pub const fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the span multiplied by `count`.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// Returns how many whole `unit`s fit into this span; zero if `unit` is zero.
    #[must_use]
    pub const fn whole(self, unit: Self) -> u64 {
        match self.0.checked_div(unit.0) {
            Some(count) => count,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_wraps() {
        assert_eq!(Nanos::ZERO.since(Nanos(1)), Nanos::ZERO);
        assert_eq!(Nanos::NEVER.after(Nanos(1)), Nanos::NEVER);
        assert_eq!(Nanos::NEVER.times(2), Nanos::NEVER);
        assert_eq!(Nanos::from_millis(u64::MAX), Nanos::NEVER);
        assert_eq!(Nanos(7).whole(Nanos::ZERO), 0);
        assert_eq!(Nanos(7).whole(Nanos(2)), 3);
    }
}
