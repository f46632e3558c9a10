//! Messages that cannot be posted immediately: submissions of threads without the engine, and messages that wait for room or a credit.

use alloc::collections::VecDeque;

use pronto_wire::{CallId, Class, Kind};

use super::Engine;
use crate::executor::Executor;
use crate::fabric::Armed;
use crate::fabric::{QueuePair, Status};
use crate::note::{Note, What};
use crate::session::backlog::{Entry, is_new};
use crate::session::calls::{Before, Cause, Ended, Report, Request, TimeLimit};
use crate::session::credit::Credit;
use crate::session::end::{End, Executed};
use crate::session::inbound::{CachedResponse, LastCallState};
use crate::session::one_sided::CLASS;
use crate::session::outgoing::{Carrier, Outgoing, Submitted};
use crate::session::shared::{Shared, Turn};
use crate::session::spec::timeout_us;
use crate::time::Nanos;

impl<Q: QueuePair> Engine<Q> {
    /// Processes all work that other threads left for the holder of the engine: messages, credits to return, doorbells.
    pub(in crate::session) fn drain(&mut self, turn: Turn<'_, Q::Lease, impl Executor>) {
        if self.phase.is_linked() {
            for class in Class::ALL {
                if !self.backlog.is_empty(class) {
                    self.retry_backlog(class, turn);
                }
            }
        }
        if turn.shared.work_is_left() {
            // This comes before the submissions are taken: if a response is added afterwards, its thread sets the flag again.
            turn.shared.wanted.credit_is_given();
            self.take_submissions(turn);
        }
        self.give_credit(turn.shared);
        self.ring_doorbells(turn.shared);
        debug_assert!(self.backlog_fits_calls(), "an entry of the backlog names each waiting call");
    }

    /// Returns whether the number of waiting calls equals the number of calls in the backlog.
    pub(in crate::session) fn backlog_fits_calls(&self) -> bool {
        self.backlog.count_calls() == self.calls.count_waiting()
    }

    /// Processes the submissions that other threads made while this one held the engine. This must precede any further post, because the
    /// submissions may include an earlier message of the same sender.
    pub(in crate::session) fn take_submissions(&mut self, turn: Turn<'_, Q::Lease, impl Executor>) {
        while let Some(submitted) = self.submissions.pop() {
            self.post_any(submitted, turn);
        }
        while let Some(response) = turn.shared.response_overflow.take() {
            self.post(response, turn);
        }
    }

    /// Posts a message or operation, or adds it to the backlog.
    pub(in crate::session) fn post_any(
        &mut self,
        submitted: Submitted,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) {
        match submitted {
            Submitted::Message(outgoing) => self.post(outgoing, turn),
            Submitted::OneSided(work) => {
                let refused = match self.backlog.is_empty(CLASS) {
                    true => self.try_access(work, turn),
                    false => Err(work),
                };
                if let Err(work) = refused {
                    self.enter_backlog(CLASS, Entry::OneSided(work), turn);
                }
            }
            Submitted::Move => drop(self.move_rendezvous(turn)),
        }
    }

    /// Posts a message, adds it to the backlog, or ends it if no link may carry it.
    #[inline]
    pub(in crate::session) fn post(&mut self, outgoing: Outgoing, turn: Turn<'_, Q::Lease, impl Executor>) {
        if is_new(&outgoing) && outgoing.link == self.generation && self.phase.is_linked() {
            self.post_or_keep(outgoing, turn);
        } else {
            self.post_by_kind(outgoing, turn);
        }
    }

    /// Posts a message that the current link may carry. Adds it to the backlog if there is no room, or if other messages wait there.
    #[inline]
    fn post_or_keep(&mut self, outgoing: Outgoing, turn: Turn<'_, Q::Lease, impl Executor>) {
        let refused = match self.backlog.is_empty(outgoing.class) {
            true => match self.try_post(outgoing, turn.shared) {
                Ok(()) => return,
                Err(refused) => refused,
            },
            false => outgoing,
        };
        turn.shared.stats.backlogged.add_alone(1);
        self.keep(refused, turn);
    }

    /// Puts a message at the end of the backlog.
    #[cold]
    fn keep(&mut self, outgoing: Outgoing, turn: Turn<'_, Q::Lease, impl Executor>) {
        let class = outgoing.class;
        let entry = match into_request(outgoing) {
            Ok((call, request, limit)) => {
                self.calls.wait(call, request, Before::NeverPosted, limit);
                Entry::Call(call)
            }
            Err(outgoing) => Entry::Message(outgoing),
        };
        self.enter_backlog(class, entry, turn);
    }

    #[cold]
    #[inline(never)]
    fn post_by_kind(&mut self, outgoing: Outgoing, turn: Turn<'_, Q::Lease, impl Executor>) {
        match outgoing.kind {
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                self.post_response(call, outgoing, turn);
            }
            Kind::Cancel { call } => {
                self.end_call(call, Cause::Left(self.phase.response()), turn);
                self.send_cancels(turn.shared);
            }
            Kind::Request { .. } if !self.is_of_session(&outgoing) => {
                // The session for which the request was meant ended before the engine got it.
                let Ok((call, request, limit)) = into_request(outgoing) else { return };
                if !turn.shared.calls.is_unended(call) {
                    // That session failed. Its recovery has ended every call.
                    return;
                }
                self.calls.wait(call, request, Before::NeverPosted, limit);
                self.end_call(call, Cause::SessionOver, turn);
            }
            // The grant that the notification names has ended. The sender grants again.
            Kind::Notification { .. } if self.is_outdated(&outgoing) => {}
            Kind::Notification { .. } if !self.phase.is_linked() || !self.is_of_session(&outgoing) => {
                turn.shared.stats.notifications_lost.add_alone(1);
                // A session that failed has ended every slot.
                let completes = outgoing.completes.filter(|slot| turn.shared.calls.is_unended(*slot));
                self.end_send(completes, Status::Flushed, turn);
            }
            Kind::Request { .. } | Kind::Notification { .. } => {
                // Its credit belonged to an earlier link of the session. It takes one of the current link, or waits for one.
                let class = outgoing.class;
                self.keep(outgoing, turn);
                if self.phase.is_linked() {
                    self.retry_backlog(class, turn);
                }
            }
            Kind::Credit
            | Kind::Heartbeat
            | Kind::Goodbye
            | Kind::CreditRequest
            | Kind::WindowUpdate { .. }
            | Kind::Pause
            | Kind::PauseAccepted
            | Kind::PauseDeclined => self.post_or_keep(outgoing, turn),
        }
    }

    /// Returns whether a message must not be posted any more, because it names a grant of an earlier link.
    fn is_outdated(&self, outgoing: &Outgoing) -> bool {
        let is_present = outgoing.link == self.generation && self.phase.is_linked();
        outgoing.carrier == Carrier::SameLink && !is_present
    }

    /// Returns whether a message was made for a link of the current session.
    fn is_of_session(&self, outgoing: &Outgoing) -> bool {
        outgoing.link.wrapping_sub(self.session_start) < 1 << 15 && !self.phase.is_down()
    }

    /// Posts the response to a request of the peer, if the request arrived on the current link: there the peer has reserved a receive for
    /// the response. Otherwise keeps the response in the duplicate filter until the request arrives again.
    pub(in crate::session) fn post_response(
        &mut self,
        call: CallId,
        outgoing: Outgoing,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) {
        let of_session = self.is_of_session(&outgoing);
        let present = self.generation;
        let last_call = self.last_calls.get_mut(usize::from(call.slot));
        let Some(last_call) =
            last_call.filter(|last_call| of_session && last_call.generation == call.generation)
        else {
            turn.shared.stats.replies_lost.add_alone(1);
            return;
        };
        match last_call.state {
            LastCallState::Executing { link } if link == present && self.phase.is_linked() => {
                self.post_or_keep(outgoing, turn);
            }
            LastCallState::Executing { .. } => {
                let Outgoing { class, kind, payload, .. } = outgoing;
                last_call.state =
                    LastCallState::Responded(Some(CachedResponse { class, kind, payload, posted_on: None }));
            }
            // A request gets only one response, and an earlier one was given.
            LastCallState::Never | LastCallState::Responded(_) => turn.shared.stats.replies_lost.add_alone(1),
        }
    }

    /// Adds an entry to the backlog. It waits for a completion, or for a credit that may arrive with a response. If the serving thread
    /// sleeps, arms the fabric for these events as well, and processes those that occurred before.
    fn enter_backlog(&mut self, class: Class, entry: Entry, turn: Turn<'_, Q::Lease, impl Executor>) {
        self.backlog.push_back(class, entry);
        turn.executor.note(Note::of_peer(What::Stalls, turn.shared.peer));
        if !self.phase.is_linked() || turn.shared.arming.armed() != Armed::Solicited {
            return;
        }
        self.arm(Armed::All, turn.shared);
        for class in Class::ALL {
            while let Some(completion) = self.connection(class).qp.poll_send() {
                let known = self.completed(completion, turn);
                self.connection(class).failed |= !known;
            }
            self.retry_backlog(class, turn);
        }
    }

    /// Posts the entries of the backlog that now have room and a credit.
    fn retry_backlog(&mut self, class: Class, turn: Turn<'_, Q::Lease, impl Executor>) {
        while let Some(entry) = self.backlog.pop_front(class) {
            if let Err(entry) = self.try_entry(entry, turn) {
                self.backlog.push_front(class, entry);
                return;
            }
        }
    }

    fn try_entry(&mut self, entry: Entry, turn: Turn<'_, Q::Lease, impl Executor>) -> Result<(), Entry> {
        match entry {
            Entry::Call(call) => {
                if self.try_waiting(call, turn) {
                    Ok(())
                } else {
                    Err(Entry::Call(call))
                }
            }
            Entry::Message(outgoing) if self.is_outdated(&outgoing) => Ok(()),
            Entry::Message(mut outgoing) => {
                if matches!(outgoing.kind, Kind::Notification { .. }) {
                    match self.link_with_credit(outgoing.link, outgoing.class, turn.shared) {
                        Some(link) => outgoing.link = link,
                        None => return Err(Entry::Message(outgoing)),
                    }
                }
                self.try_post(outgoing, turn.shared).map_err(Entry::Message)
            }
            Entry::OneSided(work) => self.try_access(work, turn).map_err(Entry::OneSided),
        }
    }

    /// Posts a waiting request. Returns whether it is no longer waiting.
    fn try_waiting(&mut self, call: CallId, turn: Turn<'_, Q::Lease, impl Executor>) -> bool {
        let Some(request) = self.calls.waiting_mut(call) else {
            debug_assert!(false, "an entry of the backlog names a waiting call");
            return true;
        };
        let (held, class) = (request.link, request.class);
        let Some(link) = self.link_with_credit(held, class, turn.shared) else { return false };
        let Some((request, before, limit)) = self.calls.take_waiting(call) else { return true };
        let timeout = limit.remaining(turn.executor.now());
        let is_overdue = timeout == Nanos::ZERO && before != Before::GivenUp;
        let composed = request.composed;
        let outgoing = into_outgoing(call, Request { link, ..request }, before, timeout);
        let posted = if is_overdue { Err(outgoing) } else { self.try_post(outgoing, turn.shared) };
        let Err(back) = posted else {
            if before == Before::GivenUp {
                self.end_call(call, Cause::Left(self.phase.response()), turn);
            }
            return true;
        };
        let Ok((_, request, _)) = into_request(back) else { return true };
        self.calls.wait(call, Request { composed, ..request }, before, limit);
        if is_overdue {
            self.end_call(call, Cause::Deadline(self.phase.response()), turn);
        }
        !self.calls.is_waiting(call)
    }

    /// Returns the current link, if the first message of the backlog has a credit of that link, or can get one.
    fn link_with_credit(&mut self, held: u16, class: Class, shared: &Shared<Q::Lease>) -> Option<u16> {
        if held == self.generation {
            return Some(held);
        }
        let credit = shared.credits[class.index()].take_in_engine();
        credit.map(|credit| credit.link).or_else(|| self.exchange_credit(held, class))
    }

    /// Gives the credit of a later message of the backlog to the first one, in exchange for a credit of an earlier link. As soon as a link
    /// resumes the session, senders take credits for new messages, which wait behind the requests that are posted again. If these messages
    /// kept the last credits, neither they nor the requests would ever be posted.
    fn exchange_credit(&mut self, held: u16, class: Class) -> Option<u16> {
        for entry in self.backlog.entries_mut(class) {
            let link = match entry {
                Entry::Call(call) => self.calls.waiting_mut(*call).map(|request| &mut request.link),
                Entry::Message(outgoing) if is_new(outgoing) && outgoing.carrier == Carrier::AnyLink => {
                    Some(&mut outgoing.link)
                }
                // The link of any other message is not only that of its credit.
                Entry::Message(_) | Entry::OneSided(_) => None,
            };
            if let Some(link) = link.filter(|link| **link == self.generation) {
                return Some(core::mem::replace(link, held));
            }
        }
        None
    }

    /// Ends a call for a cause that is not the peer's response, if the cause concerns it.
    pub(in crate::session) fn end_call(
        &mut self,
        call: CallId,
        cause: Cause,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) {
        let Some(Ended { report, withdrawn }) = self.calls.end(call, cause) else { return };
        if let Some(request) = withdrawn {
            self.backlog.remove(call);
            turn.shared.credits[request.class.index()].put_back(Credit { link: request.link });
        }
        let end = |executed| match cause {
            Cause::Deadline(_) => End::Deadline { executed },
            _ => End::PeerDown { executed },
        };
        self.report(call, report, end, turn);
    }

    /// Reports the end of a call to its slot. Returns whether a waiter takes the end.
    #[inline]
    pub(in crate::session) fn report(
        &self,
        call: CallId,
        report: Report,
        end: impl FnOnce(Executed) -> End<Q::Lease>,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) -> bool {
        debug_assert!(turn.shared.calls.is_current(call), "a call that has not ended keeps its slot");
        match report {
            Report::End(executed, expects) => {
                turn.shared.calls.end(call, end(executed), expects, turn.executor)
            }
            Report::Settle => {
                turn.shared.calls.settle(call);
                false
            }
            Report::Nothing => false,
        }
    }

    /// Called when the link was lost and the session waits for another one. Ends calls whose outstanding response cannot arrive any more,
    /// and moves responses of the backlog to the duplicate filter.
    pub(in crate::session) fn suspend_calls(&mut self, turn: Turn<'_, Q::Lease, impl Executor>) {
        for call in self.calls.open() {
            self.end_call(call, Cause::LinkLost, turn);
        }
        assert!(!self.calls.awaits_response(), "no response comes on a later link than its request");
        for response in self.backlog.take_responses() {
            self.post(response, turn);
        }
        assert!(self.backlog_fits_calls(), "an entry of the backlog names each waiting call");
        // Sends that the program has left may have ended with these calls.
        turn.shared.rendezvous.look_again();
    }

    /// Puts every unanswered request at the front of the backlog, in the order in which they were first posted, so that they are posted
    /// again before later messages. The callee drops those that it has already received. There may be more requests than credits, because
    /// the callee may return a request's credit before it responds. Each request therefore takes a credit of the current link, or waits for
    /// one.
    pub(in crate::session) fn resend_unanswered(&mut self, turn: Turn<'_, Q::Lease, impl Executor>) {
        let earlier = self.generation.wrapping_sub(1);
        let mut due: [VecDeque<CallId>; 2] = Default::default();
        for (call, request, limit) in self.calls.take_unanswered() {
            turn.shared.stats.requests_resent.add_alone(1);
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
        // There is no resend copy of these requests, so they cannot be posted again.
        for call in self.calls.open() {
            if self.calls.is_posted(call) {
                self.end_call(call, Cause::SessionOver, turn);
            }
        }
        assert!(self.backlog_fits_calls(), "an entry of the backlog names each waiting call");
        assert!(
            self.calls.count_waiting() == self.calls.open().count(),
            "every call of a resumed session waits to be posted"
        );
    }

    /// Ends every call and every waiting message with the session.
    pub(in crate::session) fn end_calls(&mut self, turn: Turn<'_, Q::Lease, impl Executor>) {
        let entries = self.backlog.take_all();
        for call in self.calls.open() {
            self.end_call(call, Cause::SessionOver, turn);
        }
        for entry in entries {
            match entry {
                Entry::Message(outgoing) => self.post(outgoing, turn),
                Entry::OneSided(work) => drop(self.try_access(work, turn)),
                // The loop above has ended it, with all other calls.
                Entry::Call(call) => assert!(!self.calls.is_open(call), "a call ends with its session"),
            }
        }
        assert!(self.backlog.is_clear(), "nothing waits without a session");
        assert!(self.calls.open().next().is_none(), "no call outlives its session");
    }
}

/// Converts an outgoing request to the form that the table of calls holds. Returns any other message as an error.
fn into_request(outgoing: Outgoing) -> Result<(CallId, Request, TimeLimit), Outgoing> {
    let Kind::Request { call, type_id, service, resent, .. } = outgoing.kind else { return Err(outgoing) };
    let Outgoing { class, link, payload, timeout, .. } = outgoing;
    // A request that was never posted is marked as resent only if it was composed for an earlier link.
    let composed = if resent { link.wrapping_sub(1) } else { link };
    Ok((call, Request { class, composed, link, type_id, service, payload }, TimeLimit::new(timeout)))
}

fn into_outgoing(call: CallId, request: Request, before: Before, timeout: Nanos) -> Outgoing {
    let Request { class, composed, link, type_id, service, payload } = request;
    // Grants that it names have ended, as the request was posted or composed on an earlier link.
    let resent = before != Before::NeverPosted || composed != link;
    let deadline_us = timeout_us(timeout);
    let kind = Kind::Request { call, type_id, service, resent, deadline_us };
    Outgoing { class, link, kind, payload, carrier: Carrier::AnyLink, completes: None, timeout }
}
