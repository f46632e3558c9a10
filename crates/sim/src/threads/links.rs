//! The director of a story: it makes the links between nodes, again after each loss, and ends the story.

use std::sync::Arc;

use pronto_core::Nanos;
use pronto_core::executor::{Executor as _, WaitPolicy};
use pronto_core::session::{Authenticated, Identity, Links, agree, greet};
use pronto_core::wait::WaitOverride;
use pronto_sync::atomic::{AtomicUsize, Ordering};
use pronto_wire::{Class, Epoch, NodeId, SessionId};

use super::node::{Node, Thread};
use super::panics::survived;
use super::scheduler;
use super::thread::{Asleep, SleepOn};
use crate::random::{Random, Span};
use crate::scenario::{Kind, SimSession};
use crate::world::SimWorld;

/// Time between two checks of the links.
const BETWEEN: Span = Span::micros(100, 3_000);
/// Time in which everything open settles after the last caller has ended, and the interval of the checks.
const SETTLES: Nanos = Nanos::from_millis(600);
const CHECKED: Nanos = Nanos::from_millis(2);

/// The director.
pub(super) struct Director {
    pub(super) world: SimWorld,
    pub(super) nodes: Vec<Arc<Node>>,
    /// Number of callers that have not ended.
    pub(super) callers: Arc<AtomicUsize>,
    pub(super) random: Random,
    pub(super) resumable: bool,
    pub(super) sessions: u64,
    pub(super) override_one_in: u32,
}

impl Director {
    pub(super) fn run(&mut self) {
        while self.callers.load(Ordering::Acquire) != 0 {
            self.link_all();
            self.override_waits();
            let span = self.random.within(BETWEEN);
            self.pause(span);
        }
        let until = self.world.now() + SETTLES;
        while !self.is_settled() && self.world.now() < until {
            self.link_all();
            self.pause(CHECKED);
        }
        self.nodes.iter().for_each(|node| node.stop());
    }

    /// Sometimes changes how a node waits for a peer, as an operator may.
    fn override_waits(&mut self) {
        if !self.random.one_in(self.override_one_in) {
            return;
        }
        let policies = [WaitPolicy::Spin, WaitPolicy::Block, WaitPolicy::Adaptive];
        let policy = policies.get(usize::try_from(self.random.below(4)).expect("below four"));
        let which = usize::try_from(self.random.below(self.nodes.len() as u64)).expect("below a length");
        for session in self.nodes[which].peers.values() {
            session.set_wait_override(policy.map(|policy| WaitOverride { policy: *policy, bound: None }));
            self.check_status(which, session);
        }
    }

    /// Checks how an adaptive wait for a reply would be, as an operator may see it in the status of a node.
    fn check_status(&self, which: usize, session: &SimSession) {
        let (history, executor) = (session.reply_waits(), &self.nodes[which].executor);
        let decision =
            history.decide_here(WaitPolicy::Adaptive.into(), executor.circumstances(WaitPolicy::Adaptive));
        assert!(decision.polls_for() <= decision.bound() + decision.bound(), "{decision:?}");
        if decision.is_from_history() {
            assert_eq!(decision.polls_for(), Nanos::ZERO, "{decision:?}");
            assert!(history.gap() > decision.bound(), "{decision:?}, {:?}", history.gap());
        }
    }

    /// Returns whether nothing is open.
    fn is_settled(&self) -> bool {
        let settled = |node: &Arc<Node>| {
            let mut sessions = node.peers.values();
            !node.has_jobs() && sessions.all(|session| node.is_settled(session))
        };
        self.world.leases() == 0 && self.world.outstanding() == 0 && self.nodes.iter().all(settled)
    }

    fn pause(&self, span: Nanos) {
        let until = self.world.now() + span;
        scheduler::sleep(Asleep { on: SleepOn::Pause, until }, |_| true);
    }

    fn link_all(&mut self) {
        for (index, a) in self.nodes.clone().iter().enumerate() {
            for b in &self.nodes.clone()[index + 1..] {
                let ends = [(a, b), (b, a)].map(|(node, peer)| (node, &node.peers[&peer.id]));
                if ends.iter().all(|(node, session)| !session.is_linked(&node.executor)) {
                    self.link(a, b);
                }
            }
        }
    }

    fn link(&mut self, a: &Arc<Node>, b: &Arc<Node>) {
        let ends = [(a, b), (b, a)].map(|(node, peer)| (node, &node.peers[&peer.id], peer));
        let held = ends.map(|(node, session, _)| session.info(&node.executor).map(|info| info.session));
        let held = if held[0] == held[1] { held[0] } else { None };
        let session = held.unwrap_or_else(|| {
            self.sessions += 1;
            SessionId(self.sessions)
        });
        let agreements = ends.map(|(node, _, peer)| {
            let greeting = greet(&identity(peer.id), &peer.limits, node.id, Some(session));
            let agreed =
                agree(&identity(node.id), &node.limits, Authenticated::claimed(greeting), session, held);
            let mut agreement = agreed.expect("the greetings match");
            agreement.resumable = self.resumable;
            agreement
        });
        let connect = |class: Class| self.world.connect(a.place, b.place, agreements[0].connection(class));
        let [(near, far), (near_bulk, far_bulk)] = Class::ALL.map(connect);
        let pairs = [[near, near_bulk], [far, far_bulk]];
        for (((node, session, _), agreement), pairs) in ends.into_iter().zip(agreements).zip(pairs) {
            let links = Links { pairs, agreement };
            let install = || session.install(links, &mut node.sink(session, Thread::Waiting), &node.executor);
            if survived(install).is_none() {
                session.fail(&mut node.sink(session, Thread::Waiting), &node.executor);
            }
        }
    }
}

fn identity(id: NodeId) -> Identity {
    Identity { node: id, epoch: Epoch(id.0.into()), name: String::new(), types: Kind::entries() }
}
