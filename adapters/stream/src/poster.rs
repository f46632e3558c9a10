//! Sends credits and resets that were refused for lack of room.
//!
//! No task waits for these messages: a reader does not, and a dropped stream cannot. If one is refused, a thread sends it as soon as there
//! is room, and ends when none is left. Each stream has at most two credits and a reset here, because its peer needs the credit before
//! it earns another one.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use pronto::{CallError, Peer};

use crate::frames::{Credit, Reset};

/// Limit of the wait for room. A peer that has taken nothing for this time is as good as down.
const PATIENCE: Duration = Duration::from_secs(60);

/// A message that no task waits for.
#[derive(Debug)]
pub(crate) enum Due {
    Credit(Credit),
    Reset(Reset),
}

/// The messages that wait for room.
#[derive(Debug, Default)]
pub(crate) struct Poster {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    due: VecDeque<(Peer, Due)>,
    thread: Thread,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Thread {
    #[default]
    None,
    Runs,
}

impl Poster {
    /// Sends a message now, or as soon as there is room for it.
    pub(crate) fn post(self: &Arc<Self>, peer: &Peer, due: Due) {
        let outcome = match &due {
            Due::Credit(credit) => peer.notify(credit),
            Due::Reset(reset) => peer.notify(reset),
        };
        if !outcome.is_err_and(|error: CallError| error.is_retryable() && peer.is_up()) {
            return;
        }
        let mut queue = self.queue.lock().expect("no holder panics");
        queue.due.push_back((peer.clone(), due));
        if core::mem::replace(&mut queue.thread, Thread::Runs) == Thread::None {
            let poster = Arc::clone(self);
            let run = move || while poster.send_next() {};
            if std::thread::Builder::new().name("pronto-stream".into()).spawn(run).is_err() {
                // Without a thread the message is sent together with the next one that is refused.
                queue.thread = Thread::None;
            }
        }
    }

    /// Sends the oldest message. Returns `false` if there is none.
    fn send_next(&self) -> bool {
        let mut queue = self.queue.lock().expect("no holder panics");
        let Some((peer, due)) = queue.due.pop_front() else {
            queue.thread = Thread::None;
            return false;
        };
        drop(queue);
        // A peer that is down needs no message: its streams have ended.
        let _ended = match due {
            Due::Credit(credit) => peer.notify_within(&credit, PATIENCE),
            Due::Reset(reset) => peer.notify_within(&reset, PATIENCE),
        };
        true
    }
}
