//! SEAM Executor: how a thread sleeps and is woken: by futexes and descriptors in production, by virtual time in the simulation.

use pronto_sched_policy::policy::spin::{CpuSupply, SchedClass};
use pronto_sched_policy::policy::time;
use pronto_sync::atomic::AtomicU32;

use crate::fabric::Interest;
use crate::note::Note;
use crate::time::{Clock, Nanos};

/// How a thread waits.
pub use pronto_sched_policy::policy::spin::Preference as WaitPolicy;
/// The request of a wait, and the circumstances of the waiting thread: inputs of the decision in
/// [`pronto_sched_policy::policy::spin`].
pub use pronto_sched_policy::policy::spin::{Circumstances, WaitRequest};

/// A descriptor that has an event when something arrives, and the events to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The descriptor.
    pub fd: i32,
    /// The events to wait for.
    pub interest: Interest,
}

/// The channels of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Number of the peer that they belong to.
    pub owner: u64,
    /// Generation of the link. The channels of a later link are other ones, even if their descriptors have the same numbers.
    pub link: u16,
    /// By class: control and bulk. One channel may serve both.
    pub each: [Option<Channel>; 2],
    /// An epoll of both that the provider has made ([`CompletionChannel::caller_epoll`](crate::fabric::CompletionChannel::caller_epoll)).
    pub near: Option<i32>,
}

/// How a thread has polled within its limit, until something came or the limit was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Time from the first reading of its clock to the last.
    pub lasted: Nanos,
    /// The longest time from one reading to the next.
    pub longest: Nanos,
}

/// Returns the request of a wait whose end is expected `after` its begin.
pub fn expecting(asked: WaitRequest, after: core::time::Duration) -> WaitRequest {
    let after = time::Nanos(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
    asked.expecting(after)
}

/// Returns the circumstances of a thread with a CPU of its own, for which polling pays up to `bound`.
pub const fn alone(bound: Nanos) -> Circumstances {
    let (sched_class, cpus) = (SchedClass::Ordinary, CpuSupply::Enough);
    Circumstances { sched_class, cpus, bound: time::Nanos(bound.0) }
}

/// The circumstances of a thread that must not poll.
pub const ASLEEP: Circumstances = Circumstances { sched_class: SchedClass::RealTime, ..alone(Nanos::ZERO) };

/// How threads of this process wait and are woken.
pub trait Executor: Clock {
    /// Returns whether the calling thread, which is about to wait by this policy, may poll, and for how long that pays.
    fn circumstances(&self, policy: WaitPolicy) -> Circumstances;

    /// Reports how a thread has polled for a limited time. Not called for a thread whose reply came within the first poll batch.
    fn polled(&self, polled: Polled) {
        let _ = polled;
    }

    /// Sleeps while the word is armed, at most until `until`. May return early.
    fn sleep(&self, word: &AtomicU32, until: Nanos);

    /// Wakes the thread that sleeps on the word.
    fn wake(&self, word: &AtomicU32);

    /// Yields the CPU: to the thread that this one waits for, if that one is runnable here.
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

    /// Sleeps until one of the channels has an event or `until` has come. May return early. While a thread sleeps here, an event
    /// may wake it alone, and not the node's serving thread. Returns which channels have an event, by class. A preempted thread cannot tell
    /// an event from its time limit otherwise, and a thread that is woken by an event must process it
    /// ([`QueuePair::notify_woken`](crate::fabric::QueuePair::notify_woken)).
    fn sleep_on_channels(&self, channels: &Channels, until: Nanos) -> [bool; 2];

    /// Wakes the node's serving thread, if it sleeps, for work that no channel reports.
    fn wake_serving_thread(&self) {}

    /// The calling thread found a session whose engine's holder panicked. The session is out of use until a thread calls
    /// [`Session::fail`](crate::session::Session::fail), which must happen soon. Called again and again until then.
    fn engine_failed(&self) {}

    /// Writes an entry to the flight recorder. Called on the path of a message, so it must cost next to nothing. Does nothing if nothing
    /// is recorded.
    #[inline(always)]
    fn note(&self, note: Note) {
        let _ = note;
    }
}
