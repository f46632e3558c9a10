//! Requesting events, and consuming them.

use nix::errno::Errno;
use pronto_core::fabric::{Armed, FabricError};

use crate::queue_pair::VerbsQueuePair;
use crate::sleep::WakeSources;
use crate::sys::CompletionQueue;

impl VerbsQueuePair {
    /// Requests an event for the next completion.
    pub(crate) fn arm_for_all(&mut self) -> Result<(), FabricError> {
        self.slept_for_all = true;
        self.arm_for(Armed::All)
    }

    /// Requests an event for the next solicited completion. If the last sleeper has waited for all completions, the
    /// next one most likely does so, too, and would need another request. In that case this function requests all
    /// events immediately. If a thread polls instead, that costs one unneeded event; after it, only solicited ones are
    /// requested again.
    pub(crate) fn arm_for_solicited(&mut self) -> Result<(), FabricError> {
        let all = core::mem::take(&mut self.slept_for_all);
        self.arm_for(if all { Armed::All } else { Armed::Solicited })
    }

    fn arm_for(&mut self, events: Armed) -> Result<(), FabricError> {
        self.usable()?;
        self.reap_at_next_poll();
        self.shared.pool.replenish();
        self.shared.regions.forget_unused();
        let system = |errno: Errno| FabricError::System { errno: errno as i32 };
        self.receives.request_event(events).map_err(system)?;
        // When the read of a payload is complete, it is a message, which a solicited completion has announced.
        let events = if self.inbox.fetching == 0 { events } else { Armed::All };
        self.sends.request_event(events).map_err(system)
    }

    /// Consumes a pending event; a request for an event cannot be withdrawn.
    pub(crate) fn take_events(&mut self) {
        // After one event, another is likely: it is consumed without querying the epoll.
        self.has_events =
            self.has_events && CompletionQueue::take_event([&mut self.sends, &mut self.receives]);
        if self.has_events {
            self.waits.was_all();
            return;
        }
        let heard = self.waits.wake_sources();
        if heard.has(WakeSources::CHANNEL) {
            self.has_events = CompletionQueue::take_event([&mut self.sends, &mut self.receives]);
        }
        if heard.has(WakeSources::BELL) {
            // An error means that another thread has consumed the bell.
            let _count = self.bell.read();
        }
        if heard.has(WakeSources::SOCKET) && self.failed.is_none() {
            self.alive.check();
        }
    }
}
