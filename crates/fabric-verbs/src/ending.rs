//! How a queue pair ends: what was sent leaves, what is outstanding completes, sleepers are left alone.

use pronto_core::fabric::{Completion, FabricError, QueuePair as _, Status};

use crate::queue_pair::VerbsQueuePair;
use crate::sys::Verb;

/// Looks at the completion queue that closing may cost: what was sent is given the time to leave.
const LINGER: u32 = 4096;
/// Looks at the completion queue for what a closed queue pair flushes; what comes later is for later polls.
const DRAIN: u32 = 65_536;

impl VerbsQueuePair {
    /// The queue pair is dead: the peer is told, and what is outstanding will complete.
    #[cold]
    pub(crate) fn fail(&mut self, error: FabricError) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        self.alive.end();
        let aborted = self.queue.abort();
        self.flush_unposted();
        self.grants.clear();
        let unread = self.windows.clear();
        self.done.extend(unread.into_iter().map(|wr| Completion { wr, status: Status::Flushed }));
        self.abandoned.extend(self.inbox.clear());
        self.owed.clear();
        self.closing.clear();
        if aborted.is_err() {
            // The device is gone, and tells nothing any more.
            self.flush_all();
        }
    }

    /// Closes it, once.
    pub(crate) fn end(&mut self) {
        // What no doorbell was rung for does not leave.
        self.flush_unposted();
        self.grants.clear();
        self.linger();
        self.fail(FabricError::Lost);
        self.drain();
        // The other queue pair's sleepers are not to be woken by what nobody takes any more.
        self.waits.remove(&*self.channel);
        self.waits.remove(&*self.bell);
        if let Some(socket) = self.alive.socket() {
            self.waits.remove(socket);
        }
    }

    /// Takes in what the device flushes, which it does in its own time: until then it may still reach what is outstanding.
    fn drain(&mut self) {
        for _ in 0..DRAIN {
            self.reap();
            if self.entries.is_empty() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Waits a moment for what was sent: closed at once, a last message would not leave.
    fn linger(&mut self) {
        if self.failed.is_some() || self.entries.is_empty() {
            return;
        }
        let Ok(asked) = self.ask(Verb::Write(0, 0)) else { return };
        for _ in 0..LINGER {
            if self.alive.is_lost() || self.has_settled(asked).unwrap_or(true) {
                return;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        self.close();
        self.shared.delist(self.queue.number());
        // Receives that were completed and not looked at go back to where all take them from.
        while let Ok(Some(found)) = self.receives.poll() {
            drop(self.buffers.completed(found.id, found.len));
        }
    }
}
