//! Sources, which the manager polls, and the description given at their registration.

use std::os::fd::OwnedFd;

use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;

/// A source of events: a queue in memory, a socket, the worker of another library.
///
/// The polling thread calls it, one thread at a time and never recursively. No method may block, or wait for a lock whose holder
/// waits for an event, because other waiters depend on the calling thread. Work that follows an event and takes longer
/// belongs in a [`Tasklet`](crate::Tasklet).
///
/// One poll serves all requests of a source: a source represents a network, not a message (PIOMan, section 3.1).
pub trait Source: Send {
    /// Processes the available events, up to a bound of the source's choice. Returns their number.
    fn poll(&mut self) -> usize;

    /// Polls up to `polls` times and stops at the first event. Override it if repeated polls can share work.
    fn poll_often(&mut self, polls: u32) -> usize {
        for _ in 1..polls {
            let taken = self.poll();
            if taken != 0 {
                return taken;
            }
        }
        self.poll()
    }

    /// Prepares for a sleep of the engine: from now on an event must wake it, through the channels or the notifier. The source
    /// is polled once more after this call.
    fn arm(&mut self) {}

    /// Ends the preparation for a sleep; the engine is awake. May be called without a preceding [`Self::arm`].
    fn disarm(&mut self) {}

    /// Returns whether the source may stay armed when the engine wakes up for others. It is then neither polled nor disarmed until one of its
    /// channels has an event, or a thread rouses it ([`Rouse`](crate::Rouse)). Each channel must report an event until a poll consumes it.
    fn may_rest(&mut self) -> bool {
        false
    }

    /// Returns the channels to sleep on. Called before each sleep if the source is registered with [`Sleep::Asked`].
    fn channels(&mut self) -> [Option<Channel>; 2] {
        [None, None]
    }

    /// Returns whether another thread processes the events of this source. If it does, a wake-up without an event to process does
    /// not count as spurious.
    fn is_attended(&mut self) -> bool {
        false
    }

    /// Handles a panic of the source's last call, with the message `why`. Returns whether to keep the source; a source that is
    /// kept must be ready to be called again. A panic in this method removes the source.
    fn panicked(&mut self, why: &str) -> AfterPanic {
        let _ = why;
        AfterPanic::Remove
    }

    /// Polls for events that should have ended a sleep; called while the source is still armed, after the sleep reached its time
    /// limit. `woken` waits for a late wake-up, for a bounded time, and returns whether one came.
    fn after_timeout(&mut self, woken: &mut dyn FnMut() -> bool) -> TimeoutFinding {
        match self.poll() {
            0 => TimeoutFinding::Nothing,
            _ if woken() => TimeoutFinding::Late,
            _ => TimeoutFinding::Lost,
        }
    }
}

/// Decision about a source that panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterPanic {
    /// The source has recovered and stays registered.
    Keep,
    /// The manager removes the source and reports it as a failure.
    Remove,
}

/// Result of the check after a sleep that ended by its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutFinding {
    /// There was no event.
    Nothing,
    /// There was an event, and its wake-up arrived during the check.
    Late,
    /// There was an event without a wake-up: a lost wake-up.
    Lost,
}

/// Reason for which the manager polls (PIOMan, section 3.3). In the paper, triggers are hooks of its thread scheduler. Here they
/// are the occasions that a library has, so there is no trigger for a context switch between threads of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The polling thread has nothing else to do.
    Idle,
    /// A thread of the program waits for an event.
    Wait,
    /// A thread of the program offers to poll.
    Yield,
    /// A timer period has elapsed.
    Timer,
}

/// A set of triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triggers(u8);

impl Triggers {
    /// Every trigger.
    pub const ALL: Self = Self(0b1111);

    /// Returns the set of these triggers.
    #[must_use]
    pub const fn of(triggers: &[Trigger]) -> Self {
        let mut set = 0;
        let mut left = triggers;
        while let [first, rest @ ..] = left {
            set |= 1 << *first as u8;
            left = rest;
        }
        Self(set)
    }

    /// Returns whether the set contains `trigger`.
    #[inline]
    #[must_use]
    pub const fn contains(self, trigger: Trigger) -> bool {
        self.0 & 1 << trigger as u8 != 0
    }
}

/// Cost of one poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A few loads. The source is polled in every round.
    Memory,
    /// A few more loads, for one of many sources of which few have events at a time. If the source has had no event for long, an idle
    /// engine polls it only every few rounds, so that it does not delay events of other sources; and it may rest while the engine sleeps
    /// ([`Source::may_rest`]).
    MemoryOfMany,
    /// A system call. The source is polled when an epoll, which all such sources share, reports it as ready. While the engine polls,
    /// it asks that epoll at most once per [`GROUP_INTERVAL`](crate::GROUP_INTERVAL).
    SystemCall,
}

/// Order in which sources are polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before all sources of normal priority; a [`Cost::SystemCall`] source is not put behind the epoll.
    High,
    /// In the order of registration.
    Normal,
}

/// Way in which an event wakes a sleeping engine: the source's blocking function (PIOMan, section 3.2).
#[derive(Debug)]
pub enum Sleep {
    /// The thread that publishes an event calls the [`Notifier`](crate::Notifier).
    Notified,
    /// This descriptor becomes ready. The manager owns it from now on.
    Descriptor(OwnedFd, Interest),
    /// Before each sleep the engine arms the source and asks for its channels, which may change.
    Asked,
}

/// Description of a source, given at its registration.
#[derive(Debug)]
pub struct Spec {
    /// Human-readable name for reports.
    pub name: &'static str,
    /// Cost of a poll. [`Cost::SystemCall`] has an effect only with [`Sleep::Descriptor`] and normal priority; otherwise the source
    /// is polled in every round.
    pub cost: Cost,
    /// Position in the order of polls.
    pub priority: Priority,
    /// Triggers on which the source is polled.
    pub triggers: Triggers,
    /// Way in which an event wakes a sleeping engine.
    pub sleep: Sleep,
}

impl Spec {
    /// Returns the description of a source in memory, of normal priority, that every trigger polls.
    #[must_use]
    pub const fn memory(name: &'static str, sleep: Sleep) -> Self {
        Self { name, cost: Cost::Memory, priority: Priority::Normal, triggers: Triggers::ALL, sleep }
    }

    /// Returns the description of a descriptor to read from, whose poll is a system call, of normal priority, that every trigger
    /// polls.
    #[must_use]
    pub const fn readable(name: &'static str, descriptor: OwnedFd) -> Self {
        let sleep = Sleep::Descriptor(descriptor, Interest::READABLE);
        Self { name, cost: Cost::SystemCall, priority: Priority::Normal, triggers: Triggers::ALL, sleep }
    }

    /// Sets the high priority: the source is polled before others.
    #[must_use]
    pub fn first(self) -> Self {
        Self { priority: Priority::High, ..self }
    }

    /// Restricts polls of the source to these triggers.
    #[must_use]
    pub fn on(self, triggers: &[Trigger]) -> Self {
        Self { triggers: Triggers::of(triggers), ..self }
    }
}
