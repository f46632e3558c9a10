//! Checks of lengths and offsets at every entry point.

use pronto_core::fabric::{
    Arrived, ConnectionLimits, Extent, Gather, Operation, OutOfBounds, Payload, PostError, QueuePair,
    SendWork, Signal, WrId,
};
use pronto_wire::RawHeader;

use super::tests;
use crate::Harness;
use crate::rig::{End, Form, LIMITS, Rig};
use crate::suite::Chapter;
use crate::{Pair, random};

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "bounds",
        tests: tests![
            a_payload_is_copied_within_its_bounds,
            private_bytes_are_the_payload,
            capabilities_have_the_agreed_limits,
            a_payload_outside_its_memory_is_refused,
        ],
    }
}

/// Receives and holds payloads of every form, with lengths below and above that of an inline message.
fn arrivals<H: Harness>(rig: &mut Rig<'_, H>) {
    rig.at(End::B).hold = true;
    for (form, len) in
        [(Form::Inline, 0), (Form::Inline, 33), (Form::Ring, 3), (Form::Ring, 777), (Form::Region, 41)]
    {
        rig.send(End::A, form, len);
    }
    rig.wait("for the payloads", |rig| rig.at(End::B).held.len() == 5);
}

fn a_payload_is_copied_within_its_bounds<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    arrivals(&mut rig);
    for held in &rig.at(End::B).held {
        let sent = random::payload(held.seed, held.len);
        for offset in 0..=held.len {
            let mut rest = vec![0; held.len - offset];
            held.payload.copy_to(offset, &mut rest).expect("a copy up to the end is within bounds");
            assert_eq!(rest, sent[offset..], "from {offset}");
            let mut part = vec![0; rest.len() / 2];
            held.payload.copy_to(offset, &mut part).expect("a shorter copy is within bounds");
            assert_eq!(part, sent[offset..offset + part.len()], "a part from {offset}");
            refuses(&held.payload, offset, rest.len() + 1);
        }
        for offset in [held.len + 1, held.len + 64, usize::MAX - 3, usize::MAX] {
            refuses(&held.payload, offset, 0);
            refuses(&held.payload, offset, 8);
        }
    }
    rig.finish();
}

fn refuses<L: Payload>(payload: &Arrived<L>, offset: usize, wanted: usize) {
    let mut out = vec![0x77; wanted];
    let refused = payload.copy_to(offset, &mut out);
    assert_eq!(refused, Err(OutOfBounds { offset, wanted, len: payload.len() }));
    assert!(out.iter().all(|byte| *byte == 0x77), "a rejected copy wrote something");
}

fn private_bytes_are_the_payload<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    arrivals(&mut rig);
    for held in &rig.at(End::B).held {
        if let Some(bytes) = held.payload.as_private() {
            assert_eq!(bytes, random::payload(held.seed, held.len));
        }
        assert_eq!(held.payload.is_empty(), held.len == 0);
    }
    rig.finish();
}

fn capabilities_have_the_agreed_limits<H: Harness>(harness: &H) {
    let limits = ConnectionLimits {
        send_depth: 8,
        receive_depth: 24,
        max_send_payload: 2048,
        max_receive_payload: 1024,
        ..LIMITS
    };
    let Pair { a, b, link } = harness.pair(limits);
    let (at_a, at_b) = (a.capabilities(), b.capabilities());
    assert_eq!((at_a.provider, at_b.provider), (harness.name(), harness.name()));
    assert_eq!((at_a.send_depth, at_a.receive_depth, at_a.max_payload), (8, 24, 2048));
    assert_eq!((at_b.send_depth, at_b.receive_depth, at_b.max_payload), (24, 8, 1024));
    assert!(a.send_memory().len() >= limits.send_memory as usize);
    drop((a, b, link));
}

fn a_payload_outside_its_memory_is_refused<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let region = harness.region(1000);
    let memory = rig.at(End::A).memory.len();
    let end = u32::try_from(memory).expect("send memory is 32 bit");
    let outside = [
        Gather::Region { region: &region, offset: 1, len: 1000 },
        Gather::Region { region: &region, offset: 1001, len: 0 },
        Gather::Region { region: &region, offset: u64::MAX, len: 2 },
        Gather::Region { region: &region, offset: u64::MAX - 7, len: 8 },
        Gather::Ring(Extent { offset: end - 64, len: 65 }),
        Gather::Ring(Extent { offset: u32::MAX - 63, len: 128 }),
    ];
    for payload in outside {
        let operation = Operation::Send { header: &RawHeader::default(), payload };
        let signal = Signal::Signalled(WrId { slot: 1, generation: 0 });
        let refused = rig.qp(End::A).post(SendWork { signal, operation });
        assert!(matches!(refused, Err(PostError::OutOfBounds(_))), "{payload:?}: {refused:?}");
    }
    rig.ring(End::A);
    rig.send(End::A, Form::Ring, 64);
    rig.finish();
}
