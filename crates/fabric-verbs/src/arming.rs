//! Asking for events, and taking those that have come.

use nix::errno::Errno;
use pronto_core::fabric::{Armed, FabricError};

use crate::queue_pair::VerbsQueuePair;
use crate::sleep::Heard;
use crate::sys::CompletionQueue;

impl VerbsQueuePair {
    /// Asks for an event with the next completion.
    pub(crate) fn arm_for_all(&mut self) -> Result<(), FabricError> {
        self.slept_for_all = true;
        self.arm_for(Armed::All)
    }

    /// Asks for an event with the next solicited completion. Somebody who has just slept for all of them does so again most
    /// likely, and would ask once more: then it is asked for those at once, and the sleeper finds them asked for. One who
    /// polls instead costs one event that nobody needed, after which it is solicited ones again.
    pub(crate) fn arm_for_solicited(&mut self) -> Result<(), FabricError> {
        let all = core::mem::take(&mut self.slept_for_all);
        self.arm_for(if all { Armed::All } else { Armed::Solicited })
    }

    fn arm_for(&mut self, events: Armed) -> Result<(), FabricError> {
        self.usable()?;
        self.looks_anew();
        self.shared.pool.replenish();
        self.shared.regions.forget_unused();
        let system = |errno: Errno| FabricError::System { errno: errno as i32 };
        self.receives.request_event(events).map_err(system)?;
        // A payload that is being read is a message as soon as that is done, and was announced by a solicited one.
        let events = if self.inbox.fetching == 0 { events } else { Armed::All };
        self.sends.request_event(events).map_err(system)
    }

    /// Takes an event that has come; the request for one cannot be taken back.
    pub(crate) fn take_events(&mut self) {
        // Where events come, the next is most likely one more: found without asking who woke.
        self.has_events =
            self.has_events && CompletionQueue::take_event([&mut self.sends, &mut self.receives]);
        if self.has_events {
            self.waits.was_all();
            return;
        }
        let heard = self.waits.look();
        if heard.has(Heard::CHANNEL) {
            self.has_events = CompletionQueue::take_event([&mut self.sends, &mut self.receives]);
        }
        if heard.has(Heard::BELL) {
            // An error means that somebody else has heard it.
            let _count = self.bell.read();
        }
        if heard.has(Heard::SOCKET) && self.failed.is_none() {
            self.alive.look();
        }
    }
}
