//! The simulated provider passes the conformance suite when it resembles each transport.

use std::sync::Arc;

use pronto_conformance::{Capability, Harness, Pair, run};
use pronto_core::Nanos;
use pronto_core::fabric::{ConnectionLimits, HeapMemory, Region};
use pronto_sim::{Fault, LinkId, SimNode, SimOptions, SimQueuePair, SimWorld};

/// Two nodes of one world; every pair connects them.
struct SimHarness {
    world: SimWorld,
    a: SimNode,
    b: SimNode,
}

impl SimHarness {
    fn new(seed: u64, options: SimOptions) -> Self {
        let world = SimWorld::new(seed, options);
        let (a, b) = (world.add_node(), world.add_node());
        Self { world, a, b }
    }
}

impl Harness for SimHarness {
    type Qp = SimQueuePair;
    type Link = LinkId;

    fn name(&self) -> &'static str {
        "sim"
    }

    fn pair(&self, limits: ConnectionLimits) -> Pair<SimQueuePair, LinkId> {
        let (a, b) = self.world.connect(self.a, self.b, limits);
        let link = a.link();
        Pair { a, b, link }
    }

    fn region(&self, len: usize) -> Region {
        Region::new(Arc::new(HeapMemory::new(len)))
    }

    fn settle(&self, _link: &mut LinkId) {
        if !self.world.step() {
            let soon = self.world.now() + Nanos::from_micros(1);
            self.world.advance_to(soon);
            std::thread::yield_now();
        }
    }

    fn break_link(&self, link: &mut LinkId) -> bool {
        self.world.inflict(Fault::Cut(*link));
        true
    }

    fn event(&self, qp: &SimQueuePair) -> Option<bool> {
        Some(qp.has_event())
    }
}

fn conforms(options: &SimOptions, lacks: &[Capability]) {
    for seed in 1..=2 {
        let harness = SimHarness::new(seed, options.clone());
        let summary = run(&harness);
        println!("seed {seed}, {options:?}");
        summary.announce();
        // Threads sleep only in simulated time.
        summary.assert_complete(&[lacks, &[Capability::NearChannel, Capability::VisibleWhenPosted]].concat());
        assert_eq!(harness.world.overruns(), 0);
        assert_eq!((harness.world.leases(), harness.world.outstanding()), (0, 0));
    }
}

#[test]
fn like_shm() {
    conforms(&SimOptions::like_shm(), &[]);
}

#[test]
fn like_tcp() {
    conforms(&SimOptions::like_tcp(), &[Capability::PassiveTarget, Capability::ByReference]);
}

#[test]
fn like_verbs() {
    conforms(&SimOptions::like_verbs(), &[Capability::GlobalAtomics]);
}
