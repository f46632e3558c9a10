//! The mix: the message set of a distributed OS between nodes that are processes of their own, all sending as fast as they can.
//!
//! | module | what |
//! | --- | --- |
//! | [`deck`] | what is sent, in which proportions |
//! | [`made`] | messages that follow from their stamp, so that a receiver knows what should have come |
//! | [`node`] | one node: sends, answers, and writes down what it sees |
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

pub(crate) use node::{command, node_command};

/// The hidden command of a node.
pub(crate) const NODE: &str = "serve-mix";

/// As many as in the paper's Fig. 2.
pub const NODES: u16 = 4;

/// What a node, or all of them, saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Messages by type.
    pub traffic: Traffic,
    /// What arrived otherwise than it was sent.
    pub faults: Faults,
    /// How often a message had to wait for room.
    pub waits_for_room: u64,
    /// Decks of operations that were dealt in every other tenth of the time, from the first, and in the others.
    pub decks: [u64; 2],
    /// From the first message to the last answer, nanoseconds; of all nodes, the longest.
    pub elapsed_ns: u64,
}

impl Seen {
    /// Messages that were sent and did not arrive, or arrived and were not sent.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.traffic.0.iter().map(|of_type| of_type.sent.abs_diff(of_type.received)).sum()
    }

    /// Everything that went wrong.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        self.lost() + self.faults.duplicated + self.faults.out_of_order + self.faults.corrupt
    }

    /// Adds what others saw; the longest time counts.
    pub fn add(&mut self, other: &Self) {
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
pub struct Nodes(Vec<Child>);

impl Nodes {
    /// Starts all nodes; each is connected to every other when this returns. They send for `time` once told to.
    ///
    /// # Errors
    /// If one does not start, or two do not meet.
    pub fn start(provider: Provider, time: Duration) -> anyhow::Result<Self> {
        let mut addresses: Vec<String> = Vec::new();
        let mut children = Vec::new();
        for node in 1..=NODES {
            let fixed =
                [NODE, provider.name(), &node.to_string(), &time.as_millis().to_string()].map(str::to_owned);
            let mut child = Child::spawn(fixed.into_iter().chain(addresses.iter().cloned()))?;
            addresses.push(child.hear()?);
            children.push(child);
        }
        let mut nodes = Self(children);
        nodes.all_say(MET)?;
        Ok(nodes)
    }

    /// Has all of them begin.
    ///
    /// # Errors
    /// If one is gone.
    pub fn go(&mut self) -> anyhow::Result<()> {
        self.0.iter_mut().try_for_each(|child| child.tell(GO))
    }

    /// Waits until all have sent what they will; then, for a moment at most, until everything sent has arrived.
    ///
    /// # Errors
    /// If one failed.
    pub fn seen(&mut self) -> anyhow::Result<Seen> {
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
            let heard = child.hear()?;
            anyhow::ensure!(heard == line, "a node says {heard:?} where {line:?} was due");
        }
        Ok(())
    }
}

/// What nodes and experiment say to each other, beside addresses and reports.
const MET: &str = "met";
const GO: &str = "go";
const SENT: &str = "sent";
const REPORT: &str = "report";

/// A message that has not arrived so long after the last one was sent does not arrive.
const ARRIVAL: Duration = Duration::from_secs(5);
