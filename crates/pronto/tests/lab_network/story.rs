//! Two nodes, the network between them, and what they send each other.

use core::time::Duration;

use pronto::{Events, Node, NodeId, Peer, Rdma, WaitPolicy};

use crate::lanes::Lanes;
use crate::ledger::{Ledger, Log, Mix, assert_equals_log};
use crate::network::Network;
use crate::rig::{TIMEOUT, Watch, until};
use crate::server::{Occurred, Server};

/// Calls of each kind that are answered in [`Story::wait_for_answers`].
const ANSWERS: u64 = 12;

/// Two nodes and their calls.
pub(crate) struct Story {
    pub(crate) network: Network,
    server: Server,
    pub(crate) node: Node,
    pub(crate) peer: Peer,
    logs: [Log; 2],
    events: Events,
    occurred: Occurred,
    /// Events of the server before the first call. Only the server may have had a first link that broke while it was made.
    at_first: Occurred,
    ledger: Ledger,
    lanes: Lanes,
}

/// The events of a story, and how its calls ended.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Events of the client's node and of the server's since the first call.
    pub(crate) occurred: [Occurred; 2],
    /// Calls that the end of a session ended.
    pub(crate) downs: usize,
    /// Notifications that did not arrive.
    pub(crate) missing: u64,
    pub(crate) notifications_lost: u64,
    pub(crate) requests_resent: u64,
}

impl Story {
    /// Connects the nodes over a network, and starts to call.
    pub(crate) fn over(netem: &str, liveness: Duration, mix: Mix) -> Self {
        let mut network = Network::new();
        network.disturb(netem);
        let logs = [Log::new(), Log::new()];
        let mut server = Server::start(&network.spaces[1], liveness, logs.each_ref());
        let node = network.spaces[0].enter(|| {
            let node = Node::builder(2).plaintext_i_understand().rdma(Rdma::Off).wait(WaitPolicy::Block);
            node.liveness(liveness).peer(1, &server.address).start().unwrap()
        });
        let events = node.events();
        let peer = node.wait_for_peer(1, TIMEOUT).unwrap();
        ping(&peer);
        // After a call, all events of the beginning are there to be forgotten.
        Occurred::default().count(&events);
        let (ledger, lanes) = (Ledger::start(&peer, mix), Lanes::start(&peer));
        let (occurred, at_first) = (Occurred::default(), server.occurred());
        Self { network, server, node, peer, logs, events, occurred, at_first, ledger, lanes }
    }

    /// Returns the events of the client's node and of the server's since the first call.
    pub(crate) fn occurred(&mut self) -> [Occurred; 2] {
        self.occurred.count(&self.events);
        [self.occurred, self.server.occurred().since(self.at_first)]
    }

    /// Returns the number of answered calls.
    pub(crate) fn answers(&self) -> [u64; 2] {
        [self.ledger.replies(), self.lanes.answered()]
    }

    /// Waits until more calls are answered.
    pub(crate) fn wait_for_answers(&self) {
        let before = self.answers();
        until("calls are answered", || {
            self.answers().iter().zip(before).all(|(now, before)| *now >= before + ANSWERS)
        });
    }

    fn counter(&self, name: &str) -> u64 {
        let status = self.node.status();
        let peer = status.peers.iter().find(|peer| peer.node == NodeId(1)).unwrap();
        peer.counters.iter().find(|(counter, _)| *counter == name).unwrap().1
    }

    /// Ends the calls and compares them with what the server executed.
    pub(crate) fn end(mut self) -> Ends {
        let (lanes, books) = (self.lanes.stop(), self.ledger.stop());
        let [notifications_lost, requests_resent] =
            ["notifications_lost", "requests_resent"].map(|name| self.counter(name));
        let occurred = self.occurred();
        // After the server has ended, there are no late executions.
        drop(self.server);
        let (totals, downs) = assert_equals_log(&books, &mut self.logs[0]);
        let [answered, notified, missing] = lanes.assert_equals_log(&self.logs[1]);
        let downs = downs + lanes.downs();
        let ends = Ends { occurred, downs, missing, notifications_lost, requests_resent };
        eprintln!("network: {totals}; answered={answered} notified={notified} {ends:?}");
        ends
    }
}

/// Makes one call, and returns the time that it took.
pub(crate) fn ping(peer: &Peer) -> Duration {
    let watch = Watch::start();
    assert_eq!(peer.call_within(&pronto::admin::Ping { nonce: 7 }, TIMEOUT).unwrap().nonce, 7);
    watch.passed()
}
