//! Waiting for room to send: a refused sender polls for credits that the peer returns, or sleeps until they arrive.

use super::Session;
use crate::executor::{Executor, WaitRequest};
use crate::fabric::QueuePair;
use crate::session::inbound::Sink;
use crate::session::send_error::SendError;
use crate::time::Nanos;
use crate::wait::{Next, Slept, Wait, YieldTimer};

/// The wait of a sender, from one attempt to send to the next.
#[derive(Debug)]
pub struct RoomWait {
    wait: Wait,
    /// Time when the sender was last refused.
    refused: Nanos,
    yields: YieldTimer,
}

/// The step of a sender after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRefusal {
    /// The sender tries again.
    Retry,
    /// The sender pauses, then tries again: no message can make room, or another thread processes messages.
    Pause,
    /// The sender gives up, as the timeout is over.
    GiveUp,
}

impl<Q: QueuePair> Session<Q> {
    /// Begins a wait for room, of at most `timeout`. Its history is separate from that of waits for replies.
    pub fn begin_room_wait(
        &self,
        request: WaitRequest,
        timeout: Nanos,
        executor: &impl Executor,
    ) -> RoomWait {
        let wait = Wait::new(self.decide_by(&self.room_waits, request, executor), timeout);
        RoomWait { wait, refused: Nanos::ZERO, yields: YieldTimer::default() }
    }

    /// Called between two attempts to send, the last of which was refused `now`. Processes what has arrived; otherwise polls again or
    /// sleeps.
    pub fn wait_for_room(
        &self,
        room: &mut RoomWait,
        refused: &SendError,
        now: Nanos,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> AfterRefusal {
        room.refused = now;
        let next = room.wait.next(now);
        if next == Next::TimedOut {
            return AfterRefusal::GiveUp;
        }
        self.ring_if_held(executor);
        let progress = self.turn(1, || false, sink, executor);
        if progress.is_some_and(|progress| progress.moved != 0) {
            room.wait.something_came(now);
            return AfterRefusal::Retry;
        }
        if refused.ends_by_messages() && next == Next::Poll {
            room.yields.after_poll(progress.is_some(), &self.wanted, now, executor);
            pronto_sync::hint::spin_loop();
            return AfterRefusal::Retry;
        }
        room.wait.sleeps();
        let has_slept = match (refused, next) {
            (SendError::NoCredit { class }, Next::Sleep { until }) => {
                let credits = &self.credits[class.index()];
                self.sleep_for(|| credits.available() != 0, until, sink, executor)
            }
            _ => false,
        };
        if has_slept { AfterRefusal::Retry } else { AfterRefusal::Pause }
    }

    /// Ends a wait for which there was room.
    pub fn room_came(&self, mut room: RoomWait, executor: &impl Executor) {
        let now = match room.wait.slept() {
            // If the sender polled, room became available about when it was last refused.
            Slept::No => room.refused,
            Slept::Yes => executor.now(),
        };
        room.wait.ended(now, &self.room_waits);
    }
}
