//! Lines of a hostile peer.

use core::array::from_fn;

use pronto_core::fabric::{Arrived, FabricError, PeerFault, QueuePair, poll_by_value};

use super::LIMITS;
use super::rogue::{Segment, victim_of};
use crate::form::{self, Elsewhere, RegionName};
use crate::layout::Layout;
use crate::queue_pair::ShmQueuePair;

/// A correct place of a payload in send memory.
const PLACE: Elsewhere =
    Elsewhere { offset: 0, len: 41, tag: 0, token: 1, region: RegionName { slot: 0, generation: 0 } };

/// Returns the fault that the first poll of a segment causes.
#[track_caller]
fn fault(segment: Segment) -> PeerFault {
    let (mut link, _shown) = victim_of(&segment);
    let Err(FabricError::Peer(fault)) = poll_by_value(&mut link.bulk) else { panic!("no fault") };
    assert_eq!(poll_by_value(&mut link.bulk).unwrap_err(), FabricError::Peer(fault), "the fault persists");
    fault
}

fn segment_with(place: Elsewhere, form: u8) -> Segment {
    Segment::new().line(0, 1, form, place.line(&Default::default()))
}

#[test]
fn a_correct_line_is_taken() {
    let (mut link, _shown) = victim_of(&segment_with(PLACE, form::RING));
    let message = poll_by_value(&mut link.bulk).unwrap().unwrap();
    assert_eq!(message.payload.len(), 41);
}

#[test]
fn unknown_forms_are_faults() {
    for form in 233..form::RING {
        assert_eq!(fault(Segment::new().line(0, 1, form, [0; 8])), PeerFault::UnknownForm(form));
    }
}

/// Shows: messages.short
#[test]
fn a_short_payload_is_received_and_one_that_is_too_long_is_a_fault() {
    for len in 41..=232 {
        let segment = Segment::new().line(0, 1, len, [0; 8]);
        if u32::from(len) > LIMITS.max_receive_payload {
            let expected = PeerFault::Length { len: len.into(), max: LIMITS.max_receive_payload.into() };
            assert_eq!(fault(segment), expected);
        } else {
            let (mut link, _shown) = victim_of(&segment);
            let message = poll_by_value(&mut link.bulk).unwrap().unwrap();
            assert_eq!(message.payload.len(), usize::from(len));
        }
    }
}

#[test]
fn an_overwritten_line_is_a_fault() {
    assert_eq!(fault(Segment::new().line(0, 2, 0, [0; 8])), PeerFault::Overrun);
    let (mut link, _shown) = victim_of(&Segment::new().line(0, 1, 0, [0; 8]).line(1, 7, 0, [0; 8]));
    assert!(poll_by_value(&mut link.bulk).unwrap().is_some());
    assert_eq!(poll_by_value(&mut link.bulk).unwrap_err(), PeerFault::Overrun.into());
}

#[test]
fn a_payload_that_is_too_long_is_a_fault() {
    let max = LIMITS.max_receive_payload;
    for len in [max + 1, u32::MAX] {
        let place = Elsewhere { len, ..PLACE };
        let expected = PeerFault::Length { len: len.into(), max: max.into() };
        assert_eq!(fault(segment_with(place, form::RING)), expected);
    }
}

#[test]
fn a_payload_outside_the_peers_memory_is_a_fault() {
    let len = u64::from(LIMITS.send_memory);
    for offset in [len - 40, len, u64::MAX - 40, u64::MAX] {
        let place = Elsewhere { offset, ..PLACE };
        assert_eq!(fault(segment_with(place, form::RING)), PeerFault::Offset { offset, len });
    }
    let (mut link, _shown) = victim_of(&segment_with(Elsewhere { offset: len - 41, ..PLACE }, form::RING));
    assert!(poll_by_value(&mut link.bulk).unwrap().is_some(), "the last bytes are inside");
}

#[test]
fn a_tag_without_a_done_word_is_a_fault() {
    let tags = u32::try_from(Layout::own(&LIMITS).unwrap().tags).unwrap();
    for tag in [tags, u32::MAX] {
        let place = Elsewhere { tag, ..PLACE };
        let expected = PeerFault::Offset { offset: tag.into(), len: tags.into() };
        assert_eq!(fault(segment_with(place, form::RING)), expected);
    }
}

#[test]
fn a_region_that_was_never_passed_is_a_fault() {
    for slot in [0, 127, 128, u32::MAX] {
        let place = Elsewhere { region: RegionName { slot, generation: 1 }, ..PLACE };
        assert_eq!(fault(segment_with(place, form::REGION)), PeerFault::Access);
    }
}

#[test]
fn releases_without_an_outstanding_payload_are_a_fault() {
    let (mut link, _shown) = victim_of(&Segment::new().releases(3));
    assert_eq!(link.bulk.poll_send(), None, "nothing is outstanding, so the count is not read");
    let posted = post_ring(&mut link.bulk);
    assert_eq!(posted, Ok(()));
    let flushed = link.bulk.poll_send().unwrap();
    assert_eq!(flushed.status, pronto_core::fabric::Status::Flushed);
    assert_eq!(poll_by_value(&mut link.bulk).unwrap_err(), PeerFault::Unasked.into());
}

fn post_ring(qp: &mut ShmQueuePair) -> Result<(), pronto_core::fabric::PostError> {
    use pronto_core::fabric::{Extent, Gather, Operation, SendWork, Signal, WrId};
    let payload = Gather::Ring(Extent { offset: 0, len: 100 });
    let operation = Operation::Send { header: &Default::default(), payload };
    qp.post(SendWork { signal: Signal::Signalled(WrId { slot: 0, generation: 0 }), operation })
}

/// Checks that random lines yield readable messages or a fault, and stop within one lap of all lines.
#[test]
fn garbage_is_a_fault_or_a_readable_message() {
    let mut faults = 0;
    for seed in 1..=300u64 {
        let mut state = seed;
        let bytes = core::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Small numbers are more often valid.
            let [low, high, ..] = state.to_le_bytes();
            if high < 160 { low % 3 } else { low }
        });
        let (mut link, _shown) = victim_of(&Segment::new().lines(bytes));
        for _ in 0..64 {
            match poll_by_value(&mut link.bulk) {
                Ok(Some(message)) => read(&message.payload),
                Ok(None) => break,
                Err(error) => {
                    assert!(matches!(error, FabricError::Peer(_)), "{error}");
                    faults += 1;
                    break;
                }
            }
        }
    }
    assert!(faults > 100, "only {faults} of 300 rings of garbage caused a fault");
}

fn read<L: pronto_core::fabric::Payload>(payload: &Arrived<L>) {
    let mut bytes = vec![0; payload.len()];
    payload.copy_to(0, &mut bytes).unwrap();
    let [mut beyond] = from_fn(|_| [0; 1]);
    assert!(payload.copy_to(payload.len(), &mut beyond).is_err());
}
