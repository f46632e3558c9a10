//! The engine's half of a call: a state for each call slot, and the only function that ends a call.
//!
//! ```text
//!             room                     deadline, waiter left
//!  Waiting ----------> Posted -----------------------------> AwaitingResponse
//!     ^                  |                                          |
//!     +-- link resumed --+                                          |
//!     |                  | response, session over                   | response, link lost, session over
//!     v                  v                                          v
//!    Idle <--------------+------------------------------------------+
//! (Waiting also ends at its deadline, when its waiter leaves, and with the session. A request that an earlier link carried is nevertheless
//!  posted again while there is a link, and then becomes AwaitingResponse.)
//! ```
//!
//! # Invariants
//! 1. A slot is `Idle` except from the time when the engine gets the caller's request to the time when the engine is done with it.
//! 2. A call is `Waiting` if and only if one entry of the backlog names it.
//! 3. A call is `AwaitingResponse` only while the link that carried its request lasts. A peer responds only on the link on which the
//!    request arrived, so no response can arrive on a later one.
//! 4. Only [`OpenCalls::end`] ends a call. It reports the end to the waiter once. `executed` in that report depends on whether any link
//!    ever carried the request.

use alloc::vec::Vec;

use pronto_wire::{CallId, Class};

use super::Expects;
use super::request::{Before, Request, Resend, TimeLimit};
use crate::session::by_slot::BySlot;
use crate::session::end::Executed;
use crate::session::outgoing::OutgoingPayload;
use crate::time::Nanos;

/// The engine's states of all calls, by call slot.
#[derive(Debug)]
pub(in crate::session) struct OpenCalls {
    slots: BySlot<OpenCall>,
    /// Number of requests posted so far. A request that was posted again counts again.
    requests_posted: u64,
}

/// The engine's state of one call slot.
#[derive(Debug, Default)]
struct OpenCall {
    generation: u32,
    /// Valid for `Waiting` and `Posted` calls.
    limit: TimeLimit,
    state: CallState,
}

#[derive(Debug, Default)]
enum CallState {
    /// The engine expects nothing for this slot.
    #[default]
    Idle,
    /// The request is in the backlog: it waits for room, for a credit, or for the session's next link.
    Waiting { request: Request, before: Before },
    /// A link carried the request. While the session is suspended, the request is kept for the next link.
    Posted { class: Class, order: u64, resend: Option<Resend> },
    /// The call has ended for its waiter, at its deadline or because the waiter left, but the response is still outstanding. The slot is
    /// not reused until the response has arrived, or the link or the session has ended.
    AwaitingResponse { class: Class, cancel: Cancel },
}

impl OpenCall {
    /// Returns whether `call` may use the slot next: it is the slot's latest call or a later one.
    const fn may_become(&self, call: CallId) -> bool {
        self.generation == 0 || call.generation.wrapping_sub(self.generation) <= u32::MAX / 2
    }
}

impl CallState {
    /// Returns the position of a posted request in the order of posting.
    const fn order(&self) -> Option<u64> {
        match self {
            Self::Posted { order, .. } => Some(*order),
            _ => None,
        }
    }

    /// Returns whether the waiter may still expect the end, as far as the engine knows.
    const fn has_waiter(&self) -> bool {
        match self {
            Self::Waiting { before, .. } => !matches!(before, Before::GivenUp),
            Self::Posted { .. } => true,
            Self::Idle | Self::AwaitingResponse { .. } => false,
        }
    }
}

/// Progress of asking the peer to cancel a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    Due,
    Sent,
}

/// The cause of the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Cause {
    /// The peer responded.
    Response,
    /// The deadline passed. The value tells whether a response may still arrive if the request was posted.
    Deadline(Expects),
    /// The waiter left. The value tells whether a response may still arrive if the request was posted.
    Left(Expects),
    /// The link that would have carried the outstanding response was lost.
    LinkLost,
    /// The session has ended.
    SessionOver,
}

/// The report about a call that the engine makes to the shared call slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Report {
    /// The end of the call, for the waiter. `Executed` applies unless the end is the peer's response.
    End(Executed, Expects),
    /// The waiter has taken the end or has left, and nothing more is expected for the slot.
    Settle,
    /// Nothing to report: the waiter has left, and a response may still arrive.
    Nothing,
}

impl Report {
    /// Returns whether the engine is done with the slot after this report.
    const fn is_last(self) -> bool {
        matches!(self, Self::End(_, Expects::Nothing) | Self::Settle)
    }
}

/// The end of a call.
#[derive(Debug)]
pub(in crate::session) struct Ended {
    pub(in crate::session) report: Report,
    /// The request, if the call ended while it was in the backlog. The caller removes its backlog entry and returns its credit.
    pub(in crate::session) withdrawn: Option<Request>,
}

impl OpenCalls {
    /// Returns a table for `slots` call slots.
    pub(in crate::session) const fn new(slots: u16) -> Self {
        Self { slots: BySlot::new(slots), requests_posted: 0 }
    }

    /// Returns the number of requests posted so far. This is the order number of the latest one.
    #[inline]
    pub(in crate::session) const fn requests_posted(&self) -> u64 {
        self.requests_posted
    }

    /// Records that a request was posted, for the first time or again after [`Self::take_waiting`].
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
        debug_assert!(open.may_become(call), "a slot is used by one call after another");
        open.generation = call.generation;
        open.limit = TimeLimit::new(timeout);
        open.state = CallState::Posted { class, order, resend };
    }

    /// Records that a request enters the backlog.
    pub(in crate::session) fn wait(
        &mut self,
        call: CallId,
        request: Request,
        before: Before,
        limit: TimeLimit,
    ) {
        let Some(open) = self.slots.at(call.slot) else { return };
        debug_assert!(matches!(open.state, CallState::Idle), "a request enters the backlog once");
        debug_assert!(open.may_become(call), "a slot is used by one call after another");
        debug_assert!(
            before != Before::GivenUp || request.keeps_its_payload(),
            "a request that was given up refers to no region"
        );
        *open =
            OpenCall { generation: call.generation, limit, state: CallState::Waiting { request, before } };
    }

    /// Takes a waiting request out of the table for an attempt to post it. Call [`Self::posted`] or [`Self::wait`] afterwards.
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

    /// Returns the waiting request of a call.
    pub(in crate::session) fn waiting_mut(&mut self, call: CallId) -> Option<&mut Request> {
        match &mut self.find(call)?.state {
            CallState::Waiting { request, .. } => Some(request),
            _ => None,
        }
    }

    /// Returns whether a call's request is in the backlog.
    pub(in crate::session) fn is_waiting(&self, call: CallId) -> bool {
        let open = self.slots.get(usize::from(call.slot));
        open.is_some_and(|open| {
            open.generation == call.generation && matches!(open.state, CallState::Waiting { .. })
        })
    }

    /// Takes back the payload of a posted request, which the transport no longer uses, and keeps it for the session's next link. Drops it
    /// if the request will not be posted again.
    pub(in crate::session) fn payload_back(&mut self, call: CallId, payload: OutgoingPayload) {
        if let Some(OpenCall { state: CallState::Posted { resend: Some(resend), .. }, .. }) = self.find(call)
        {
            debug_assert!(resend.payload.is_none(), "a payload is at one place");
            resend.payload = Some(payload);
        }
    }

    /// Returns whether the call was posted and its waiter expects the response. Nearly every call is in this state when its response
    /// arrives.
    #[inline(always)]
    pub(in crate::session) fn is_posted(&self, call: CallId) -> bool {
        let open = self.slots.get(usize::from(call.slot));
        open.is_some_and(|open| {
            open.generation == call.generation && matches!(open.state, CallState::Posted { .. })
        })
    }

    /// Returns whether the engine is not done with this call.
    pub(in crate::session) fn is_open(&self, call: CallId) -> bool {
        let open = self.slots.get(usize::from(call.slot));
        open.is_some_and(|open| open.generation == call.generation && !matches!(open.state, CallState::Idle))
    }

    /// Returns the order number of a posted request, and `u64::MAX` for any other call.
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

    /// Ends a call for any cause. Returns `None` if the cause does not apply to the call: it is not open, or has already ended for its
    /// waiter.
    #[inline(always)]
    pub(in crate::session) fn end(&mut self, call: CallId, cause: Cause) -> Option<Ended> {
        if cause == Cause::Response && self.end_posted(call) {
            return Some(Ended { report: Report::End(Executed::Yes, Expects::Nothing), withdrawn: None });
        }
        Self::end_rare(self.find(call)?, cause)
    }

    /// Ends a posted call whose response has arrived; [`Self::end`] tries this first. Returns false if the call is in another state.
    #[inline(always)]
    pub(in crate::session) fn end_posted(&mut self, call: CallId) -> bool {
        let latest = self.requests_posted;
        let Some(open) = self.find(call) else { return false };
        let is_posted = matches!(open.state, CallState::Posted { .. });
        debug_assert!(
            open.state.order().is_none_or(|order| order <= latest),
            "a response follows its request"
        );
        if is_posted {
            open.state = CallState::Idle;
        }
        is_posted
    }

    #[cold]
    #[inline(never)]
    fn end_rare(open: &mut OpenCall, cause: Cause) -> Option<Ended> {
        let had_waiter = open.state.has_waiter();
        let ended = Self::end_by_state(open, cause);
        if let Some(Ended { report, withdrawn }) = &ended {
            let is_idle = matches!(open.state, CallState::Idle);
            let reports_end = matches!(report, Report::End(..));
            assert!(report.is_last() == is_idle, "a slot is idle after the last report of its call");
            assert!(withdrawn.is_none() || is_idle, "a request is withdrawn with its call");
            assert!(had_waiter || !reports_end, "a waiter gets one end");
            assert!(!open.state.has_waiter(), "a call that has ended has no waiter");
        }
        ended
    }

    fn end_by_state(open: &mut OpenCall, cause: Cause) -> Option<Ended> {
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
                Cause::Deadline(Expects::Response) | Cause::Left(Expects::Response),
            ) if request.keeps_its_payload() => {
                open.state = CallState::Waiting { request, before: Before::GivenUp };
                ended(match cause {
                    Cause::Left(_) => Report::Nothing,
                    _ => Report::End(Executed::Maybe, Expects::Response),
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
            (CallState::Posted { class, .. }, Cause::Deadline(Expects::Response)) => {
                open.state = CallState::AwaitingResponse { class, cancel: Cancel::Due };
                ended(Report::End(Executed::Maybe, Expects::Response))
            }
            (CallState::Posted { .. }, Cause::Left(Expects::Nothing)) => ended(Report::Settle),
            (CallState::Posted { class, .. }, Cause::Left(Expects::Response)) => {
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

    /// Returns all calls that are not idle, by ascending slot.
    pub(in crate::session) fn open(&self) -> impl Iterator<Item = CallId> + use<> {
        let open = self.slots.iter().enumerate().filter(|(_, open)| !matches!(open.state, CallState::Idle));
        let calls: Vec<_> = open.map(|(slot, open)| call_id(slot, open.generation)).collect();
        calls.into_iter()
    }

    /// Returns the first call at or after `slot` whose deadline has passed.
    pub(in crate::session) fn next_overdue(&mut self, slot: u16, now: Nanos) -> Option<CallId> {
        self.next(slot, |open| open.state.has_waiter() && open.limit.has_passed(now))
    }

    /// Returns the first call at or after `slot` whose waiter has left without notifying the engine.
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

    /// Returns the first call at or after `slot` for which a cancellation must be sent, and the class of its request.
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

    /// Records that a cancellation was sent.
    pub(in crate::session) fn cancel_sent(&mut self, call: CallId) {
        if let Some(OpenCall { state: CallState::AwaitingResponse { cancel, .. }, .. }) = self.find(call) {
            debug_assert!(*cancel == Cancel::Due, "a cancel is sent once");
            *cancel = Cancel::Sent;
        }
    }

    /// Takes all posted requests out of the table after the link was lost, in the order in which they were posted. They are to be posted
    /// again: call [`Self::wait`] for each. A call without a resend copy of its request stays in the table as posted.
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
        assert!(
            unanswered.is_sorted_by(|(a, _), (b, _)| a < b),
            "each posted request has an order of its own"
        );
        unanswered.into_iter().map(|(_, call)| call).collect()
    }

    /// Returns the number of requests in the backlog.
    pub(in crate::session) fn count_waiting(&self) -> usize {
        self.slots.iter().filter(|open| matches!(open.state, CallState::Waiting { .. })).count()
    }

    /// Returns whether any call is `AwaitingResponse`.
    pub(in crate::session) fn awaits_response(&self) -> bool {
        let awaits = |state: &CallState| {
            matches!(
                state,
                CallState::AwaitingResponse { .. } | CallState::Waiting { before: Before::GivenUp, .. }
            )
        };
        self.slots.iter().any(|open| awaits(&open.state))
    }

    /// Frees memory that the session no longer needs.
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
mod tests;
