//! The ranks of a parallel job over Pronto: processes on one CPU each, in the network namespaces of their nodes.

use core::str::FromStr;
use std::fs::File;

use anyhow::{Context as _, ensure};
use nix::sched::{CloneFlags, setns};
use pronto::WaitPolicy;
use pronto_parallel_jobs::comm::{OverPronto, Rank, Settings};
use pronto_parallel_jobs::is::{self, IntegerSort};
use pronto_parallel_jobs::master_slave::MasterSlave;
use pronto_parallel_jobs::mg::{self, Coefficients, MultiGrid};
use pronto_parallel_jobs::outcome::{Outcome, SystemClock};
use serde::{Deserialize, Serialize};

use super::bed::{TestBed, TestNode};
use crate::child::{self, Child};
use crate::params::{Choice as _, choices};
use crate::placement::pin;
use crate::side::{Arguments, Side};

choices! {
    /// A parallel job.
    pub(crate) enum App {
        /// Integer sort.
        Is = "is",
        /// Multigrid.
        Mg = "mg",
        /// A master, and slaves of which every second one answers.
        MasterSlave = "master-slave",
    }
}

impl App {
    /// Returns the node of each rank. Of a master with slaves, the master is on the first node, and two slaves of different kinds on each
    /// other one (coscheduling paper, section 4.2).
    pub(crate) fn places(self, nodes: usize) -> Vec<usize> {
        match self {
            Self::Is | Self::Mg => (0..nodes).collect(),
            Self::MasterSlave => {
                core::iter::once(0).chain((1..nodes).flat_map(|node| [node, node])).collect()
            }
        }
    }
}

impl Class {
    /// Returns the parameters of a master with slaves, for which the paper gives no numbers: messages as in the simulation, a computation
    /// of about 1 ms, and an own number of iterations.
    pub(crate) const fn master_slave(self) -> MasterSlave {
        let iterations = match self {
            Self::S => 40,
            Self::W => 1_000,
            Self::A => 4_000,
        };
        MasterSlave { iterations, bytes: 4_096, units: 20 }
    }
}

choices! {
    /// Size of a job.
    pub(crate) enum Class {
        /// Tests.
        S = "s",
        /// Workstations.
        W = "w",
        /// The paper's.
        A = "a",
    }
}

/// A rank in a process of its own.
pub(crate) const SIDE: Side = Side {
    name: "cosched-rank",
    arguments: &["namespace", "cpu", "app", "class", "rank"],
    more: Some("addresses"),
    run: serve,
};

/// Port of the first rank of the first kind of job; the others follow.
const PORT: u16 = 7_300;

/// Ports of a kind of job, so that jobs of different kinds can run at the same time.
const PORTS: u16 = 50;

/// The ranks of a job, which has not begun.
#[derive(Debug)]
pub(crate) struct Ranks(Vec<Child>);

/// The result of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ran {
    /// Time of the job.
    pub(crate) seconds: f64,
    /// The result is right.
    pub(crate) verified: bool,
    /// CPU time of the job.
    pub(crate) cpu_seconds: f64,
    /// Page faults that read from a disk.
    pub(crate) major_faults: u64,
    /// Times that it slept.
    pub(crate) sleeps: u64,
    /// Times that it was preempted.
    pub(crate) preempted: u64,
}

impl Ranks {
    /// Starts the ranks on their nodes, where they connect to each other.
    pub(crate) fn start(bed: &TestBed, app: App, class: Class) -> anyhow::Result<Self> {
        let nodes: Vec<_> =
            app.places(bed.nodes().len()).into_iter().map(|place| &bed.nodes()[place]).collect();
        let first = match app {
            App::Is => PORT,
            App::Mg => PORT + PORTS,
            App::MasterSlave => PORT + 2 * PORTS,
        };
        let addresses: Vec<_> =
            (first..).zip(&nodes).map(|(port, node)| format!("tcp:{}:{port}", node.address)).collect();
        let start = |(rank, node): (usize, &&TestNode)| {
            let namespace = node.file();
            let namespace = namespace.to_str().context("the path of a namespace is text")?;
            let cpu = node.cpu.0.to_string();
            let rank = rank.to_string();
            let own = [namespace, &cpu, app.name(), class.name(), &rank];
            Child::spawn(&SIDE, own.into_iter().chain(addresses.iter().map(String::as_str)))
        };
        let mut ranks = nodes.iter().enumerate().map(start).collect::<anyhow::Result<Vec<_>>>()?;
        ranks.iter_mut().try_for_each(|rank| rank.expect("ready"))?;
        Ok(Self(ranks))
    }

    /// Returns the processes of the ranks.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(Child::id)
    }

    /// Runs the job. Returns the results of the ranks.
    pub(crate) fn run(mut self) -> anyhow::Result<Vec<Ran>> {
        self.0.iter_mut().try_for_each(|rank| rank.tell("go"))?;
        let results = self.0.iter_mut().map(|rank| Ok(serde_json::from_str(&rank.hear()?)?));
        results.collect()
    }
}

fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    let namespace = File::open(arguments.text("namespace")?).context("the network namespace")?;
    setns(namespace, CloneFlags::CLONE_NEWNET).context("entering the network namespace")?;
    pin(arguments.cpu("cpu")?)?;
    let rank = Rank(arguments.get("rank")?);
    let settings = Settings {
        wait: WaitPolicy::Block,
        plaintext: true,
        ..Settings::new(arguments.more("addresses").map(str::to_owned).collect())
    };
    let mut comm = OverPronto::start(rank, &settings)?;
    let (app, class) = (arguments.text("app")?, Class::from_str(arguments.text("class")?)?);
    child::say("ready")?;
    let heard = child::listen()?;
    ensure!(heard.as_deref() == Some("go"), "the parent has ended");
    let outcome = run(&mut comm, App::from_str(app)?, class)?;
    let usage = outcome.usage;
    child::say(&serde_json::to_string(&Ran {
        seconds: usage.seconds,
        verified: outcome.verified,
        cpu_seconds: usage.user_seconds + usage.system_seconds,
        major_faults: usage.major_faults,
        sleeps: usage.voluntary_switches,
        preempted: usage.involuntary_switches,
    })?)?;
    // The other ranks may still need this one; the parent ends it.
    while child::listen()?.is_some() {}
    Ok(())
}

fn run(comm: &mut OverPronto, app: App, class: Class) -> anyhow::Result<Outcome> {
    Ok(match app {
        App::Is => {
            let class = match class {
                Class::S => is::Class::S,
                Class::W => is::Class::W,
                Class::A => is::Class::A,
            };
            IntegerSort::new(comm, class).run(comm, &SystemClock, &())?
        }
        App::Mg => {
            let class = match class {
                Class::S => mg::Class::S,
                Class::W => mg::Class::W,
                Class::A => mg::Class::A,
            };
            MultiGrid::new(comm, class, Coefficients::NPB).run(comm, &SystemClock, &())?
        }
        App::MasterSlave => class.master_slave().run(comm, &SystemClock, &())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_has_a_node_of_its_own_and_two_slaves_are_on_each_other_node() {
        assert_eq!(App::MasterSlave.places(4), [0, 1, 1, 2, 2, 3, 3]);
        assert_eq!((App::Is.places(4), App::MasterSlave.places(2)), (vec![0, 1, 2, 3], vec![0, 1, 1]));
    }
}
