//! Waiting for room to send: a sender that was refused polls for what the peer gives back, or sleeps until it comes.

use super::Session;
use super::entering::Patience;
use super::sleep::RESCUE;
use crate::executor::{Asked, Executor};
use crate::fabric::QueuePair;
use crate::session::inbound::Sink;
use crate::session::learned::{Decision, Sleep};
use crate::session::refusal::Refused;
use crate::time::Nanos;

/// What a sender knows of its wait from one attempt to the next.
#[derive(Debug)]
pub struct RoomWait {
    decision: Decision,
    begun: Nanos,
    /// Since when nothing has come.
    in_vain_since: Nanos,
    /// When it was refused last.
    refused: Nanos,
    sleep: Sleep,
    patience: Patience,
}

impl<Q: QueuePair> Session<Q> {
    /// A wait that begins now. How long room takes to come is learned apart from how long answers take.
    pub fn begin_room_wait(&self, asked: Asked, now: Nanos, executor: &impl Executor) -> RoomWait {
        RoomWait {
            decision: self.decide_by(&self.room, asked, executor),
            begun: now,
            in_vain_since: now,
            refused: now,
            sleep: Sleep::Awake,
            patience: Patience::default(),
        }
    }

    /// What is done between two attempts, the last of which was refused `now`: takes in what has come, else polls on, else sleeps, at most
    /// until `deadline`. False where room does not come with a message, or another thread sees to those: the caller is to pause.
    pub fn wait_for_room(
        &self,
        wait: &mut RoomWait,
        refused: &Refused,
        [now, deadline]: [Nanos; 2],
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> bool {
        wait.refused = now;
        self.ring_if_held(executor);
        let progress = self.turn(1, || false, sink, executor);
        if progress.is_some_and(|progress| progress.moved != 0) {
            wait.in_vain_since = now;
            return true;
        }
        if refused.ends_by_messages() && now.since(wait.in_vain_since) < wait.decision.polls_for() {
            self.be_patient(&mut wait.patience, progress.is_some(), now, executor);
            pronto_sync::hint::spin_loop();
            return true;
        }
        wait.sleep = Sleep::Slept;
        let Refused::NoCredit { class } = refused else { return false };
        let credits = &self.credits[class.index()];
        self.sleep_for(|| credits.available() != 0, deadline.min(now + RESCUE), sink, executor)
    }

    /// There was room.
    pub fn room_came(&self, wait: &RoomWait, executor: &impl Executor) {
        let now = match wait.sleep {
            // What was polled for came about when it was refused last.
            Sleep::Awake => wait.refused,
            Sleep::Slept => executor.now(),
        };
        self.room.ended(wait.decision, now.since(wait.begun), wait.sleep);
    }
}
