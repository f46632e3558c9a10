//! Dials and regions return what they took from the device.

use std::sync::Arc;

use pronto_core::fabric::{ConnectionLimits, Extent, Gather, HeapMemory, QueuePair as _, Region};
use pronto_fabric_verbs::{Device, Offer};

use crate::grants::LIMITS;
use crate::pair::Devices;
use crate::registration::deliver;

/// Minimal queue pairs, so that many of them can be made in a short time.
const SMALL: ConnectionLimits = ConnectionLimits { send_depth: 1, receive_depth: 1, ..LIMITS };

fn account(device: &Device) -> (u64, u64) {
    let counters = device.counters();
    (counters.receives_promised, counters.receives_doubtful)
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_dial_that_ends_at_any_stage_returns_its_receives() {
    let devices = Devices::open();
    let [near, far] = &devices.0;
    let start = account(near);
    let offer = Offer::new(near, [LIMITS; 2]).unwrap();
    assert!(account(near).0 > start.0, "an offer takes receives");
    drop(offer);
    assert_eq!(account(near), start, "after a dial without a reply");
    Offer::new(near, [LIMITS; 2]).unwrap().connect(&[7; 3]).unwrap_err();
    assert_eq!(account(near), start, "after a malformed reply");
    let too_long = ConnectionLimits { send_depth: 1 << 20, ..LIMITS };
    Offer::new(near, [LIMITS, too_long]).unwrap_err();
    assert_eq!(account(near), start, "after a failure to make the second queue pair");
    let theirs = Offer::new(far, [LIMITS; 2]).unwrap();
    let link = Offer::new(near, [LIMITS; 2]).unwrap().connect(&theirs.bytes()).unwrap();
    drop(link);
    assert_eq!(account(near), (start.0, start.1 + 2), "each queue pair may have kept one receive");
}

/// A node whose links end repeatedly continues to work: its receive queue is replaced, and older links keep theirs.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn receives_that_ended_links_may_have_kept_are_replaced() {
    let devices = Devices::open();
    let [near, far] = &devices.0;
    let [mut old_a, mut old_b] = devices.link(LIMITS);
    let theirs = Offer::new(far, [SMALL; 2]).unwrap().bytes();
    let mut most = 0;
    let renewed = (0..600).any(|_| {
        drop(Offer::new(near, [SMALL; 2]).unwrap().connect(&theirs).unwrap());
        let (_, doubtful) = account(near);
        let fell = doubtful < most;
        most = most.max(doubtful);
        fell
    });
    assert!(renewed && most >= 1024, "{most} doubtful receives");
    let [mut new_a, mut new_b] = devices.link(LIMITS);
    for [a, b] in [[&mut old_a, &mut old_b], [&mut new_a, &mut new_b]] {
        a.bulk.prepare(0..1 << 20).unwrap();
        b.bulk.prepare(0..1 << 20).unwrap();
        for len in [40, 2000, 50_000].repeat(20) {
            deliver(&mut a.bulk, &mut b.bulk, Gather::Ring(Extent { offset: 64, len }));
            deliver(&mut b.bulk, &mut a.bulk, Gather::Ring(Extent { offset: 64, len }));
        }
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn regions_that_are_gone_are_unregistered_by_a_node_that_never_sleeps() {
    let devices = Devices::open();
    let [mut a, mut b] = devices.link(LIMITS);
    let before = devices.0[0].registrations().len();
    for _ in 0..50 {
        let region = Region::new(Arc::new(HeapMemory::new(128 << 10)));
        a.bulk.register(&region).unwrap();
        deliver(&mut a.bulk, &mut b.bulk, Gather::Region { region: &region, offset: 0, len: 70_000 });
    }
    assert!(devices.0[0].counters().regions_registered >= 50, "each region was registered");
    let after = devices.0[0].registrations().len();
    assert!(after <= before + 2, "{before} registrations became {after}");
}
