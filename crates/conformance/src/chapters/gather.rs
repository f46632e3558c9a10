//! Payloads by reference: a piece of a region, after a header of the sender.

use std::sync::Arc;

use pronto_core::fabric::{
    Arrived, DoorbellEvent, Gather, Operation, QueuePair, Region, SendWork, Signal, WrId, poll_by_value,
};
use pronto_wire::RawHeader;

use super::tests;
use crate::random::payload;
use crate::rig::{End, Form, LIMITS, Rig};
use crate::suite::Chapter;
use crate::{Harness, Pair, watchdog};

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "gather",
        tests: tests![
            pieces_at_odd_places_of_a_region,
            one_piece_in_several_messages,
            a_region_lives_until_its_messages_completed,
            header_and_payload_stay_together,
        ],
    }
}

fn pieces_at_odd_places_of_a_region<H: Harness>(harness: &H) {
    let region = harness.region(5001);
    let whole = payload(1, region.len());
    region.write(0, &whole).expect("the region is as long as asked for");
    let mut raw = Raw::new(harness);
    for (offset, len) in [(0, 5001), (5001, 0), (5000, 1), (1, 4096), (7, 41), (4095, 906), (3, 40), (0, 1)] {
        raw.post(&region, offset, len);
        assert_eq!(raw.receive(), whole[offset..offset + len], "{len} bytes at {offset}");
        raw.complete(1);
    }
}

fn one_piece_in_several_messages<H: Harness>(harness: &H) {
    let region = harness.region(1000);
    let whole = payload(2, region.len());
    region.write(0, &whole).expect("the region is as long as asked for");
    let mut raw = Raw::new(harness);
    for _ in 0..8 {
        raw.post(&region, 100, 800);
    }
    for _ in 0..8 {
        assert_eq!(raw.receive(), whole[100..900]);
    }
    raw.complete(8);
}

/// The poster drops its region immediately. The memory is freed after the connection, and not before the message has
/// completed.
fn a_region_lives_until_its_messages_completed<H: Harness>(harness: &H) {
    let mut raw = Raw::new(harness);
    let mut freed = Vec::new();
    for seed in 0..6 {
        let region = harness.region(3000);
        region.write(0, &payload(seed, 3000)).expect("the region is as long as asked for");
        freed.push(Arc::downgrade(region.memory()));
        raw.post(&region, 0, 3000);
    }
    for seed in 0..6 {
        assert_eq!(raw.receive(), payload(seed, 3000));
    }
    raw.complete(6);
    raw.pair.a.close();
    raw.pair.b.close();
    drop(raw);
    assert!(
        freed.iter().all(|memory| memory.strong_count() == 0),
        "the provider keeps memory after its message has completed"
    );
}

fn header_and_payload_stay_together<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for _ in 0..100 {
        for form in [Form::Region, Form::Ring, Form::Inline] {
            let len = rig.random.below(41);
            rig.submit(End::A, form, len);
            rig.submit(End::B, form, len);
        }
        rig.ring_both();
    }
    rig.finish();
}

/// A pair without the rig, for payloads from a test's own regions.
struct Raw<'h, H: Harness> {
    harness: &'h H,
    pair: Pair<H::Qp, H::Link>,
    names: u32,
}

impl<'h, H: Harness> Raw<'h, H> {
    fn new(harness: &'h H) -> Self {
        let mut pair = harness.pair(LIMITS);
        pair.a.prepare(0..pair.a.send_memory().len()).expect("a new queue pair prepares its memory");
        Self { harness, pair, names: 0 }
    }

    fn post(&mut self, region: &Region, offset: usize, len: usize) {
        self.names += 1;
        let len = u32::try_from(len).expect("a payload is 32 bit");
        let payload = Gather::Region { region, offset: offset as u64, len };
        let operation = Operation::Send { header: &RawHeader::default(), payload };
        let signal = Signal::Signalled(WrId { slot: 0, generation: self.names });
        self.pair.a.post(SendWork { signal, operation }).expect("a piece of a region can be posted");
        self.pair.a.ring_doorbell(DoorbellEvent::Solicited).expect("a live queue pair has a doorbell");
    }

    fn receive(&mut self) -> Vec<u8> {
        let arrived: Arrived<_> =
            self.wait("for a message", |pair| poll_by_value(&mut pair.b).expect("alive")).payload;
        let mut bytes = vec![0; arrived.len()];
        arrived.copy_to(0, &mut bytes).expect("a payload can be copied out whole");
        bytes
    }

    fn complete(&mut self, count: usize) {
        for _ in 0..count {
            self.wait("for a completion", |pair| pair.a.poll_send());
        }
        assert_eq!(self.pair.a.poll_send(), None);
    }

    fn wait<T>(&mut self, what: &str, mut next: impl FnMut(&mut Pair<H::Qp, H::Link>) -> Option<T>) -> T {
        for _ in 0..self.harness.patience() {
            if let Some(found) = next(&mut self.pair) {
                return found;
            }
            // The sender must poll, too: a transport may need it to continue sending.
            assert!(
                poll_by_value(&mut self.pair.a).expect("alive").is_none(),
                "nothing was sent in this direction"
            );
            self.harness.settle(&mut self.pair.link);
            watchdog::turn();
        }
        panic!("gave up waiting {what}");
    }
}
