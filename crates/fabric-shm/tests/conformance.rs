//! The conformance suite of the fabric seam, over shared memory.

use pronto_conformance::{Capability, Harness, Pair};
use pronto_core::fabric::{ConnectionLimits, Region};
use pronto_fabric_shm::{Lifeline, Link, ShmQueuePair, ShmRegion};

struct Shm;

impl Harness for Shm {
    type Qp = ShmQueuePair;
    type Link = [Lifeline; 2];

    fn name(&self) -> &'static str {
        "shm"
    }

    fn pair(&self, limits: ConnectionLimits) -> Pair<ShmQueuePair, [Lifeline; 2]> {
        let (a, b) = Link::pair([limits; 2]).expect("memory and descriptors are available");
        Pair { a: a.bulk, b: b.bulk, link: [a.lifeline, b.lifeline] }
    }

    fn region(&self, len: usize) -> Region {
        ShmRegion::allocate(len).expect("memory is available")
    }
}

/// Revocation binds only a peer that runs this code. Shared memory cannot be cut while both ends live: the lifeline
/// reports the death of a peer (`processes.rs`).
#[test]
fn conformance() {
    let summary = pronto_conformance::run(&Shm);
    summary.announce();
    summary.assert_complete(&[Capability::EnforcedRevocation, Capability::NearChannel, Capability::LinkCut]);
}
