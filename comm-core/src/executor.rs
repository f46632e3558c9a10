//! SEAM Executor: how a thread waits and is woken. Production has futexes and descriptors, simulation a virtual world.

use pronto_sync::atomic::AtomicU32;

use crate::fabric::Interest;
use crate::note::Note;
use crate::time::{Clock, Nanos};

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitPolicy {
    /// Poll until it comes.
    Spin,
    /// Sleep at once.
    Block,
    /// Poll for about what a wake-up costs here, then sleep: at most twice the cost of the better choice. Sleeps at once
    /// while others want the processors, until a trial shows the contrary.
    Adaptive,
}

impl WaitPolicy {
    /// The policy of a wait within a handler. Of nested calls only the innermost has anything to wait for soon; the waits
    /// around it would take the processors that it needs.
    #[must_use]
    pub const fn nested(self) -> Self {
        match self {
            Self::Spin => Self::Adaptive,
            other => other,
        }
    }
}

/// A descriptor that has an event when something arrives, and what to wait for on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The descriptor.
    pub fd: i32,
    /// What to wait for.
    pub interest: Interest,
}

/// The channels of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Whose they are: the peer's number.
    pub owner: u64,
    /// Which of its links it is: the channels of a later one are others, also with the same numbers.
    pub link: u16,
    /// By class: control and bulk. One channel may serve both.
    pub each: [Option<Channel>; 2],
    /// An epoll of both that is there already ([`QueuePair::near_channel`](crate::fabric::QueuePair::near_channel)).
    pub near: Option<i32>,
}

/// How a thread has polled within its bound, until something came or the bound was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// From the first reading of its clock to the last.
    pub lasted: Nanos,
    /// The longest time from one reading to the next.
    pub longest: Nanos,
}

/// How threads of this process wait and are woken.
pub trait Executor: Clock {
    /// How long a waiter with this policy polls before it sleeps; `NEVER` for one that never sleeps.
    fn spin_time(&self, policy: WaitPolicy) -> Nanos;

    /// A thread that polls for a bounded time has done so, and read the clock meanwhile: not one whose answer came within the
    /// first few looks.
    fn polled(&self, polled: Polled) {
        let _ = polled;
    }

    /// Sleeps while the word is armed, at most until `until`. May return early.
    fn sleep(&self, word: &AtomicU32, until: Nanos);

    /// Wakes the thread that sleeps on the word.
    fn wake(&self, word: &AtomicU32);

    /// Gives the processor away for a moment: to the thread that this one waits for, if that one is runnable here.
    fn yield_now(&self);

    /// Sleeps until one of the channels has an event or `until` has come. May return early. As long as a thread sleeps here, an
    /// event may wake it alone, and not the node's serving thread. Returns which have one, by class: a thread that was taken
    /// off its processor cannot tell an event from the time, and whoever is told of one looks after it
    /// ([`QueuePair::told`](crate::fabric::QueuePair::told)).
    fn sleep_on_channels(&self, channels: &Channels, until: Nanos) -> [bool; 2];

    /// Something can be done now that no channel tells of: the node's serving thread looks, if it sleeps.
    fn attend(&self) {}

    /// For the flight recorder: what the calling thread does. Called on the way of a message, so it must cost next to nothing;
    /// where nothing is recorded it does nothing.
    #[inline(always)]
    fn note(&self, note: Note) {
        let _ = note;
    }
}
