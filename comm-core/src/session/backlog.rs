//! The backlog: messages that wait, in their order, for room in the fabric, for a credit, or for the session's next link.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pronto_wire::{CallId, Class, Kind};

use super::one_sided::OneSided;
use super::outgoing::Outgoing;

/// The messages and one-sided operations that wait for room in the fabric, for a credit or for the session's next link, oldest first. Each
/// class has a queue of its own, so that neither waits behind the other.
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

    /// Returns whether no message waits in either class.
    #[inline(always)]
    pub(super) fn is_clear(&self) -> bool {
        let [control, bulk] = &self.classes;
        control.is_empty() && bulk.is_empty()
    }

    pub(super) fn push_back(&mut self, class: Class, entry: Entry) {
        debug_assert!(!self.names_call_of(&entry), "one entry names a call");
        self.classes[class.index()].push_back(entry);
    }

    pub(super) fn push_front(&mut self, class: Class, entry: Entry) {
        debug_assert!(!self.names_call_of(&entry), "one entry names a call");
        self.classes[class.index()].push_front(entry);
    }

    pub(super) fn pop_front(&mut self, class: Class) -> Option<Entry> {
        self.classes[class.index()].pop_front()
    }

    /// Returns the entries of a class, oldest first.
    pub(super) fn entries_mut(&mut self, class: Class) -> impl Iterator<Item = &mut Entry> {
        self.classes[class.index()].iter_mut()
    }

    /// Returns whether an entry names the call that `entry` names.
    fn names_call_of(&self, entry: &Entry) -> bool {
        let Entry::Call(call) = entry else { return false };
        self.classes.iter().flatten().any(|other| matches!(other, Entry::Call(other) if other == call))
    }

    /// Returns the number of entries that name a call.
    pub(super) fn count_calls(&self) -> usize {
        self.classes.iter().flatten().filter(|entry| matches!(entry, Entry::Call(_))).count()
    }

    /// Removes a call's entry. Returns whether there was one.
    pub(super) fn remove(&mut self, call: CallId) -> bool {
        let is_it = |entry: &Entry| matches!(entry, Entry::Call(other) if *other == call);
        self.classes.iter_mut().any(|class| {
            let at = class.iter().position(is_it);
            at.and_then(|at| class.remove(at)).is_some()
        })
    }

    /// Inserts calls, in their order, before all other entries.
    pub(super) fn put_first(&mut self, class: Class, calls: impl DoubleEndedIterator<Item = CallId>) {
        for call in calls.rev() {
            self.push_front(class, Entry::Call(call));
        }
    }

    /// Removes and returns the responses. The other entries keep their order.
    pub(super) fn take_responses(&mut self) -> Vec<Outgoing> {
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

    /// Removes and returns all entries.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Entry> + use<> {
        let [control, bulk] = core::mem::take(&mut self.classes);
        control.into_iter().chain(bulk)
    }

    /// Frees memory that the session no longer needs.
    pub(super) fn give_back(&mut self) {
        self.classes.iter_mut().for_each(VecDeque::shrink_to_fit);
    }
}

/// Returns whether a message is the response to a request of the peer.
const fn is_response(kind: &Kind) -> bool {
    matches!(kind, Kind::Reply { .. } | Kind::Failure { .. })
}

/// Returns whether a message takes a request credit.
pub(super) const fn is_new(outgoing: &Outgoing) -> bool {
    matches!(outgoing.kind, Kind::Request { .. } | Kind::Notification { .. })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use pronto_wire::FailureCode;

    use super::*;
    use crate::session::outgoing::{Carrier, OutgoingPayload};
    use crate::time::Nanos;

    fn call(slot: u16) -> CallId {
        CallId { slot, generation: 1 }
    }

    fn message(kind: Kind) -> Entry {
        let (payload, timeout) = (OutgoingPayload::EMPTY, Nanos::NEVER);
        Entry::Message(Outgoing {
            class: Class::Bulk,
            link: 1,
            kind,
            payload,
            carrier: Carrier::AnyLink,
            completes: None,
            timeout,
        })
    }

    /// Returns the slots of the calls that the entries of a class name, in their order, and `None` for other entries.
    fn calls(backlog: &mut Backlog, class: Class) -> Vec<Option<u16>> {
        let entries = core::iter::from_fn(|| backlog.pop_front(class));
        let slot = |entry| if let Entry::Call(call) = entry { Some(call.slot) } else { None };
        entries.map(slot).collect()
    }

    #[test]
    fn each_class_is_a_queue_of_its_own() {
        let mut backlog = Backlog::default();
        backlog.push_back(Class::Bulk, Entry::Call(call(1)));
        assert!(backlog.is_empty(Class::Control) && !backlog.is_empty(Class::Bulk) && !backlog.is_clear());
        backlog.push_back(Class::Bulk, Entry::Call(call(2)));
        let first = backlog.pop_front(Class::Bulk).expect("two wait");
        backlog.push_front(Class::Bulk, first);
        assert_eq!(calls(&mut backlog, Class::Bulk), [Some(1), Some(2)]);
        assert!(backlog.is_clear());
    }

    #[test]
    fn calls_that_are_due_again_go_first_in_their_order() {
        let mut backlog = Backlog::default();
        backlog.push_back(Class::Control, Entry::Call(call(9)));
        backlog.put_first(Class::Control, [3, 1, 2].map(call).into_iter());
        assert_eq!(calls(&mut backlog, Class::Control), [3, 1, 2, 9].map(Some));
    }

    #[test]
    fn no_entry_outlives_its_call() {
        let mut backlog = Backlog::default();
        for (class, slot) in [(Class::Control, 1), (Class::Bulk, 2), (Class::Bulk, 3)] {
            backlog.push_back(class, Entry::Call(call(slot)));
        }
        assert!(backlog.remove(call(2)) && !backlog.remove(call(2)));
        assert!(!backlog.remove(CallId { slot: 3, generation: 2 }), "the entry names another call");
        assert_eq!(backlog.count_calls(), 2);
        assert_eq!(calls(&mut backlog, Class::Bulk), [Some(3)]);
    }

    #[test]
    fn responses_leave_and_everything_else_keeps_its_order() {
        let mut backlog = Backlog::default();
        backlog.push_back(Class::Bulk, Entry::Call(call(1)));
        backlog.push_back(Class::Bulk, message(Kind::Reply { call: call(7) }));
        backlog.push_back(Class::Bulk, message(Kind::Credit));
        backlog
            .push_back(Class::Control, message(Kind::Failure { call: call(8), code: FailureCode::NoReply }));
        backlog.push_back(Class::Bulk, Entry::Call(call(2)));
        assert_eq!(backlog.take_responses().len(), 2);
        assert!(backlog.is_empty(Class::Control));
        assert_eq!(calls(&mut backlog, Class::Bulk), [Some(1), None, Some(2)]);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "one entry names a call")]
    fn no_call_is_named_twice() {
        let mut backlog = Backlog::default();
        backlog.push_back(Class::Control, Entry::Call(call(1)));
        backlog.push_back(Class::Bulk, Entry::Call(call(1)));
    }
}
