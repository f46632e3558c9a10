//! A peer's offer of a link over shared memory: its packet, and the descriptors with it.

use pronto_core::fabric::{QueuePair, poll_by_value};
use pronto_fabric_shm::SetupError;
use pronto_fabric_shm::fuzzing::{DESCRIPTORS, LIMITS, Passed, accept, correct_offer};

/// Length of the part of an offer that has no limits: magic bytes, version and two bytes without a meaning.
const HEAD: usize = 8;
/// Bytes of the limits of one class, and those of them that are the length of send memory.
const CLASS: usize = 20;
const MEMORY: core::ops::Range<usize> = 16..20;
/// Most descriptors that an input passes.
const MOST: usize = 12;
/// Page size, to which the length of send memory is rounded.
const PAGE: usize = 4096;

/// Checks that this side accepts an offer if and only if it is that of a correct peer, all its memory is safe to map, and its sockets are of
/// the agreed types, that a refusal blames the peer, and that the accepted link works. The first byte is the number of descriptors, each of the next
/// bytes is one descriptor, and the rest is the packet.
pub fn shm_offer(input: &[u8]) {
    let Some((count, rest)) = input.split_first() else { return };
    let Some((kinds, packet)) = rest.split_at_checked(usize::from(*count) % (MOST + 1)) else { return };
    // An empty packet is the end of the connection.
    if packet.is_empty() {
        return;
    }
    let passed: Vec<Passed> =
        kinds.iter().map(|kind| Passed::ALL[usize::from(*kind) % Passed::ALL.len()]).collect();
    match accept(packet, &passed) {
        Ok(link) => {
            assert!(is_correct(packet, &passed), "accepted {packet:?} with {passed:?}");
            for mut connection in [link.control, link.bulk] {
                assert_eq!(connection.capabilities().max_payload, LIMITS.max_send_payload);
                assert_eq!(connection.poll_send(), None);
                let message = poll_by_value(&mut connection);
                assert!(
                    message.is_err() || message.is_ok_and(|message| message.is_none()),
                    "its lines are zero"
                );
            }
        }
        Err(error) => {
            assert!(!is_correct(packet, &passed), "{error}: {packet:?} with {passed:?}");
            assert!(matches!(error, SetupError::Peer(_)), "{error} is not the fault of the peer");
        }
    }
}

/// Decides by the rules of the protocol whether an offer is acceptable.
fn is_correct(packet: &[u8], passed: &[Passed]) -> bool {
    let expected = correct_offer();
    if packet.len() != expected.len() || passed.len() != DESCRIPTORS || packet[..6] != expected[..6] {
        return false;
    }
    let classes = packet[HEAD..].chunks(CLASS).zip(expected[HEAD..].chunks(CLASS));
    classes.zip(passed.chunks(DESCRIPTORS / 2)).all(|((theirs, ours), passed)| {
        let [segment, memory, bell, announcements] = *passed else { return false };
        let len = u32::from_le_bytes(theirs[MEMORY].try_into().expect("four bytes")) as usize;
        theirs[..MEMORY.start] == ours[..MEMORY.start]
            && (segment, bell, announcements) == (Passed::Segment, Passed::Socket, Passed::PacketSocket)
            && memory.fixed_size() == Some(len.max(1).next_multiple_of(PAGE))
    })
}
