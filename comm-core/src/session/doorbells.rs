//! Which messages share a doorbell, and which of them wake a sleeping node.

use pronto_wire::Kind;

/// Whether messages to one peer share doorbells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbells {
    /// All that is posted together.
    #[default]
    Shared,
    /// None: for comparison, and for networks that prefer it so.
    PerMessage,
}

/// What was posted since the last doorbell, as bits: whatever is posted is added with one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unrung(u8);

impl Unrung {
    const DUE: u8 = 1;
    const WAKES: u8 = 2;
    const HELD: u8 = 4;

    pub(super) const NOTHING: Self = Self(0);
    /// Answers alone: whoever waits for them polls, or has asked for everything.
    pub(super) const UNSOLICITED: Self = Self(Self::DUE);
    /// Something that wakes a sleeping node.
    pub(super) const SOLICITED: Self = Self(Self::DUE | Self::WAKES);
    /// Nothing but what is held back; which wakes a sleeping node when it leaves.
    pub(super) const HELD_BACK: Self = Self(Self::HELD | Self::WAKES);

    /// What a message of this kind asks for.
    #[inline]
    pub(super) const fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Reply { .. } | Kind::Failure { .. } => Self::UNSOLICITED,
            _ => Self::SOLICITED,
        }
    }

    #[inline(always)]
    pub(super) const fn and(self, posted: Self) -> Self {
        Self(self.0 | posted.0)
    }

    /// Whether there is something that is not held back.
    #[inline(always)]
    pub(super) const fn is_due(self) -> bool {
        self.0 & Self::DUE != 0
    }

    pub(super) const fn is_held(self) -> bool {
        self.0 & Self::HELD != 0
    }

    /// Whether a sleeping node is to be woken.
    #[inline(always)]
    pub(super) const fn wakes(self) -> bool {
        self.0 & Self::WAKES != 0
    }
}
