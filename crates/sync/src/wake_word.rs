//! Arm, recheck, sleep: the one word by which a sleeper asks to be woken.
//!
//! The sleeper says so (*arm*), looks at its sources once more (*recheck*), and sleeps only if they are still empty. The
//! sender publishes, then reads the word. Each side stores one place and loads the other's, and such a pair needs a full
//! fence on both sides: without them both loads may miss both stores, and the sleeper sleeps on a full queue.
//!
//! ```text
//!   sleeper                          sender
//!   word = ARMED                     source = published
//!   fence(SeqCst)                    fence(SeqCst)
//!   source empty? then sleep         word ARMED? then wake
//! ```
//!
//! A batch needs one fence, at its end: the doorbell. The word may lie anywhere. When the sender can write it
//! ([`WakeWord`], [`WakeWordRef`]) it is also the permission to wake, taken by one sender per arming. Where the sender can
//! only read it (a peer's segment), it uses [`peer_is_armed`], and may wake more often than needed, never less.
//!
//! A sleeper may ask for *solicited* events only, as a completion queue's owner does: what is sent to somebody who polls for
//! it then leaves the sleeper asleep. The protocol is the same, with another value in the word.

use crate::atomic::{AtomicU32, Ordering, fence};

/// The owner of the word is awake: nothing needs to be done for it.
const AWAKE: u32 = 0;
/// The owner sleeps, or is about to: what a futex wait on the word waits for the end of.
pub const ARMED: u32 = 1;
/// A sender has taken it upon itself to wake the owner.
const NOTIFIED: u32 = 2;
/// The owner sleeps, or is about to, and wants to be woken for solicited events alone.
const ARMED_SOLICITED: u32 = 3;

/// What a sender published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Wakes every sleeper.
    Solicited,
    /// Wakes those who asked for everything.
    Unsolicited,
}

/// A wake-up word that is owned here.
#[derive(Debug)]
pub struct WakeWord(AtomicU32);

impl WakeWord {
    /// The word of a thread that is awake.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// The word of a thread that is awake.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// The same word, as it is used over any storage.
    pub fn by_ref(&self) -> WakeWordRef<'_> {
        WakeWordRef(&self.0)
    }

    /// See [`WakeWordRef::arm`].
    pub fn arm(&self) {
        self.by_ref().arm();
    }

    /// See [`WakeWordRef::should_sleep`].
    pub fn should_sleep(&self) -> bool {
        self.by_ref().should_sleep()
    }

    /// See [`WakeWordRef::disarm`].
    pub fn disarm(&self) -> bool {
        self.by_ref().disarm()
    }

    /// See [`WakeWordRef::needs_wake`].
    pub fn needs_wake(&self) -> bool {
        self.by_ref().needs_wake()
    }
}

impl Default for WakeWord {
    fn default() -> Self {
        Self::new()
    }
}

/// A wake-up word that lies anywhere, for example in shared memory. Zeroed memory is a word of a thread that is awake.
#[derive(Clone, Copy, Debug)]
pub struct WakeWordRef<'a>(pub &'a AtomicU32);

impl WakeWordRef<'_> {
    /// Sleeper: asks to be woken. The caller then looks at its sources once more.
    pub fn arm(&self) {
        self.0.store(ARMED, Ordering::Relaxed);
        // SYNC: orders the store above before the recheck; pairs with the fence in needs_wake and peer_is_armed.
        fence(Ordering::SeqCst);
    }

    /// Sleeper: asks to be woken for solicited events alone, by a sender that can only read the word. The caller then looks
    /// at its sources once more.
    pub fn arm_solicited(&self) {
        self.0.store(ARMED_SOLICITED, Ordering::Relaxed);
        // SYNC: as in arm.
        fence(Ordering::SeqCst);
    }

    /// Owner: whether it asked to be woken, for whatever.
    pub fn is_armed(&self) -> bool {
        matches!(self.0.load(Ordering::Relaxed), ARMED | ARMED_SOLICITED)
    }

    /// Sleeper, after the recheck: whether nobody has come to wake it yet.
    pub fn should_sleep(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ARMED
    }

    /// Sleeper: awake again. Returns whether a sender had taken it upon itself to wake it, so that a token may be left in
    /// the eventfd (or the like) which it slept on.
    pub fn disarm(&self) -> bool {
        // SYNC: Acquire sees what the waking sender published; pairs with the CAS in needs_wake.
        self.0.swap(AWAKE, Ordering::Acquire) == NOTIFIED
    }

    /// Sender, after publishing: whether the caller has to wake the sleeper. True once per arming. Costs a fence and a
    /// load while the other side is awake: call it once per batch.
    #[must_use = "a sleeper that is not woken sleeps on a full queue"]
    pub fn needs_wake(&self) -> bool {
        peer_is_armed(self.0, Event::Unsolicited)
            // SYNC: publishes what was sent; pairs with the swap in disarm.
            && self.0.compare_exchange(ARMED, NOTIFIED, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

/// Sender that can only read the word: whether the sleeper asks to be woken for such an event. May be true several times
/// for one arming; anything that a peer may have written there, other than the values for armed, counts as awake.
#[inline]
#[must_use = "a sleeper that is not woken sleeps on a full queue"]
pub fn peer_is_armed(word: &AtomicU32, event: Event) -> bool {
    // SYNC: orders what the caller published before the load below; pairs with the fence in arm.
    fence(Ordering::SeqCst);
    let armed = word.load(Ordering::Relaxed);
    armed == ARMED || armed == ARMED_SOLICITED && event == Event::Solicited
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Event, WakeWord, WakeWordRef, peer_is_armed};
    use crate::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_sender_per_arming_has_to_wake() {
        let word = WakeWord::new();
        assert!(!word.needs_wake(), "awake");
        word.arm();
        assert!(word.should_sleep());
        assert!(word.needs_wake());
        assert!(!word.needs_wake(), "somebody else does it");
        assert!(!word.should_sleep());
        assert!(word.disarm(), "a token is on its way");
        assert!(!word.needs_wake());
        word.arm();
        assert!(!word.disarm());
    }

    #[test]
    fn zeroed_and_scribbled_words_are_awake() {
        let word = AtomicU32::new(0);
        assert!(!peer_is_armed(&word, Event::Solicited));
        WakeWordRef(&word).arm();
        assert!(peer_is_armed(&word, Event::Solicited));
        assert!(peer_is_armed(&word, Event::Unsolicited), "a reader takes nothing");
        word.store(0xdead_beef, Ordering::Relaxed);
        assert!(!peer_is_armed(&word, Event::Solicited));
    }

    #[test]
    fn a_sleeper_may_ask_for_solicited_events_alone() {
        let word = AtomicU32::new(0);
        let sleeper = WakeWordRef(&word);
        sleeper.arm_solicited();
        assert!(sleeper.is_armed());
        assert!(!peer_is_armed(&word, Event::Unsolicited));
        assert!(peer_is_armed(&word, Event::Solicited));
        sleeper.arm();
        assert!(peer_is_armed(&word, Event::Unsolicited), "asked for more");
        sleeper.disarm();
        assert!(!sleeper.is_armed() && !peer_is_armed(&word, Event::Solicited));
    }
}
