//! What happens to peers, for whoever wants to know.

use core::time::Duration;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex};

use pronto_core::session::Event;

/// Where a subscriber reads what happens to peers: `PeerUp`, `PeerDown`, and what happens to links.
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Event>,
}

impl Events {
    /// The next event, if there is one.
    pub fn try_next(&self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// The next event, if one comes within `limit`.
    pub fn next_within(&self, limit: Duration) -> Option<Event> {
        self.receiver.recv_timeout(limit).ok()
    }
}

/// All subscribers, and a bell for those who wait for a state rather than an event.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    subscribers: Mutex<Vec<Sender<Event>>>,
    count: Mutex<u64>,
    bell: Condvar,
}

impl EventLog {
    pub(crate) fn subscribe(&self) -> Events {
        let (sender, receiver) = channel();
        self.subscribers.lock().expect("no holder panics").push(sender);
        Events { receiver }
    }

    pub(crate) fn publish(&self, event: Event) {
        self.subscribers
            .lock()
            .expect("no holder panics")
            .retain(|subscriber| subscriber.send(event).is_ok());
        *self.count.lock().expect("no holder panics") += 1;
        self.bell.notify_all();
    }

    /// Waits until `state` is there or `limit` is over, looking again at every event.
    pub(crate) fn wait_for<T>(&self, limit: Duration, mut state: impl FnMut() -> Option<T>) -> Option<T> {
        let mut found = None;
        let count = self.count.lock().expect("no holder panics");
        let waited = self.bell.wait_timeout_while(count, limit, |_| {
            found = state();
            found.is_none()
        });
        drop(waited);
        found
    }
}
