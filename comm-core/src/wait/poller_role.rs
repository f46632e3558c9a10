//! The poller role: one waiting caller of a session polls, and the others sleep.
//!
//! There is no completion thread (Kim, 3.2). One waiting caller holds the role: it polls, or sleeps in the completion channels. The others,
//! the followers, sleep on their own words. A follower is woken when its call has ended, or when it must take the role.
//!
//! # Invariants
//! 1. At most one thread holds the role.
//! 2. A thread that releases the role then checks for an enlisted follower and wakes one. A thread that leaves the list does the same if
//!    the role is free. Therefore, while there are followers, the role is held or a woken follower is about to take it.
//! 3. A follower enlists, arms its word, and then checks the role once more before it sleeps.
//! 4. While the serving thread spins, no caller sleeps in the channels, and followers need no holder: the serving thread ends their
//!    calls. When it stops spinning it wakes one of them, which takes the role.

use alloc::boxed::Box;

use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

const BITS: u16 = 64;

pub(crate) const FREE: u32 = 0;
const POLLING: u32 = 1;
const SLEEPING: u32 = 2;

/// The role of one peer's poller, and the list of followers.
#[derive(Debug)]
pub struct PollerRole {
    pub(crate) holder: AtomicU32,
    /// The enlisted followers: one bit per call slot.
    pub(crate) followers: Box<[AtomicU64]>,
    /// The words of `followers` in which there ever was one: one bit per word, which stays. Handing over reads no other words.
    pub(crate) used: AtomicU64,
    /// State of the node's serving thread, which is the only writer.
    pub(crate) serving: AtomicU32,
}

/// State of the node's serving thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ServingState {
    /// The thread polls for a limited time, or handles messages.
    Working,
    /// The thread sleeps until a channel has an event, or is about to.
    Sleeping,
    /// The thread polls, and reports [`Self::Sleeping`] before it ever sleeps.
    Spinning,
}

impl PollerRole {
    /// Returns a free role, for callers in `slots` call slots.
    ///
    /// # Panics
    /// If there are more than 4096 slots.
    pub fn new(slots: u16) -> Self {
        let words = slots.div_ceil(BITS);
        assert!(words <= BITS, "`used` has a bit for each word");
        Self {
            holder: AtomicU32::new(FREE),
            followers: (0..words).map(|_| AtomicU64::new(0)).collect(),
            used: AtomicU64::new(0),
            serving: AtomicU32::new(ServingState::Working as u32),
        }
    }

    /// Takes the role if it is free. Returns whether it was.
    pub fn claim(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == FREE
            // SYNC: sees the work of the last holder; pairs with the release in `release`.
            && self.holder.compare_exchange(FREE, POLLING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the role. Returns a follower to wake, or `None` if no thread waits for the role.
    #[must_use = "a follower that is not woken sleeps although nobody polls for it"]
    pub fn release(&self) -> Option<u16> {
        debug_assert!(!self.is_free(), "only the holder gives the role up");
        // SYNC: publishes the work of this holder; pairs with `claim`.
        self.holder.store(FREE, Ordering::Release);
        self.successor()
    }

    /// Records that the holder is about to sleep in the channels. Until [`Self::holder_polls`], other threads leave every message to it: a
    /// thread that receives a message would consume its event, too.
    pub fn holder_sleeps(&self) {
        debug_assert!(!self.is_free(), "only the holder sleeps in the channels");
        // Relaxed: polling threads read it under the engine's lock, which the holder takes after this.
        self.holder.store(SLEEPING, Ordering::Relaxed);
    }

    /// Records that the holder is awake.
    pub fn holder_polls(&self) {
        debug_assert!(!self.is_free(), "only the holder is awake again");
        self.holder.store(POLLING, Ordering::Relaxed);
    }

    /// Returns whether the holder sleeps in the channels.
    pub fn holder_is_asleep(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == SLEEPING
    }

    /// Returns whether no thread holds the role.
    pub fn is_free(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == FREE
    }

    /// Enlists the caller in this slot as a follower, before it sleeps. The caller must then arm its word and check [`Self::is_abandoned`].
    pub fn enlist(&self, slot: u16) {
        self.followers[usize::from(slot / BITS)].fetch_or(1 << (slot % BITS), Ordering::Relaxed);
        let word = 1 << (slot / BITS);
        if self.used.load(Ordering::Relaxed) & word == 0 {
            // Relaxed: the fences that order the follower's bit order this one, too.
            self.used.fetch_or(word, Ordering::Relaxed);
        }
    }

    /// Removes the caller in this slot from the list. Returns another follower to wake if the role is free and the caller does not take it.
    #[must_use = "a follower that is not woken sleeps although nobody polls for it"]
    pub fn withdraw(&self, slot: u16) -> Option<u16> {
        self.followers[usize::from(slot / BITS)].fetch_and(!(1 << (slot % BITS)), Ordering::Relaxed);
        // SYNC: orders leaving the list before the check of the role; pairs with the fence in `successor`. Without it, a holder could
        // return this follower, which is already awake, while this follower still sees the role held. Then neither would wake the next one.
        fence(Ordering::SeqCst);
        if self.is_free() { self.successor() } else { None }
    }

    /// Stores the state of the serving thread. After reporting [`ServingState::Sleeping`], the serving thread must check [`Self::is_free`].
    /// If the role is free, the serving thread arms; otherwise the holder arms when it releases the role. Returns a follower to wake that
    /// relied on a spinning serving thread.
    #[must_use = "a follower that is not woken sleeps although nobody polls for it"]
    pub fn set_serving(&self, state: ServingState) -> Option<u16> {
        let spun = self.serving_spins();
        self.serving.store(state as u32, Ordering::Relaxed);
        // SYNC: orders the store before the check of the role; pairs with the fence in `successor`.
        fence(Ordering::SeqCst);
        if spun && self.is_free() { self.successor() } else { None }
    }

    /// Returns whether the serving thread sleeps in the channels.
    pub fn serving_sleeps(&self) -> bool {
        self.serving.load(Ordering::Relaxed) == ServingState::Sleeping as u32
    }

    /// Returns whether the serving thread spins, so that a thread that would sleep may rely on it.
    pub fn serving_spins(&self) -> bool {
        self.serving.load(Ordering::Relaxed) == ServingState::Spinning as u32
    }

    /// Returns whether no thread polls for the followers.
    pub fn is_abandoned(&self) -> bool {
        self.is_free() && !self.serving_spins()
    }

    /// Returns every enlisted follower.
    pub fn followers(&self) -> impl Iterator<Item = u16> {
        self.used_words().flat_map(|(word, bits)| {
            let bits = bits.load(Ordering::Relaxed);
            (0..BITS).filter(move |bit| bits & 1 << bit != 0).map(move |bit| word * BITS + bit)
        })
    }

    /// Returns the words in which there ever was a follower, with their indices.
    fn used_words(&self) -> impl Iterator<Item = (u16, &AtomicU64)> {
        let mut left = self.used.load(Ordering::Relaxed);
        core::iter::from_fn(move || {
            let word = u16::try_from(left.trailing_zeros()).expect("at most 64");
            // Removes the lowest bit, if there is one.
            left &= left.checked_sub(1)?;
            Some((word, &self.followers[usize::from(word)]))
        })
    }

    /// Returns an enlisted follower for which the serving thread does not poll.
    pub(crate) fn successor(&self) -> Option<u16> {
        // SYNC: orders releasing the role before reading the list; pairs with the fence of arming a follower's word, which is between its
        // enlisting and its second check of the role.
        fence(Ordering::SeqCst);
        if self.serving_spins() {
            return None;
        }
        self.used_words().find_map(|(word, bits)| {
            let bits = bits.load(Ordering::Relaxed);
            (bits != 0).then(|| word * BITS + u16::try_from(bits.trailing_zeros()).expect("below 64"))
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_holder_and_an_orderly_succession() {
        let role = PollerRole::new(70);
        assert!(role.claim());
        assert!(!role.claim());
        role.enlist(3);
        role.enlist(69);
        assert!(role.followers().eq([3, 69]));
        assert_eq!(role.release(), Some(3));
        assert_eq!(role.withdraw(3), Some(69), "the role is free and 69 still waits");
        assert!(role.claim());
        assert_eq!(role.withdraw(69), None);
        assert_eq!(role.release(), None);
    }

    #[test]
    fn followers_are_abandoned_while_no_thread_polls_for_them() {
        let role = PollerRole::new(2);
        assert!(role.is_abandoned());
        assert!(role.claim() && !role.is_abandoned(), "the holder polls");
        assert_eq!(role.release(), None);
        assert_eq!(role.set_serving(ServingState::Spinning), None);
        assert!(!role.is_abandoned(), "the serving thread polls");
        assert_eq!(role.set_serving(ServingState::Sleeping), None);
        assert!(role.is_abandoned());
    }

    #[test]
    fn a_follower_that_relied_on_a_spinning_serving_thread_is_woken_when_that_sleeps() {
        let role = PollerRole::new(2);
        assert_eq!(role.set_serving(ServingState::Spinning), None);
        role.enlist(0);
        role.enlist(1);
        assert!(role.claim());
        assert_eq!(role.release(), None, "the serving thread polls for both");
        assert_eq!(role.set_serving(ServingState::Sleeping), Some(0));
        assert!(role.claim() && role.serving_sleeps());
        assert_eq!(role.withdraw(0), None);
        assert_eq!(role.release(), Some(1));
        assert_eq!(role.set_serving(ServingState::Spinning), None);
        assert!(role.claim());
        assert_eq!(role.set_serving(ServingState::Working), None, "the role's holder hands over");
        assert_eq!(role.release(), Some(1));
    }
}
