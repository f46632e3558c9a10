//! The pressure of a sender: a number of messages in three bits, on a logarithmic scale.

use core::fmt;

/// The pressure of a node: about how many messages its program has to do with. Headers carry it in three bits, so a peer cannot name more
/// than [`Pressure::MOST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pressure(u8);

/// Largest number of a pressure: three bits.
const MOST: u8 = 7;

impl Pressure {
    /// The pressure of a node without messages. A header that has it is one without any pressure.
    pub const NONE: Self = Self(0);
    /// The largest pressure, that of 64 messages or more.
    pub const MOST: Self = Self(MOST);

    /// Returns the pressure of `messages` messages: the largest one of at most this number.
    pub const fn of(messages: u32) -> Self {
        match messages {
            0 => Self::NONE,
            1 => Self(1),
            2..=3 => Self(2),
            4..=7 => Self(3),
            8..=15 => Self(4),
            16..=31 => Self(5),
            32..=63 => Self(6),
            _ => Self::MOST,
        }
    }

    /// Returns the number of messages for which the pressure stands: 0, or a power of two up to 64.
    pub const fn messages(self) -> u32 {
        if self.0 == 0 { 0 } else { 1 << (self.0 - 1) }
    }

    /// Returns the pressure with this number, of which the lowest three bits count.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & MOST)
    }

    /// Returns the number of the pressure, from 0 to 7.
    pub const fn as_bits(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Pressure {
    /// Formats the number of messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.messages(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: protocol.pressure-scale
    #[test]
    fn the_scale_is_logarithmic_and_ends_at_64() {
        let scale = [0, 1, 2, 3, 4, 7, 8, 20, 31, 32, 63, 64, 65, u32::MAX];
        assert_eq!(
            scale.map(|messages| Pressure::of(messages).messages()),
            [0, 1, 2, 2, 4, 4, 8, 16, 16, 32, 32, 64, 64, 64]
        );
        for bits in 0..=u8::MAX {
            let pressure = Pressure::from_bits(bits);
            assert_eq!(pressure.as_bits(), bits % 8);
            assert_eq!(Pressure::of(pressure.messages()), pressure);
            assert!((Pressure::NONE..=Pressure::MOST).contains(&pressure));
        }
    }
}
