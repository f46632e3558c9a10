//! Rules for doorbells: messages that share one, and messages that wake a sleeping node.

use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_wire::{Class, Kind};

/// A choice whether messages to one peer share doorbells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbells {
    /// Messages that are posted together share a doorbell.
    #[default]
    Shared,
    /// Each message rings a doorbell. For comparison, and for networks where this is better.
    PerMessage,
}

/// The pending doorbell: a bit set that describes the messages posted since the last doorbell. Adding a message takes one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingDoorbell(u8);

impl PendingDoorbell {
    const DUE: u8 = 1;
    const WAKES: u8 = 2;
    const HELD: u8 = 4;

    pub(super) const NOTHING: Self = Self(0);
    /// Only responses. A thread that waits for them polls, or has armed for all events.
    pub(super) const UNSOLICITED: Self = Self(Self::DUE);
    /// At least one message that wakes a sleeping node.
    pub(super) const SOLICITED: Self = Self(Self::DUE | Self::WAKES);
    /// Only held messages. Their doorbell wakes a sleeping node when it is rung.
    pub(super) const HELD_BACK: Self = Self(Self::HELD | Self::WAKES);

    /// Returns the bits for a message of this kind.
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

    /// Returns whether a message was posted that is not held.
    #[inline(always)]
    pub(super) const fn is_due(self) -> bool {
        self.0 & Self::DUE != 0
    }

    pub(super) const fn is_held(self) -> bool {
        self.0 & Self::HELD != 0
    }

    /// Returns whether the doorbell must wake a sleeping node.
    #[inline(always)]
    pub(super) const fn wakes(self) -> bool {
        self.0 & Self::WAKES != 0
    }
}

/// The holds on doorbells of one session.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Number of threads that hold doorbells; from [`STREAMS`] on a bit for each class of which a stream is held.
    word: AtomicU32,
}

/// The bit of the first class in the word of [`Holds`].
const STREAMS: u32 = 30;
const THREADS: u32 = (1 << STREAMS) - 1;

impl Holds {
    /// Adds the hold of a thread.
    pub(super) fn add(&self) {
        self.word.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the hold of a thread.
    pub(super) fn remove(&self) {
        self.word.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether any message may be held.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Returns whether any thread holds doorbells.
    #[inline]
    pub(super) fn by_threads(&self) -> bool {
        self.word.load(Ordering::Relaxed) & THREADS != 0
    }

    /// Returns whether notifications of a stream are held.
    #[inline]
    pub(super) fn streams(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !THREADS != 0
    }

    /// Engine only: records whether notifications of a stream of this class are held.
    pub(super) fn set_stream(&self, class: Class, is_held: bool) {
        let bit = 1 << STREAMS << class.index();
        if is_held {
            self.word.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pending_doorbell_has_the_properties_of_all_its_messages() {
        let all = [
            PendingDoorbell::NOTHING,
            PendingDoorbell::UNSOLICITED,
            PendingDoorbell::SOLICITED,
            PendingDoorbell::HELD_BACK,
        ];
        let properties = |pending: PendingDoorbell| [pending.is_due(), pending.is_held(), pending.wakes()];
        let [nothing, unsolicited, solicited, held] = all.map(properties);
        assert_eq!(nothing, [false; 3]);
        assert_eq!(unsolicited, [true, false, false]);
        assert_eq!(solicited, [true, false, true]);
        assert_eq!(held, [false, true, true]);
        for (a, b) in all.into_iter().flat_map(|a| all.map(|b| (a, b))) {
            let (of_a, of_b) = (properties(a), properties(b));
            assert_eq!(
                properties(a.and(b)),
                [0, 1, 2].map(|which| of_a[which] || of_b[which]),
                "{a:?} {b:?}"
            );
        }
    }

    #[test]
    fn holds_of_threads_and_of_streams_are_separate() {
        let holds = Holds::default();
        let state = || [holds.any(), holds.by_threads(), holds.streams()];
        assert_eq!(state(), [false; 3]);
        holds.set_stream(Class::Bulk, true);
        assert_eq!(state(), [true, false, true]);
        holds.add();
        holds.set_stream(Class::Bulk, false);
        assert_eq!(state(), [true, true, false]);
        holds.add();
        holds.remove();
        holds.set_stream(Class::Control, true);
        assert_eq!(state(), [true, true, true], "one thread is left");
        holds.remove();
        assert_eq!(state(), [true, false, true]);
    }
}
