//! The mix: the message set of a distributed OS between nodes in separate processes, all sending as fast as they can.
//!
//! | module | content |
//! | --- | --- |
//! | [`deck`] | the operations and their proportions |
//! | [`made`] | messages that follow from their stamp, so that a receiver knows the expected content |
//! | [`node`] | one node: sends, replies, and records what it receives |
//! | this | the nodes' processes, as seen by the experiment |

mod deck;
mod made;
mod node;

use core::time::Duration;
use std::thread;

use anyhow::Context as _;
use minidos::account::{Faults, Traffic};
use serde::{Deserialize, Serialize};

use crate::child::Child;
use crate::clock;
use crate::echo::Provider;

pub(crate) use node::SIDE;

/// Number of nodes in the paper's Fig. 2.
pub(crate) const NODES: u16 = 4;

/// Observations of a node, or of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Messages by type.
    pub(crate) traffic: Traffic,
    /// Messages that arrived differently from how they were sent.
    pub(crate) faults: Faults,
    /// Number of times that a message had to wait for room.
    pub(crate) waits_for_room: u64,
    /// Number of decks dealt in the odd tenths of the time, and in the even ones.
    pub(crate) decks: [u64; 2],
    /// Time from the first message to the last reply, in nanoseconds; for several nodes, the longest.
    pub(crate) elapsed_ns: u64,
}

impl Seen {
    /// Returns the number of messages that were sent and did not arrive, or arrived and were not sent.
    pub(crate) fn lost(&self) -> u64 {
        self.traffic.0.iter().map(|of_type| of_type.sent.abs_diff(of_type.received)).sum()
    }

    /// Returns the number of all faults.
    pub(crate) fn wrong(&self) -> u64 {
        self.lost() + self.faults.duplicated + self.faults.out_of_order + self.faults.corrupt
    }

    /// Adds other observations; the longest time counts.
    pub(crate) fn add(&mut self, other: &Self) {
        self.traffic.add(&other.traffic);
        self.faults.duplicated += other.faults.duplicated;
        self.faults.out_of_order += other.faults.out_of_order;
        self.faults.corrupt += other.faults.corrupt;
        self.waits_for_room += other.waits_for_room;
        self.decks = [0, 1].map(|half| self.decks[half] + other.decks[half]);
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
    }
}

/// The processes of all nodes; killed when dropped.
#[derive(Debug)]
pub(crate) struct Nodes(Vec<Child>);

impl Nodes {
    /// Starts all nodes. Each is connected to every other when this returns. They send for `time` after [`go`](Self::go).
    pub(crate) fn start(provider: Provider, time: Duration) -> anyhow::Result<Self> {
        let mut addresses: Vec<String> = Vec::new();
        let mut children = Vec::new();
        for node in 1..=NODES {
            let fixed =
                [provider.name(), &node.to_string(), &time.as_millis().to_string()].map(str::to_owned);
            let mut child = Child::spawn(&SIDE, fixed.iter().chain(&addresses))?;
            addresses.push(child.hear()?);
            children.push(child);
        }
        let mut nodes = Self(children);
        nodes.all_say(MET)?;
        Ok(nodes)
    }

    /// Makes all nodes begin.
    pub(crate) fn go(&mut self) -> anyhow::Result<()> {
        self.0.iter_mut().try_for_each(|child| child.tell(GO))
    }

    /// Waits until all have sent what they will; then, for a moment at most, until everything sent has arrived.
    pub(crate) fn seen(&mut self) -> anyhow::Result<Seen> {
        self.all_say(SENT)?;
        let waits_since = clock::now();
        loop {
            let seen = self.ask()?;
            if seen.lost() == 0 || waits_since.elapsed() > ARRIVAL {
                return Ok(seen);
            }
            thread::park_timeout(Duration::from_millis(10));
        }
    }

    fn ask(&mut self) -> anyhow::Result<Seen> {
        let mut sum = Seen::default();
        for child in &mut self.0 {
            child.tell(REPORT)?;
            let seen: Seen = serde_json::from_str(&child.hear()?).context("a node's report")?;
            sum.add(&seen);
        }
        Ok(sum)
    }

    fn all_say(&mut self, line: &str) -> anyhow::Result<()> {
        for child in &mut self.0 {
            child.expect(line)?;
        }
        Ok(())
    }
}

/// Lines between nodes and experiment, other than addresses and reports.
const MET: &str = "met";
const GO: &str = "go";
const SENT: &str = "sent";
const REPORT: &str = "report";

/// Time after the last send within which every message must have arrived.
const ARRIVAL: Duration = Duration::from_secs(5);
