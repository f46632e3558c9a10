//! A peer that violates the protocol gets a specific error, and cannot cause a panic, a wait or an allocation.

use std::io::Write as _;

use pronto_core::fabric::{PeerFault, Rights, poll_by_value};
use pronto_wire::HEADER_LEN;

use super::*;
use crate::frame::{CHUNK, Kind, MAX_FRAME, OneSidedHeader, word};
use crate::one_sided::ONE_SIDED_DEPTH;

fn message(len: usize, body: &[u8]) -> Vec<u8> {
    let mut header = RawHeader::from_array([3; 24]);
    header.fabric = word(Kind::Message, len);
    [header.as_array(), body].concat()
}

/// Returns the error that these bytes cause.
fn verdict(bytes: &[u8]) -> FabricError {
    let (mut qp, mut peer) = victim();
    peer.write_all(bytes).unwrap();
    let error = receive(&mut qp).map(|m| bytes_of(&m)).unwrap_err();
    assert_eq!(poll_by_value(&mut qp).unwrap_err(), error, "the failure persists");
    assert_eq!(post(&mut qp, 0, Gather::Short(b"")), Err(PostError::Failed(error)));
    error
}

#[test]
fn garbage_is_of_unknown_form() {
    assert_eq!(verdict(&[0; 64]), PeerFault::UnknownForm(0).into());
    assert_eq!(verdict(&[0xff; 64]), PeerFault::UnknownForm(15).into());
    assert_eq!(verdict(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), {
        let len = u64::from(u32::from_le_bytes(*b"GET ") & MAX_FRAME);
        PeerFault::Length { len, max: 8 }.into()
    });
}

#[test]
fn an_oversized_message_is_refused_before_anything_is_allocated() {
    let pool = ReceivePool::new(64 << 20).unwrap();
    let (a, mut peer) = streams();
    let mut qp = over(a, &LIMITS, &pool);
    peer.write_all(&message((4 << 20) + 1, b"")).unwrap();
    let fault = PeerFault::Length { len: (4 << 20) + 1, max: 4 << 20 };
    assert_eq!(receive(&mut qp).unwrap_err(), fault.into());
    assert_eq!(pool.allocated(), 0);
}

#[test]
fn a_truncated_frame_is_a_lost_connection() {
    for (whole, buffers) in [(message(40, &[1; 40]), 0), (message(300, &[1; 300]), 512)] {
        for cut in 0..whole.len() {
            let pool = ReceivePool::new(64 << 20).unwrap();
            let (a, mut peer) = streams();
            let mut qp = over(a, &LIMITS, &pool);
            peer.write_all(&whole[..cut]).unwrap();
            drop(peer);
            assert_eq!(receive(&mut qp).unwrap_err(), FabricError::Lost);
            assert_eq!(pool.allocated(), if cut >= 24 { buffers } else { 0 });
        }
    }
}

#[test]
fn a_frame_that_arrives_byte_by_byte_is_one_message() {
    let (mut qp, mut peer) = victim();
    let bytes = [message(40, &[1; 40]), message(300, &[2; 300])].concat();
    peer.set_nodelay(true).unwrap();
    let mut lengths = Vec::new();
    for byte in bytes {
        peer.write_all(&[byte]).unwrap();
        sleep(&qp);
        lengths.extend(poll_by_value(&mut qp).unwrap().map(|message| message.payload.len()));
        poll_by_value(&mut qp).unwrap();
    }
    assert_eq!(lengths, [40, 300]);
}

#[test]
fn unexpected_answers_end_the_connection() {
    for refused in [0, 1] {
        let bytes = *OneSidedHeader::new(Kind::Answer, 0, 3, refused, 0).as_array();
        assert_eq!(verdict(&bytes), PeerFault::Unasked.into());
    }
    let data = [OneSidedHeader::new(Kind::Data, 8, 0, 0, 0).as_array(), &[0; 8][..]].concat();
    assert_eq!(verdict(&data), PeerFault::Unasked.into());
    // A tag that names no slot.
    let bytes = *OneSidedHeader::new(Kind::Answer, 0, u32::MAX, 0, 0).as_array();
    assert_eq!(verdict(&bytes), PeerFault::Unasked.into());
    // An unknown status.
    let bytes = *OneSidedHeader::new(Kind::Answer, 0, 0, 2, 0).as_array();
    assert_eq!(verdict(&bytes), PeerFault::UnknownForm(7).into());
}

/// Returns a victim with one open read of 100 bytes, its peer's end, the region, and the tag of the read.
fn reader() -> (TcpQueuePair, TcpStream, Region, u32) {
    let (mut qp, mut peer) = victim();
    let local = region(104);
    let remote = pronto_core::fabric::RemoteRange { key: 1, offset: 0, len: 100 };
    let operation = Operation::Read { local: &local, local_offset: 0, remote };
    qp.post(SendWork { signal: Signal::Signalled(wr(9)), operation }).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let mut request = [0; 32];
    std::io::Read::read_exact(&mut peer, &mut request).unwrap();
    let tag = u32::from_le_bytes(*request[4..].first_chunk().unwrap());
    (qp, peer, local, tag)
}

/// Returns the bytes of a frame with `len` bytes for a read.
fn data(tag: u32, offset: u64, len: usize) -> Vec<u8> {
    [OneSidedHeader::new(Kind::Data, len, tag, offset, 0).as_array(), &vec![1; len][..]].concat()
}

/// The peer sends frames and dies. Sending fails first, which ends the open operations; then the frames are received. They are no fault.
#[test]
fn one_sided_frames_that_arrived_before_a_reset_are_dropped() {
    let answer = |tag| OneSidedHeader::new(Kind::Answer, 0, tag, 1, 0).as_array().to_vec();
    let read = |_| [OneSidedHeader::new(Kind::Read, 8, 0, 1, 0).as_array(), &[9; 8][..]].concat();
    let write = |_| {
        let head = *OneSidedHeader::new(Kind::Write, 8 + 100, 0, 1, 0).as_array();
        [&head[..], &100_u64.to_le_bytes(), &[1; 100]].concat()
    };
    let add = |_| [OneSidedHeader::new(Kind::FetchAdd, 8, 0, 1, 0).as_array(), &[9; 8][..]].concat();
    let frames: [&dyn Fn(u32) -> Vec<u8>; 6] =
        [&|tag| data(tag, 0, 60), &|tag| data(tag, 0, 100), &answer, &read, &write, &add];
    // In the second case, the first ten bytes were received before sending failed.
    for (frame, early) in frames.iter().flat_map(|frame| [(frame, 0), (frame, 34)]) {
        let (mut qp, mut peer, local, tag) = reader();
        // More than there is room for answers.
        let bytes = [frame(tag), frame(tag).repeat(ONE_SIDED_DEPTH), message(8, &[5; 8])].concat();
        peer.write_all(&bytes[..early]).unwrap();
        if early > 0 && frame(tag).len() > early {
            assert!(poll_by_value(&mut qp).unwrap().is_none());
        }
        peer.write_all(&bytes[early..]).unwrap();
        // Unread bytes turn the end of a connection into a reset.
        post(&mut qp, 1, Gather::Short(b"unread")).unwrap();
        qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        drop(peer);
        let mut slot = 10;
        while qp.ring_doorbell(DoorbellEvent::Solicited).is_ok() {
            let _ = post(&mut qp, slot, Gather::Short(b"anybody?"));
            slot += 1;
        }
        let ends: Vec<_> = core::iter::from_fn(|| qp.poll_send()).collect();
        assert!(ends.contains(&Completion { wr: wr(9), status: Status::Flushed }), "{ends:?}");
        assert_eq!(bytes_of(&receive(&mut qp).unwrap()), [5; 8]);
        assert_eq!(receive(&mut qp).unwrap_err(), FabricError::Lost);
        assert!(contents(&local)[early.saturating_sub(HEADER_LEN)..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn data_that_does_not_fit_its_read_ends_the_connection() {
    let faults = [
        (0, 101, PeerFault::Length { len: 101, max: 100 }),
        (1, 10, PeerFault::Offset { offset: 1, len: 100 }),
        (0, 0, PeerFault::Offset { offset: 0, len: 100 }),
    ];
    for (offset, len, fault) in faults {
        let (mut qp, mut peer, local, tag) = reader();
        peer.write_all(&data(tag, offset, len)).unwrap();
        assert_eq!(receive(&mut qp).unwrap_err(), fault.into());
        assert_eq!(contents(&local), [0; 104]);
        assert_eq!(qp.poll_send(), Some(Completion { wr: wr(9), status: Status::Flushed }));
    }
    // A repeated answer: the second one matches no operation.
    let (mut qp, mut peer, local, tag) = reader();
    peer.write_all(&[data(tag, 0, 100), data(tag, 0, 100)].concat()).unwrap();
    assert_eq!(receive(&mut qp).unwrap_err(), PeerFault::Unasked.into());
    assert_eq!(contents(&local), [[1; 100].as_slice(), &[0; 4]].concat());
    assert_eq!(qp.poll_send(), done(9));
    assert_eq!(qp.poll_send(), None);
    // An answer frame in place of data.
    let (mut qp, mut peer, _, tag) = reader();
    peer.write_all(OneSidedHeader::new(Kind::Answer, 0, tag, 0, 0).as_array()).unwrap();
    assert_eq!(receive(&mut qp).unwrap_err(), PeerFault::Unasked.into());
}

#[test]
fn more_requests_than_allowed_end_the_connection() {
    let (mut qp, mut peer) = victim();
    let target = region(1 << 20);
    let grant = qp.grant(&target, 0..1 << 20, Rights::READ).unwrap();
    let request = [
        OneSidedHeader::new(Kind::Read, 8, 0, grant.remote.key, 0).as_array(),
        &(1u64 << 20).to_le_bytes()[..],
    ]
    .concat();
    // Their answers fill the socket and wait, because the peer does not read.
    peer.write_all(&request.repeat(ONE_SIDED_DEPTH + 1)).unwrap();
    assert_eq!(receive(&mut qp).unwrap_err(), PeerFault::Overrun.into());
}

#[test]
fn a_write_longer_than_announced_ends_the_connection() {
    let head = *OneSidedHeader::new(Kind::Write, 8 + CHUNK, 0, 1, 0).as_array();
    let bytes = [&head[..], &8u64.to_le_bytes()].concat();
    assert_eq!(verdict(&bytes), PeerFault::Length { len: CHUNK as u64, max: 8 }.into());
}

#[test]
fn random_bytes_never_panic() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut faults = 0;
    for _ in 0..300 {
        let (mut qp, mut peer) = victim();
        let target = region(4096);
        let grant = qp.grant(&target, 0..4096, Rights::ALL).unwrap();
        let mut bytes = Vec::new();
        for _ in 0..20 {
            let kind = u8::try_from(next() % 9).unwrap();
            let len =
                u32::try_from([0, 8, 16, next() % 100, next() % (1 << 28)][(next() % 5) as usize]).unwrap();
            bytes.extend(((u32::from(kind) << 28) | len).to_le_bytes());
            bytes.extend(u32::try_from(next() % 70).unwrap().to_le_bytes());
            bytes.extend(if next() % 2 == 0 { grant.remote.key } else { next() }.to_le_bytes());
            bytes.extend((next() % 5000).to_le_bytes());
            bytes.extend((next() % 5000).to_le_bytes());
            bytes.extend((0..next() % 80).map(|_| u8::try_from(next() % 256).unwrap()));
        }
        peer.write_all(&bytes).unwrap();
        drop(peer);
        let error = loop {
            match receive(&mut qp) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        faults += u32::from(matches!(error, FabricError::Peer(_)));
    }
    assert!(faults > 200, "only {faults} of 300 streams of random bytes caused a fault");
}
