//! SEAM Clock: the source of time, in nanoseconds since an arbitrary start.

use core::ops::{Add, Sub};

/// A point in time or a span, nanoseconds. The range is 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The empty span; also the clock's start.
    pub const ZERO: Self = Self(0);
    /// The latest point in time, which stands for "never".
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns a span of microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// Returns a span of milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Returns a span of seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later than `self`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        self.since(earlier)
    }
}

/// A source of time. Production reads the monotonic clock; the simulation has its own.
pub trait Clock: Send + Sync {
    /// Returns the current time, which never goes back.
    fn now(&self) -> Nanos;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_stay_within_the_range() {
        let (early, late) = (Nanos(3), Nanos(5));
        assert_eq!([late - early, early - late], [Nanos(2), Nanos::ZERO]);
        assert_eq!([early + late, Nanos::NEVER + early], [Nanos(8), Nanos::NEVER]);
    }
}
