//! Forged pressure in headers: without agreement it breaks the protocol, and with it no value is worth more than the largest one.

use pronto::{Class, Limits, Pressure, ServiceId};
use pronto_core::fabric::PeerFault;
use pronto_core::session::HeaderPressure;
use pronto_wire::{Acks, CallId, FailureCode, Header, HeaderFault, Kind, RawHeader};

use crate::raw::{Raw, sum_of};
use crate::raw_peer::Scenario;
use crate::rig::{Add, TRANSPORTS, address, server, shared_run, until};

fn with_pressure() -> Limits {
    Limits { pressure: HeaderPressure::Carried, ..Limits::default() }
}

/// Sends a message with these flags, and the acknowledgements of a correct peer.
fn send(raw: &mut Raw, kind: Kind, flags: u8, payload: &[u8]) {
    let acks = Acks { received: raw.received[Class::Control.index()], returned: 0 };
    let mut bytes = *Header { kind, acks }.emit().as_array();
    bytes[5] = flags;
    raw.send(Class::Control, &RawHeader::from_array(bytes), payload).unwrap();
}

/// Shows: protocol.pressure-illegal, operations.coschedule-off
#[test]
fn pressure_without_agreement_ends_the_session() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        for (node_wants, limits) in
            [(false, Limits::default()), (false, with_pressure()), (true, Limits::default())]
        {
            for flags in [0x20, 0xe0] {
                let mut node = server(1, &address(transport, "unagreed"));
                if node_wants {
                    node = node.carry_pressure();
                }
                let mut scenario = Scenario::start_with(node, limits);
                scenario.assert_works();
                assert!(!scenario.raw.agreement.carries_pressure);
                let request = scenario.raw.request::<Add>(1, 1);
                send(&mut scenario.raw, request, flags, &sum_of(&[1]));
                scenario.ends_with(PeerFault::Header(HeaderFault::IllegalFlags { kind: 1, flags }));
            }
        }
    }
}

/// Shows: protocol.pressure-illegal
#[test]
fn flags_and_kinds_without_a_meaning_stay_illegal_with_agreement() {
    let _shared = shared_run();
    let call = CallId { slot: 3, generation: 1 };
    for transport in TRANSPORTS {
        for (kind, number, flags, named) in [
            (Kind::Heartbeat, 7, 0xe0, 0xe0),
            (Kind::Cancel { call }, 5, 0x20, 0x20),
            (Kind::Reply { call }, 3, 0xe4, 0x04),
            (Kind::Reply { call }, 3, 0xe1, 0x01),
        ] {
            let node = server(1, &address(transport, "illegal")).carry_pressure();
            let mut scenario = Scenario::start_with(node, with_pressure());
            assert!(scenario.raw.agreement.carries_pressure);
            send(&mut scenario.raw, kind, flags, &[]);
            scenario.ends_with(PeerFault::Header(HeaderFault::IllegalFlags { kind: number, flags: named }));
        }
    }
}

/// Every value that the flags can have is accepted, and its message is handled as if there were none. No value is worth more than 64
/// messages.
///
/// Shows: protocol.pressure-scale, protocol.pressure-flags, operations.coschedule-forged
#[test]
fn forged_pressure_is_bounded_and_its_messages_are_handled() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "forged")).carry_pressure();
        let mut scenario = Scenario::start_with(node, with_pressure());
        for bits in 1..=7 {
            let call = CallId { slot: 3, generation: bits.into() };
            let mut request = scenario.raw.request::<Add>(3, bits.into());
            send(&mut scenario.raw, request, bits << 5, &sum_of(&[1, 2]));
            assert_eq!(scenario.raw.receive(Class::Control).0.kind, Kind::Reply { call });
            let taken = scenario.node.take_pressure();
            assert_eq!((taken, taken.messages()), (Pressure::from_bits(bits), 1 << (bits - 1)));
            assert_eq!(scenario.node.take_pressure(), Pressure::NONE);
            // A duplicate is still known as one.
            if let Kind::Request { resent, .. } = &mut request {
                *resent = true;
            }
            send(&mut scenario.raw, request, bits << 5 | 1, &sum_of(&[1, 2]));
            let mut taken = Pressure::NONE;
            until("the duplicate is received", || {
                taken = taken.max(scenario.node.take_pressure());
                taken == Pressure::from_bits(bits)
            });
        }
        // Responses that belong to no call are counted and dropped, also with pressure.
        let call = CallId { slot: 5, generation: 1 };
        send(&mut scenario.raw, Kind::Reply { call }, 0xe0, &[]);
        send(&mut scenario.raw, Kind::Failure { call, code: FailureCode::Expired }, 0x20, &[]);
        let (type_id, service) = (pronto_wire::TypeId(4_000), ServiceId(0));
        send(&mut scenario.raw, Kind::Notification { type_id, service }, 0x40, &[]);
        let mut taken = Pressure::NONE;
        until("the responses are received", || {
            taken = taken.max(scenario.node.take_pressure());
            taken == Pressure::MOST
        });
        until("they are counted", || crate::rig::counter(&scenario.node, 9, "stale_replies") == 2);
        assert_eq!(taken.messages(), 64);
        assert_eq!(crate::rig::counter(&scenario.node, 9, "corrupt_peers"), 0);
    }
}
