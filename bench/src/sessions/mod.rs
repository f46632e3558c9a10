//! Many sessions over TCP with one node: a process with as many peers, and the memory of the node.

use core::time::Duration;

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pronto::{Node, Peer, WaitPolicy};

use crate::child::{self, Child};
use crate::echo::{self, AskMany, LIVENESS, Wait};
use crate::home::Home;
use crate::side::{Arguments, Side};

/// The child that accepts sessions.
pub(crate) const ACCEPTOR: Side =
    Side { name: "serve-sessions", arguments: &[], more: None, run: serve_acceptor };
/// The child with many peers.
pub(crate) const PEERS: Side =
    Side { name: "serve-many-peers", arguments: &["address", "count"], more: None, run: serve_peers };

/// Lines of the child with many peers: all peers are up, and all have sent and received their share.
const UP: &str = "up";
const DONE: &str = "done";
/// Line that makes it begin.
const GO: &str = "go";

/// Id of the first peer.
const FIRST: u16 = 100;
/// Number of bytes that each peer sends and receives.
const SHARE: usize = 1 << 20;
/// Far longer than one exchange takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The accepting node.
#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) child: Child,
    address: String,
}

/// The process of its peers.
#[derive(Debug)]
pub(crate) struct Peers(Child);

impl Acceptor {
    /// Starts the node. It listens when this returns.
    pub(crate) fn spawn() -> anyhow::Result<Self> {
        let mut child = Child::spawn(&ACCEPTOR, [""; 0])?;
        let address = child.hear()?;
        Ok(Self { child, address })
    }
}

impl Peers {
    /// Starts `count` peers in one process. All have a session with the acceptor when this returns.
    pub(crate) fn spawn(acceptor: &Acceptor, count: u16) -> anyhow::Result<Self> {
        let mut child = Child::spawn(&PEERS, [&acceptor.address, &count.to_string()])?;
        child.expect(UP)?;
        Ok(Self(child))
    }

    /// Makes each peer send 1 MiB and receive it back, one after the other. Calls `meanwhile` repeatedly until all are done.
    pub(crate) fn exchange(&mut self, meanwhile: impl Fn() + Send) -> anyhow::Result<()> {
        self.0.tell(GO)?;
        // A separate thread waits for the line, so that the sampling thread is not blocked.
        std::thread::scope(|scope| {
            let child = &mut self.0;
            let done = scope.spawn(|| child.expect(DONE));
            while !done.is_finished() {
                meanwhile();
            }
            done.join().expect("a reader does not panic")
        })
    }
}

/// Raises the limit of descriptors: each session takes two in the acceptor, and each node some more in the other process.
fn many_descriptors() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("reading the limit of descriptors")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("raising the limit of descriptors")
}

/// Accepts sessions until the parent ends this process.
fn serve_acceptor(_: &Arguments<'_>) -> anyhow::Result<()> {
    many_descriptors()?;
    let node = echo::serve(&Home::here("tcp:127.0.0.1:0".into()), Wait(WaitPolicy::Block))?;
    child::announce(&node)?;
    child::park()
}

/// Runs many peers until the parent ends this process.
fn serve_peers(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    many_descriptors()?;
    let (address, count) = (arguments.text("address")?, arguments.get::<u16>("count")?);
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
    let line = child::listen()?.unwrap_or_default();
    anyhow::ensure!(line == GO, "expected {GO:?} from the parent, got {line:?}");
    let ask = AskMany { bytes: vec![7; SHARE - size_of::<u32>()] };
    for (_, peer) in &nodes {
        let echo = peer.call_within(&ask, PATIENCE).context("a call of 1 MiB")?;
        anyhow::ensure!(echo.bytes == ask.bytes, "an echo differs from what was sent");
    }
    child::say(DONE)?;
    child::park()
}
