//! A simulated thread, as its scheduler sees it.

use std::sync::Arc;

use pronto_core::Nanos;

use super::bell::Bell;
use super::idle::Waits;
use crate::scenario::SimSession;
use crate::world::SimNode;

/// A simulated thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) node: Option<SimNode>,
    pub(super) name: String,
    pub(super) bell: Arc<Bell>,
    pub(super) run: Run,
    /// The calls or the room that it waits for.
    pub(super) waits: Option<Waits>,
    /// The event that has ended its sleep.
    pub(super) woken: Woken,
    pub(super) is_serving: bool,
    /// The sessions that it serves.
    pub(super) serves: Vec<Arc<SimSession>>,
    /// True if another thread has woken it, as a serving thread, since its last sleep.
    pub(super) is_alerted: bool,
}

impl Thread {
    pub(super) fn new(node: Option<SimNode>, name: String, bell: Arc<Bell>) -> Self {
        let (run, woken) = (Run::Ready, Woken::default());
        let (is_serving, serves, is_alerted) = (false, Vec::new(), false);
        Self { node, name, bell, run, waits: None, woken, is_serving, serves, is_alerted }
    }
}

/// State of a thread.
#[derive(Debug)]
pub(super) enum Run {
    Ready,
    /// The thread could run, and gets no CPU until then.
    Held {
        until: Nanos,
    },
    Asleep(Asleep),
    Ended,
}

impl Run {
    /// Returns the time at which the thread becomes ready without an event.
    pub(super) fn until(&self) -> Nanos {
        match self {
            Self::Ready | Self::Ended => Nanos::NEVER,
            Self::Held { until } => *until,
            Self::Asleep(asleep) => asleep.until,
        }
    }
}

/// A sleep: on something, and at most until a time of the world.
#[derive(Debug)]
pub(super) struct Asleep {
    pub(super) on: SleepOn,
    pub(super) until: Nanos,
}

impl Asleep {
    /// Returns whether the sleep may end early.
    pub(super) const fn is_long(&self) -> bool {
        matches!(self.on, SleepOn::Word(_) | SleepOn::Channels(_))
    }
}

/// The place of a sleep.
#[derive(Debug)]
pub(super) enum SleepOn {
    /// The program's own pause: the thread waits for nothing.
    Pause,
    /// A pause between two attempts at something that another thread holds for a moment.
    BackOff,
    /// A word with this address.
    Word(usize),
    /// The channels of a link, in place of the serving thread.
    Channels(Vec<i32>),
    /// The channels of all links, as the serving thread.
    Serving {
        channels: Vec<i32>,
        /// True if the sleep leaves out some channels, and is short therefore.
        muted: bool,
    },
}

/// The end of a sleep.
#[derive(Debug, Default)]
pub(super) struct Woken {
    /// False if the time limit ended the sleep.
    pub(super) by_event: bool,
    /// The channels that have an event.
    pub(super) ready: Vec<i32>,
}
