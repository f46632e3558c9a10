// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fill level of queues: packets, in binary fixed point.

use super::share::Share;

/// Packets, in units of 2^-32 of one. Saturates at four thousand million packets, 16 TiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u64);

/// Bytes of a packet in the coscheduling paper: "the socket transmission unit, = 4096 Bytes" (section 3).
pub const PACKET: u64 = 4096;

/// Units in one packet, and in one byte.
const ONE: u64 = 1 << 32;
const PER_BYTE: u64 = ONE / PACKET;

impl Level {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// One packet.
    pub const PACKET: Self = Self(ONE);
    /// Largest level.
    pub const MOST: Self = Self(u64::MAX);

    /// Returns `count` whole packets.
    pub const fn packets(count: u64) -> Self {
        Self(count.saturating_mul(ONE))
    }

    /// Returns the level of `bytes` bytes, exactly; a packet is 4096 bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes.saturating_mul(PER_BYTE))
    }

    /// Returns the number of whole packets, rounded down.
    pub const fn whole(self) -> u64 {
        self.0 / ONE
    }

    /// Returns the level of `units` units of 2^-32 of a packet.
    pub const fn fixed(units: u64) -> Self {
        Self(units)
    }

    /// Returns the level in units of 2^-32 of a packet.
    pub const fn as_fixed(self) -> u64 {
        self.0
    }

    /// Returns the sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, at least zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the level multiplied by `count`.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// Returns one of `count` equal parts; zero if `count` is zero.
    #[must_use]
    pub const fn part_of(self, count: u64) -> Self {
        match self.0.checked_div(count) {
            Some(part) => Self(part),
            None => Self::ZERO,
        }
    }

    /// Returns the weighted mean of this level (weight `past`) and `current`. It is never more than the larger of the
    /// two, so it cannot overflow.
    #[must_use]
    pub fn blend(self, past: Share, current: Self) -> Self {
        Self(past.of(self.0).saturating_add(past.rest().of(current.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_fractions_of_packets() {
        assert_eq!(Level::bytes(4096), Level::PACKET);
        assert_eq!(Level::bytes(64).times(64), Level::PACKET);
        assert_eq!(Level::bytes(8191).whole(), 1);
        assert_eq!(Level::packets(3).part_of(3), Level::PACKET);
        assert_eq!(Level::PACKET.part_of(0), Level::ZERO);
    }

    #[test]
    fn levels_saturate_and_blends_stay_between() {
        assert_eq!(Level::bytes(u64::MAX), Level::MOST);
        assert_eq!(Level::MOST.plus(Level::PACKET), Level::MOST);
        assert_eq!(Level::MOST.blend(Share::percent(30), Level::MOST).plus(Level(2)), Level::MOST);
        assert_eq!(
            (Level::PACKET.minus(Level(1)), Level::ZERO.minus(Level(1))),
            (Level(ONE - 1), Level::ZERO)
        );
        assert_eq!(Level::packets(8).blend(Share::percent(75), Level::packets(4)), Level::packets(7));
    }
}
