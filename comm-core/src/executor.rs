//! SEAM Executor: sleeping and waking of threads, by futexes and descriptors in production, and by virtual time in the simulation.

use pronto_sched_policy::policy::spin::{CpuSupply, SchedClass};
use pronto_sched_policy::policy::time;
use pronto_sync::atomic::AtomicU32;

use pronto_wire::NodeId;

use crate::fabric::Interest;
use crate::note::Note;
use crate::time::{Clock, Nanos};

/// A policy for waiting.
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
    /// Number of the peer to which the channels belong.
    pub owner: u64,
    /// Generation of the link. The channels of a later link differ, even if their descriptors have the same numbers.
    pub link: u16,
    /// By class: control and bulk. One channel may serve both.
    pub each: [Option<Channel>; 2],
    /// An epoll of both that the provider has made ([`CompletionChannel::caller_epoll`](crate::fabric::CompletionChannel::caller_epoll)).
    pub near: Option<i32>,
}

/// A measurement of how a thread polled, until something arrived or its polling limit was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Time from the first to the last reading of the clock.
    pub lasted: Nanos,
    /// Longest time between two successive readings.
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

/// The methods by which threads of this process wait and are woken.
pub trait Executor: Clock {
    /// Returns whether the calling thread may poll by this policy, and the longest time for which polling pays.
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

    /// Sleeps for about `span`, so that threads of every scheduling class run on this CPU. Used to wait for a step of another thread that
    /// does not wake this one; the caller tries again afterwards. Must not receive messages or run handlers, as the calling thread may hold
    /// an engine lock.
    fn back_off(&self, span: Nanos);

    /// Returns whether the calling thread may wait for an engine lock. It must not if it holds one itself: in an inline handler, and in all
    /// code that runs within [`Self::foreign`].
    fn may_block(&self) -> bool {
        true
    }

    /// Runs code of the program, such as a waker, on a thread that holds an engine lock. A panic of that code must not propagate.
    fn foreign(&self, run: impl FnOnce()) {
        run();
    }

    /// Asks for a link to a peer, to which links are made on demand, because a message needs one. The calling thread may hold an engine lock.
    fn wants_link(&self, peer: NodeId) {
        let _ = peer;
    }

    /// Sleeps until one of the channels has an event, or `until`. May return early. An event may wake only the thread that sleeps here, and
    /// not the node's serving thread. Returns the channels that have an event, by class: a thread that was woken by an event must process
    /// it ([`QueuePair::notify_woken`](crate::fabric::QueuePair::notify_woken)), and cannot always tell from the clock whether it was.
    fn sleep_on_channels(&self, channels: &Channels, until: Nanos) -> [bool; 2];

    /// Wakes the node's serving thread, if it sleeps, for work of the session with this peer of which no event of a channel will notify it:
    /// there is no such event, or it has woken another thread.
    fn wake_serving_thread(&self, peer: NodeId) {
        let _ = peer;
    }

    /// Makes the node's serving thread ring the held doorbells of this peer soon, and wakes it if it sleeps. Returns false if no thread does so; messages are
    /// then not held.
    fn ring_soon(&self, peer: NodeId) -> bool {
        let _ = peer;
        false
    }

    /// Reports a session whose engine's holder has panicked. The session is out of use until a thread calls
    /// [`Session::fail`](crate::session::Session::fail), which must happen soon. Called repeatedly until then.
    fn engine_failed(&self) {}

    /// Writes an entry to the flight recorder. Called on the path of a message, so it must cost very little. Does nothing if there is no
    /// recorder.
    #[inline(always)]
    fn note(&self, note: Note) {
        let _ = note;
    }
}
