//! Effects of each cause on a call in each of its states.

use pronto_wire::{ServiceId, TypeId};

use super::*;

const NOW: Nanos = Nanos::from_millis(1);

fn call(slot: u16) -> CallId {
    CallId { slot, generation: 7 }
}

fn request(payload: &[u8]) -> Request {
    let payload = OutgoingPayload::inline(payload).expect("the payload is short");
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
        "waiting" => calls.wait(call(0), request(b"new"), Before::NeverPosted, TimeLimit::new(Nanos::NEVER)),
        "due again" => calls.wait(call(0), request(b"old"), Before::Posted, TimeLimit::new(Nanos::NEVER)),
        "posted" => calls.posted(call(0), Class::Bulk, Nanos::NEVER, resend()),
        "awaiting" => {
            calls.posted(call(0), Class::Bulk, Nanos::NEVER, resend());
            calls.end(call(0), Cause::Left(Expects::Response)).expect("the request was posted");
        }
        _ => unreachable!("unknown state"),
    }
    calls
}

fn report(state: &str, cause: Cause) -> (Option<Report>, bool) {
    let mut calls = calls_with(state);
    let ended = calls.end(call(0), cause);
    let withdrawn = ended.as_ref().is_some_and(|ended| ended.withdrawn.is_some());
    let waited = state == "waiting" || state == "due again";
    assert_eq!(withdrawn, waited && !calls.is_open(call(0)), "a request leaves the backlog with its call");
    (ended.map(|ended| ended.report), calls.is_open(call(0)))
}

#[test]
fn a_request_that_was_never_posted_was_not_executed_and_one_that_was_may_have_been() {
    let over = |executed| (Some(Report::End(executed, Expects::Nothing)), false);
    for cause in [Cause::SessionOver, Cause::Deadline(Expects::Nothing)] {
        assert_eq!(report("waiting", cause), over(Executed::No), "{cause:?}");
        assert_eq!(report("due again", cause), over(Executed::Maybe), "{cause:?}");
    }
    assert_eq!(report("waiting", Cause::Deadline(Expects::Response)), over(Executed::No));
    let repeated = Some(Report::End(Executed::Maybe, Expects::Response));
    assert_eq!(report("due again", Cause::Deadline(Expects::Response)), (repeated, true));
    assert_eq!(report("posted", Cause::SessionOver), over(Executed::Maybe));
    assert_eq!(report("posted", Cause::Deadline(Expects::Nothing)), over(Executed::Maybe));
    let response = Some(Report::End(Executed::Maybe, Expects::Response));
    assert_eq!(report("posted", Cause::Deadline(Expects::Response)), (response, true));
}

/// Shows: calls.slot-kept
#[test]
fn a_waiter_that_leaves_frees_the_slot_unless_a_response_may_come() {
    assert_eq!(report("waiting", Cause::Left(Expects::Response)), (Some(Report::Settle), false));
    assert_eq!(report("due again", Cause::Left(Expects::Nothing)), (Some(Report::Settle), false));
    assert_eq!(report("due again", Cause::Left(Expects::Response)), (Some(Report::Nothing), true));
    assert_eq!(report("posted", Cause::Left(Expects::Nothing)), (Some(Report::Settle), false));
    assert_eq!(report("posted", Cause::Left(Expects::Response)), (Some(Report::Nothing), true));
}

#[test]
fn an_outstanding_response_settles_the_slot_once() {
    for cause in [Cause::Response, Cause::LinkLost, Cause::SessionOver] {
        assert_eq!(report("awaiting", cause), (Some(Report::Settle), false), "{cause:?}");
    }
    for cause in [Cause::Deadline(Expects::Response), Cause::Left(Expects::Response)] {
        assert_eq!(
            report("awaiting", cause),
            (None, true),
            "the call has already ended for its waiter: {cause:?}"
        );
    }
    assert_eq!(report("waiting", Cause::Response), (None, true), "no request was posted on this link");
    assert_eq!(report("due again", Cause::Response), (None, true), "no request was posted on this link");
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
    let (request, before, limit) = calls.take_waiting(call(2)).expect("the request waits");
    assert_eq!(limit.remaining(NOW + Nanos::from_millis(4)), Nanos::from_millis(6));
    calls.wait(call(2), request, before, limit);
    assert_eq!(calls.next_overdue(0, NOW + timeout), Some(call(2)));
    assert_eq!(calls.next_overdue(3, NOW + timeout), None, "the call is in an earlier slot");
}

/// Shows: protocol.sent-again
#[test]
fn unanswered_requests_are_taken_out_in_the_order_of_their_posting() {
    let mut calls = OpenCalls::new(4);
    for slot in [2, 0, 1] {
        calls.posted(call(slot), Class::Control, Nanos::NEVER, resend());
    }
    calls.posted(call(3), Class::Control, Nanos::NEVER, None);
    calls.end(call(0), Cause::Left(Expects::Response)).expect("the request was posted");
    let slots: Vec<_> = calls.take_unanswered().iter().map(|(call, ..)| call.slot).collect();
    assert_eq!(slots, [2, 1], "neither the abandoned call nor the one without a resend copy");
    assert_eq!(calls.open().map(|call| call.slot).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn a_request_that_was_given_up_is_repeated_unless_its_bytes_may_change() {
    let mut calls = OpenCalls::new(4);
    let region = crate::fabric::Region::new(alloc::sync::Arc::new(crate::fabric::HeapMemory::new(8)));
    let payload = OutgoingPayload::Region { region, offset: 0, len: 8 };
    let by_reference = Request { payload, ..request(b"") };
    calls.wait(call(0), by_reference, Before::Posted, TimeLimit::new(Nanos::NEVER));
    let ended = calls.end(call(0), Cause::Left(Expects::Response)).expect("the request waits");
    assert!(ended.report == Report::Settle && ended.withdrawn.is_some() && !calls.is_open(call(0)));
    calls.wait(call(1), request(b"kept"), Before::Posted, TimeLimit::new(Nanos::ZERO));
    calls.end(call(1), Cause::Left(Expects::Response)).expect("the request waits");
    assert!(calls.is_waiting(call(1)));
    assert_eq!(calls.next_overdue(0, NOW), None, "the waiter has left");
    assert!(calls.end(call(1), Cause::Deadline(Expects::Response)).is_none());
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

#[test]
fn a_request_whose_payload_comes_back_is_repeated_with_it() {
    let mut calls = OpenCalls::new(4);
    let resend = Resend { type_id: TypeId(3), service: ServiceId(0), payload: None };
    calls.posted(call(0), Class::Bulk, Nanos::NEVER, Some(resend));
    calls.payload_back(CallId { slot: 0, generation: 6 }, OutgoingPayload::EMPTY);
    let payload = OutgoingPayload::inline(b"again").expect("the payload is short");
    calls.payload_back(call(0), payload);
    let unanswered = calls.take_unanswered();
    let [(id, request, _)] = &unanswered[..] else {
        panic!("the transport returned the payload: {unanswered:?}")
    };
    assert_eq!((*id, request.class, request.payload.len()), (call(0), Class::Bulk, 5));
}

#[test]
fn a_response_is_awaited_for_calls_that_ended_for_their_waiter_only() {
    for (state, cause) in [
        ("posted", Cause::Deadline(Expects::Response)),
        ("posted", Cause::Left(Expects::Response)),
        ("due again", Cause::Left(Expects::Response)),
    ] {
        let mut calls = calls_with(state);
        assert!(!calls.awaits_response(), "{state}");
        assert!(calls.end(call(0), cause).is_some());
        assert!(calls.awaits_response(), "{state}, {cause:?}");
        assert!(calls.end(call(0), Cause::LinkLost).is_some() && !calls.awaits_response());
    }
}

#[test]
fn calls_that_wait_are_counted() {
    let mut calls = calls_with("waiting");
    calls.posted(call(1), Class::Control, Nanos::NEVER, None);
    assert_eq!(calls.count_waiting(), 1);
    calls.end(call(0), Cause::SessionOver).expect("the request waits");
    assert_eq!(calls.count_waiting(), 0);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a slot is used by one call after another")]
fn an_earlier_call_does_not_use_the_slot_of_a_later_one() {
    let mut calls = calls_with("posted");
    calls.end(call(0), Cause::Response).expect("the request was posted");
    calls.posted(CallId { slot: 0, generation: 6 }, Class::Control, Nanos::NEVER, None);
}
