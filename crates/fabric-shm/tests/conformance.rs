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
        let (a, b) = Link::pair([limits; 2]).expect("memory and descriptors are there");
        Pair { a: a.bulk, b: b.bulk, link: [a.lifeline, b.lifeline] }
    }

    fn region(&self, len: usize) -> Region {
        ShmRegion::allocate(len).expect("memory is there")
    }
}

/// A revocation binds a peer that runs this code. And memory that is shared cannot be cut while both ends live: that a
/// peer has died is what the lifeline tells (`processes.rs`).
#[test]
fn conformance() {
    let summary = pronto_conformance::run(&Shm);
    summary.announce();
    summary.assert_complete(&[Capability::EnforcedRevocation, Capability::NearChannel, Capability::LinkCut]);
}
