//! The booster of the `scx` tier: the flagged threads of a process, which outlive the loader that they are flagged at.
//!
//! # Invariants
//! 1. While there is a connection, every registered thread has been flagged through it.
//! 2. A connection that failed is dropped before the lock is released, so a late reply never answers another request.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::gettid;
use pronto_core::boost::{BoostError, Booster, Tier};

use super::connection::Scheduler;
use super::message::Request;
use super::{Refused, SOCKET};
use crate::process::thread_descriptor;

/// Maximum number of registered threads, each of which takes a descriptor: the loader's maximum for a connection.
const THREADS: usize = 1_024;

/// Longest wait for the loader. It is short because the calling thread has other work, and the next attempt comes soon.
const LIMIT: Duration = Duration::from_millis(100);

/// Threads that are flagged at the loader. If the loader ends, [`FlaggedThreads::renew`] flags them at the next one.
#[derive(Debug)]
pub struct FlaggedThreads {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The connection, or why there is none.
    connection: Result<Scheduler, Refused>,
    threads: Vec<OwnedFd>,
}

/// Result of [`FlaggedThreads::renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// The threads are flagged, as before.
    Kept,
    /// The threads are flagged at a new loader.
    Renewed {
        /// Number of threads that the new loader refused. They are no longer registered.
        refused: u64,
        /// Reason of the last refusal.
        why: Option<Refused>,
    },
    /// There is no loader, for this reason.
    Missing(Refused),
}

impl FlaggedThreads {
    /// Connects to the loader at [`SOCKET`]. If that fails, threads can be registered, and are flagged by a later
    /// [`renew`](Self::renew).
    #[must_use]
    pub fn connect() -> Self {
        Self::connect_to(Path::new(SOCKET))
    }

    /// Connects to the loader that listens at another path.
    #[must_use]
    pub fn connect_to(path: &Path) -> Self {
        let state = State { connection: Scheduler::connect_within(path, LIMIT), threads: Vec::new() };
        Self { path: path.into(), state: Mutex::new(state) }
    }

    /// Checks the connection without a request.
    ///
    /// # Errors
    /// The reason why registered threads are not boosted now.
    pub fn check(&self) -> Result<(), Refused> {
        let mut state = self.lock();
        state.notice_end();
        state.connection.as_ref().map(drop).map_err(|why| *why)
    }

    /// Checks the connection. If there is none, tries once to connect, and flags all registered threads again. Blocks for two tenths of
    /// a second at most if a loader does not accept the connection, or does not reply.
    pub fn renew(&self) -> Renewal {
        let mut state = self.lock();
        state.notice_end();
        let Err(before) = state.connection else { return Renewal::Kept };
        match Scheduler::connect_within(&self.path, LIMIT).and_then(|scheduler| state.flag_all(scheduler)) {
            Ok(refused) => Renewal::Renewed {
                refused: u64::try_from(refused.len()).unwrap_or(u64::MAX),
                why: refused.last().copied(),
            },
            // That the loader ended says more than that none runs.
            Err(Refused::NotRunning | Refused::NoSchedExt) if before == Refused::Ended => {
                Renewal::Missing(before)
            }
            Err(why) => {
                state.connection = Err(why);
                Renewal::Missing(why)
            }
        }
    }

    fn register(&self, tid: i32) -> Result<(), Refused> {
        let thread = thread_descriptor(tid).map_err(Refused::System)?;
        let mut state = self.lock();
        state.threads.retain(|thread| !has_ended(thread.as_fd()));
        if state.threads.len() >= THREADS {
            return Err(Refused::Full);
        }
        if let Ok(scheduler) = &state.connection {
            match scheduler.done(Request::Flag, Some(thread.as_fd())) {
                Ok(result) => drop(result.map_err(Refused::of_thread)?),
                Err(why) => state.connection = Err(why),
            }
        }
        state.threads.push(thread);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A holder that panicked has left a request without its reply at most, which the length check of a reply tolerates.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops the connection if the loader has closed it.
    fn notice_end(&mut self) {
        if self.connection.as_ref().is_ok_and(Scheduler::is_closed) {
            self.connection = Err(Refused::Ended);
        }
    }

    /// Flags all threads through a new connection, which is kept if all requests have a reply. Returns why threads were refused; they
    /// are forgotten, as those that have ended.
    fn flag_all(&mut self, scheduler: Scheduler) -> Result<Vec<Refused>, Refused> {
        let mut refused = Vec::new();
        let mut result = Ok(());
        self.threads.retain(|thread| {
            if result.is_err() {
                return true;
            }
            match scheduler.done(Request::Flag, Some(thread.as_fd())) {
                Ok(Ok(_)) => true,
                // A loader that does not see the thread, because of another namespace, says the same of a living one.
                Ok(Err(Errno::ESRCH)) if has_ended(thread.as_fd()) => false,
                Ok(Err(errno)) => {
                    refused.push(Refused::of_thread(errno));
                    false
                }
                Err(why) => {
                    result = Err(why);
                    true
                }
            }
        });
        result?;
        self.connection = Ok(scheduler);
        Ok(refused)
    }
}

/// Returns whether the thread of a descriptor has ended.
fn has_ended(thread: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(thread, PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
}

impl Booster for FlaggedThreads {
    /// Returns `Tier::None` while there is no connection to a loader.
    fn tier(&self) -> Tier {
        if self.lock().connection.is_ok() { Tier::Scx } else { Tier::None }
    }

    /// Registers the calling thread. While no loader runs, this succeeds, and the thread is not boosted before the next one does.
    fn adopt(&self) -> Result<(), BoostError> {
        self.register(gettid().as_raw()).map_err(Refused::into)
    }

    fn watch(&self, _: i32) -> Result<(), BoostError> {
        Ok(())
    }

    fn before_wait(&self) {}

    fn worked(&self) {}
}
