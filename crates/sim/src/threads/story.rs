//! A story: nodes with several threads each, what they do, and the checks at its end.

use std::sync::{Arc, Mutex};

use pronto_core::executor::{ASLEEP, Circumstances, WaitPolicy, alone};
use pronto_core::session::Limits;
use pronto_core::{Clock as _, Nanos};
use pronto_sync::atomic::{AtomicUsize, Ordering};
use pronto_wire::{Class, NodeId};

use super::caller::Caller;
use super::executor::ThreadExecutor;
use super::links::Director;
use super::mix::Mix;
use super::node::{self, Node, Thread};
use super::panics::Panics;
use super::resting::Announcements;
use super::scheduler::{LostWakeUps, Threads};
use super::serving::Serving;
use crate::fault::Fault;
use crate::options::{CompletionMeaning, SimOptions};
use crate::random::{Random, Span};
use crate::scenario::{Ledger, Tally};
use crate::world::{SimNode, SimWorld};

/// Time by which every story has ended.
const LIMIT: Nanos = Nanos::from_secs(60);

/// A story about nodes with several threads.
#[derive(Clone, Debug)]
pub struct Story {
    /// The seed of everything random.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of calling threads per node, next to the serving thread and the worker.
    pub callers: usize,
    /// Number of steps of each caller.
    pub steps: u32,
    /// The network.
    pub options: SimOptions,
    /// The limits of every session.
    pub limits: Limits,
    /// The steps of the callers.
    pub mix: Mix,
    /// The wait policy of the serving threads; one by the seed if `None`.
    pub serving: Option<WaitPolicy>,
    /// At one check of the links in `override_one_in`, the operator changes how a node waits for a peer; 0 means never.
    pub override_one_in: u32,
    /// One message in `panic_one_in` panics the engine that receives it; 0 means never.
    pub panic_one_in: u32,
    /// One event of a channel in `lost_event_one_in` is lost, so that the safety-net timeout must end the sleep; 0 means none.
    pub lost_event_one_in: u32,
    /// The serving threads leave idle peers armed and do not poll them, as a node with many peers does.
    pub resting: bool,
    /// The time of one operation of a thread; one by the seed if `None`.
    pub operation: Option<Nanos>,
    /// Faults, with their times.
    pub faults: Vec<(Nanos, Fault)>,
}

/// Result of a story.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// Hash of everything that happened.
    pub hash: u64,
    /// The messages by their ends.
    pub tally: Tally,
    /// Number of operations of all threads.
    pub operations: u64,
    /// Number of times that a poller handed its role to a follower.
    pub handovers: u64,
    /// Number of engines in which a thread panicked.
    pub failures: u64,
    /// Number of links that resumed a session.
    pub resumed: u64,
    /// Number of wake-ups that sessions have counted as lost.
    pub lost_wake_ups: u64,
    /// Number of times that a peer has begun to rest.
    pub rests: u64,
    /// Number of times that a thread has held a notification for the serving thread.
    pub held: u64,
}

impl Story {
    /// Returns a story of two nodes whose network and limits the seed chooses.
    pub fn new(seed: u64) -> Self {
        let (options, limits) = crate::scenario::Scenario::random_options(seed);
        Self {
            seed,
            nodes: 2,
            callers: 3,
            steps: 12,
            options,
            limits,
            mix: Mix::all(),
            serving: None,
            override_one_in: 0,
            panic_one_in: 0,
            lost_event_one_in: 0,
            resting: false,
            operation: None,
            faults: Vec::new(),
        }
    }

    /// Runs the story.
    ///
    /// # Panics
    /// A check has failed.
    pub fn run(self) -> Ending {
        let mut random = Random::new(self.seed ^ 0x57_0127);
        let world = SimWorld::new(self.seed, self.options.clone()).with_channels();
        let world = world.losing_events(self.lost_event_one_in);
        let places: Vec<_> = (0..self.nodes).map(|_| world.add_node()).collect();
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let ids = || (1..).take(self.nodes).map(NodeId);
        let nodes: Vec<_> = ids()
            .zip(places)
            .map(|(id, place)| {
                let others = ids().filter(move |other| *other != id);
                let resting = self.resting.then(|| Announcements::new(others.clone()));
                let circumstances = circumstances(&mut random);
                let executor =
                    ThreadExecutor::new(&world, place, circumstances, self.lost_wake_ups(), resting);
                let panics = Panics::new(self.panic_one_in, Random::new(random.next()));
                Arc::new(Node::new((id, place), &world, executor, self.limits, others, &ledger, panics))
            })
            .collect();
        for (at, fault) in &self.faults {
            world.schedule(*at, *fault);
        }
        let threads = Threads::new(world.clone(), self.seed, self.operation, LIMIT, self.lost_wake_ups());
        self.spawn(&threads, &nodes, &mut random);
        threads.run();
        let ending = self.check(&world, &nodes, &ledger);
        Ending { operations: threads.operations(), ..ending }
    }

    const fn lost_wake_ups(&self) -> LostWakeUps {
        if self.lost_event_one_in == 0 { LostWakeUps::Fail } else { LostWakeUps::Occur }
    }

    fn spawn(&self, threads: &Threads, nodes: &[Arc<Node>], random: &mut Random) {
        let left = Arc::new(AtomicUsize::new(nodes.len() * self.callers));
        let mut director = Director {
            world: nodes[0].world.clone(),
            nodes: nodes.to_vec(),
            callers: Arc::clone(&left),
            random: Random::new(random.next()),
            resumable: self.options.completion != CompletionMeaning::Consumed,
            sessions: 0,
            override_one_in: self.override_one_in,
        };
        let name = |what: &str| format!("seed {}, {what}", self.seed);
        threads.spawn(None, name("director"), move || director.run());
        for node in nodes {
            let place = node.place;
            let of = |what: &str| name(&format!("node {}, {what}", node.id));
            let policy = self.serving.unwrap_or_else(|| Mix::all().policy(random));
            let spin_down = random.one_in(3).then_some(Nanos::from_micros(150));
            let mut serving = Serving::new(Arc::clone(node), policy, spin_down);
            threads.spawn(Some(place), of("serving"), move || serving.run());
            let (worker, mut times, work) = (Arc::clone(node), Random::new(random.next()), self.mix.work);
            threads.spawn(Some(place), of("worker"), move || node::work(&worker, || times.within(work)));
            for number in 0..self.callers {
                let (left, steps) = (Arc::clone(&left), self.steps);
                let mut caller = Caller {
                    node: Arc::clone(node),
                    thread: u16::try_from(place.0 * 100 + number).expect("a small number"),
                    random: Random::new(random.next()),
                    mix: self.mix,
                    numbers: 0,
                    holds_calls: false,
                    is_task: false,
                };
                threads.spawn(Some(place), of(&format!("caller {number}")), move || {
                    caller.run(steps);
                    left.fetch_sub(1, Ordering::AcqRel);
                });
            }
        }
    }

    /// Checks that nothing is left.
    fn check(&self, world: &SimWorld, nodes: &[Arc<Node>], ledger: &Arc<Mutex<Ledger>>) -> Ending {
        let (mut handovers, mut failures, mut resumed, mut lost_wake_ups) = (0, 0, 0, 0);
        let rests = nodes.iter().filter_map(|node| node.executor.resting()).map(Announcements::count).sum();
        for node in nodes {
            for (peer, session) in &node.peers {
                let of = format!("node {} with {peer}", node.id);
                assert_eq!(session.open_calls(), 0, "calls of {of}");
                assert!(session.is_servers() && !session.is_awaited(), "a thread still waits: {of}");
                let stats = session.stats();
                lost_wake_ups += stats.lost_wake_ups.count();
                assert!(
                    lost_wake_ups == 0 || self.lost_wake_ups() == LostWakeUps::Occur,
                    "lost wake-ups of {of}"
                );
                assert_eq!(stats.corrupt_peers.count(), 0, "{of}: corrupt");
                // Acknowledgements that came with the last reply are processed in the next tick.
                let (now, executor) = (node.executor.now(), &node.executor);
                session.tick(now, Nanos::ZERO, &mut node.sink(session, Thread::Serving), executor);
                let credits = Class::ALL.map(|class| session.credits(class));
                assert!(node.is_settled(session), "work requests or credits of {of}: {credits:?}");
                handovers += stats.handovers.count();
                failures += stats.failures.count();
                resumed += stats.links_resumed.count();
            }
        }
        assert_eq!(world.leases(), 0, "received payloads that were not returned");
        assert_eq!(world.outstanding(), 0, "work requests that never completed");
        assert_eq!(world.overruns(), 0, "messages beyond the agreed depth");
        let ledger = node::lock(ledger);
        ledger.assert_closed();
        Ending {
            hash: world.trace().hash(),
            tally: ledger.tally(),
            operations: 0,
            handovers,
            failures,
            resumed,
            lost_wake_ups,
            rests,
            held: nodes.iter().map(|node| node.executor.held()).sum(),
        }
    }

    /// Returns the nodes of the story, for its faults.
    pub fn places(&self) -> Vec<SimNode> {
        (0..self.nodes).map(SimNode).collect()
    }

    /// Adds cuts of the links between the first two nodes, about `every` on average.
    #[must_use]
    pub fn with_cuts(mut self, every: Nanos, until: Nanos) -> Self {
        let mut random = Random::new(self.seed ^ 0xc075);
        let gap = Span { min: Nanos(1), max: every + every };
        let mut at = random.within(gap);
        while at < until {
            self.faults.push((at, Fault::CutBetween(SimNode(0), SimNode(1))));
            at = at + random.within(gap);
        }
        self
    }
}

/// Returns the circumstances of a node's threads: most may poll for a while, some must not.
fn circumstances(random: &mut Random) -> Circumstances {
    let bound = random.within(Span::micros(2, 60));
    match random.below(6) {
        0 => ASLEEP,
        _ => alone(bound),
    }
}
