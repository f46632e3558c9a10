//! SEAM Executor: how a thread waits and is woken. Production has futexes and descriptors, simulation a virtual world.

use pronto_sched_policy::policy::spin::{Processors, Standing};
use pronto_sched_policy::policy::time;
use pronto_sync::atomic::AtomicU32;

use crate::fabric::Interest;
use crate::note::Note;
use crate::time::{Clock, Nanos};

/// How a thread waits.
pub use pronto_sched_policy::policy::spin::Preference as WaitPolicy;
/// What is asked of a wait, and what a thread finds that waits; the decision is that of
/// [`pronto_sched_policy::policy::spin`].
pub use pronto_sched_policy::policy::spin::{Asked, Circumstances};

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
    /// An epoll of both that is there already ([`CompletionChannel::caller_epoll`](crate::fabric::CompletionChannel::caller_epoll)).
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

/// The same wait, of which the end is expected so long after its begin.
pub fn expecting(asked: Asked, after: core::time::Duration) -> Asked {
    let after = time::Nanos(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
    asked.expecting(after)
}

/// Where polls take nothing from anybody, for so long.
pub const fn alone(bound: Nanos) -> Circumstances {
    let (standing, processors) = (Standing::Ordinary, Processors::Enough);
    Circumstances { standing, processors, bound: time::Nanos(bound.0) }
}

/// Where nobody polls.
pub const ASLEEP: Circumstances = Circumstances { standing: Standing::RealTime, ..alone(Nanos::ZERO) };

/// How threads of this process wait and are woken.
pub trait Executor: Clock {
    /// What the calling thread finds, which is about to wait by this policy: whether it may poll, and for how long that pays.
    fn circumstances(&self, policy: WaitPolicy) -> Circumstances;

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

    /// Sleeps for about `span`, so that threads of every scheduling class run on this CPU. The wait is for another thread's next step,
    /// which reports nothing: nothing wakes this thread earlier, and the caller tries again afterwards. Takes in no messages and runs no
    /// handlers, as the calling thread may hold an engine lock.
    fn back_off(&self, span: Nanos);

    /// Returns whether the calling thread may wait for an engine lock. It must not while it holds one itself: in an inline handler,
    /// and in everything that runs within [`Self::foreign`].
    fn may_block(&self) -> bool {
        true
    }

    /// Runs code of the program, such as a waker, on a thread that holds an engine lock. A panic of that code ends here.
    fn foreign(&self, run: impl FnOnce()) {
        run();
    }

    /// Sleeps until one of the channels has an event or `until` has come. May return early. As long as a thread sleeps here, an
    /// event may wake it alone, and not the node's serving thread. Returns which have one, by class: a thread that was taken
    /// off its processor cannot tell an event from the time, and whoever is told of one looks after it
    /// ([`QueuePair::notify_woken`](crate::fabric::QueuePair::notify_woken)).
    fn sleep_on_channels(&self, channels: &Channels, until: Nanos) -> [bool; 2];

    /// Something can be done now that no channel tells of: the node's serving thread looks, if it sleeps.
    fn attend(&self) {}

    /// The calling thread found a session whose engine's holder panicked. The session is out of use until a thread calls
    /// [`Session::fail`](crate::session::Session::fail), which must happen soon. Called again and again until then.
    fn engine_failed(&self) {}

    /// For the flight recorder: what the calling thread does. Called on the way of a message, so it must cost next to nothing;
    /// where nothing is recorded it does nothing.
    #[inline(always)]
    fn note(&self, note: Note) {
        let _ = note;
    }
}
