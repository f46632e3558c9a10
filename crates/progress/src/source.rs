//! What is polled: a source, and what its registration says of it.

use std::os::fd::OwnedFd;

use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;

/// A source of events: a queue in memory, a socket, the worker of another library.
///
/// One thread at a time calls it, whichever polls; it is never called within itself. No method may block, or wait for a
/// lock that is held while somebody waits for an event: it runs where others wait for theirs. What follows from an event and
/// takes longer is for a [`Tasklet`](crate::Tasklet).
///
/// All requests of one source are served by one poll: a source stands for a network, not for a message (PIOMan,
/// section 3.1).
pub trait Source: Send {
    /// Takes the events that are there, in bounded number. Returns how many.
    fn poll(&mut self) -> usize;

    /// Polls up to `looks` times in a row, as long as nothing comes: the loop of an engine that has no other source. Worth
    /// having of its own where looking again costs less than looking.
    fn poll_often(&mut self, looks: u32) -> usize {
        for _ in 1..looks {
            let taken = self.poll();
            if taken != 0 {
                return taken;
            }
        }
        self.poll()
    }

    /// The engine is about to sleep: from now on an event must wake it, through the channels or the notifier. The source is
    /// polled once more afterwards.
    fn arm(&mut self) {}

    /// The engine is awake again. May come without [`Self::arm`].
    fn disarm(&mut self) {}

    /// What to sleep on: asked before each sleep of a source registered with [`Sleep::Asked`].
    fn channels(&mut self) -> [Option<Channel>; 2] {
        [None, None]
    }

    /// Whether another thread looks after what comes, taken in already or not yet: then an event with nothing to show for it
    /// is no sign that the channel says ready for ever.
    fn is_attended(&mut self) -> bool {
        false
    }

    /// The source's last call panicked with the message `why`. Returns whether the source goes on; one that does must be fit to be called
    /// again. A second panic, in this method, removes it.
    fn panicked(&mut self, why: &str) -> AfterPanic {
        let _ = why;
        AfterPanic::Remove
    }

    /// A sleep ended by its time limit, and the source is still armed: looks for what should have ended it. `woken` waits for
    /// a wake-up that is only late, for a bounded time, and says whether one came.
    fn after_net(&mut self, woken: &mut dyn FnMut() -> bool) -> Net {
        match self.poll() {
            0 => Net::Nothing,
            _ if woken() => Net::Late,
            _ => Net::Lost,
        }
    }
}

/// Whether a source that panicked is called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterPanic {
    /// It has recovered.
    Keep,
    /// It is taken out, and reported as a failure of the manager.
    Remove,
}

/// What was found after a sleep that ended by its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// Nothing had happened.
    Nothing,
    /// An event whose wake-up was on its way.
    Late,
    /// An event that would have woken nobody: a rescue.
    Lost,
}

/// When the manager polls (PIOMan, section 3.3). The paper's are hooks of its thread scheduler; ours are the places that a
/// library has. There is none for a context switch between threads that are not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The thread that polls has nothing else to do.
    Idle,
    /// A thread of the program waits for something.
    Wait,
    /// A thread of the program says that now is a good moment.
    Yield,
    /// Time has passed, whatever the program does.
    Timer,
}

/// A set of triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triggers(u8);

impl Triggers {
    /// Every trigger.
    pub const ALL: Self = Self(0b1111);

    /// These triggers.
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

    /// Whether this one is among them.
    #[inline]
    #[must_use]
    pub const fn contains(self, trigger: Trigger) -> bool {
        self.0 & 1 << trigger as u8 != 0
    }
}

/// What one poll costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A few loads: it is polled at every look.
    Memory,
    /// A little more, and one of many such sources, of which few have anything at a time: one that had nothing for long is
    /// polled every few looks of an idle engine, so that the others' events do not wait for it.
    MemoryOfMany,
    /// A system call: it is polled when the one epoll of all such sources says so, which is asked at most once per
    /// [`GROUP_INTERVAL`](crate::GROUP_INTERVAL) of polling.
    SystemCall,
}

/// Which of several sources comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before all others, and at every look, whatever it costs.
    High,
    /// In the order of registration.
    Normal,
}

/// What a sleeping engine is woken by: the source's blocking function (PIOMan, section 3.2).
#[derive(Debug)]
pub enum Sleep {
    /// Whoever publishes an event says so to the [`Notifier`](crate::Notifier).
    Notified,
    /// This descriptor has an event. It is the manager's from now on.
    Descriptor(OwnedFd, Interest),
    /// The source is armed before each sleep, and asked for its channels: they may change.
    Asked,
}

/// What a registration says of its source.
#[derive(Debug)]
pub struct Spec {
    /// For people: it stands in reports.
    pub name: &'static str,
    /// What a poll costs. Counts only with [`Sleep::Descriptor`] and normal priority: other sources are polled at every look.
    pub cost: Cost,
    /// Who comes first.
    pub priority: Priority,
    /// When it is polled.
    pub triggers: Triggers,
    /// What wakes a sleeping engine.
    pub sleep: Sleep,
}

impl Spec {
    /// A source in memory of normal priority that every trigger polls.
    #[must_use]
    pub const fn memory(name: &'static str, sleep: Sleep) -> Self {
        Self { name, cost: Cost::Memory, priority: Priority::Normal, triggers: Triggers::ALL, sleep }
    }

    /// A readable descriptor whose poll is a system call, of normal priority, that every trigger polls.
    #[must_use]
    pub const fn readable(name: &'static str, descriptor: OwnedFd) -> Self {
        let sleep = Sleep::Descriptor(descriptor, Interest::READABLE);
        Self { name, cost: Cost::SystemCall, priority: Priority::Normal, triggers: Triggers::ALL, sleep }
    }

    /// The same, polled before others.
    #[must_use]
    pub fn first(self) -> Self {
        Self { priority: Priority::High, ..self }
    }

    /// The same, polled by these triggers alone.
    #[must_use]
    pub fn on(self, triggers: &[Trigger]) -> Self {
        Self { triggers: Triggers::of(triggers), ..self }
    }
}
