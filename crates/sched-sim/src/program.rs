//! SEAM: programs. A task asks its program what to do next, does it, and asks again.

use core::fmt::Debug;

pub use pronto_sched_policy::policy::spin::{Preference as Wait, WaitRequest};
use pronto_sched_policy::policy::time::Nanos;

use crate::id::{PortId, TaskId};
use crate::message::Message;
use crate::random::Random;
use crate::record::Records;

/// The next operation of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Computes for this CPU time.
    Compute(Nanos),
    /// Sleeps for at least this time; the kernel's timers determine the actual wake-up.
    Sleep(Nanos),
    /// Sends `bytes` bytes (at least one) through a port. The task sleeps while the socket's buffer is full.
    Send {
        /// Port to send through.
        port: PortId,
        /// Length of the message.
        bytes: u32,
        /// Word for the receiver, see [`Step::received`].
        tag: u64,
    },
    /// Takes the next message out of a port, or waits for it.
    Receive {
        /// Ports to receive from.
        from: From,
        /// Wait request: sleep, poll, or poll first; and a hint when the message is expected. The rules are those of
        /// [`pronto_sched_policy::policy::spin`].
        wait: WaitRequest,
    },
    /// Yields the CPU.
    Yield,
    /// Ends the task.
    Exit,
}

/// The ports to receive from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// One port only.
    Port(PortId),
    /// The port with the message that began to arrive first.
    Any,
}

/// Input of a program for its next operation.
#[derive(Debug)]
pub struct Step<'a> {
    /// Current time; the task is on a CPU.
    pub now: Nanos,
    /// Task that runs the program.
    pub me: TaskId,
    /// Message that the last operation received, if it was a receive.
    pub received: Option<Message>,
    /// Random numbers of the task.
    pub random: &'a mut Random,
    /// Records for results.
    pub records: &'a mut Records,
}

/// A task's program. It is first queried when the task first gets a CPU, and never after [`Op::Exit`].
///
/// Operations that take no time are carried out immediately, one after another. A program that never stops asking for
/// such operations is stopped by a panic.
pub trait Program: Debug + Send {
    /// Returns the next operation; the last one is complete.
    fn next(&mut self, step: &mut Step<'_>) -> Op;
}
