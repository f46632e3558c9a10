// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fractions between zero and one: of a CPU, of the past, of a number of waits.

/// A fraction from 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

/// Millionths in one.
const MILLION: u64 = 1_000_000;

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// One half.
    pub const HALF: Self = Self(500_000);
    /// Everything.
    pub const ALL: Self = Self(1_000_000);

    /// Returns `hundredths` per cent, limited to 100.
    pub const fn percent(hundredths: u32) -> Self {
        Self::millionths(hundredths.saturating_mul(10_000))
    }

    /// Returns `millionths` of one, limited to a million.
    pub const fn millionths(millionths: u32) -> Self {
        if millionths > Self::ALL.0 {
            Self::ALL
        } else {
            Self(millionths)
        }
    }

    /// Returns `part / whole`, rounded down. Returns one if `part` is larger, and zero if both are zero.
    pub fn ratio(part: u64, whole: u64) -> Self {
        if part >= whole {
            return if whole == 0 && part == 0 { Self::NONE } else { Self::ALL };
        }
        // Halve both until the product fits. The error is less than a millionth.
        let (mut part, mut whole) = (part, whole);
        while whole > u64::MAX / MILLION {
            (part, whole) = (part / 2, whole / 2);
        }
        let millionths = part.saturating_mul(MILLION).checked_div(whole).unwrap_or(0);
        Self::millionths(u32::try_from(millionths).unwrap_or(u32::MAX))
    }

    /// Returns the share in millionths.
    pub const fn as_millionths(self) -> u32 {
        self.0
    }

    /// Returns one minus this share.
    #[must_use]
    pub const fn rest(self) -> Self {
        Self(Self::ALL.0.saturating_sub(self.0))
    }

    /// Returns this share of `whole`, rounded down: exact over the whole range, without 128-bit integers.
    ///
    /// With `whole = q * 10^6 + r` it is `q * share + r * share / 10^6`; neither product leaves 64 bits.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        let share = u64::from(self.0);
        let (quotient, remainder) = (whole / MILLION, whole % MILLION);
        quotient.saturating_mul(share).saturating_add(remainder.saturating_mul(share) / MILLION)
    }

    /// Returns the sum, limited to one.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::millionths(self.0.saturating_add(other.0))
    }

    /// Returns the difference, at least zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_are_exact() {
        assert_eq!(Share::percent(10).of(100_000_000), 10_000_000);
        assert_eq!(Share::percent(10).of(u64::MAX), u64::MAX / 10);
        assert_eq!(Share::ALL.of(u64::MAX), u64::MAX);
        assert_eq!(Share::NONE.of(u64::MAX), 0);
    }

    #[test]
    fn shares_stay_between_none_and_all() {
        assert_eq!(Share::percent(500), Share::ALL);
        assert_eq!(Share::millionths(u32::MAX), Share::ALL);
        assert_eq!(Share::millionths(1_000_001), Share::ALL);
        assert_eq!(Share::percent(30).rest(), Share::percent(70));
        assert_eq!(Share::percent(30).minus(Share::HALF), Share::NONE);
        assert_eq!(Share::percent(70).plus(Share::HALF), Share::ALL);
    }

    #[test]
    fn ratios_are_shares() {
        assert_eq!(Share::ratio(1, 4), Share::percent(25));
        assert_eq!(Share::ratio(u64::MAX / 4, u64::MAX), Share::millionths(249_999));
        assert_eq!(Share::ratio(3, 2), Share::ALL);
        assert_eq!((Share::ratio(0, 0), Share::ratio(1, 0)), (Share::NONE, Share::ALL));
    }
}
