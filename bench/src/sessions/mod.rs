//! Many sessions over TCP with one node: a process that is as many peers, and what the node's memory comes to.

use core::time::Duration;
use std::io::BufRead as _;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pronto::{Node, Peer, Rdma, WaitPolicy};

use crate::child::{self, Child};
use crate::echo::{self, AskMany, Home, Wait};

/// The hidden command of the child that accepts.
pub(crate) const ACCEPT: &str = "serve-sessions";
/// The hidden command of the child that is many peers.
pub(crate) const PEERS: &str = "serve-many-peers";

/// What the child that is many peers says when all are up, and when all have sent and got their share.
const UP: &str = "up";
const DONE: &str = "done";
/// What it is told to begin.
const GO: &str = "go";

/// Of the first peer.
const FIRST: u16 = 100;
/// What each sends, and gets back, bytes.
const SHARE: usize = 1 << 20;
/// Far longer than one of them takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nobody is lost because a busy machine starts a thousand nodes.
const LIVENESS: Duration = Duration::from_secs(600);

/// The node that accepts.
#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) child: Child,
    address: String,
}

/// The process that is its peers.
#[derive(Debug)]
pub(crate) struct Peers(Child);

impl Acceptor {
    /// Starts it; it listens when this returns.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn spawn() -> anyhow::Result<Self> {
        let mut child = Child::spawn([ACCEPT])?;
        let address = child.hear()?;
        Ok(Self { child, address })
    }
}

impl Peers {
    /// Starts so many peers in one process; all have a session with the acceptor when this returns.
    ///
    /// # Errors
    /// If one of them does not get through.
    pub(crate) fn spawn(acceptor: &Acceptor, count: u16) -> anyhow::Result<Self> {
        let mut child = Child::spawn([PEERS, &acceptor.address, &count.to_string()])?;
        anyhow::ensure!(child.hear()? == UP, "the peers are up");
        Ok(Self(child))
    }

    /// Lets each send 1 MiB and get it back, one after the other. `meanwhile` is called again and again until all are done.
    ///
    /// # Errors
    /// If one of them fails.
    pub(crate) fn exchange(&mut self, meanwhile: impl Fn() + Send) -> anyhow::Result<()> {
        self.0.tell(GO)?;
        // The line is there when all are done; whoever looks meanwhile must not be held up by waiting for it.
        std::thread::scope(|scope| {
            let child = &mut self.0;
            let done = scope.spawn(|| child.hear());
            while !done.is_finished() {
                meanwhile();
            }
            let line = done.join().expect("a reader does not panic")?;
            anyhow::ensure!(line == DONE, "the peers said {line:?}");
            Ok(())
        })
    }
}

pub(crate) fn commands() -> [Command; 2] {
    [
        Command::new(ACCEPT).hide(true),
        Command::new(PEERS).hide(true).args(["address", "count"].map(|name| Arg::new(name).required(true))),
    ]
}

/// As many descriptors as this process may have: each session takes two here, each node a few more there.
fn many_descriptors() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of descriptors")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("raising the limit of descriptors")
}

/// Accepts until the parent ends this process.
pub(crate) fn accept_command() -> anyhow::Result<()> {
    child::end_with_parent()?;
    many_descriptors()?;
    let node =
        echo::serve(&Home { listen: "tcp:127.0.0.1:0".into(), rdma: Rdma::Off }, Wait(WaitPolicy::Block))?;
    child::say(&node.listening().first().context("it listens")?.to_string())?;
    loop {
        std::thread::park();
    }
}

/// Is many peers until the parent ends this process.
pub(crate) fn peers_command(options: &ArgMatches) -> anyhow::Result<()> {
    child::end_with_parent()?;
    many_descriptors()?;
    let value = |name: &str| options.get_one::<String>(name).context("all arguments are required");
    let (address, count) = (value("address")?, value("count")?.parse::<u16>().context("a count")?);
    let mut nodes: Vec<(Node, Peer)> = Vec::with_capacity(count.into());
    for id in FIRST..FIRST + count {
        let node = Node::builder(id)
            .wait(WaitPolicy::Block)
            .workers(1)
            .liveness(LIVENESS)
            .peer(echo::SERVER, address);
        let node = node.start().with_context(|| format!("starting peer {id}"))?;
        let peer = node.wait_for_peer(echo::SERVER, PATIENCE).with_context(|| format!("peer {id}"))?;
        nodes.push((node, peer));
    }
    child::say(UP)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("waiting for the word to begin")?;
    anyhow::ensure!(line.trim_end() == GO, "told {line:?}");
    let ask = AskMany { bytes: vec![7; SHARE - size_of::<u32>()] };
    for (_, peer) in &nodes {
        let echo = peer.call_within(&ask, PATIENCE).context("a call of 1 MiB")?;
        anyhow::ensure!(echo.bytes == ask.bytes, "an echo differs from what was sent");
    }
    child::say(DONE)?;
    loop {
        std::thread::park();
    }
}
