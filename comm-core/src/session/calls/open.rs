//! The engine's half of a call: one state per call slot, and the one function that ends a call.
//!
//! ```text
//!             room                     deadline, waiter left
//!  Waiting ----------> Posted -----------------------------> AwaitingResponse
//!     ^                  |                                          |
//!     +-- link resumed --+                                          |
//!     |                  | response, session over                   | response, link lost, session over
//!     v                  v                                          v
//!    Idle <--------------+------------------------------------------+
//!  (Waiting also ends at its deadline, when its waiter leaves, and with the session; but a request that an earlier link
//!  carried is repeated once more while there is a link, and then awaits its response)
//! ```
//!
//! # Invariants
//! 1. A slot is `Idle` unless its caller's request has reached the engine and the engine is not done with it.
//! 2. A call is `Waiting` exactly while one entry of the backlog names it.
//! 3. A call is `AwaitingResponse` only on the link that carried its request: no response can come on a later one, because a
//!    peer sends a response only on a link on which its request came.
//! 4. Only [`OpenCalls::end`] ends a call. It reports to the waiter once, and derives `executed` from whether any link ever
//!    carried the request.

use alloc::vec::Vec;

use pronto_wire::{CallId, Class, ServiceId, TypeId};

use super::Expects;
use crate::session::by_slot::BySlot;
use crate::session::end::Executed;
use crate::session::outgoing::OutgoingPayload;
use crate::time::Nanos;

/// All calls that the engine knows of, by call slot.
#[derive(Debug)]
pub(in crate::session) struct OpenCalls {
    slots: BySlot<OpenCall>,
    /// Requests posted so far, repeated ones included.
    requests_posted: u64,
}

/// One call slot, as the engine knows it.
#[derive(Debug, Default)]
struct OpenCall {
    generation: u32,
    /// Counts for `Waiting` and `Posted` calls.
    limit: TimeLimit,
    state: CallState,
}

#[derive(Debug, Default)]
enum CallState {
    /// The engine expects nothing for this slot.
    #[default]
    Idle,
    /// The request is in the backlog: it waits for room, a credit, or the session's next link.
    Waiting { request: Request, before: Before },
    /// A link carried the request. While the session is suspended, the request is kept for the next link.
    Posted { class: Class, order: u64, resend: Option<Resend> },
    /// The waiter has its end or has left. The response is outstanding, so the slot is not used again yet.
    AwaitingResponse { class: Class, cancel: Cancel },
}

impl CallState {
    /// Whether the waiter may still expect the end, as far as the engine knows.
    const fn has_waiter(&self) -> bool {
        match self {
            Self::Waiting { before, .. } => !matches!(before, Before::GivenUp),
            Self::Posted { .. } => true,
            Self::Idle | Self::AwaitingResponse { .. } => false,
        }
    }
}

/// Whether a waiting request was posted on an earlier link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Before {
    /// No link ever carried it: its handler did not run.
    NeverPosted,
    /// An earlier link carried it: its handler may have run.
    Posted,
    /// An earlier link carried it, and its waiter has its end or has left. It is repeated nevertheless: the peer may be at work
    /// on it, reading memory that was lent for it, and only a response tells when that is over.
    GivenUp,
}

impl Before {
    const fn executed(self) -> Executed {
        match self {
            Self::NeverPosted => Executed::No,
            Self::Posted | Self::GivenUp => Executed::Maybe,
        }
    }
}

/// Whether the peer has to be asked to cancel a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    Due,
    Sent,
}

/// A request that waits to be posted.
#[derive(Debug)]
pub(in crate::session) struct Request {
    pub(in crate::session) class: Class,
    /// The link for which it was composed: it may name grants of that link.
    pub(in crate::session) composed: u16,
    /// The link whose credit it holds.
    pub(in crate::session) link: u16,
    pub(in crate::session) type_id: TypeId,
    pub(in crate::session) service: ServiceId,
    pub(in crate::session) payload: OutgoingPayload,
}

impl Request {
    /// Whether its payload stays as it is after the call has ended. The owner of a region may write to it from then on.
    const fn keeps_its_payload(&self) -> bool {
        !matches!(self.payload, OutgoingPayload::Region { .. })
    }
}

/// What repeats a posted request on the session's next link.
#[derive(Debug)]
pub(in crate::session) struct Resend {
    pub(in crate::session) type_id: TypeId,
    pub(in crate::session) service: ServiceId,
    /// None while the work request holds it.
    pub(in crate::session) payload: Option<OutgoingPayload>,
}

/// How long the caller waits.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct TimeLimit {
    timeout: Nanos,
    /// When the call ends by its timeout; set by the first tick that sees the call.
    deadline: Option<Nanos>,
}

impl Default for TimeLimit {
    fn default() -> Self {
        Self::new(Nanos::NEVER)
    }
}

impl TimeLimit {
    /// A limit that begins with the first tick that sees it.
    #[inline]
    pub(in crate::session) const fn new(timeout: Nanos) -> Self {
        Self { timeout, deadline: None }
    }

    /// What is left of the timeout.
    pub(in crate::session) fn remaining(&self, now: Nanos) -> Nanos {
        self.deadline.map_or(self.timeout, |deadline| deadline.since(now))
    }

    fn has_passed(&mut self, now: Nanos) -> bool {
        self.timeout != Nanos::NEVER && *self.deadline.get_or_insert(now + self.timeout) <= now
    }
}

/// Why a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Cause {
    /// The peer responded.
    Response,
    /// Its deadline passed; says whether a response may still come if the request was posted.
    Deadline(Expects),
    /// Its waiter left; says whether a response may still come if the request was posted.
    Left(Expects),
    /// The link that would have brought the outstanding response is gone.
    LinkLost,
    /// The session is over.
    SessionOver,
}

/// How to report the end of a call to the shared call slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Report {
    /// Give the waiter its end, with this `executed` if it is not the peer's response.
    End(Executed, Expects),
    /// The waiter has its end, or has left: nothing more is expected for the slot.
    Settle,
    /// The waiter has left, and a response may still come.
    Nothing,
}

/// The end of a call.
#[derive(Debug)]
pub(in crate::session) struct Ended {
    pub(in crate::session) report: Report,
    /// The request, if the call ended while it waited: its entry leaves the backlog, and its credit goes back.
    pub(in crate::session) withdrawn: Option<Request>,
}

impl OpenCalls {
    /// A table for `slots` call slots.
    pub(in crate::session) const fn new(slots: u16) -> Self {
        Self { slots: BySlot::new(slots), requests_posted: 0 }
    }

    /// Requests posted so far, repeated ones included: the order number of the latest.
    #[inline]
    pub(in crate::session) const fn requests_posted(&self) -> u64 {
        self.requests_posted
    }

    /// A request was posted for the first time, or again after [`Self::take_waiting`].
    #[inline(always)]
    pub(in crate::session) fn posted(
        &mut self,
        call: CallId,
        class: Class,
        timeout: Nanos,
        resend: Option<Resend>,
    ) {
        self.requests_posted += 1;
        let order = self.requests_posted;
        let Some(open) = self.slots.at(call.slot) else { return };
        debug_assert!(matches!(open.state, CallState::Idle), "a posted request finds its slot idle");
        open.generation = call.generation;
        open.limit = TimeLimit::new(timeout);
        open.state = CallState::Posted { class, order, resend };
    }

    /// A request enters the backlog.
    pub(in crate::session) fn wait(
        &mut self,
        call: CallId,
        request: Request,
        before: Before,
        limit: TimeLimit,
    ) {
        let Some(open) = self.slots.at(call.slot) else { return };
        debug_assert!(matches!(open.state, CallState::Idle), "a request enters the backlog once");
        *open =
            OpenCall { generation: call.generation, limit, state: CallState::Waiting { request, before } };
    }

    /// Takes a waiting request out for an attempt to post it: [`Self::posted`] or [`Self::wait`] follows.
    pub(in crate::session) fn take_waiting(&mut self, call: CallId) -> Option<(Request, Before, TimeLimit)> {
        let open = self.find(call)?;
        match core::mem::take(&mut open.state) {
            CallState::Waiting { request, before } => Some((request, before, open.limit)),
            other => {
                open.state = other;
                None
            }
        }
    }

    /// The waiting request of a call.
    pub(in crate::session) fn waiting_mut(&mut self, call: CallId) -> Option<&mut Request> {
        match &mut self.find(call)?.state {
            CallState::Waiting { request, .. } => Some(request),
            _ => None,
        }
    }

    /// Whether a call's request is in the backlog.
    pub(in crate::session) fn is_waiting(&self, call: CallId) -> bool {
        let open = self.slots.get(usize::from(call.slot));
        open.is_some_and(|open| {
            open.generation == call.generation && matches!(open.state, CallState::Waiting { .. })
        })
    }

    /// The transport gives a posted request's payload back: it is kept for the next link.
    pub(in crate::session) fn payload_back(&mut self, call: CallId, payload: OutgoingPayload) {
        if let Some(OpenCall { state: CallState::Posted { resend: Some(resend), .. }, .. }) = self.find(call)
        {
            debug_assert!(resend.payload.is_none(), "a payload is at one place");
            resend.payload = Some(payload);
        }
    }

    /// Whether this call was posted and its waiter expects the response: the state of nearly every call whose response comes.
    #[inline(always)]
    pub(in crate::session) fn is_posted(&self, call: CallId) -> bool {
        let open = self.slots.get(usize::from(call.slot));
        open.is_some_and(|open| {
            open.generation == call.generation && matches!(open.state, CallState::Posted { .. })
        })
    }

    /// Whether the engine still has to do with this call.
    pub(in crate::session) fn is_open(&self, call: CallId) -> bool {
        let open = self.slots.get(usize::from(call.slot));
        open.is_some_and(|open| open.generation == call.generation && !matches!(open.state, CallState::Idle))
    }

    /// The order number of a posted request; the highest there is for any other call.
    pub(in crate::session) fn order(&self, call: CallId) -> u64 {
        match self.slots.get(usize::from(call.slot)) {
            Some(OpenCall { generation, state: CallState::Posted { order, .. }, .. })
                if *generation == call.generation =>
            {
                *order
            }
            _ => u64::MAX,
        }
    }

    /// Ends a call, in every way in which a call can end. None if the cause does not concern the call: it is not open, or has
    /// ended before.
    #[inline(always)]
    pub(in crate::session) fn end(&mut self, call: CallId, cause: Cause) -> Option<Ended> {
        if cause == Cause::Response && self.end_posted(call) {
            return Some(Ended { report: Report::End(Executed::Yes, Expects::Nothing), withdrawn: None });
        }
        Self::end_rare(self.find(call)?, cause)
    }

    /// Ends a posted call whose response has come; [`Self::end`] does this first. Returns false if the call is in another state.
    #[inline(always)]
    pub(in crate::session) fn end_posted(&mut self, call: CallId) -> bool {
        let Some(open) = self.find(call) else { return false };
        let is_posted = matches!(open.state, CallState::Posted { .. });
        if is_posted {
            open.state = CallState::Idle;
        }
        is_posted
    }

    #[cold]
    #[inline(never)]
    fn end_rare(open: &mut OpenCall, cause: Cause) -> Option<Ended> {
        let ended = |report| Some(Ended { report, withdrawn: None });
        match (core::mem::take(&mut open.state), cause) {
            (
                CallState::Waiting { request, before: Before::GivenUp },
                Cause::LinkLost | Cause::SessionOver,
            ) => Some(Ended { report: Report::Settle, withdrawn: Some(request) }),
            (state @ CallState::Waiting { before: Before::GivenUp, .. }, _) => {
                open.state = state;
                None
            }
            (
                CallState::Waiting { request, before: Before::Posted },
                Cause::Deadline(Expects::Answer) | Cause::Left(Expects::Answer),
            ) if request.keeps_its_payload() => {
                open.state = CallState::Waiting { request, before: Before::GivenUp };
                ended(match cause {
                    Cause::Left(_) => Report::Nothing,
                    _ => Report::End(Executed::Maybe, Expects::Answer),
                })
            }
            (CallState::Waiting { request, before }, Cause::Deadline(_) | Cause::SessionOver) => {
                let report = Report::End(before.executed(), Expects::Nothing);
                Some(Ended { report, withdrawn: Some(request) })
            }
            (CallState::Waiting { request, .. }, Cause::Left(_)) => {
                Some(Ended { report: Report::Settle, withdrawn: Some(request) })
            }
            (CallState::Posted { .. }, Cause::SessionOver | Cause::Deadline(Expects::Nothing)) => {
                ended(Report::End(Executed::Maybe, Expects::Nothing))
            }
            (CallState::Posted { class, .. }, Cause::Deadline(Expects::Answer)) => {
                open.state = CallState::AwaitingResponse { class, cancel: Cancel::Due };
                ended(Report::End(Executed::Maybe, Expects::Answer))
            }
            (CallState::Posted { .. }, Cause::Left(Expects::Nothing)) => ended(Report::Settle),
            (CallState::Posted { class, .. }, Cause::Left(Expects::Answer)) => {
                open.state = CallState::AwaitingResponse { class, cancel: Cancel::Due };
                ended(Report::Nothing)
            }
            (CallState::AwaitingResponse { .. }, Cause::Response | Cause::LinkLost | Cause::SessionOver) => {
                ended(Report::Settle)
            }
            (state, _) => {
                open.state = state;
                None
            }
        }
    }

    /// All calls that are not idle, with their slots in ascending order.
    pub(in crate::session) fn open(&self) -> impl Iterator<Item = CallId> + use<> {
        let open = self.slots.iter().enumerate().filter(|(_, open)| !matches!(open.state, CallState::Idle));
        let calls: Vec<_> = open.map(|(slot, open)| call_id(slot, open.generation)).collect();
        calls.into_iter()
    }

    /// A call whose deadline has passed, at `slot` or behind it.
    pub(in crate::session) fn next_overdue(&mut self, slot: u16, now: Nanos) -> Option<CallId> {
        self.next(slot, |open| open.state.has_waiter() && open.limit.has_passed(now))
    }

    /// A call whose waiter has left without the engine having heard of it, at `slot` or behind it.
    pub(in crate::session) fn next_left(
        &mut self,
        slot: u16,
        has_left: impl Fn(CallId) -> bool,
    ) -> Option<CallId> {
        let first = usize::from(slot);
        let found = self
            .slots
            .iter()
            .enumerate()
            .skip(first)
            .find(|(slot, open)| open.state.has_waiter() && has_left(call_id(*slot, open.generation)));
        found.map(|(slot, open)| call_id(slot, open.generation))
    }

    /// A call whose peer has to be asked to cancel it, at `slot` or behind it, and the class of its request.
    pub(in crate::session) fn next_cancel(&mut self, slot: u16) -> Option<(CallId, Class)> {
        let due = |open: &mut OpenCall| {
            matches!(open.state, CallState::AwaitingResponse { cancel: Cancel::Due, .. })
        };
        let call = self.next(slot, due)?;
        match self.slots[usize::from(call.slot)].state {
            CallState::AwaitingResponse { class, .. } => Some((call, class)),
            _ => None,
        }
    }

    /// The peer was asked to cancel a call.
    pub(in crate::session) fn cancel_sent(&mut self, call: CallId) {
        if let Some(OpenCall { state: CallState::AwaitingResponse { cancel, .. }, .. }) = self.find(call) {
            *cancel = Cancel::Sent;
        }
    }

    /// After a link was lost: takes the posted requests of every call out, in the order in which they were posted, to be
    /// posted again ([`Self::wait`] follows for each). A call whose request nobody kept stays behind, posted.
    pub(in crate::session) fn take_unanswered(&mut self) -> Vec<(CallId, Request, TimeLimit)> {
        let mut unanswered = Vec::new();
        for (slot, open) in self.slots.iter_mut().enumerate() {
            let CallState::Posted { class, order, resend } = &mut open.state else { continue };
            let Some(Resend { type_id, service, payload: Some(payload) }) = resend.take() else { continue };
            let request = Request { class: *class, composed: 0, link: 0, type_id, service, payload };
            unanswered.push((*order, (call_id(slot, open.generation), request, open.limit)));
            open.state = CallState::Idle;
        }
        unanswered.sort_unstable_by_key(|(order, _)| *order);
        unanswered.into_iter().map(|(_, call)| call).collect()
    }

    /// Gives memory back that a busier session needed.
    pub(in crate::session) fn give_back(&mut self) {
        self.slots.give_back(|open| !matches!(open.state, CallState::Idle));
    }

    #[inline(always)]
    fn find(&mut self, call: CallId) -> Option<&mut OpenCall> {
        self.slots.get_mut(usize::from(call.slot)).filter(|open| open.generation == call.generation)
    }

    fn next(&mut self, slot: u16, mut is_it: impl FnMut(&mut OpenCall) -> bool) -> Option<CallId> {
        let first = usize::from(slot);
        let mut open = self.slots.iter_mut().enumerate().skip(first);
        open.find_map(|(slot, open)| is_it(open).then(|| call_id(slot, open.generation)))
    }
}

fn call_id(slot: usize, generation: u32) -> CallId {
    CallId { slot: u16::try_from(slot).expect("slots are 16 bits"), generation }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_millis(1);

    fn call(slot: u16) -> CallId {
        CallId { slot, generation: 7 }
    }

    fn request(payload: &[u8]) -> Request {
        let payload = OutgoingPayload::inline(payload).expect("it is short");
        Request {
            class: Class::Control,
            composed: 1,
            link: 1,
            type_id: TypeId(3),
            service: ServiceId(0),
            payload,
        }
    }

    fn resend() -> Option<Resend> {
        let payload = OutgoingPayload::inline(b"again");
        Some(Resend { type_id: TypeId(3), service: ServiceId(0), payload })
    }

    fn calls_with(state: &str) -> OpenCalls {
        let mut calls = OpenCalls::new(4);
        match state {
            "waiting" => {
                calls.wait(call(0), request(b"new"), Before::NeverPosted, TimeLimit::new(Nanos::NEVER))
            }
            "due again" => calls.wait(call(0), request(b"old"), Before::Posted, TimeLimit::new(Nanos::NEVER)),
            "posted" => calls.posted(call(0), Class::Bulk, Nanos::NEVER, resend()),
            "awaiting" => {
                calls.posted(call(0), Class::Bulk, Nanos::NEVER, resend());
                calls.end(call(0), Cause::Left(Expects::Answer)).expect("it was posted");
            }
            _ => unreachable!("no such state"),
        }
        calls
    }

    fn report(state: &str, cause: Cause) -> (Option<Report>, bool) {
        let mut calls = calls_with(state);
        let ended = calls.end(call(0), cause);
        let withdrawn = ended.as_ref().is_some_and(|ended| ended.withdrawn.is_some());
        let waited = state == "waiting" || state == "due again";
        assert_eq!(
            withdrawn,
            waited && !calls.is_open(call(0)),
            "a request leaves the backlog with its call"
        );
        (ended.map(|ended| ended.report), calls.is_open(call(0)))
    }

    #[test]
    fn a_request_that_was_never_posted_was_not_executed_and_one_that_was_may_have_been() {
        let over = |executed| (Some(Report::End(executed, Expects::Nothing)), false);
        for cause in [Cause::SessionOver, Cause::Deadline(Expects::Nothing)] {
            assert_eq!(report("waiting", cause), over(Executed::No), "{cause:?}");
            assert_eq!(report("due again", cause), over(Executed::Maybe), "{cause:?}");
        }
        assert_eq!(report("waiting", Cause::Deadline(Expects::Answer)), over(Executed::No));
        let repeated = Some(Report::End(Executed::Maybe, Expects::Answer));
        assert_eq!(report("due again", Cause::Deadline(Expects::Answer)), (repeated, true));
        assert_eq!(report("posted", Cause::SessionOver), over(Executed::Maybe));
        assert_eq!(report("posted", Cause::Deadline(Expects::Nothing)), over(Executed::Maybe));
        let answer = Some(Report::End(Executed::Maybe, Expects::Answer));
        assert_eq!(report("posted", Cause::Deadline(Expects::Answer)), (answer, true));
    }

    #[test]
    fn a_waiter_that_leaves_frees_the_slot_unless_a_response_may_come() {
        assert_eq!(report("waiting", Cause::Left(Expects::Answer)), (Some(Report::Settle), false));
        assert_eq!(report("due again", Cause::Left(Expects::Nothing)), (Some(Report::Settle), false));
        assert_eq!(report("due again", Cause::Left(Expects::Answer)), (Some(Report::Nothing), true));
        assert_eq!(report("posted", Cause::Left(Expects::Nothing)), (Some(Report::Settle), false));
        assert_eq!(report("posted", Cause::Left(Expects::Answer)), (Some(Report::Nothing), true));
    }

    #[test]
    fn an_outstanding_response_settles_the_slot_once() {
        for cause in [Cause::Response, Cause::LinkLost, Cause::SessionOver] {
            assert_eq!(report("awaiting", cause), (Some(Report::Settle), false), "{cause:?}");
        }
        for cause in [Cause::Deadline(Expects::Answer), Cause::Left(Expects::Answer)] {
            assert_eq!(report("awaiting", cause), (None, true), "it has ended for its waiter: {cause:?}");
        }
        assert_eq!(report("waiting", Cause::Response), (None, true), "nothing was asked on this link");
        assert_eq!(report("due again", Cause::Response), (None, true), "nothing was asked on this link");
    }

    #[test]
    fn nothing_ends_twice_and_nothing_ends_a_later_call_in_the_slot() {
        let mut calls = calls_with("posted");
        assert!(calls.end(call(0), Cause::Response).is_some());
        assert!(calls.end(call(0), Cause::SessionOver).is_none());
        let next = CallId { slot: 0, generation: 8 };
        calls.posted(next, Class::Control, Nanos::NEVER, None);
        assert!(calls.end(call(0), Cause::Response).is_none(), "a late response");
        assert!(calls.is_posted(next));
    }

    #[test]
    fn a_deadline_counts_from_the_first_tick_that_sees_the_call_and_goes_on_while_it_waits() {
        let mut calls = OpenCalls::new(4);
        let timeout = Nanos::from_millis(10);
        calls.wait(call(2), request(b"new"), Before::NeverPosted, TimeLimit::new(timeout));
        assert_eq!(calls.next_overdue(0, NOW), None);
        let (request, before, limit) = calls.take_waiting(call(2)).expect("it waits");
        assert_eq!(limit.remaining(NOW + Nanos::from_millis(4)), Nanos::from_millis(6));
        calls.wait(call(2), request, before, limit);
        assert_eq!(calls.next_overdue(0, NOW + timeout), Some(call(2)));
        assert_eq!(calls.next_overdue(3, NOW + timeout), None, "it lies before that slot");
    }

    #[test]
    fn unanswered_requests_are_taken_out_in_the_order_of_their_posting() {
        let mut calls = OpenCalls::new(4);
        for slot in [2, 0, 1] {
            calls.posted(call(slot), Class::Control, Nanos::NEVER, resend());
        }
        calls.posted(call(3), Class::Control, Nanos::NEVER, None);
        calls.end(call(0), Cause::Left(Expects::Answer)).expect("it was posted");
        let slots: Vec<_> = calls.take_unanswered().iter().map(|(call, ..)| call.slot).collect();
        assert_eq!(slots, [2, 1], "not the one that was given up, nor the one that nobody kept");
        assert_eq!(calls.open().map(|call| call.slot).collect::<Vec<_>>(), [0, 3]);
    }

    #[test]
    fn a_request_that_was_given_up_is_repeated_unless_its_bytes_may_change() {
        let mut calls = OpenCalls::new(4);
        let region = crate::fabric::Region::new(alloc::sync::Arc::new(crate::fabric::HeapMemory::new(8)));
        let payload = OutgoingPayload::Region { region, offset: 0, len: 8 };
        let by_reference = Request { payload, ..request(b"") };
        calls.wait(call(0), by_reference, Before::Posted, TimeLimit::new(Nanos::NEVER));
        let ended = calls.end(call(0), Cause::Left(Expects::Answer)).expect("it waits");
        assert!(ended.report == Report::Settle && ended.withdrawn.is_some() && !calls.is_open(call(0)));
        calls.wait(call(1), request(b"kept"), Before::Posted, TimeLimit::new(Nanos::ZERO));
        calls.end(call(1), Cause::Left(Expects::Answer)).expect("it waits");
        assert!(calls.is_waiting(call(1)));
        assert_eq!(calls.next_overdue(0, NOW), None, "nobody waits for it any more");
        assert!(calls.end(call(1), Cause::Deadline(Expects::Answer)).is_none());
        let ended = calls.end(call(1), Cause::LinkLost).expect("no response comes on a later link");
        assert!(ended.report == Report::Settle && ended.withdrawn.is_some() && !calls.is_open(call(1)));
    }

    #[test]
    fn each_cancel_is_sent_once() {
        let mut calls = calls_with("awaiting");
        assert_eq!(calls.next_cancel(0), Some((call(0), Class::Bulk)));
        calls.cancel_sent(call(0));
        assert_eq!(calls.next_cancel(0), None);
    }
}
