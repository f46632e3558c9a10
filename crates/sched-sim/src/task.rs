//! Tasks: what the cluster knows of each. What its scheduler knows (counters, lag) is with the scheduler.

use std::collections::VecDeque;

use pronto_sched_policy::policy::crowding::Crowding;
use pronto_sched_policy::policy::occupancy::Occupancy;
use pronto_sched_policy::policy::spin;
use pronto_sched_policy::policy::time::Nanos;

use crate::id::{CpuId, Endpoint, NodeId, PortId, ProcessId, Slot, UserId};
use crate::message::{Fragment, Message};
use crate::program::{Op, Wait};
use crate::random::Random;

/// How a task begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOptions {
    /// Its address space; `None` for one of its own.
    pub process: Option<ProcessId>,
    /// Whose it is.
    pub user: UserId,
    /// -20 (most) to 19 (least).
    pub nice: i8,
    /// When it begins; until then it is asleep.
    pub starts: Nanos,
    /// Slice asked for where the scheduler has such (EEVDF's `sched_runtime`); `None` for the standard one.
    pub slice: Option<Nanos>,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self { process: None, user: UserId(0), nice: 0, starts: Nanos::ZERO, slice: None }
    }
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// On this processor.
    Running(CpuId),
    /// In the run queue, or held out of it (see [`Task::held`]).
    Ready,
    /// Not there: asleep for a time, for a message, for room in a buffer.
    Asleep,
    /// Gone.
    Exited,
}

/// A task.
#[derive(Debug)]
pub struct Task {
    pub(crate) node: NodeId,
    pub(crate) slot: Slot,
    pub(crate) process: ProcessId,
    pub(crate) user: UserId,
    pub(crate) state: State,
    pub(crate) held: bool,
    pub(crate) ports: Vec<Port>,
    /// Of each port: apart, as policies want them in one piece.
    pub(crate) occupancy: Vec<Occupancy>,
    pub(crate) work: Work,
    pub(crate) spin: spin::Spin,
    pub(crate) crowding: Crowding,
    pub(crate) random: Random,
    /// Counts wake-ups that may have become stale.
    pub(crate) generation: u32,
    pub(crate) usage: Usage,
    pub(crate) ready_since: Nanos,
}

/// A task's work in hand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Processor time to spend before anything else.
    pub(crate) busy: Nanos,
    pub(crate) doing: Option<Doing>,
    pub(crate) received: Option<Message>,
}

/// An operation in hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing {
    pub(crate) op: Op,
    /// Of a send: bytes handed over so far. The time of the first is the message's.
    pub(crate) sent: u32,
    pub(crate) message: Option<Message>,
    /// Of a receive: how it waits, and since when; and the port it has begun to read from.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) reading: Option<PortId>,
}

/// A wait that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) wait: spin::Wait,
    pub(crate) since: Nanos,
    pub(crate) slept: bool,
    /// The task's time without a processor, when it began.
    pub(crate) delayed: Nanos,
}

impl Doing {
    pub(crate) const fn new(op: Op) -> Self {
        Self { op, sent: 0, message: None, waiting: None, reading: None }
    }
}

/// A socket.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) peer: Endpoint,
    pub(crate) flagged: bool,
    /// Arrived and not read.
    pub(crate) received: VecDeque<Fragment>,
    /// At the receiver's node, but with no room in its socket: still the sender's.
    pub(crate) refused: VecDeque<Fragment>,
}

/// What a task has used and met with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time.
    pub ran: Nanos,
    /// Time in the run queue without a processor.
    pub delayed: Nanos,
    /// How often it was given a processor.
    pub dispatches: u64,
    /// When it ended.
    pub ended: Option<Nanos>,
}

impl Task {
    /// Where it lives.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Its address space.
    #[must_use]
    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// Whose it is.
    #[must_use]
    pub const fn user(&self) -> UserId {
        self.user
    }

    /// What it does.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether it is on a processor.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// Whether a policy keeps it from running (see [`crate::policy::Context::hold`]).
    #[must_use]
    pub const fn held(&self) -> bool {
        self.held
    }

    /// Whether one of its ports is flagged for the boost.
    #[must_use]
    pub fn is_flagged(&self) -> bool {
        self.ports.iter().any(|port| port.flagged)
    }

    /// What its sockets hold, one entry per port.
    #[must_use]
    pub fn occupancy(&self) -> &[Occupancy] {
        &self.occupancy
    }

    /// Processor time, delays and dispatches, up to the last switch.
    #[must_use]
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether it polls for a message.
    #[must_use]
    pub const fn polls(&self) -> bool {
        matches!(
            self.work.doing,
            Some(Doing {
                op: Op::Receive { .. },
                waiting: Some(Waiting { wait: spin::Wait::Poll | spin::Wait::PollFor(_), slept: false, .. }),
                ..
            })
        )
    }

    /// How it waits, if it is in a receive.
    #[must_use]
    pub const fn wait(&self) -> Option<Wait> {
        match self.work.doing {
            Some(Doing { op: Op::Receive { wait, .. }, waiting: Some(_), .. }) => Some(wait.preference),
            _ => None,
        }
    }
}
