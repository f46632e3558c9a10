//! Tests of matching and of the selection of chunks, without an engine.

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::Mutex;

use pronto_wire::{CallId, Class, InlinePayload};

use super::table::{Body, MAX_UNEXPECTED, Offer, Posted, Table, UnmatchedMessage};
use super::transfer::{Chunking, GivenUp, Source, Transfer};
use super::{NotReceived, Rendezvous};
use crate::fabric::{Arrived, HeapMemory, OutOfBounds, Payload, Region, RemoteRange};
use crate::session::end::End;
use crate::session::one_sided::Access;
use crate::session::outgoing::OutgoingPayload;
use crate::wait::back_off::tests::RealTime;
use crate::wait::wanted::Wanted;

#[derive(Debug)]
struct NoLease;

impl Payload for NoLease {
    fn len(&self) -> usize {
        0
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        if out.is_empty() { Ok(()) } else { Err(OutOfBounds { offset, wanted: out.len(), len: 0 }) }
    }

    fn as_private(&self) -> Option<&[u8]> {
        None
    }
}

const LINK: u16 = 3;
const CHUNKING: Chunking = Chunking { len: 100, window: 2 };

fn slot(slot: u16) -> CallId {
    CallId { slot, generation: 1 }
}

fn posted(number: u16, tag: u64) -> Posted {
    let region = Region::new(Arc::new(HeapMemory::new(1024)));
    Posted { slot: slot(number), tag, region, offset: 10, len: 1000 }
}

fn offer(call: u16, tag: u64) -> Offer {
    Offer { call: slot(call), link: LINK, class: Class::Bulk, tag }
}

fn source(len: u64, link: u16) -> Source {
    Source { pieces: RemoteRange { key: u64::from(link), offset: 0, len }.into(), link }
}

fn by_reference(call: u16, tag: u64) -> UnmatchedMessage<NoLease> {
    UnmatchedMessage { offer: offer(call, tag), body: Body::Source(source(250, LINK)) }
}

fn eager(call: u16, tag: u64) -> UnmatchedMessage<NoLease> {
    let payload = Arrived::Inline(InlinePayload::EMPTY);
    UnmatchedMessage { offer: offer(call, tag), body: Body::Eager { payload, skip: 0 } }
}

fn transfer(len: u64) -> Transfer {
    Transfer::new(posted(0, 1), offer(0, 1), source(len, LINK))
}

/// Starts chunks while the transfer has a next one. Returns their ranges. Slots are numbered from `first`.
fn ask(transfer: &mut Transfer, link: u16, first: u16) -> Vec<(u64, u64)> {
    let mut asked = Vec::new();
    while let Some((end, Access::Read { offset, remote, .. })) = transfer.next_chunk(CHUNKING, link) {
        asked.push((offset, remote.len));
        let number = u16::try_from(asked.len()).expect("few chunks");
        transfer.started(slot(first + number - 1), end);
    }
    asked
}

#[test]
fn the_turn_of_a_transfer_is_over_after_a_megabyte() {
    const LEN: u64 = 16 << 10;
    let mut transfer = transfer(1 << 22);
    let chunking = Chunking { len: LEN, window: 1 };
    for chunk in 1..=(1 << 22) / LEN {
        let (end, _) = transfer.next_chunk(chunking, LINK).expect("one chunk may be in flight");
        let over = transfer.started(slot(0), end);
        assert_eq!(over, chunk.is_multiple_of((1 << 20) / LEN), "after {chunk} chunks");
        all_end(&mut transfer, |_| End::Done(0));
    }
}

#[test]
fn transfers_take_turns_of_a_megabyte() {
    const CHUNK: u64 = 16 << 10;
    const TURN: u16 = 64;
    let chunking = Chunking { len: CHUNK, window: 1 };
    let mut table = Table::<NoLease>::default();
    for (tag, turns) in [(1, 2), (2, 1), (3, 3)] {
        table.transfers.push_back(Transfer::new(
            posted(0, tag),
            offer(0, tag),
            source(turns * u64::from(TURN) * CHUNK, LINK),
        ));
    }
    let mut order = Vec::new();
    while let Some(at) = table.turn(chunking, LINK) {
        // A transfer whose chunk could not be started keeps its place.
        assert_eq!(table.turn(chunking, LINK), Some(at));
        let transfer = &mut table.transfers[at];
        let (end, _) = transfer.next_chunk(chunking, LINK).expect("it is its turn");
        order.push(transfer.posted.tag);
        let over = transfer.started(slot(0), end);
        if over {
            table.end_turn(at);
        }
        table.transfers.iter_mut().for_each(|transfer| {
            all_end(transfer, |_| End::Done(0));
        });
    }
    let turns: Vec<_> =
        order.chunks(TURN.into()).map(|turn| (turn[0], turn.iter().all(|tag| *tag == turn[0]))).collect();
    assert_eq!(turns, [(1, true), (2, true), (3, true), (1, true), (3, true), (3, true)]);
}

fn all_end(transfer: &mut Transfer, end: impl Fn(CallId) -> End<NoLease>) -> usize {
    transfer.take_ended(|slot| Some(end(slot)))
}

/// Shows: calls.matching, protocol.order-rendezvous
#[test]
fn messages_and_receives_of_a_tag_meet_in_their_orders() {
    let mut table = Table::default();
    for message in [by_reference(1, 7), eager(2, 7), eager(3, 8)] {
        assert!(table.add(message).is_none());
    }
    table.posted.extend([posted(11, 8), posted(12, 7), posted(13, 7), posted(14, 9)]);
    let mut met = Vec::new();
    while let Some(one) = table.meet() {
        met.push((one.waiting.offer.call.slot, one.posted.slot.slot));
    }
    assert_eq!(met, [(1, 12), (2, 13), (3, 11)]);
    assert_eq!((table.posted.len(), table.is_empty()), (1, false));
}

#[test]
fn unexpected_messages_have_a_limit_and_cannot_be_cancelled() {
    let mut table = Table::default();
    let unexpected = |call| UnmatchedMessage { offer: offer(call, 1), body: Body::Unexpected([].into()) };
    for call in (0..).take(MAX_UNEXPECTED) {
        assert!(table.waiting.has_room_to_park());
        assert!(table.add(unexpected(call)).is_none());
    }
    assert!(!table.waiting.has_room_to_park());
    for message in [eager(50, 1), by_reference(51, 1)] {
        assert!(table.add(message).is_none());
    }
    // Parked messages have a reply and cannot be cancelled. The others can.
    table.cancel_where(|_| true);
    let gone: Vec<_> = table.given_up.drain(..).map(|gone| gone.offer.call.slot).collect();
    assert_eq!(gone, [50, 51]);
    assert!(!table.is_awaited(1));
    table.posted.push_back(posted(20, 1));
    assert!(table.is_awaited(1) && !table.is_awaited(2));
    assert!(table.meet().is_some());
    assert!(table.waiting.has_room_to_park(), "another message can be parked");
}

#[test]
fn a_receive_is_there_again_before_others_when_its_sender_gives_up() {
    let mut table: Table<NoLease> = Table::default();
    table.posted.extend([posted(1, 5), posted(2, 5)]);
    assert!(table.add(by_reference(1, 5)).is_none());
    let met = table.meet().expect("message and receive match");
    table.post_again(met.posted);
    assert!(table.add(eager(2, 5)).is_none());
    assert_eq!(table.meet().expect("message and receive match").posted.slot, slot(1));
    assert!(table.withdraw(slot(1)).is_none(), "the receive has matched");
    assert!(table.withdraw(slot(2)).is_some());
    assert!(table.posted.is_empty());
}

#[test]
fn a_later_call_in_its_slot_ends_an_offer_and_a_transfer() {
    let later = |call: u16, tag| {
        let UnmatchedMessage { offer, body } = by_reference(call, tag);
        let call = CallId { generation: offer.call.generation + 1, ..offer.call };
        UnmatchedMessage { offer: Offer { call, ..offer }, body }
    };
    let mut table: Table<NoLease> = Table::default();
    assert!(table.add(by_reference(1, 7)).is_none());
    let replaced = table.add(later(1, 7)).expect("one message waits per slot");
    assert_eq!(replaced.offer.call, by_reference(1, 7).offer.call);
    table.transfers.push_back(Transfer::new(posted(11, 8), offer(2, 8), source(250, LINK)));
    assert!(table.add(by_reference(3, 9)).is_none());
    assert_eq!(table.transfers[0].is_over(), None, "the offer is in another slot");
    assert!(table.add(later(2, 8)).is_none());
    assert_eq!(table.transfers[0].is_over(), Some(Err(GivenUp::BySender)));
}

#[test]
fn a_transfer_asks_for_each_byte_once_within_its_window() {
    let mut transfer = transfer(250);
    assert_eq!(transfer.is_over(), None);
    assert_eq!(ask(&mut transfer, LINK, 0), [(10, 100), (110, 100)]);
    assert_eq!(all_end(&mut transfer, |_| End::Done(0)), 2);
    assert_eq!(ask(&mut transfer, LINK, 2), [(210, 50)]);
    assert_eq!(transfer.is_over(), None, "the last chunk is in flight");
    all_end(&mut transfer, |_| End::Done(0));
    assert_eq!(transfer.is_over(), Some(Ok(250)));
}

#[test]
fn nothing_is_a_transfer_too() {
    let mut transfer = transfer(0);
    assert_eq!(ask(&mut transfer, LINK, 0), []);
    assert_eq!(transfer.is_over(), Some(Ok(0)));
}

#[test]
fn after_another_grant_a_transfer_goes_on_from_the_first_byte_that_is_missing() {
    let mut transfer = transfer(400);
    ask(&mut transfer, LINK, 0);
    // Of two chunks in flight, the first is lost with the link.
    let end = |at: CallId| if at.slot == 0 { End::Flushed } else { End::Done(0) };
    all_end(&mut transfer, end);
    assert_eq!(ask(&mut transfer, LINK, 2), [], "no chunk is read with a grant that failed");
    transfer.go_on(LINK + 1);
    assert_eq!(ask(&mut transfer, LINK + 1, 2), [], "the new link has no grant yet");
    transfer.regrant(&source(399, LINK + 1));
    transfer.go_on(LINK + 1);
    assert_eq!(ask(&mut transfer, LINK + 1, 2), [], "a grant of another length is ignored");
    transfer.regrant(&source(400, LINK + 1));
    transfer.go_on(LINK + 1);
    assert_eq!(ask(&mut transfer, LINK + 1, 2), [(10, 100), (110, 100)]);
    all_end(&mut transfer, |_| End::Done(0));
    ask(&mut transfer, LINK + 1, 4);
    all_end(&mut transfer, |_| End::Done(0));
    assert_eq!(transfer.is_over(), Some(Ok(400)));
}

#[test]
fn a_transfer_that_is_given_up_is_over_when_nothing_writes_to_its_buffer() {
    let mut transfer = transfer(400);
    ask(&mut transfer, LINK, 0);
    transfer.give_up(GivenUp::BySender);
    transfer.give_up(GivenUp::ByReceiver);
    transfer.give_up(GivenUp::BySender);
    assert_eq!(transfer.is_over(), None);
    assert_eq!(transfer.take_ended(|at| (at.slot == 0).then_some(End::<NoLease>::Done(0))), 1);
    assert_eq!((transfer.is_over(), ask(&mut transfer, LINK, 5)), (None, Vec::new()));
    all_end(&mut transfer, |_| End::Done(0));
    assert_eq!(transfer.is_over(), Some(Err(GivenUp::ByReceiver)), "a cancelled receive is not posted again");
}

#[test]
fn a_connection_without_one_sided_operations_ends_it() {
    let mut transfer = transfer(100);
    ask(&mut transfer, LINK, 0);
    all_end(&mut transfer, |_| End::Unsupported);
    assert_eq!(transfer.is_over(), Some(Err(GivenUp::Unsupported)));
}

#[test]
fn a_refused_range_is_not_requested_again_on_the_same_grant() {
    let mut transfer = transfer(400);
    assert_eq!(ask(&mut transfer, LINK, 0).len(), 2);
    assert_eq!(all_end(&mut transfer, |_| End::AccessRefused), 2);
    transfer.go_on(LINK);
    assert_eq!(ask(&mut transfer, LINK, 0), [], "the grant would be refused again");
    assert_eq!(transfer.is_over(), None, "the sender may grant again, or cancel");
    transfer.regrant(&source(400, LINK + 1));
    transfer.go_on(LINK + 1);
    assert_eq!(ask(&mut transfer, LINK + 1, 0), [(10, 100), (110, 100)]);
}

#[test]
fn another_grant_may_come_before_the_old_ones_end_is_seen() {
    let mut transfer = transfer(400);
    assert_eq!(ask(&mut transfer, LINK, 0).len(), 2);
    transfer.regrant(&source(400, LINK + 1));
    assert_eq!(all_end(&mut transfer, |_| End::Flushed), 2);
    transfer.go_on(LINK + 1);
    assert_eq!(ask(&mut transfer, LINK + 1, 0), [(10, 100), (110, 100)]);
    assert_eq!(all_end(&mut transfer, |_| End::Done(0)), 2);
    assert_eq!(ask(&mut transfer, LINK + 1, 0), [(210, 100), (310, 100)]);
    assert_eq!(all_end(&mut transfer, |_| End::Done(0)), 2);
    assert_eq!(transfer.is_over(), Some(Ok(400)));
}

#[test]
fn memory_that_cannot_be_used_ends_it() {
    let mut transfer = transfer(400);
    assert_eq!(ask(&mut transfer, LINK, 0).len(), 2);
    let end = |at: CallId| if at.slot == 0 { End::Unsupported } else { End::Done(0) };
    assert_eq!(all_end(&mut transfer, end), 2);
    assert_eq!(transfer.is_over(), Some(Err(GivenUp::Unsupported)));
}

#[test]
fn memory_of_the_sender_that_is_gone_ends_it() {
    let mut transfer = transfer(400);
    assert_eq!(ask(&mut transfer, LINK, 0).len(), 2);
    let end = |at: CallId| if at.slot == 0 { End::Done(0) } else { End::Unreadable };
    assert_eq!(all_end(&mut transfer, end), 2);
    assert_eq!(transfer.is_over(), Some(Err(GivenUp::Unreadable)));
}

#[test]
fn a_real_time_thread_lets_the_holder_of_the_table_run() {
    let rendezvous = Rendezvous::<NoLease>::new(4);
    let held = Mutex::new(rendezvous.table.try_lock());
    let thread = RealTime::with(|| drop(held.lock().expect("no panic").take()));
    drop(rendezvous.lock(&Wanted::default(), &thread));
    assert!(thread.has_slept());
}

#[test]
fn the_reason_of_a_failed_rendezvous_survives_the_wire() {
    for reason in
        [NotReceived::Cancelled, NotReceived::TooLong, NotReceived::Unsupported, NotReceived::Unreadable]
    {
        let sent = reason.payload();
        let OutgoingPayload::Inline(sent) = &sent else { panic!("one byte is inline") };
        assert_eq!(sent.as_slice(), [reason as u8]);
        assert_eq!(NotReceived::from_wire(sent.as_slice()[0]), Some(reason));
    }
    assert_eq!([0, 5].map(NotReceived::from_wire), [None; 2], "a reason of a newer peer");
}
