//! A device with a chosen placement: memory of a node, events by a completion vector.

use core::cell::Cell;

use nix::errno::Errno;
use pronto_core::fabric::{Extent, Gather, QueuePair as _};
use pronto_fabric_verbs::{Device, Place};

use crate::grants::LIMITS;
use crate::pair::{Devices, addresses};
use crate::registration::deliver;

/// Shows: operations.vector
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn messages_arrive_with_every_placement() {
    let vectors = Cell::new(0);
    let last = |name: &str, count| {
        assert!(!name.is_empty());
        vectors.set(count);
        Place { completion_vector: count - 1, memory_node: Some(0) }
    };
    let first = Device::for_address_at(addresses()[0], last).unwrap();
    assert!(vectors.get() > 1, "soft-RoCE has one for each CPU");
    assert_eq!(first.place(), Place { completion_vector: vectors.get() - 1, memory_node: Some(0) });
    assert!([None, Some(Errno::ENOSYS)].contains(&first.memory_refused()));
    // A missing vector is not requested, because the kernel would refuse the queue. Neither is a missing node.
    let beyond = Place { completion_vector: 1 << 20, memory_node: Some(1_000) };
    let second = Device::for_address_at(addresses()[1], |_, _| beyond).unwrap();
    assert!(second.memory_refused().is_some());
    let devices = Devices([first, second]);
    let [mut a, mut b] = devices.link(LIMITS);
    a.bulk.prepare(0..1 << 20).unwrap();
    for len in [40, 2_024, 65_536] {
        deliver(&mut a.bulk, &mut b.bulk, Gather::Ring(Extent { offset: 64, len }));
    }
}
