//! SEAM Booster: schedules a thread immediately when its message arrives (Saito et al., *Expedite*, 2004, section 3).
//!
//! A thread that handles messages is adopted once, and each descriptor on which it waits is watched. The thread reports each time that it
//! has worked, and each time that it is about to wait. A booster may use any of these four reports.

use core::fmt;

/// A way to schedule a thread when its message arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// The kernel module: a thread that waits on a watched descriptor is real-time for a slice when something arrives, within a
    /// budget that the kernel keeps.
    Module,
    /// Real-time (`SCHED_FIFO`), within a budget that the thread keeps itself.
    Fifo,
    /// A short time slice (EEVDF): a woken thread may preempt a thread with a longer one. Needs no privilege.
    Slice,
    /// A share of a CPU in each period (`SCHED_DEADLINE`).
    Deadline,
    /// The BPF scheduler of Pronto (sched_ext), which replaces the kernel's own: a thread that is woken preempts ordinary ones for a
    /// slice, within a budget that the scheduler keeps.
    Scx,
    /// No boost.
    None,
}

impl Tier {
    /// Every tier.
    pub const ALL: [Self; 6] = [Self::Module, Self::Fifo, Self::Slice, Self::Deadline, Self::Scx, Self::None];

    /// Returns the name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Fifo => "fifo",
            Self::Slice => "slice",
            Self::Deadline => "deadline",
            Self::Scx => "scx",
            Self::None => "none",
        }
    }

    /// Returns whether a thread has, or may get, a priority above all ordinary ones. Such a thread must sleep when it waits: if it
    /// polled, it would keep its CPU from every other thread, including the one that it waits for.
    pub const fn may_be_real_time(self) -> bool {
        matches!(self, Self::Module | Self::Fifo | Self::Deadline)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A boost is not available. The thread continues without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoostError {
    /// Threads that wait on this kind of descriptor cannot be boosted.
    #[error("threads waiting on this kind of descriptor cannot be boosted")]
    Unsupported,
    /// The system refuses the boost; its error number.
    #[error("the system refuses the boost (errno {0})")]
    System(i32),
}

/// Schedules threads when their messages arrive.
pub trait Booster: Send + Sync + fmt::Debug {
    /// Returns the tier.
    fn tier(&self) -> Tier;

    /// Registers the calling thread as one that handles messages, until it ends. Called once per thread.
    ///
    /// # Errors
    /// The thread is not boosted.
    fn adopt(&self) -> Result<(), BoostError>;

    /// Registers a descriptor on which threads wait for messages, until it is closed. Called once per descriptor.
    ///
    /// # Errors
    /// Threads that wait there are not boosted.
    fn watch(&self, fd: i32) -> Result<(), BoostError>;

    /// Reports that the calling thread is about to wait for its next message.
    fn before_wait(&self);

    /// Reports that the calling thread has handled one or a few messages, and may handle more without waiting.
    fn worked(&self);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tiers_have_the_names_of_the_documented_configuration() {
        let names = Tier::ALL.map(Tier::name);
        assert_eq!(names, ["module", "fifo", "slice", "deadline", "scx", "none"]);
    }
}
