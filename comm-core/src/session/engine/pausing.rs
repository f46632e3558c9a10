//! Pauses: asking for the end of an idle link, and answering the peer.

use pronto_sync::atomic::Ordering;
use pronto_wire::{Class, Kind};

use super::Engine;
use crate::executor::Executor;
use crate::fabric::{FabricError, PeerFault, QueuePair};
use crate::session::pausing::{Pausing, PeersQuestion, Usage};
use crate::session::phase::Phase;
use crate::session::shared::{Shared, Turn};
use crate::time::Nanos;

/// Time after which an answer is tried again for which there was no room.
const ANSWER_RETRY: Nanos = Nanos::from_millis(4);

/// The peer's answer to a question for a pause.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Accepted,
    Declined,
}

impl<Q: QueuePair> Engine<Q> {
    /// Called at each tick while there is a link. Asks for its end if it was idle for long enough.
    pub(in crate::session) fn pause_if_idle(&mut self, shared: &Shared<Q::Lease>, now: Nanos) {
        self.answer_peers_question(shared);
        let Some(link) = self.phase.link_mut() else { return };
        if link.pausing == Pausing::Declines {
            self.decline(shared);
            return;
        }
        if !link.pauses || !shared.demand.is_on_demand() || link.pausing != Pausing::No {
            return;
        }
        let usage = Usage {
            received: [0, 1].map(|class: usize| link.connections[class].requests_received),
            requests: self.calls.requests_posted(),
            notifications: [0, 1].map(|class: usize| link.connections[class].notified),
        };
        if usage != link.usage {
            link.usage = usage;
            link.last_used = now;
        }
        if now.since(link.last_used) >= self.limits.pause_after && now >= link.asks_again {
            link.asks_again = now + self.limits.heartbeat;
            if self.stop_senders(shared) && self.say(Kind::Pause, shared) {
                self.link_pauses(Pausing::Asked { at: now, peers: PeersQuestion::None });
            } else {
                self.resume_senders(shared);
            }
        }
    }

    /// Returns the time when this side may ask for a pause if no message passes before.
    pub(in crate::session) fn next_pause(&self, shared: &Shared<Q::Lease>) -> Nanos {
        match self.phase.link() {
            Some(link) if link.pauses && link.pausing == Pausing::No && shared.demand.is_on_demand() => {
                (link.last_used + self.limits.pause_after).max(link.asks_again)
            }
            Some(link) if link.pausing.owes_answer() => self.last_tick + ANSWER_RETRY,
            _ => Nanos::NEVER,
        }
    }

    /// Processes the peer's answer. Fails with [`FabricError::Lost`] to end the link.
    pub(super) fn pause_answered(
        &mut self,
        class: Class,
        answer: Answer,
        shared: &Shared<Q::Lease>,
    ) -> Result<(), FabricError> {
        if class != Class::Control || !self.is_asking_for_pause() {
            return Err(PeerFault::Unasked.into());
        }
        match answer {
            Answer::Accepted => {
                self.link_pauses(Pausing::Over);
                Err(FabricError::Lost)
            }
            Answer::Declined => {
                self.resume_senders(shared);
                if let Some(link) = self.phase.link_mut() {
                    link.asks_again = link.asks_again.max(self.last_tick + self.limits.pause_after);
                }
                Ok(())
            }
        }
    }

    /// Processes the peer's question.
    pub(super) fn pause_asked(
        &mut self,
        class: Class,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) -> Result<(), FabricError> {
        let link = self.phase.link().expect("messages are polled from a link");
        match link.pausing {
            _ if class != Class::Control || !link.pauses => Err(PeerFault::Unasked.into()),
            // This side has nothing open, or it would not have asked.
            Pausing::Asked { at, peers: PeersQuestion::None } => {
                self.link_pauses(Pausing::Asked { at, peers: PeersQuestion::Due });
                self.answer_peers_question(turn.shared);
                Ok(())
            }
            Pausing::No => {
                // This side may have seen the last message later than the peer. If both asked only after their whole time, and declined
                // before it, they could take turns for ever.
                let idle = turn.executor.now().since(link.last_used);
                let agrees = turn.shared.demand.is_on_demand()
                    && idle.0 >= self.limits.pause_after.0 / 2
                    && self.stop_senders(turn.shared);
                if agrees && self.say(Kind::PauseAccepted, turn.shared) {
                    self.link_pauses(Pausing::Accepted { at: turn.executor.now() });
                } else {
                    self.decline(turn.shared);
                }
                Ok(())
            }
            Pausing::Asked { .. } | Pausing::Declines | Pausing::Accepted { .. } | Pausing::Over => {
                Err(PeerFault::Unasked.into())
            }
        }
    }

    /// Accepts the question of a peer that has asked at the same time as this side, if there is room for the answer.
    fn answer_peers_question(&mut self, shared: &Shared<Q::Lease>) {
        if let Some(Pausing::Asked { at, peers: PeersQuestion::Due }) =
            self.phase.link().map(|link| link.pausing)
            && self.say(Kind::PauseAccepted, shared)
        {
            self.link_pauses(Pausing::Asked { at, peers: PeersQuestion::Accepted });
        }
    }

    /// Returns whether this side has asked for a pause and has no answer yet.
    pub(in crate::session) fn is_asking_for_pause(&self) -> bool {
        self.phase.link().is_some_and(|link| matches!(link.pausing, Pausing::Asked { .. }))
    }

    /// Returns whether a pause has taken too long: the peer does not answer, or does not end the link.
    pub(in crate::session) fn pause_is_overdue(&self, now: Nanos) -> bool {
        self.phase.link().is_some_and(|link| match link.pausing {
            Pausing::Asked { at, .. } | Pausing::Accepted { at } => now.since(at) >= self.limits.liveness,
            Pausing::No | Pausing::Declines | Pausing::Over => false,
        })
    }

    /// Starts the time in which a paused session must get another link. Returns whether it was paused.
    pub(in crate::session) fn end_pause(&mut self, now: Nanos) -> bool {
        match &mut self.phase {
            Phase::Suspended(lost) => {
                core::mem::take(&mut lost.is_paused) && {
                    lost.since = now;
                    true
                }
            }
            Phase::Down | Phase::Linked(_) => false,
        }
    }

    /// Answers the peer that the link stays, now or at a later tick.
    fn decline(&mut self, shared: &Shared<Q::Lease>) {
        self.resume_senders(shared);
        if !self.say(Kind::PauseDeclined, shared) {
            self.link_pauses(Pausing::Declines);
        }
    }

    /// Takes all credits away if no message of this side is in flight and none is about to be sent. Returns whether it did.
    fn stop_senders(&mut self, shared: &Shared<Q::Lease>) -> bool {
        let Some(link) = self.phase.link() else { return false };
        let is_open = |class: Class| {
            let connection = &link.connections[class.index()];
            !connection.notifications.is_empty()
                || connection.in_hand(shared.returned[class.index()].count()) != 0
        };
        let has_nothing_open = shared.calls.in_use() == 0
            && self.calls.open().next().is_none()
            && self.work.in_flight() == 0
            && self.backlog.is_clear()
            && !shared.work_is_left()
            && !shared.wanted.wants_room()
            && link.grants == 0
            && !link.peer_draining
            && !Class::ALL.into_iter().any(is_open);
        if !has_nothing_open {
            return false;
        }
        // A message that is refused from here on needs the next link, unless the peer declines.
        shared.demand.is_met();
        let granted = Class::ALL.map(|class| link.connections[class.index()].peer_granted);
        Class::ALL.into_iter().all(|class| {
            shared.may_ask[class.index()].store(false, Ordering::Relaxed);
            shared.credits[class.index()].close_if_unused(granted[class.index()])
        })
    }

    /// Gives the credits back that [`stop_senders`](Self::stop_senders) took away.
    fn resume_senders(&mut self, shared: &Shared<Q::Lease>) {
        let generation = self.generation;
        let Some(link) = self.phase.link_mut() else { return };
        link.pausing = Pausing::No;
        for class in Class::ALL {
            let connection = &link.connections[class.index()];
            shared.may_ask[class.index()].store(connection.may_get_more(), Ordering::Relaxed);
            let credits = &shared.credits[class.index()];
            if credits.is_closed() {
                credits.reset(generation, connection.peer_granted);
            }
        }
        shared.demand.is_met();
    }

    fn say(&mut self, kind: Kind, shared: &Shared<Q::Lease>) -> bool {
        let said = self.control(Class::Control, kind, shared);
        if said {
            self.ring_pending(Class::Control, shared);
        }
        said
    }

    fn link_pauses(&mut self, pausing: Pausing) {
        self.phase.link_mut().expect("the link still exists").pausing = pausing;
    }
}
