//! A cluster of scenario nodes, and the common end of all scenarios: healing, an examination, and the final checks of
//! the ledger.

use core::cell::{Cell, Ref, RefCell};
use core::fmt;
use std::collections::BTreeMap;
use std::rc::Rc;

use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_wire::{Class, NodeId};

use super::ledger::Ledger;
use super::node::{Common, ScenarioNode, id_at};
use super::traffic::{RECOVERY, Traffic};
use super::transfers::TransferTally;
use crate::executor::SimExecutor;
use crate::fault::Fault;
use crate::options::SimOptions;
use crate::random::Random;
use crate::simulation::Simulation;
use crate::world::{SimNode, SimWorld};

/// Duration of the examination: each call takes a few flights and some work.
const EXAM: Nanos = Nanos::from_secs(20);
/// Time until credits, heartbeats and the like are settled.
const REST: Nanos = Nanos::from_secs(5);

/// A cluster under test.
pub struct Scenario {
    seed: u64,
    common: Common,
    simulation: Simulation,
    places: Vec<SimNode>,
}

impl Scenario {
    /// Creates a cluster of `nodes`, all of which dial each other.
    pub fn new(seed: u64, nodes: usize, options: SimOptions, limits: Limits, traffic: Traffic) -> Self {
        let resumable = options.completion != crate::CompletionMeaning::Consumed;
        let common = Common {
            world: SimWorld::new(seed, options),
            ledger: Rc::new(RefCell::new(Ledger::default())),
            traffic: Rc::new(Cell::new(traffic)),
            transferred: Rc::default(),
            exam: Rc::new(RefCell::new(BTreeMap::new())),
            sessions: Rc::new(RefCell::new(BTreeMap::new())),
            limits,
            resumable,
            places: nodes,
            seed,
        };
        let mut simulation = Simulation::new(common.world.clone());
        let places = (0..nodes)
            .map(|_| {
                let common = common.clone();
                simulation.add(Box::new(move |_, node, incarnation| {
                    Box::new(ScenarioNode::boot(&common, node, incarnation))
                }))
            })
            .collect();
        Self { seed, common, simulation, places }
    }

    /// Returns options and limits chosen by the seed: each transport, and windows from one message to the usual ones.
    pub fn random_options(seed: u64) -> (SimOptions, Limits) {
        let mut random = Random::new(seed ^ 0x0971);
        let options = [SimOptions::like_shm, SimOptions::like_tcp, SimOptions::like_verbs];
        let mut up_to = |max: u64| u16::try_from(1 + random.below(max)).expect("a small number");
        let limits = Limits {
            calls: up_to(12),
            requests: [up_to(12), up_to(8)],
            max_payload: [4 << 10, 16 << 10],
            send_memory: [1 << 20, 1 << 20],
            ..Limits::default()
        };
        (options[usize::from(up_to(3)) - 1](), limits)
    }

    /// Returns the world.
    pub fn world(&self) -> &SimWorld {
        self.simulation.world()
    }

    /// Returns the nodes; node id `n + 1` is at index `n`.
    pub fn places(&self) -> &[SimNode] {
        &self.places
    }

    /// Returns the ledger.
    pub fn ledger(&self) -> Ref<'_, Ledger> {
        self.common.ledger.borrow()
    }

    /// Runs the cluster for a time.
    pub fn run(&mut self, span: Nanos) {
        let until = self.world().now() + span;
        self.simulation.run_until(until);
    }

    /// Sets the traffic of the nodes from now on.
    pub fn set_traffic(&self, traffic: Traffic) {
        self.common.traffic.set(traffic);
    }

    /// Returns the events that one node has seen of another.
    pub fn peer_events(&self, node: usize, peer: usize) -> super::PeerEvents {
        self.ledger().peer_events(id_at(self.places[node]), id_at(self.places[peer]))
    }

    /// Returns the counts of all transfers so far.
    pub fn transfers(&self) -> TransferTally {
        self.common.transferred.borrow().tally
    }

    /// Returns the number of turns of all nodes so far.
    pub fn turns(&self) -> u64 {
        self.simulation.turns()
    }

    /// Returns the sum of a counter over all sessions of the current incarnations.
    pub fn counted(&self, counter: &str) -> u64 {
        let sessions = self.common.sessions.borrow();
        let all = sessions.values().flat_map(|session| session.stats().each());
        all.filter(|(name, _)| *name == counter).map(|(_, count)| count).sum()
    }

    /// Ends every scenario: the faults end, every node restarts, and everything open ends. Then each node makes more
    /// calls to each other node than any window holds, and every one must be answered. Then nothing may remain open.
    /// Returns the hash of the trace.
    ///
    /// # Panics
    /// An invariant is violated.
    /// If an invariant is broken.
    pub fn finish(mut self) -> u64 {
        let links_may_be_tight = self.common.traffic.get().tight_one_in != 0;
        self.set_traffic(self.common.traffic.get().silent());
        self.make_peace();
        if links_may_be_tight {
            self.replace_links();
        }
        self.run(RECOVERY);
        let open = self.ledger().open();
        assert_eq!(open, 0, "calls open long after the last fault");
        self.examine();
        self.run(REST);
        self.ledger().assert_closed();
        self.assert_nothing_left();
        self.world().trace().hash()
    }

    fn make_peace(&self) {
        let world = self.world();
        for (index, a) in self.places.iter().enumerate() {
            world.inflict(Fault::Slow { node: *a, by: Nanos::ZERO });
            world.inflict(Fault::Restart(*a));
            for b in &self.places[index + 1..] {
                world.inflict(Fault::Heal(*a, *b));
            }
        }
    }

    /// Makes all nodes greet each other again, with their usual grants.
    fn replace_links(&self) {
        for (index, a) in self.places.iter().enumerate() {
            for b in &self.places[index + 1..] {
                self.world().inflict(Fault::CutBetween(*a, *b));
            }
        }
    }

    fn examine(&mut self) {
        let before = self.ledger().tally();
        let mut calls = 0;
        for (node, peer) in self.pairs() {
            for class in Class::ALL {
                let count = 2 * u32::from(self.common.limits.requests[class.index()]) + 3;
                self.common.exam.borrow_mut().insert((node, peer, class), count);
                calls += u64::from(count);
            }
        }
        self.run(EXAM);
        let after = self.ledger().tally();
        let replies = after.replies - before.replies;
        assert_eq!(replies, calls, "replies in the examination; before it {before:?}, after it {after:?}");
    }

    fn pairs(&self) -> Vec<(NodeId, NodeId)> {
        let ids: Vec<_> = self.places.iter().map(|place| id_at(*place)).collect();
        let with_others = |a: &NodeId| ids.iter().map(move |b| (*a, *b)).collect::<Vec<_>>();
        ids.iter().flat_map(with_others).filter(|(a, b)| a != b).collect()
    }

    fn assert_nothing_left(&self) {
        let (world, executor) = (self.world(), SimExecutor::new(self.world()));
        assert_eq!(world.leases(), 0, "received payloads that were not returned");
        assert_eq!(world.outstanding(), 0, "work requests that never completed");
        assert_eq!(world.overruns(), 0, "messages beyond the agreed depth");
        let mut corrupt = 0;
        for ((node, peer), session) in &*self.common.sessions.borrow() {
            let is_paused = !session.is_linked(&executor) && !session.wants_link();
            assert!(
                session.is_up() && (session.is_linked(&executor) || is_paused),
                "node {node} has no link to {peer}"
            );
            assert_eq!(session.open_calls(), 0, "calls of node {node} to {peer}");
            assert_eq!(session.transfers(&executor), [0; 3], "transfers of node {node} with {peer}");
            assert_eq!(session.work_in_flight(&executor), 0, "work requests of node {node} to {peer}");
            corrupt += session.stats().corrupt_peers.count();
            for class in Class::ALL {
                // Up to three quarters of a window may be returned only with the next message.
                let window = u32::from(self.common.limits.requests[class.index()]);
                let credits = session.credits(class);
                // There are none without a link.
                assert!(
                    is_paused || credits <= window && credits >= window - window / 2 - window / 4,
                    "node {node} has {credits} of {window} credits of {peer}, class {class:?}"
                );
            }
        }
        let damaged = world.fired().damaged;
        assert!(
            corrupt <= damaged,
            "{corrupt} peers were taken for corrupt, {damaged} messages were damaged"
        );
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("seed", &self.seed).finish_non_exhaustive()
    }
}
