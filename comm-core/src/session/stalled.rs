//! What cannot leave at once: submissions of threads without the engine, and messages that wait for room, in their order.

use pronto_wire::{Class, Kind};

use super::Session;
use super::arming::Armed;
use super::call::Expects;
use super::end::{End, Executed};
use super::engine::Engine;
use super::inbound::{KeptAnswer, SeenState};
use super::one_sided::CLASS;
use super::outbound::{KeptRequest, OpenCall};
use super::outgoing::{Outgoing, Submitted};
use crate::executor::Executor;
use crate::fabric::{QueuePair, Status};
use crate::note::{Note, What};

impl<Q: QueuePair> Engine<Q> {
    /// Everything that others left to do while the engine was held: messages, credits that are due, doorbells.
    pub(super) fn drain(&mut self, session: &Session<Q>, executor: &impl Executor) {
        if self.link.is_some() {
            for class in Class::ALL {
                if !self.stalled[class.index()].is_empty() {
                    self.retry_stalled(class, session, executor);
                }
            }
        }
        if session.work_is_left() {
            self.take_submissions(session, executor);
            session.wanted.credit_is_given();
        }
        self.give_credit(session);
        self.ring_doorbells(session);
    }

    /// Messages that senders left while the engine was held. They come before anything that is posted from now on: a
    /// sender's own earlier message may be among them.
    pub(super) fn take_submissions(&mut self, session: &Session<Q>, executor: &impl Executor) {
        while let Some(submitted) = self.submissions.pop() {
            self.post_any(submitted, session, executor);
        }
    }

    /// Posts a message or operation, or keeps it for when there is room.
    pub(super) fn post_any(&mut self, submitted: Submitted, session: &Session<Q>, executor: &impl Executor) {
        match submitted {
            Submitted::Message(outgoing) => self.post(outgoing, session, executor),
            Submitted::OneSided(_) => self.post_or_stall(CLASS, submitted, session, executor),
            Submitted::Move => drop(self.move_rendezvous(session, executor)),
        }
    }

    /// Posts a message, or keeps it for when there is room.
    pub(super) fn post(&mut self, outgoing: Outgoing, session: &Session<Q>, executor: &impl Executor) {
        let of_this_link = outgoing.link == self.generation && self.link.is_some() && self.session.is_some();
        if of_this_link && !matches!(outgoing.kind, Kind::Cancel { .. }) {
            self.post_or_stall(outgoing.class, Submitted::Message(outgoing), session, executor);
        } else if let Some(outgoing) = self.admit(outgoing, session, executor) {
            self.post_or_stall(outgoing.class, Submitted::Message(outgoing), session, executor);
        }
    }

    pub(super) fn post_or_stall(
        &mut self,
        class: Class,
        submitted: Submitted,
        session: &Session<Q>,
        executor: &impl Executor,
    ) {
        if !self.stalled[class.index()].is_empty() {
            self.stall(class, submitted, session, executor);
        } else if let Err(submitted) = self.try_any(submitted, session, executor) {
            session.stats.stalled.add_alone(1);
            self.stall(class, submitted, session, executor);
        }
    }

    /// Something waits for a completion, or for a credit that may come with an answer: if the server sleeps, it must hear
    /// of those too. What came before that is taken in here.
    fn stall(&mut self, class: Class, submitted: Submitted, session: &Session<Q>, executor: &impl Executor) {
        self.stalled[class.index()].push_back(submitted);
        executor.note(Note::of_peer(What::Stalls, session.peer));
        if self.link.is_none() || session.arming.armed() != Armed::Solicited {
            return;
        }
        self.arm(Armed::All, session);
        for class in Class::ALL {
            while let Some(completion) = self.lane(class).qp.poll_send() {
                let known = self.completed(completion, session, executor);
                self.lane(class).failed |= !known;
            }
            self.retry_stalled(class, session, executor);
        }
    }

    fn try_any(
        &mut self,
        submitted: Submitted,
        session: &Session<Q>,
        executor: &impl Executor,
    ) -> Result<(), Submitted> {
        match submitted {
            Submitted::Message(outgoing) => self.try_post(outgoing, session).map_err(Submitted::Message),
            Submitted::OneSided(work) => self.try_access(work, session, executor),
            Submitted::Move => Ok(()),
        }
    }

    /// Posts what had no room, or no credit on this link, before.
    fn retry_stalled(&mut self, class: Class, session: &Session<Q>, executor: &impl Executor) {
        while let Some(mut submitted) = self.stalled[class.index()].pop_front() {
            if self.has_ended_meanwhile(&submitted, session) {
                continue;
            }
            if let Submitted::Message(outgoing) = &mut submitted
                && is_new(outgoing)
                && outgoing.link != self.generation
            {
                let Some(credit) = session.credits[class.index()].take_in_engine() else {
                    self.stalled[class.index()].push_front(submitted);
                    return;
                };
                outgoing.link = credit.link;
            }
            if let Err(submitted) = self.try_any(submitted, session, executor) {
                self.stalled[class.index()].push_front(submitted);
                return;
            }
        }
    }

    /// Whether the message is a request to be sent again that need not be: its call was answered, or its caller had its
    /// deadline, while it waited for that. Its credit, if it has one, is there for the next one.
    fn has_ended_meanwhile(&mut self, submitted: &Submitted, session: &Session<Q>) -> bool {
        let Submitted::Message(outgoing) = submitted else { return false };
        let Kind::Request { call, resent: true, .. } = outgoing.kind else { return false };
        let Some(open) = self.open.get_mut(usize::from(call.slot)) else { return false };
        let is_open = open.live && open.generation == call.generation;
        if is_open && !open.ended {
            return false;
        }
        if is_open {
            open.live = false;
            session.calls.settle(call);
        }
        if outgoing.link == self.generation {
            session.credits[outgoing.class.index()].give(1);
        }
        true
    }

    /// Whether the present link may carry the message; ends it if not.
    pub(super) fn admit(
        &mut self,
        mut outgoing: Outgoing,
        session: &Session<Q>,
        executor: &impl Executor,
    ) -> Option<Outgoing> {
        let same_session = outgoing.link.wrapping_sub(self.session_start) < 1 << 15 && self.session.is_some();
        match outgoing.kind {
            Kind::Cancel { call } => {
                let open = self.open.get_mut(usize::from(call.slot))?;
                if open.live && open.generation == call.generation {
                    open.cancel_due = Some(outgoing.class);
                }
                self.send_cancels(session);
                None
            }
            Kind::Reply { .. } | Kind::Failure { .. } if same_session && self.link.is_some() => {
                Some(outgoing)
            }
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                if same_session && let Some(seen) = self.seen.get_mut(usize::from(call.slot)) {
                    // The link is lost for now: the answer waits in the reply cache for the request to come again.
                    let Outgoing { class, kind, payload, .. } = outgoing;
                    if seen.generation == call.generation {
                        seen.state =
                            SeenState::Answered(Some(KeptAnswer { class, kind, payload, posted_on: None }));
                    }
                } else {
                    session.stats.replies_lost.add_alone(1);
                }
                None
            }
            Kind::Request { .. } if same_session && self.link.is_none() => {
                // The link is lost for now: the next one carries it, as those that were under way.
                self.keep_request(outgoing);
                None
            }
            Kind::Request { call, .. } if !same_session => {
                session.calls.end(call, End::PeerDown { executed: Executed::No }, Expects::Nothing, executor);
                None
            }
            Kind::Notification { .. } if self.link.is_none() || !same_session => {
                session.stats.notifications_lost.add_alone(1);
                self.end_send(outgoing.completes, Status::Flushed, session, executor);
                None
            }
            Kind::Request { .. } | Kind::Notification { .. } if outgoing.link != self.generation => {
                // Its credit went with an earlier link of the session: it takes one of this link, or waits for one.
                match session.credits[outgoing.class.index()].take_in_engine() {
                    Some(credit) => outgoing.link = credit.link,
                    None => {
                        self.stall(outgoing.class, Submitted::Message(outgoing), session, executor);
                        return None;
                    }
                }
                Some(outgoing)
            }
            _ => Some(outgoing),
        }
    }

    /// Notes a call whose request waits for the session's next link.
    pub(super) fn keep_request(&mut self, outgoing: Outgoing) {
        let Outgoing { class, kind, payload, timeout, .. } = outgoing;
        let Kind::Request { call, .. } = kind else { return };
        if let Some(open) = self.open.at(call.slot) {
            let kept = Some(KeptRequest { class, kind, payload: Some(payload) });
            let generation = call.generation;
            *open = OpenCall { generation, live: true, timeout, kept, ..OpenCall::default() };
        }
    }
}

/// Messages that take a request credit.
pub(super) const fn is_new(outgoing: &Outgoing) -> bool {
    matches!(outgoing.kind, Kind::Request { .. } | Kind::Notification { .. })
}
