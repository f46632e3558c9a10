//! Many sessions over TCP with one node: a process with as many peers, and what they cost the node.

mod many;

use core::time::Duration;

use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pronto::WaitPolicy;

pub(crate) use many::PEERS;

use crate::child::{self, Child};
use crate::echo::{self, Wait};
use crate::home::Home;
use crate::side::{Arguments, Side};

/// The child that accepts sessions.
pub(crate) const ACCEPTOR: Side =
    Side { name: "serve-sessions", arguments: &[], more: None, run: serve_acceptor };

/// Lines of the child with many peers: all peers are up, and all have sent and received their share.
const UP: &str = "up";
const DONE: &str = "done";

/// Id of the first peer.
const FIRST: u16 = 100;
/// Number of bytes that each peer sends and receives.
const SHARE: usize = 1 << 20;
/// Far longer than one exchange takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Descriptors of either process with the most sessions: two for each, and some more.
const DESCRIPTORS: u64 = 24_000;

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
        self.0.tell("exchange")?;
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

    /// Makes the first `senders` peers call for about `span`, each with several calls open. Returns the number of calls per second.
    pub(crate) fn call(&mut self, senders: u16, span: Duration) -> anyhow::Result<f64> {
        self.0.tell(&format!("call {senders} {}", span.as_millis()))?;
        self.0.hear()?.parse().context("the child says a rate")
    }
}

/// Raises the limit of descriptors of this process, as far as it may. Returns the limit.
fn many_descriptors() -> anyhow::Result<u64> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("reading the limit of descriptors")?;
    let raised = most.max(DESCRIPTORS);
    match setrlimit(Resource::RLIMIT_NOFILE, raised, raised) {
        Err(Errno::EPERM) => setrlimit(Resource::RLIMIT_NOFILE, most, most).map(|()| most),
        outcome => outcome.map(|()| raised),
    }
    .context("raising the limit of descriptors")
}

/// Accepts sessions until the parent ends this process.
fn serve_acceptor(_: &Arguments<'_>) -> anyhow::Result<()> {
    many_descriptors()?;
    let node = echo::serve(&Home::here("tcp:127.0.0.1:0".into()), Wait(WaitPolicy::Block))?;
    child::announce(&node)?;
    child::park()
}
