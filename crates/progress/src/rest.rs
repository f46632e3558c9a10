//! Arm, recheck, sleep: for any number of sources at once.
//!
//! ```text
//!   sleeper                                  producer of any source
//!   own word = ARMED          fence          source = published
//!   every source: ARMED       fence each     fence
//!   every source empty?                      its word, or the sleeper's own, ARMED? then wake
//!   own word still ARMED?
//!   sleep on all of them
//! ```
//!
//! All are armed before the first is looked at again: a source that was looked at before another one was armed could be
//! filled meanwhile, but its own word is armed, so whoever fills it wakes. What is published without a fence and a look at a
//! word is not an event. A source whose channel is level-triggered needs no arming: it ends any sleep at once.

use pronto_sync::{Waited, WakeWord};

/// Everything that one thread sleeps on, without the word that is its own.
pub trait Sleepers {
    /// Asks every source for a wake-up.
    fn arm(&mut self);

    /// Looks at every source. Whether any has something.
    fn recheck(&mut self) -> bool;

    /// Sleeps until any of them wakes. May return early or by mistake.
    fn sleep(&mut self);

    /// Takes all of it back.
    fn disarm(&mut self);
}

/// Arm all, recheck all, sleep, disarm all. The only way in which a manager sleeps.
pub fn arm_recheck_sleep(word: &WakeWord, sleepers: &mut impl Sleepers) -> Waited {
    word.arm();
    sleepers.arm();
    let waited = if sleepers.recheck() {
        Waited::Ready
    } else if word.should_sleep() {
        sleepers.sleep();
        Waited::Slept
    } else {
        Waited::Notified
    };
    word.disarm();
    sleepers.disarm();
    waited
}
