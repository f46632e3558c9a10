//! Messages that wait for a receive, indexed by tag, by call slot and by the order of arrival.
//!
//! A message whose sender still waits occupies the sender's call slot, so there is at most one per slot. If a later call arrives in the
//! same slot, the earlier call has already ended at its caller, for example because its deadline passed while a link was lost. The later
//! message then replaces the earlier one.
//!
//! # Invariants
//! 1. `by_tag` names every message, and `by_slot` every message that is not parked. Each names the message by its position in the order of
//!    arrival.
//! 2. `unexpected` is the number of parked messages, at most [`MAX_UNEXPECTED`].
//! 3. The number of messages is at most [`MAX_SENDS`] plus [`MAX_UNEXPECTED`]: the peer has no more sends without a response.

use alloc::collections::{BTreeMap, BTreeSet};

use pronto_wire::CallId;

use super::MAX_SENDS;
use super::table::{Body, MAX_UNEXPECTED, UnmatchedMessage};

/// Messages without a matching receive, by tag, by call slot and by the order of arrival.
#[derive(Debug)]
pub(in crate::session) struct Unmatched<L> {
    messages: BTreeMap<Place, UnmatchedMessage<L>>,
    by_tag: BTreeSet<(u64, Place)>,
    by_slot: BTreeMap<u16, Place>,
    unexpected: usize,
    /// The position of the next message.
    next: Place,
}

/// A position in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::session) struct Place(u64);

/// The outcome of adding a message.
#[derive(Debug)]
pub(in crate::session) enum Added<L> {
    /// The message waits.
    Waits,
    /// The message waits, in place of the returned message of an earlier call in the same slot.
    Replaced(UnmatchedMessage<L>),
    /// The returned message was not added: it belongs to an earlier call than the message that waits in its slot.
    Outdated(UnmatchedMessage<L>),
}

impl<L> Default for Unmatched<L> {
    fn default() -> Self {
        Self {
            messages: BTreeMap::new(),
            by_tag: BTreeSet::new(),
            by_slot: BTreeMap::new(),
            unexpected: 0,
            next: Place::default(),
        }
    }
}

impl<L> Unmatched<L> {
    /// Returns the number of messages.
    pub(in crate::session) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(in crate::session) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns whether another message may be parked.
    pub(in crate::session) const fn has_room_to_park(&self) -> bool {
        self.unexpected < MAX_UNEXPECTED
    }

    /// Returns whether as many senders wait as a peer may have, so that no other one may. A later call in the slot of one replaces it.
    pub(in crate::session) fn is_crowded(&self, slot: u16) -> bool {
        self.by_slot.len() >= MAX_SENDS as usize && !self.by_slot.contains_key(&slot)
    }

    /// Adds a message after all others.
    pub(in crate::session) fn add(&mut self, message: UnmatchedMessage<L>) -> Added<L> {
        let place = self.next;
        let CallId { slot, generation } = message.offer.call;
        let mut replaced = None;
        if message.is_parked() {
            self.unexpected += 1;
            debug_assert!(self.unexpected <= MAX_UNEXPECTED, "a message is parked only if there is room");
        } else {
            if let Some(earlier) = self.in_slot(slot) {
                if !is_later(generation, earlier.offer.call.generation) {
                    return Added::Outdated(message);
                }
                replaced = self.by_slot.get(&slot).copied().and_then(|place| self.take(place));
            }
            self.by_slot.insert(slot, place);
        }
        self.next = Place(place.0 + 1);
        self.by_tag.insert((message.offer.tag, place));
        self.messages.insert(place, message);
        debug_assert_eq!(self.messages.len(), self.by_slot.len() + self.unexpected, "invariants 1 and 2");
        replaced.map_or(Added::Waits, Added::Replaced)
    }

    /// Returns the position of the first message with a tag.
    pub(in crate::session) fn first(&self, tag: u64) -> Option<Place> {
        let mut of_tag = self.by_tag.range((tag, Place(0))..=(tag, Place(u64::MAX)));
        of_tag.next().map(|(_, place)| *place)
    }

    /// Takes out the message at a position.
    pub(in crate::session) fn take(&mut self, place: Place) -> Option<UnmatchedMessage<L>> {
        let message = self.messages.remove(&place)?;
        self.by_tag.remove(&(message.offer.tag, place));
        if message.is_parked() {
            self.unexpected -= 1;
        } else {
            self.by_slot.remove(&message.offer.call.slot);
        }
        Some(message)
    }

    /// Takes out the message of a call, unless it is parked. The sender of a parked message has its reply and cannot cancel any more.
    pub(in crate::session) fn take_call(&mut self, call: CallId) -> Option<UnmatchedMessage<L>> {
        self.in_slot(call.slot).filter(|message| message.offer.call == call)?;
        let place = self.by_slot.get(&call.slot).copied()?;
        self.take(place)
    }

    /// Returns the body of a call's message, unless it is parked.
    pub(in crate::session) fn body_of(&mut self, call: CallId) -> Option<&mut Body<L>> {
        let place = self.by_slot.get(&call.slot)?;
        let message = self.messages.get_mut(place).filter(|message| message.offer.call == call)?;
        Some(&mut message.body)
    }

    /// Returns the calls of all messages that are not parked.
    pub(in crate::session) fn calls(&self) -> impl Iterator<Item = CallId> {
        self.by_slot.values().filter_map(|place| Some(self.messages.get(place)?.offer.call))
    }

    fn in_slot(&self, slot: u16) -> Option<&UnmatchedMessage<L>> {
        self.messages.get(self.by_slot.get(&slot)?)
    }
}

/// Returns whether `generation` is a later use of a slot than `than`. Generations wrap.
pub(in crate::session) const fn is_later(generation: u32, than: u32) -> bool {
    matches!(generation.wrapping_sub(than), 1..=0x7fff_ffff)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec::Vec;

    use pronto_wire::Class;

    use super::super::table::Offer;
    use super::super::transfer::Source;
    use super::*;
    use crate::fabric::RemoteRange;

    fn call(slot: u16, generation: u32) -> CallId {
        CallId { slot, generation }
    }

    fn message(call: CallId, tag: u64) -> UnmatchedMessage<()> {
        let remote = RemoteRange { key: 1, offset: 0, len: 1 };
        let body = Body::Source(Source { pieces: remote.into(), link: 1 });
        UnmatchedMessage { offer: Offer { call, link: 1, class: Class::Bulk, tag }, body }
    }

    fn unexpected(call: CallId, tag: u64) -> UnmatchedMessage<()> {
        UnmatchedMessage { body: Body::Unexpected([].into()), ..message(call, tag) }
    }

    /// Takes out all messages with a tag, in their order, and returns their calls.
    fn drain(messages: &mut Unmatched<()>, tag: u64) -> Vec<CallId> {
        let next = || messages.first(tag).and_then(|place| messages.take(place)).map(|one| one.offer.call);
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn a_later_call_in_a_slot_replaces_the_message_of_the_earlier_one() {
        let mut messages = Unmatched::default();
        assert!(matches!(messages.add(message(call(3, 5), 1)), Added::Waits));
        assert!(matches!(messages.add(message(call(4, 5), 1)), Added::Waits));
        let Added::Replaced(earlier) = messages.add(message(call(3, 6), 1)) else { panic!("one per slot") };
        assert_eq!((earlier.offer.call, messages.len()), (call(3, 5), 2));
        let Added::Outdated(late) = messages.add(message(call(3, 5), 2)) else {
            panic!("the earlier call has ended")
        };
        assert_eq!((late.offer.call, messages.len()), (call(3, 5), 2));
        assert!(
            matches!(messages.add(message(call(3, 6), 2)), Added::Outdated(_)),
            "no message arrives twice"
        );
        assert_eq!(messages.calls().collect::<Vec<_>>(), [call(3, 6), call(4, 5)]);
        assert_eq!(
            drain(&mut messages, 1),
            [call(4, 5), call(3, 6)],
            "the position is that of its own arrival"
        );
        assert!(messages.is_empty() && messages.calls().next().is_none());
    }

    #[test]
    fn generations_wrap() {
        let mut messages = Unmatched::default();
        assert!(matches!(messages.add(message(call(0, u32::MAX), 1)), Added::Waits));
        assert!(matches!(messages.add(message(call(0, 2), 1)), Added::Replaced(_)));
        assert!(matches!(messages.add(message(call(0, u32::MAX - 1), 1)), Added::Outdated(_)));
    }

    #[test]
    fn however_many_arrive_there_are_no_more_than_slots_and_parked_ones() {
        let mut messages = Unmatched::default();
        let slots = 16;
        for number in 0..10_000 {
            let call = call(u16::try_from(number % slots).expect("a few"), number);
            if messages.has_room_to_park() && number % 3 == 0 {
                assert!(matches!(messages.add(unexpected(call, number.into())), Added::Waits));
            } else {
                let added = messages.add(message(call, u64::from(number) % 5));
                assert!(!matches!(added, Added::Outdated(_)), "each is later than those before");
            }
            assert!(messages.len() <= usize::try_from(slots).expect("a few") + MAX_UNEXPECTED);
        }
        assert_eq!(messages.calls().count(), 16);
        assert_eq!(messages.by_tag.len(), messages.len(), "nothing is left in an index");
    }

    #[test]
    fn the_message_of_a_call_is_taken_out_once_and_a_parked_one_never() {
        let mut messages = Unmatched::default();
        assert!(matches!(messages.add(unexpected(call(1, 1), 9)), Added::Waits));
        assert!(
            matches!(messages.add(message(call(1, 2), 9)), Added::Waits),
            "the sender of the parked message has a reply"
        );
        assert!(messages.take_call(call(1, 1)).is_none() && messages.body_of(call(1, 1)).is_none());
        assert!(messages.body_of(call(1, 2)).is_some());
        assert!(messages.take_call(call(1, 2)).is_some() && messages.take_call(call(1, 2)).is_none());
        assert_eq!(drain(&mut messages, 9), [call(1, 1)]);
        assert!(messages.has_room_to_park());
    }
}
