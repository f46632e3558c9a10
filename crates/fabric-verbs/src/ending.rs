//! Closing a queue pair: sent messages leave, outstanding requests complete, and sleepers are no longer woken.

use pronto_core::fabric::{Completion, FabricError, QueuePair as _, Status};

use crate::queue_pair::VerbsQueuePair;
use crate::sys::Verb;

/// Maximum number of polls of the completion queue in which closing waits for sent messages to leave.
const LINGER: u32 = 4096;
/// Maximum number of polls of the completion queue for requests that a closed queue pair flushes; later polls find the
/// others.
const DRAIN: u32 = 65_536;

impl VerbsQueuePair {
    /// Fails the queue pair: notifies the peer, and lets outstanding requests complete.
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
            // The device is gone and reports no completions any more.
            self.flush_all();
        }
    }

    /// Closes the queue pair. Called once.
    pub(crate) fn end(&mut self) {
        // Messages for which no doorbell was rung do not leave.
        self.flush_unposted();
        self.grants.clear();
        self.linger();
        self.fail(FabricError::Lost);
        self.drain();
        // The sleepers of the other queue pair must not be woken by events that no thread consumes any more.
        self.waits.remove(&*self.channel);
        self.waits.remove(&*self.bell);
        if let Some(socket) = self.alive.socket() {
            self.waits.remove(socket);
        }
    }

    /// Polls for the requests that the device flushes. Until a request is flushed, the device may still access its
    /// memory.
    fn drain(&mut self) {
        for _ in 0..DRAIN {
            self.reap();
            if self.entries.is_empty() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Waits briefly for sent messages: after an immediate close, the last message would not leave.
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
        // Returns completed but unpolled receives to the shared queue.
        while let Ok(Some(found)) = self.receives.poll() {
            drop(self.buffers.completed(found.id, found.len));
        }
    }
}
