//! What a peer can reach.

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

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn nothing_is_open_but_what_is_granted() {
    let [mut a, _b] = Devices::open().link(LIMITS);
    let region = Region::new(Arc::new(HeapMemory::new(8192)));
    assert_eq!(a.bulk.open_to_peer(), []);
    let grant = a.bulk.grant(&region, 100..300, Rights::READ).unwrap();
    assert!(a.bulk.open_to_peer().into_iter().eq(core::iter::once(100..300)));
    assert_eq!(a.control.open_to_peer(), []);
    a.bulk.revoke(grant.id).unwrap();
    assert_eq!(a.bulk.open_to_peer(), []);
}
