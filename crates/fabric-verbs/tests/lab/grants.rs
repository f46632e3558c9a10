//! Memory that a peer can access.

use std::process::Command;
use std::sync::Arc;

use pronto_core::fabric::{ConnectionLimits, HeapMemory, QueuePair as _, Region, Rights};

use crate::pair::Devices;

pub(crate) const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 16,
    receive_depth: 16,
    max_send_payload: 1 << 20,
    max_receive_payload: 1 << 20,
    send_memory: 1 << 20,
};

/// Returns the number of registrations that the kernel knows for a device. Tests of the lab run one after the other.
fn known_to_the_kernel(device: &str) -> usize {
    let shown = Command::new("rdma").args(["resource", "show", "mr", "dev", device]).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
    String::from_utf8(shown.stdout).unwrap().lines().filter(|line| line.contains(" lkey ")).count()
}

/// Apart from windows, a peer can access nothing: no memory for sends, for receives, or with grants.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn no_registration_has_a_remote_right() {
    let devices = Devices::open();
    let [mut a, mut b] = devices.link(LIMITS);
    let region = Region::new(Arc::new(HeapMemory::new(1 << 16)));
    for link in [&mut a, &mut b] {
        link.bulk.prepare(0..1 << 16).unwrap();
        link.bulk.register(&region).unwrap();
        link.bulk.grant(&region, 0..4096, Rights::ALL).unwrap();
    }
    for device in &devices.0 {
        let all = device.registrations();
        // Lines of two queue pairs, receives, a chunk of send memory, a region, a grant.
        assert!(all.len() >= 6, "{all:?}");
        assert_eq!(all.len(), known_to_the_kernel(device.name()), "unlisted registrations");
        assert!(all.iter().all(|registered| !registered.remote), "{all:?}");
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn only_granted_ranges_are_open() {
    let [mut a, _b] = Devices::open().link(LIMITS);
    let region = Region::new(Arc::new(HeapMemory::new(8192)));
    assert_eq!(a.bulk.open_to_peer(), []);
    let grant = a.bulk.grant(&region, 100..300, Rights::READ).unwrap();
    assert!(a.bulk.open_to_peer().into_iter().eq(core::iter::once(100..300)));
    assert_eq!(a.control.open_to_peer(), []);
    a.bulk.revoke(grant.id).unwrap();
    assert_eq!(a.bulk.open_to_peer(), []);
}
