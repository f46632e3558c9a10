//! Tests of the header: its bytes, and the headers that are illegal.

use super::*;

const CALL: CallId = CallId { slot: 0x0102, generation: 0x0a0b_0c0d };
const ACKS: Acks = Acks { received: 0x1112, returned: 0x2122 };

fn every_kind() -> impl Iterator<Item = Kind> {
    let (type_id, service) = (TypeId(0x0304), ServiceId(0x0506));
    [
        Kind::Request { call: CALL, type_id, service, resent: false, deadline_us: 0x3132_3334 },
        Kind::Request { call: CALL, type_id, service, resent: true, deadline_us: 0 },
        Kind::Notification { type_id, service },
        Kind::Reply { call: CALL },
        Kind::Cancel { call: CALL },
        Kind::Credit,
        Kind::Heartbeat,
        Kind::Goodbye,
        Kind::CreditRequest,
        Kind::WindowUpdate { requests: 0x0708 },
        Kind::Pause,
        Kind::PauseAccepted,
        Kind::PauseDeclined,
    ]
    .into_iter()
    .chain(FailureCode::ALL.map(|code| Kind::Failure { call: CALL, code }))
}

#[test]
fn every_header_round_trips() {
    for kind in every_kind() {
        let header = Header { kind, acks: ACKS };
        assert_eq!(Header::check(&RawHeader::from_array(*header.emit().as_array()), 0), Ok(header));
    }
}

#[test]
fn requests_and_replies_are_composed_as_emit_does() {
    let (type_id, service, deadline_us) = (TypeId(0x0304), ServiceId(0x0506), 0x3132_3334);
    let kind = Kind::Request { call: CALL, type_id, service, resent: false, deadline_us };
    assert_eq!(
        RawHeader::request(CALL, type_id, service, deadline_us, (ACKS, &FirstWords::PLAIN)),
        Header { kind, acks: ACKS }.emit()
    );
    for pressure in (0..=7).map(Pressure::from_bits) {
        let first = &FirstWords::with(pressure);
        let composed = RawHeader::request(CALL, type_id, service, deadline_us, (ACKS, first));
        assert_eq!(composed, Header { kind, acks: ACKS }.emit_with(first));
        let reply = Header { kind: Kind::Reply { call: CALL }, acks: ACKS };
        assert_eq!(RawHeader::reply(CALL, (ACKS, first)), reply.emit_with(first));
        let notification = Header { kind: Kind::Notification { type_id, service }, acks: ACKS };
        assert_eq!(RawHeader::notification(type_id, service, (ACKS, first)), notification.emit_with(first));
    }
}

/// Without pressure every header has the bytes that it has for peers that know none. With pressure only the flags differ.
///
/// Shows: protocol.bytes, protocol.flags, protocol.pressure-illegal
#[test]
fn golden_pressure() {
    for kind in every_kind() {
        let header = Header { kind, acks: ACKS };
        let plain = *header.emit().as_array();
        assert_eq!(*header.emit_with(&FirstWords::with(Pressure::NONE)).as_array(), plain);
        for (bits, flags) in [(1, 0x20), (2, 0x40), (3, 0x60), (4, 0x80), (5, 0xa0), (6, 0xc0), (7, 0xe0)] {
            let pressure = Pressure::from_bits(bits);
            let pressed = header.emit_with(&FirstWords::with(pressure));
            let (kind, mut expected) = (plain[4], plain);
            if kind > FAILURE {
                assert_eq!((*pressed.as_array(), pressed.split_pressure()), (plain, None), "{header:?}");
                continue;
            }
            expected[5] |= flags;
            assert_eq!(*pressed.as_array(), expected, "{header:?}");
            assert_eq!(pressed.split_pressure(), Some((pressure, RawHeader::from_array(plain))));
            // A receiver that has not agreed to it refuses the header, as it refuses any other flag.
            let fault = HeaderFault::IllegalFlags { kind, flags: expected[5] };
            assert_eq!(Header::check(&pressed, 0), Err(fault));
            assert!(!pressed.is_reply_to(CALL) && pressed.as_request().is_none());
            assert!(pressed.as_notification().is_none());
        }
    }
}

/// Shows: protocol.pressure-illegal
#[test]
fn no_other_flag_and_no_other_kind_has_pressure() {
    for kind in 0..=u8::MAX {
        for flags in 0..=u8::MAX {
            let raw = RawHeader { kind, flags, ..RawHeader::default() };
            let Some((pressure, plain)) = raw.split_pressure() else {
                assert!(flags < 0x20 || !(REQUEST..=FAILURE).contains(&kind), "{raw:?}");
                continue;
            };
            assert!((REQUEST..=FAILURE).contains(&kind) && pressure != Pressure::NONE);
            assert_eq!((plain.flags, pressure.as_bits()), (flags % 0x20, flags / 0x20));
        }
    }
}

#[test]
fn a_notification_is_known_by_its_words() {
    for kind in every_kind() {
        let mut raw = Header { kind, acks: ACKS }.emit();
        raw.fabric = U32::new(u32::MAX);
        let expected = match kind {
            Kind::Notification { type_id, service } => Some((type_id, service)),
            _ => None,
        };
        assert_eq!(raw.as_notification(), expected, "{kind:?}");
    }
    // `check` must refuse a notification with any field set that notifications do not use.
    let strays: [fn(&mut RawHeader); 4] = [
        |raw| raw.flags = 1,
        |raw| raw.generation = U32::new(1),
        |raw| raw.slot = U16::new(1),
        |raw| raw.deadline_us = U32::new(1),
    ];
    for stray in strays {
        let mut raw = RawHeader::notification(TypeId(3), ServiceId(4), (ACKS, &FirstWords::PLAIN));
        assert_eq!(raw.as_notification(), Some((TypeId(3), ServiceId(4))));
        stray(&mut raw);
        assert!(raw.as_notification().is_none() && Header::check(&raw, 0).is_err());
    }
}

#[test]
fn a_reply_is_known_by_its_words() {
    let other_slot = CallId { slot: CALL.slot + 1, ..CALL };
    let other_generation = CallId { generation: CALL.generation + 1, ..CALL };
    for kind in every_kind() {
        let mut raw = Header { kind, acks: ACKS }.emit();
        raw.fabric = U32::new(u32::MAX);
        assert_eq!(raw.is_reply_to(CALL), kind == Kind::Reply { call: CALL }, "{kind:?}");
        assert!(!raw.is_reply_to(other_slot) && !raw.is_reply_to(other_generation), "{kind:?}");
    }
    // `check` must refuse a reply with any field set that replies do not use.
    let strays: [fn(&mut RawHeader); 5] = [
        |raw| raw.flags = 1,
        |raw| raw.type_id = U16::new(1),
        |raw| raw.service = U16::new(1),
        |raw| raw.deadline_us = U32::new(1),
        |raw| raw.kind = NOTIFICATION,
    ];
    for stray in strays {
        let mut raw = Header { kind: Kind::Reply { call: CALL }, acks: ACKS }.emit();
        assert!(raw.is_reply_to(CALL));
        stray(&mut raw);
        assert!(!raw.is_reply_to(CALL));
    }
}

/// Shows: protocol.bytes, protocol.flags
#[test]
fn golden_request() {
    let (type_id, service) = (TypeId(0x0304), ServiceId(0x0506));
    let kind = Kind::Request { call: CALL, type_id, service, resent: true, deadline_us: 0x3132_3334 };
    let bytes = *Header { kind, acks: ACKS }.emit().as_array();
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0, 1, 1, 0x04, 0x03, 0x0d, 0x0c, 0x0b, 0x0a,
        0x02, 0x01, 0x06, 0x05, 0x12, 0x11, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31,
    ];
    assert_eq!(bytes, golden);
}

/// Shows: protocol.bytes, protocol.kinds, protocol.service
#[test]
fn golden_kinds() {
    let numbers: alloc::vec::Vec<_> =
        every_kind().map(|kind| Header { kind, acks: ACKS }.emit().as_array()[4]).collect();
    assert_eq!(numbers[..13], [1, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13], "in the order of `every_kind`");
    assert!(numbers[13..].iter().all(|number| *number == 4), "failures");
    let failure = Kind::Failure { call: CALL, code: FailureCode::HandlerError };
    let bytes = *Header { kind: failure, acks: ACKS }.emit().as_array();
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0, 4, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a,
        0x02, 0x01, FailureCode::HandlerError as u8, 0, 0x12, 0x11, 0x22, 0x21, 0, 0, 0, 0,
    ];
    assert_eq!(bytes, golden);
    let bytes = *Header { kind: Kind::WindowUpdate { requests: 0x0708 }, acks: ACKS }.emit().as_array();
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0x08, 0x07, 0x12, 0x11, 0x22, 0x21, 0, 0, 0, 0,
    ];
    assert_eq!(bytes, golden);
}

/// Shows: protocol.fabric-word
#[test]
fn the_fabric_word_is_ignored() {
    let mut raw = Header { kind: Kind::Credit, acks: ACKS }.emit();
    raw.fabric = U32::new(u32::MAX);
    assert!(Header::check(&raw, 0).is_ok());
}

/// Shows: protocol.flags, protocol.no-payload
#[test]
fn illegal_headers_are_named() {
    let raw = |change: fn(&mut RawHeader)| {
        let mut raw = Header { kind: Kind::Heartbeat, acks: ACKS }.emit();
        change(&mut raw);
        raw
    };
    assert_eq!(Header::check(&raw(|r| r.kind = 99), 0), Err(HeaderFault::UnknownKind(99)));
    assert_eq!(
        Header::check(&raw(|r| r.flags = 1), 0),
        Err(HeaderFault::IllegalFlags { kind: HEARTBEAT, flags: 1 })
    );
    assert_eq!(Header::check(&raw(|r| r.slot = U16::new(1)), 0), Err(HeaderFault::StrayField(HEARTBEAT)));
    assert_eq!(Header::check(&raw(|_| ()), 3), Err(HeaderFault::StrayPayload { kind: HEARTBEAT, len: 3 }));
    let failure = raw(|r| {
        r.kind = FAILURE;
        r.service = U16::new(77);
    });
    assert_eq!(Header::check(&failure, 0), Err(HeaderFault::UnknownFailure(77)));
}

/// Sets each field alone. An accepted header must emit the same bytes again, so that no field was ignored.
///
/// Shows: protocol.stray-fields
#[test]
fn a_field_that_a_kind_does_not_use_is_refused() {
    let setters: [fn(&mut RawHeader); 5] = [
        |raw| raw.type_id = U16::new(7),
        |raw| raw.generation = U32::new(7),
        |raw| raw.slot = U16::new(7),
        |raw| raw.service = U16::new(7),
        |raw| raw.deadline_us = U32::new(7),
    ];
    let mut refused = 0;
    for kind in every_kind() {
        for set in setters {
            let mut raw = Header { kind, acks: ACKS }.emit();
            set(&mut raw);
            match Header::check(&raw, 0) {
                Ok(header) => assert_eq!(header.emit(), raw),
                Err(fault) => {
                    assert_eq!(fault, HeaderFault::StrayField(raw.kind));
                    refused += 1;
                }
            }
        }
    }
    // Of 5 fields: notification 3, reply 3, cancel 3, credit, heartbeat, goodbye, credit request and the three of a pause all, window
    // update 4, each failure 2.
    assert_eq!(refused, 3 + 3 + 3 + 7 * 5 + 4 + 2 * FailureCode::ALL.len());
}

#[test]
fn no_bytes_panic() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..100_000 {
        let mut bytes = [0; HEADER_LEN];
        for byte in &mut bytes {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = seed.to_le_bytes()[7] >> (seed.to_le_bytes()[6] % 8);
        }
        let raw = RawHeader::from_array(bytes);
        if let Ok(header) = Header::check(&raw, 8) {
            assert_eq!(header.emit().as_array()[4..], bytes[4..]);
        }
        if let Some((pressure, plain)) = raw.split_pressure()
            && let Ok(header) = Header::check(&plain, 8)
        {
            assert_eq!(header.emit_with(&FirstWords::with(pressure)).as_array()[4..], bytes[4..]);
        }
    }
}
