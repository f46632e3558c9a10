//! SEAM Booster: the processor for a thread at the moment when its message arrives (Saito et al., *Expedite*, 2004, section 3).
//!
//! A thread that handles messages is adopted once. What it waits on is watched. Between its messages it says when it has
//! worked, and before each sleep that it is about to wait. What a booster makes of these four is its own affair.

use core::fmt;

/// A way to get a thread onto its processor when its message arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// The kernel module: whoever waits on a watched descriptor is real-time for a slice when something arrives, within a budget
    /// that the kernel keeps.
    Module,
    /// Real-time (`SCHED_FIFO`), within a budget that the thread keeps itself.
    Fifo,
    /// A short time slice (EEVDF): a woken thread may preempt who has had a longer one. Needs no privilege.
    Slice,
    /// So much of a processor in each period (`SCHED_DEADLINE`).
    Deadline,
    /// Nothing.
    None,
}

impl Tier {
    /// Every tier.
    pub const ALL: [Self; 5] = [Self::Module, Self::Fifo, Self::Slice, Self::Deadline, Self::None];

    /// How it is called in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Fifo => "fifo",
            Self::Slice => "slice",
            Self::Deadline => "deadline",
            Self::None => "none",
        }
    }

    /// Whether a thread has, or may get, a priority above all ordinary ones. Such a thread must sleep when it waits: polling, it
    /// would keep its processor from everybody, the one that it waits for among them.
    pub const fn may_be_real_time(self) -> bool {
        matches!(self, Self::Module | Self::Fifo | Self::Deadline)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a booster could not do. The thread goes on as an ordinary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoostError {
    /// Waiting on this kind of descriptor cannot be boosted.
    #[error("who waits on this kind of descriptor cannot be boosted")]
    Unsupported,
    /// The system refuses; its error number.
    #[error("the system refuses it (errno {0})")]
    System(i32),
}

/// Gets threads onto their processors when their messages arrive.
pub trait Booster: Send + Sync + fmt::Debug {
    /// How.
    fn tier(&self) -> Tier;

    /// The calling thread handles messages from now on, until it ends. Called once by each.
    ///
    /// # Errors
    /// The thread stays an ordinary one.
    fn adopt(&self) -> Result<(), BoostError>;

    /// Threads wait for messages on what is open at this descriptor, until it is closed. Called once for each.
    ///
    /// # Errors
    /// Who waits there is not boosted.
    fn watch(&self, fd: i32) -> Result<(), BoostError>;

    /// The calling thread is about to wait for its next message.
    fn before_wait(&self);

    /// The calling thread has handled a message, or a few, and may go on with another.
    fn worked(&self);
}
