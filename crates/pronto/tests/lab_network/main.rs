//! Two nodes over bad networks: TCP through netem, although the nodes of the lab could use RDMA. A ledger
//! shows that no call is lost, executed twice or answered wrongly.
//!
//! Each story asserts that its disturbance was noticed by the kernels of both nodes.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

mod lanes;
mod ledger;
mod network;
mod rig;
mod server;
mod story;
mod transfers;

use core::time::Duration;

use crate::ledger::Mix;
use crate::rig::{Watch, pause, until};
use crate::story::{Story, ping};
use crate::transfers::Transfers;

/// A bad network.
struct Bad {
    name: &'static str,
    /// Options of tc-netem(8), for both directions.
    netem: &'static str,
    /// Shortest time of a round trip.
    round_trip: Duration,
    /// Counters that grow at both nodes: those of netem, and those of TCP.
    noticed: &'static [&'static str],
}

/// The liveness limit in networks that are only bad. The default would do for them, but the whole machine may stand still for seconds while
/// its host is busy, and a partition lasts until the kernels of both nodes have noticed it.
const LENIENT: Duration = Duration::from_secs(60);
/// The limit in a partition. Below the 10 s after which TCP connections are given up, so that the limit ends the session.
const SHORT: Duration = Duration::from_secs(5);

const PARTITION: &str = "loss 100%";

const NONE: Duration = Duration::ZERO;
/// A segment arrived before an earlier one.
const OVERTAKEN: &str = "TcpExtTCPOFOQueue";
/// A segment arrived that had arrived already.
const TWICE: &str = "TcpExtTCPDSACKOldSent";

const NETWORKS: [Bad; 6] = [
    // Each packet takes 10 to 30 ms.
    Bad {
        name: "delay and jitter",
        netem: "delay 20ms 10ms",
        round_trip: Duration::from_millis(20),
        noticed: &[OVERTAKEN],
    },
    // A quarter of the packets overtakes those of the last 10 ms.
    Bad {
        name: "reordering",
        netem: "delay 10ms reorder 25%",
        round_trip: NONE,
        noticed: &["requeues", OVERTAKEN],
    },
    Bad { name: "loss", netem: "loss 5%", round_trip: NONE, noticed: &["dropped", "TcpRetransSegs"] },
    Bad { name: "duplication", netem: "duplicate 20%", round_trip: NONE, noticed: &[TWICE] },
    // The queue in front of a slow link overflows.
    Bad {
        name: "a slow link",
        netem: "rate 8mbit limit 32",
        round_trip: NONE,
        noticed: &["dropped", "TcpRetransSegs"],
    },
    Bad {
        name: "all of it",
        netem: "delay 20ms 10ms reorder 25% loss 3% duplicate 10% rate 20mbit",
        round_trip: NONE,
        noticed: &["dropped", "requeues", "TcpRetransSegs", OVERTAKEN, TWICE],
    },
];

/// One session survives all networks that are only bad, although its connections break in each of them.
///
/// Shows: protocol.bad-network, protocol.survives, protocol.sent-again, protocol.duplicates, protocol.order, operations.link-breaks
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_session_survives_bad_networks() {
    let mut story = Story::over(NETWORKS[0].netem, LENIENT, Mix::Crossed);
    let transfers = Transfers::start(&story.node, &story.peer);
    for bad in &NETWORKS {
        let watch = Watch::start();
        story.network.disturb(bad.netem);
        let shortest = (0..3).map(|_| ping(&story.peer)).min().unwrap();
        assert!(shortest >= bad.round_trip, "no delay: {shortest:?}");
        story.wait_for_answers();
        let [resumed, _] = story.occurred().map(|node| node.resumed);
        assert!(story.network.break_connections() > 0, "no connection was broken");
        until("the session resumes", || story.occurred()[0].resumed > resumed);
        story.wait_for_answers();
        transfers.wait_for_more();
        eprintln!("network: {} {:?} {shortest:?} {:?}", bad.name, watch.passed(), story.answers());
        story.network.wait_until_noticed(bad.noticed);
    }
    // A partition within the limit delays everything.
    story.network.disturb(PARTITION);
    story.network.wait_until_noticed(&["dropped"]);
    story.network.disturb(NETWORKS[0].netem);
    story.wait_for_answers();
    transfers.wait_for_more();
    transfers.stop();
    let ends = story.end();
    for node in ends.occurred {
        assert_eq!((node.ups, node.downs), (0, 0), "a network that is only bad must end no session");
        assert!(node.resumed >= NETWORKS.len() as u64, "{node:?}");
        assert_eq!(node.lost, node.resumed, "another link must replace each one that broke");
    }
    assert_eq!(ends.downs, 0, "no call may end because the peer is down");
    assert!(ends.requests_resent > 0, "the broken connections must meet open calls");
    assert!(ends.missing <= ends.notifications_lost, "{ends:?}");
}

/// The limit ends the session on both sides, once, and a new session begins after the partition.
///
/// Shows: protocol.down, protocol.another-session
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_partition_beyond_the_limit_is_one_down_and_one_up() {
    const BAD: &str = "delay 5ms 2ms loss 1%";
    let mut story = Story::over(BAD, SHORT, Mix::Straight);
    story.wait_for_answers();
    story.network.disturb(PARTITION);
    until("both sessions end", || story.occurred().iter().all(|node| node.downs > 0));
    // Attempts to connect fail meanwhile.
    pause(Duration::from_secs(1));
    story.network.wait_until_noticed(&["dropped"]);
    story.network.disturb(BAD);
    story.wait_for_answers();
    let ends = story.end();
    let sessions = ends.occurred.map(|node| [node.ups, node.downs]);
    assert_eq!(sessions, [[1, 1]; 2], "exactly one session must end, and one begin");
    assert!(ends.downs > 0, "the partition must meet open calls");
}
