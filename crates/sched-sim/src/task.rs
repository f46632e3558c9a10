//! Tasks: the cluster's data about each. Its scheduler's data (counters, lag) is kept by the scheduler.

use std::collections::VecDeque;

use pronto_sched_policy::policy::contention::Contention;
use pronto_sched_policy::policy::occupancy::Occupancy;
use pronto_sched_policy::policy::spin;
use pronto_sched_policy::policy::time::Nanos;

use crate::id::{CpuId, Endpoint, NodeId, PortId, ProcessId, Slot, UserId};
use crate::message::{Fragment, Message};
use crate::program::{Op, Wait};
use crate::random::Random;

/// Options of a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOptions {
    /// Address space of the task; `None` for one of its own.
    pub process: Option<ProcessId>,
    /// User of the task.
    pub user: UserId,
    /// Nice value, -20 (most) to 19 (least).
    pub nice: i8,
    /// Time at which the task begins; until then it is asleep.
    pub starts: Nanos,
    /// Page faults of the task; `None` if its data fit into memory.
    pub faults: Option<Faults>,
    /// Requested slice, if the scheduler supports it (EEVDF's `sched_runtime`); `None` for the standard one.
    pub slice: Option<Nanos>,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self { process: None, user: UserId(0), nice: 0, starts: Nanos::ZERO, faults: None, slice: None }
    }
}

/// Page faults of a task whose data do not fit into memory. The task sleeps while its pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Faults {
    /// CPU time from one fault to the next.
    pub every: Nanos,
    /// Time to read the pages of one fault. The disk of a node reads for one task at a time.
    pub takes: Nanos,
    /// Pages of 4096 bytes that are read at a time.
    pub pages: u64,
}

/// Page faults of a task so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paging {
    pub(crate) faults: Faults,
    /// CPU time left until the next fault.
    pub(crate) left: Nanos,
    pub(crate) disk: Disk,
}

/// The disk's work for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// None since the task was last on a CPU.
    Idle,
    /// The task sleeps while its pages are read.
    Reads,
    /// The pages were read; the task has not been on a CPU since.
    Done,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Running on this CPU.
    Running(CpuId),
    /// In the run queue, or held out of it (see [`Task::held`]).
    Ready,
    /// Asleep for a time, for a message, or for room in a buffer.
    Asleep,
    /// Ended.
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
    /// Occupancy of each port; kept apart from the sockets, because policies need it as a slice.
    pub(crate) occupancy: Vec<Occupancy>,
    pub(crate) work: Work,
    pub(crate) spin: spin::Spin,
    pub(crate) contention: Contention,
    pub(crate) random: Random,
    /// Generation of wake-ups, to recognise stale ones.
    pub(crate) generation: u32,
    pub(crate) usage: Usage,
    pub(crate) paging: Option<Paging>,
    pub(crate) ready_since: Nanos,
}

/// The current work of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// CPU time to spend before anything else.
    pub(crate) busy: Nanos,
    pub(crate) doing: Option<Doing>,
    pub(crate) received: Option<Message>,
}

/// An operation in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing {
    pub(crate) op: Op,
    /// Bytes handed over so far by a send. The time of the first byte is the message's.
    pub(crate) sent: u32,
    pub(crate) message: Option<Message>,
    /// Wait of a receive, and the port from which it has begun to read.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) reading: Option<PortId>,
}

/// A wait that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) wait: spin::Wait,
    pub(crate) since: Nanos,
    pub(crate) slept: bool,
    /// Total time without a CPU when the wait began.
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
    /// Fragments that have arrived and are not read.
    pub(crate) received: VecDeque<Fragment>,
    /// Fragments at the receiver's node for which its socket has no room; they still count as the sender's.
    pub(crate) refused: VecDeque<Fragment>,
}

/// Resource usage of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time.
    pub ran: Nanos,
    /// Time in the run queue without a CPU.
    pub delayed: Nanos,
    /// Number of times that it was given a CPU.
    pub dispatches: u64,
    /// Number of page faults.
    pub faults: u64,
    /// Time at which it ended.
    pub ended: Option<Nanos>,
}

impl Task {
    /// Returns the node of the task.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the address space of the task.
    #[must_use]
    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// Returns the user of the task.
    #[must_use]
    pub const fn user(&self) -> UserId {
        self.user
    }

    /// Returns the state of the task.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns whether the task is on a CPU.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// Returns whether a policy keeps the task from running (see [`crate::policy::Context::hold`]).
    #[must_use]
    pub const fn held(&self) -> bool {
        self.held
    }

    /// Returns whether one of its ports is flagged for the boost.
    #[must_use]
    pub fn is_flagged(&self) -> bool {
        self.ports.iter().any(|port| port.flagged)
    }

    /// Returns the occupancy of its sockets, one entry per port.
    #[must_use]
    pub fn occupancy(&self) -> &[Occupancy] {
        &self.occupancy
    }

    /// Returns whether the task sleeps because its pages are being read.
    #[must_use]
    pub(crate) fn waits_for_pages(&self) -> bool {
        self.paging.is_some_and(|paging| paging.disk == Disk::Reads)
    }

    /// Returns the number of pages that were read for the task since it was last on a CPU.
    #[must_use]
    pub fn pages_read(&self) -> u64 {
        match self.paging {
            Some(Paging { faults, disk: Disk::Done, .. }) => faults.pages,
            _ => 0,
        }
    }

    /// Returns CPU time, delays and dispatches, up to the last switch.
    #[must_use]
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns whether the task polls for a message.
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

    /// Returns how the task waits, if it is in a receive.
    #[must_use]
    pub const fn wait(&self) -> Option<Wait> {
        match self.work.doing {
            Some(Doing { op: Op::Receive { wait, .. }, waiting: Some(_), .. }) => Some(wait.preference),
            _ => None,
        }
    }
}
