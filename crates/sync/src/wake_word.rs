//! Arm, recheck, sleep: the word through which a sleeper asks to be woken.
//!
//! The sleeper sets the word (*arm*), polls its sources once more (*recheck*), and sleeps only if they are still empty. The
//! sender publishes, then reads the word. Each side stores one location and loads the other's, which needs a full fence on
//! both sides. Without the fences both loads may miss both stores, and the sleeper sleeps although its queue has a message.
//!
//! ```text
//!   sleeper                          sender
//!   word = ARMED                     source = published
//!   fence(SeqCst)                    fence(SeqCst)
//!   source empty? then sleep         word ARMED? then wake
//! ```
//!
//! A batch needs one fence, at its end: the doorbell. The word may be in any memory. If the sender can write it
//! ([`WakeWord`], [`WakeWordRef`]), it is also the permission to wake, which one sender per arming takes. A sender that can
//! only read it (in a peer's segment) uses [`peer_is_armed`], and may wake more often than needed, but never less.
//!
//! A sleeper may ask for *solicited* events only, like the owner of a completion queue. A message for a thread that polls
//! then does not wake the sleeper. The protocol is the same, with another value in the word.

use crate::atomic::{AtomicU32, Ordering, fence};

/// The value while the owner of the word is awake and need not be woken.
const AWAKE: u32 = 0;
/// The value while the owner sleeps or is about to. A futex wait on the word uses it as the expected value.
pub const ARMED: u32 = 1;
/// The value after a sender has taken the task to wake the owner.
const NOTIFIED: u32 = 2;
/// The value while the owner sleeps or is about to, and wants to be woken only for solicited events.
const ARMED_SOLICITED: u32 = 3;

/// The kind of event that a sender published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An event that wakes every armed sleeper.
    Solicited,
    /// An event that wakes only sleepers that armed for all events.
    Unsolicited,
}

/// A wake-up word that owns its storage.
#[derive(Debug)]
pub struct WakeWord(AtomicU32);

impl WakeWord {
    /// Returns the word of a thread that is awake.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Returns the word of a thread that is awake.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Returns a reference to the word.
    pub fn by_ref(&self) -> WakeWordRef<'_> {
        WakeWordRef(&self.0)
    }

    /// Arms the word, as [`WakeWordRef::arm`] does.
    pub fn arm(&self) {
        self.by_ref().arm();
    }

    /// Returns whether the owner may sleep, as [`WakeWordRef::should_sleep`] does.
    pub fn should_sleep(&self) -> bool {
        self.by_ref().should_sleep()
    }

    /// Disarms the word, as [`WakeWordRef::disarm`] does.
    pub fn disarm(&self) -> bool {
        self.by_ref().disarm()
    }

    /// Returns whether the caller must wake the sleeper, as [`WakeWordRef::needs_wake`] does.
    pub fn needs_wake(&self) -> bool {
        self.by_ref().needs_wake()
    }
}

impl Default for WakeWord {
    fn default() -> Self {
        Self::new()
    }
}

/// A wake-up word in any storage, for example in shared memory. Zeroed memory is the word of a thread that is awake.
#[derive(Clone, Copy, Debug)]
pub struct WakeWordRef<'a>(pub &'a AtomicU32);

impl WakeWordRef<'_> {
    /// Sleeper: asks to be woken. The caller must recheck its sources afterwards.
    pub fn arm(&self) {
        self.0.store(ARMED, Ordering::Relaxed);
        // SYNC: orders the store above before the recheck; pairs with the fence in needs_wake and peer_is_armed.
        fence(Ordering::SeqCst);
    }

    /// Sleeper: asks to be woken only for solicited events, by a sender that can only read the word. The caller must recheck its
    /// sources afterwards.
    pub fn arm_solicited(&self) {
        self.0.store(ARMED_SOLICITED, Ordering::Relaxed);
        // SYNC: orders the store above before the recheck, as in arm.
        fence(Ordering::SeqCst);
    }

    /// Owner: returns whether the word is armed, for any kind of event.
    pub fn is_armed(&self) -> bool {
        matches!(self.0.load(Ordering::Relaxed), ARMED | ARMED_SOLICITED)
    }

    /// Sleeper, after the recheck: returns whether no sender has taken the task to wake it yet.
    pub fn should_sleep(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ARMED
    }

    /// Sleeper: marks itself awake. Returns whether a sender had taken the task to wake it. A token may then be left in the eventfd
    /// (or similar object) on which it slept.
    pub fn disarm(&self) -> bool {
        // SYNC: Acquire sees the message of the waking sender; pairs with the CAS in needs_wake.
        self.0.swap(AWAKE, Ordering::Acquire) == NOTIFIED
    }

    /// Sender, after publishing: returns whether the caller must wake the sleeper. True once per arming. Costs a fence and a load
    /// while the other side is awake, so call it once per batch.
    #[must_use = "a sleeper that is not woken sleeps although its queue has a message"]
    pub fn needs_wake(&self) -> bool {
        peer_is_armed(self.0, Event::Unsolicited)
            // SYNC: publishes the message; pairs with the swap in disarm.
            && self.0.compare_exchange(ARMED, NOTIFIED, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

/// Sender that can only read the word: returns whether the sleeper must be woken for this event. May be true several times for
/// one arming. The peer may write any value; those other than the two armed ones count as awake.
#[inline]
#[must_use = "a sleeper that is not woken sleeps although its queue has a message"]
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
        assert!(!word.needs_wake(), "another sender wakes the sleeper already");
        assert!(!word.should_sleep());
        assert!(word.disarm(), "a sender has taken the task to wake");
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
        assert!(peer_is_armed(&word, Event::Unsolicited), "reading does not disarm");
        word.store(0xdead_beef, Ordering::Relaxed);
        assert!(!peer_is_armed(&word, Event::Solicited));
    }

    #[test]
    fn a_sleeper_may_arm_for_solicited_events_only() {
        let word = AtomicU32::new(0);
        let sleeper = WakeWordRef(&word);
        sleeper.arm_solicited();
        assert!(sleeper.is_armed());
        assert!(!peer_is_armed(&word, Event::Unsolicited));
        assert!(peer_is_armed(&word, Event::Solicited));
        sleeper.arm();
        assert!(peer_is_armed(&word, Event::Unsolicited), "the sleeper is armed for all events");
        sleeper.disarm();
        assert!(!sleeper.is_armed() && !peer_is_armed(&word, Event::Solicited));
    }
}
