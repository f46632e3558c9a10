//! The `scx` tier: threads flagged at the loader of the BPF scheduler in `kernel/scx`, and the messages between both.
//!
//! The loader listens on a Unix socket of packets. A request is a few bytes, with the descriptor of a thread if it needs one. Each
//! request has one [`Reply`]. The flags, weights and predictions that were set through a connection last until the connection is closed.

mod connection;
mod counters;
mod message;
mod prediction;
mod threads;

use nix::errno::Errno;
use pronto_core::boost::BoostError;

pub use connection::Scheduler;
pub use counters::Counters;
pub use message::{Reply, Request};
pub use prediction::{Prediction, PredictionTerms};
pub use threads::{FlaggedThreads, Renewal};

/// Path of the loader's socket.
pub const SOCKET: &str = "/run/pronto-scx.sock";

/// Folder in which the kernel describes its BPF scheduler. It exists if the kernel supports one.
pub const KERNEL: &str = "/sys/kernel/sched_ext";

/// Reason why threads cannot be flagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The kernel is older than Linux 6.12, or was built without BPF schedulers.
    #[error("this kernel was built without sched_ext (CONFIG_SCHED_CLASS_EXT, since Linux 6.12)")]
    NoSchedExt,
    /// The loader does not run.
    #[error("the scheduler is not loaded: start `pronto expedite scx` as root")]
    NotRunning,
    /// The loader has ended since this process connected to it.
    #[error("the loader ended; restart it with `pronto expedite scx` as root")]
    Ended,
    /// The loader is stopped, or gets no CPU.
    #[error("the loader does not reply: check that `pronto expedite scx` runs, or restart it")]
    Silent,
    /// This user may not connect to the loader.
    #[error(
        "no permission for the socket {SOCKET}: run this as root; for boosts alone, start `pronto expedite scx` with --group"
    )]
    NotPermitted,
    /// The thread belongs to another user, or to another user namespace than the loader.
    #[error("the thread belongs to another user or user namespace")]
    NotOwned,
    /// Weights have no budget, so they are for root.
    #[error(
        "only root may give processes weights in the scheduler: run this as root, or choose the actuator slice"
    )]
    NotRoot,
    /// Another connection has given the process a weight.
    #[error("another coscheduler has given this process a weight in the scheduler: end that one first")]
    Busy,
    /// The loader runs in a container, whose numbers of processes the kernel does not know.
    #[error(
        "the loader runs in a PID namespace of its own: start `pronto expedite scx` outside of containers"
    )]
    OtherNamespace,
    /// The loader has reached its maximum of connections, flagged threads, or processes.
    #[error("the loader accepts no more connections, threads or processes")]
    Full,
    /// The loader sent a reply of another length: it has another version.
    #[error(
        "the loader of the scheduler has another version: restart `pronto expedite scx` with the version of this program"
    )]
    OtherVersion,
    /// Anything else.
    #[error("system error: {0}")]
    System(Errno),
}

impl Refused {
    /// Returns the reason for which the loader refused a thread.
    const fn of_thread(errno: Errno) -> Self {
        match errno {
            Errno::EPERM => Self::NotOwned,
            Errno::ENOSPC => Self::Full,
            errno => Self::System(errno),
        }
    }
}

impl From<Refused> for BoostError {
    fn from(refused: Refused) -> Self {
        Self::System(match refused {
            Refused::NotOwned | Refused::NotPermitted | Refused::NotRoot => libc::EPERM,
            Refused::Full => libc::ENOSPC,
            Refused::Busy => libc::EBUSY,
            Refused::OtherNamespace => libc::EOPNOTSUPP,
            Refused::NotRunning | Refused::Ended => libc::ENOENT,
            Refused::Silent => libc::ETIMEDOUT,
            Refused::System(errno) => errno as i32,
            Refused::NoSchedExt | Refused::OtherVersion => libc::EIO,
        })
    }
}
