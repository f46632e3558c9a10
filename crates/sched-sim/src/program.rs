//! SEAM: programs. A task asks its program what to do next, does it, and asks again.

use core::fmt::Debug;

pub use pronto_sched_policy::policy::spin::{Asked, Preference as Wait};
use pronto_sched_policy::policy::time::Nanos;

use crate::id::{PortId, TaskId};
use crate::message::Message;
use crate::random::Random;
use crate::record::Records;

/// What a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Use the processor for so long.
    Compute(Nanos),
    /// Sleep for at least so long; when it really wakes depends on the kernel's timers.
    Sleep(Nanos),
    /// Send so many bytes (at least one) through a port; waits, asleep, while the socket's buffer is full.
    Send {
        /// Through which port.
        port: PortId,
        /// How much.
        bytes: u32,
        /// For the receiver, see [`Step::received`].
        tag: u64,
    },
    /// Take the next message out of a port, or wait for it.
    Receive {
        /// Out of which.
        from: From,
        /// How to wait: asleep, polling, or polling first; and when the message is expected, if that is known. The rules are
        /// [`pronto_sched_policy::policy::spin`]'s.
        wait: Asked,
    },
    /// Let others go first.
    Yield,
    /// End.
    Exit,
}

/// Where to receive from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// This port only.
    Port(PortId),
    /// The port with the message that began to arrive first.
    Any,
}

/// What a program sees when it is asked.
#[derive(Debug)]
pub struct Step<'a> {
    /// The time; the task is on a processor.
    pub now: Nanos,
    /// Whose program it is.
    pub me: TaskId,
    /// The message that the last operation received, if it was a receive.
    pub received: Option<Message>,
    /// The task's own stream of chance.
    pub random: &'a mut Random,
    /// Where results go.
    pub records: &'a mut Records,
}

/// What a task runs. It is asked for the first time when the task first gets a processor, and never after [`Op::Exit`].
///
/// Operations that take no time are carried out at once, one after another; a program that goes on with such for ever
/// is stopped by a panic.
pub trait Program: Debug + Send {
    /// The next operation; the last one is complete.
    fn next(&mut self, step: &mut Step<'_>) -> Op;
}
