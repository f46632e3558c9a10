//! What cannot leave immediately: submissions of threads without the engine, and messages that wait for room, in their order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pronto_wire::{CallId, Class, Kind};

use super::Session;
use super::arming::Armed;
use super::calls::{Before, Cause, Ended, Report, Request, TimeLimit};
use super::credit::Credit;
use super::end::{End, Executed};
use super::engine::Engine;
use super::inbound::{KeptAnswer, SeenState};
use super::one_sided::{CLASS, OneSided};
use super::outgoing::{Outgoing, Submitted};
use crate::executor::Executor;
use crate::fabric::{QueuePair, Status};
use crate::note::{Note, What};
use crate::time::Nanos;

/// Messages that wait for room in the fabric, for a credit or for the session's next link, oldest first. Bulk messages never
/// hold control messages up.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    classes: [VecDeque<Entry>; 2],
}

/// One message of the backlog.
#[derive(Debug)]
pub(super) enum Entry {
    /// A call's request, which the table of calls holds: the call is `Waiting`.
    Call(CallId),
    /// Any other message.
    Message(Outgoing),
    /// A one-sided operation.
    OneSided(OneSided),
}

impl Backlog {
    #[inline(always)]
    pub(super) fn is_empty(&self, class: Class) -> bool {
        self.classes[class.index()].is_empty()
    }

    /// Whether nothing waits in either class.
    #[inline(always)]
    pub(super) fn is_clear(&self) -> bool {
        let [control, bulk] = &self.classes;
        control.is_empty() && bulk.is_empty()
    }

    fn push_back(&mut self, class: Class, entry: Entry) {
        self.classes[class.index()].push_back(entry);
    }

    fn push_front(&mut self, class: Class, entry: Entry) {
        self.classes[class.index()].push_front(entry);
    }

    fn pop_front(&mut self, class: Class) -> Option<Entry> {
        self.classes[class.index()].pop_front()
    }

    /// Removes a call's entry. Returns whether there was one.
    fn remove(&mut self, call: CallId) -> bool {
        let is_it = |entry: &Entry| matches!(entry, Entry::Call(other) if *other == call);
        self.classes.iter_mut().any(|class| {
            let at = class.iter().position(is_it);
            at.and_then(|at| class.remove(at)).is_some()
        })
    }

    /// Puts calls in front of everything that waits already, in their order.
    fn put_first(&mut self, class: Class, calls: impl DoubleEndedIterator<Item = CallId>) {
        for call in calls.rev() {
            self.push_front(class, Entry::Call(call));
        }
    }

    /// Takes the responses out; everything else keeps its order.
    fn take_responses(&mut self) -> Vec<Outgoing> {
        let mut responses = Vec::new();
        for class in &mut self.classes {
            for entry in core::mem::take(class) {
                match entry {
                    Entry::Message(outgoing) if is_response(&outgoing.kind) => responses.push(outgoing),
                    entry => class.push_back(entry),
                }
            }
        }
        responses
    }

    /// Takes everything out.
    fn take_all(&mut self) -> impl Iterator<Item = Entry> + use<> {
        let [control, bulk] = core::mem::take(&mut self.classes);
        control.into_iter().chain(bulk)
    }

    /// Gives memory back that a busier session needed.
    pub(super) fn give_back(&mut self) {
        self.classes.iter_mut().for_each(VecDeque::shrink_to_fit);
    }
}

impl<Q: QueuePair> Engine<Q> {
    /// Everything that others left to do while the engine was held: messages, credits that are due, doorbells.
    pub(super) fn drain(&mut self, session: &Session<Q>, executor: &impl Executor) {
        if self.phase.is_linked() {
            for class in Class::ALL {
                if !self.backlog.is_empty(class) {
                    self.retry_backlog(class, session, executor);
                }
            }
        }
        if session.work_is_left() {
            // Before the submissions are taken: a response that is added afterwards sets the flag again.
            session.wanted.credit_is_given();
            self.take_submissions(session, executor);
        }
        self.give_credit(session);
        self.ring_doorbells(session);
    }

    /// Takes in the messages that senders left while the engine was held. They come before anything that is posted from now
    /// on: a sender's own earlier message may be among them.
    pub(super) fn take_submissions(&mut self, session: &Session<Q>, executor: &impl Executor) {
        while let Some(submitted) = self.submissions.pop() {
            self.post_any(submitted, session, executor);
        }
        while let Some(response) = session.response_overflow.take() {
            self.post(response, session, executor);
        }
    }

    /// Posts a message or operation, or keeps it for when there is room.
    pub(super) fn post_any(&mut self, submitted: Submitted, session: &Session<Q>, executor: &impl Executor) {
        match submitted {
            Submitted::Message(outgoing) => self.post(outgoing, session, executor),
            Submitted::OneSided(work) => {
                let refused = match self.backlog.is_empty(CLASS) {
                    true => self.try_access(work, session, executor),
                    false => Err(work),
                };
                if let Err(work) = refused {
                    self.enter_backlog(CLASS, Entry::OneSided(work), session, executor);
                }
            }
            Submitted::Move => drop(self.move_rendezvous(session, executor)),
        }
    }

    /// Posts a message, or keeps it for when there is room, or ends it.
    #[inline]
    pub(super) fn post(&mut self, outgoing: Outgoing, session: &Session<Q>, executor: &impl Executor) {
        if is_new(&outgoing) && outgoing.link == self.generation && self.phase.is_linked() {
            self.post_or_keep(outgoing, session, executor);
        } else {
            self.post_by_kind(outgoing, session, executor);
        }
    }

    /// Posts a message that the present link may carry, or keeps it behind those that wait already.
    #[inline]
    fn post_or_keep(&mut self, outgoing: Outgoing, session: &Session<Q>, executor: &impl Executor) {
        let refused = match self.backlog.is_empty(outgoing.class) {
            true => match self.try_post(outgoing, session) {
                Ok(()) => return,
                Err(refused) => refused,
            },
            false => outgoing,
        };
        session.stats.stalled.add_alone(1);
        self.keep(refused, session, executor);
    }

    /// Puts a message at the end of the backlog.
    #[cold]
    fn keep(&mut self, outgoing: Outgoing, session: &Session<Q>, executor: &impl Executor) {
        let class = outgoing.class;
        let entry = match into_request(outgoing) {
            Ok((call, request, limit)) => {
                self.calls.wait(call, request, Before::NeverPosted, limit);
                Entry::Call(call)
            }
            Err(outgoing) => Entry::Message(outgoing),
        };
        self.enter_backlog(class, entry, session, executor);
    }

    #[cold]
    #[inline(never)]
    fn post_by_kind(&mut self, outgoing: Outgoing, session: &Session<Q>, executor: &impl Executor) {
        match outgoing.kind {
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                self.post_response(call, outgoing, session, executor);
            }
            Kind::Cancel { call } => {
                self.end_call(call, Cause::Left(self.phase.response()), session, executor);
                self.send_cancels(session);
            }
            Kind::Request { .. } if !self.is_of_session(&outgoing) => {
                // The session that it was meant for ended before the engine heard of it.
                let Ok((call, request, limit)) = into_request(outgoing) else { return };
                if !session.calls.is_unended(call) {
                    // That session failed, which ended every call.
                    return;
                }
                self.calls.wait(call, request, Before::NeverPosted, limit);
                self.end_call(call, Cause::SessionOver, session, executor);
            }
            Kind::Notification { .. } if !self.phase.is_linked() || !self.is_of_session(&outgoing) => {
                session.stats.notifications_lost.add_alone(1);
                // A session that failed has ended every slot.
                let completes = outgoing.completes.filter(|slot| session.calls.is_unended(*slot));
                self.end_send(completes, Status::Flushed, session, executor);
            }
            Kind::Request { .. } | Kind::Notification { .. } => {
                // Its credit went with an earlier link of the session: it takes one of this link, or waits for one.
                let class = outgoing.class;
                self.keep(outgoing, session, executor);
                if self.phase.is_linked() {
                    self.retry_backlog(class, session, executor);
                }
            }
            Kind::Credit | Kind::Heartbeat | Kind::Goodbye => self.post_or_keep(outgoing, session, executor),
        }
    }

    /// Whether a message belongs to the present session: its link is one of the session's.
    fn is_of_session(&self, outgoing: &Outgoing) -> bool {
        outgoing.link.wrapping_sub(self.session_start) < 1 << 15 && !self.phase.is_down()
    }

    /// The response to a request of the peer. It goes out on a link only if its request came on that link: the peer reserved a
    /// place for it there, and expects it. Else it waits in the reply cache until the request comes again.
    pub(super) fn post_response(
        &mut self,
        call: CallId,
        outgoing: Outgoing,
        session: &Session<Q>,
        executor: &impl Executor,
    ) {
        let of_session = self.is_of_session(&outgoing);
        let present = self.generation;
        let seen = self.seen.get_mut(usize::from(call.slot));
        let Some(seen) = seen.filter(|seen| of_session && seen.generation == call.generation) else {
            session.stats.replies_lost.add_alone(1);
            return;
        };
        match seen.state {
            SeenState::Executing { link } if link == present && self.phase.is_linked() => {
                self.post_or_keep(outgoing, session, executor);
            }
            SeenState::Executing { .. } => {
                let Outgoing { class, kind, payload, .. } = outgoing;
                seen.state = SeenState::Answered(Some(KeptAnswer { class, kind, payload, posted_on: None }));
            }
            // There is one response to a request, and it was given before.
            SeenState::Never | SeenState::Answered(_) => session.stats.replies_lost.add_alone(1),
        }
    }

    /// Something waits for a completion, or for a credit that may come with a response: if the server sleeps, it must hear
    /// of those too. What came before that is taken in here.
    fn enter_backlog(&mut self, class: Class, entry: Entry, session: &Session<Q>, executor: &impl Executor) {
        self.backlog.push_back(class, entry);
        executor.note(Note::of_peer(What::Stalls, session.peer));
        if !self.phase.is_linked() || session.arming.armed() != Armed::Solicited {
            return;
        }
        self.arm(Armed::All, session);
        for class in Class::ALL {
            while let Some(completion) = self.lane(class).qp.poll_send() {
                let known = self.completed(completion, session, executor);
                self.lane(class).failed |= !known;
            }
            self.retry_backlog(class, session, executor);
        }
    }

    /// Posts what had no room, or no credit on this link, before.
    fn retry_backlog(&mut self, class: Class, session: &Session<Q>, executor: &impl Executor) {
        while let Some(entry) = self.backlog.pop_front(class) {
            if let Err(entry) = self.try_entry(entry, session, executor) {
                self.backlog.push_front(class, entry);
                return;
            }
        }
    }

    fn try_entry(
        &mut self,
        entry: Entry,
        session: &Session<Q>,
        executor: &impl Executor,
    ) -> Result<(), Entry> {
        match entry {
            Entry::Call(call) => {
                if self.try_waiting(call, session, executor) {
                    Ok(())
                } else {
                    Err(Entry::Call(call))
                }
            }
            Entry::Message(mut outgoing) => {
                if matches!(outgoing.kind, Kind::Notification { .. }) {
                    match self.link_with_credit(outgoing.link, outgoing.class, session) {
                        Some(link) => outgoing.link = link,
                        None => return Err(Entry::Message(outgoing)),
                    }
                }
                self.try_post(outgoing, session).map_err(Entry::Message)
            }
            Entry::OneSided(work) => self.try_access(work, session, executor).map_err(Entry::OneSided),
        }
    }

    /// Posts a waiting request. Returns whether it is no longer waiting.
    fn try_waiting(&mut self, call: CallId, session: &Session<Q>, executor: &impl Executor) -> bool {
        let Some(request) = self.calls.waiting_mut(call) else {
            debug_assert!(false, "an entry of the backlog names a waiting call");
            return true;
        };
        let (held, class) = (request.link, request.class);
        let Some(link) = self.link_with_credit(held, class, session) else { return false };
        let Some((request, before, limit)) = self.calls.take_waiting(call) else { return true };
        let timeout = limit.remaining(executor.now());
        let is_overdue = timeout == Nanos::ZERO && before != Before::GivenUp;
        let composed = request.composed;
        let outgoing = into_outgoing(call, Request { link, ..request }, before, timeout);
        let posted = if is_overdue { Err(outgoing) } else { self.try_post(outgoing, session) };
        let Err(back) = posted else {
            if before == Before::GivenUp {
                self.end_call(call, Cause::Left(self.phase.response()), session, executor);
            }
            return true;
        };
        let Ok((_, request, _)) = into_request(back) else { return true };
        self.calls.wait(call, Request { composed, ..request }, before, limit);
        if is_overdue {
            self.end_call(call, Cause::Deadline(self.phase.response()), session, executor);
        }
        !self.calls.is_waiting(call)
    }

    /// The present link, if the message has a credit of it, or gets one now.
    fn link_with_credit(&mut self, held: u16, class: Class, session: &Session<Q>) -> Option<u16> {
        if held == self.generation {
            return Some(held);
        }
        session.credits[class.index()].take_in_engine().map(|credit| credit.link)
    }

    /// Ends a call for a cause that is not the peer's response, if the cause concerns it.
    pub(super) fn end_call(
        &mut self,
        call: CallId,
        cause: Cause,
        session: &Session<Q>,
        executor: &impl Executor,
    ) {
        let Some(Ended { report, withdrawn }) = self.calls.end(call, cause) else { return };
        if let Some(request) = withdrawn {
            self.backlog.remove(call);
            session.credits[request.class.index()].put_back(Credit { link: request.link });
        }
        let end = |executed| match cause {
            Cause::Deadline(_) => End::Deadline { executed },
            _ => End::PeerDown { executed },
        };
        self.report(call, report, end, session, executor);
    }

    /// Tells the call's slot how it ended. Returns whether a waiter takes the end.
    #[inline]
    pub(super) fn report(
        &self,
        call: CallId,
        report: Report,
        end: impl FnOnce(Executed) -> End<Q::Lease>,
        session: &Session<Q>,
        executor: &impl Executor,
    ) -> bool {
        match report {
            Report::End(executed, expects) => session.calls.end(call, end(executed), expects, executor),
            Report::Settle => {
                session.calls.settle(call);
                false
            }
            Report::Nothing => false,
        }
    }

    /// The link is lost, and the session waits for another one. Responses that were outstanding will not come, responses that
    /// wait to be posted go to the reply cache.
    pub(super) fn suspend_calls(&mut self, session: &Session<Q>, executor: &impl Executor) {
        for call in self.calls.open() {
            self.end_call(call, Cause::LinkLost, session, executor);
        }
        for response in self.backlog.take_responses() {
            self.post(response, session, executor);
        }
    }

    /// Puts every unanswered request in front of the backlog, in the order in which they were first posted: they are posted
    /// again before what has waited since, and the callee drops those that it saw. There may be more of them than credits, for
    /// a request gives its credit back before its response is there: each takes one of this link, or waits for one.
    pub(super) fn resend_unanswered(&mut self, session: &Session<Q>, executor: &impl Executor) {
        let earlier = self.generation.wrapping_sub(1);
        let mut due: [VecDeque<CallId>; 2] = Default::default();
        for (call, request, limit) in self.calls.take_unanswered() {
            session.stats.requests_resent.add_alone(1);
            due[request.class.index()].push_back(call);
            self.calls.wait(
                call,
                Request { composed: earlier, link: earlier, ..request },
                Before::Posted,
                limit,
            );
        }
        for (class, due) in Class::ALL.into_iter().zip(due) {
            self.backlog.put_first(class, due.into_iter());
        }
        // Nobody kept these requests, so nothing can repeat them.
        for call in self.calls.open() {
            if self.calls.is_posted(call) {
                self.end_call(call, Cause::SessionOver, session, executor);
            }
        }
    }

    /// The session is over, and with it every call and every message that waits.
    pub(super) fn end_calls(&mut self, session: &Session<Q>, executor: &impl Executor) {
        let entries = self.backlog.take_all();
        for call in self.calls.open() {
            self.end_call(call, Cause::SessionOver, session, executor);
        }
        for entry in entries {
            match entry {
                Entry::Message(outgoing) => self.post(outgoing, session, executor),
                Entry::OneSided(work) => drop(self.try_access(work, session, executor)),
                // Ended above, with all other calls.
                Entry::Call(call) => debug_assert!(!self.calls.is_open(call), "a call ends with its session"),
            }
        }
        debug_assert!(self.backlog.is_clear(), "nothing waits without a session");
    }
}

/// Whether a message is the response to a request of the peer.
const fn is_response(kind: &Kind) -> bool {
    matches!(kind, Kind::Reply { .. } | Kind::Failure { .. })
}

/// Messages that take a request credit.
pub(super) const fn is_new(outgoing: &Outgoing) -> bool {
    matches!(outgoing.kind, Kind::Request { .. } | Kind::Notification { .. })
}

/// A request on its way out, as the table of calls holds it. Gives any other message back.
fn into_request(outgoing: Outgoing) -> Result<(CallId, Request, TimeLimit), Outgoing> {
    let Kind::Request { call, type_id, service, .. } = outgoing.kind else { return Err(outgoing) };
    let Outgoing { class, link, payload, timeout, .. } = outgoing;
    Ok((call, Request { class, composed: link, link, type_id, service, payload }, TimeLimit::new(timeout)))
}

fn into_outgoing(call: CallId, request: Request, before: Before, timeout: Nanos) -> Outgoing {
    let Request { class, composed, link, type_id, service, payload } = request;
    // Grants that it names have ended with the link for which it was composed, as those of a repeated request.
    let resent = before != Before::NeverPosted || composed != link;
    let deadline_us = super::timeout_us(timeout);
    let kind = Kind::Request { call, type_id, service, resent, deadline_us };
    Outgoing { class, link, kind, payload, completes: None, timeout }
}
