//! The child that answers short calls while long messages are sent to it, one after another; and their sender.

use core::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use pronto::{Node, Peer, Rdma, WaitPolicy};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::child::{self, Child};
use crate::echo::{self, Home, Provider, Wait};
use crate::placement::{Cpu, pin};

/// The hidden command of the child.
pub(crate) const SERVE: &str = "serve-stream";

const SERVER: u16 = 1;
const CLIENT: u16 = 2;
const TAG: u64 = 5;
/// Length of a message, bytes.
pub(crate) const MESSAGE: u64 = 64 << 20;
/// Longer than a start on the busiest machine takes.
const START: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(60);

/// The child, and the peer to call and to send to.
#[derive(Debug)]
pub(crate) struct Stream {
    child: Child,
    /// The child, as callers see it.
    pub(crate) peer: Peer,
    node: Node,
}

impl Stream {
    /// Starts the child and meets it. The node's threads are where the calling thread is.
    ///
    /// # Errors
    /// If either does not start.
    pub(crate) fn start(provider: Provider, cpu: Cpu) -> anyhow::Result<Self> {
        let mut child = Child::spawn([SERVE, provider.name(), &cpu.0.to_string()])?;
        let address = child.hear()?;
        let node = Node::builder(CLIENT).wait(WaitPolicy::Block).peer(SERVER, &address).start()?;
        let peer = node.wait_for_peer(SERVER, START).context("meeting the child")?;
        anyhow::ensure!(child.hear()? == "ready", "the child is not ready");
        Ok(Self { child, peer: peer.waiting(WaitPolicy::Spin), node })
    }

    /// Sends messages to the child while `meanwhile` runs. Says what that gave, how many messages were received meanwhile, and
    /// within what time.
    ///
    /// # Errors
    /// If a message is not received, and what `meanwhile` gives back.
    pub(crate) fn while_sending<T>(
        &mut self,
        meanwhile: impl FnOnce(&Peer) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, u64, Duration)> {
        let len = usize::try_from(MESSAGE).context("a 32-bit machine")?;
        let memory = self.node.region(len)?;
        let touch = vec![1; 1 << 20];
        (0..len).step_by(touch.len()).try_for_each(|at| memory.write(at, &touch))?;
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let peer = self.peer.waiting(WaitPolicy::Block);
        self.child.tell("receive")?;
        // The first one readies memory at the other side.
        peer.send(TAG, &memory, 0..MESSAGE, LIMIT)?;
        let since = crate::clock::now();
        let (result, sent) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    peer.send(TAG, &memory, 0..MESSAGE, LIMIT)?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                // Nothing is the end.
                anyhow::Ok(peer.send(TAG, &memory, 0..0, LIMIT)?)
            });
            let result = meanwhile(&self.peer);
            stop.store(true, Ordering::Relaxed);
            (result, sender.join().expect("a sender does not panic"))
        });
        let time = since.elapsed();
        sent?;
        anyhow::ensure!(self.child.hear()? == "received", "the child did not receive everything");
        Ok((result?, count.load(Ordering::Relaxed), time))
    }
}

pub(crate) fn command() -> Command {
    Command::new(SERVE).hide(true).args(["provider", "cpu"].map(|name| Arg::new(name).required(true)))
}

/// Serves until the parent ends this process.
pub(crate) fn serve_command(options: &ArgMatches) -> anyhow::Result<()> {
    child::end_with_parent()?;
    let value = |name: &str| options.get_one::<String>(name).context("all arguments are required");
    let provider: Provider = value("provider")?.parse()?;
    // Before pinning: what is learned here is to hold for two CPUs.
    let _learned = pronto_node::wake_up_cost();
    pin(Cpu(value("cpu")?.parse().context("a CPU's number")?))?;
    let home = Home { listen: provider.address("-stream"), rdma: Rdma::Off };
    let node = echo::serve(&home, Wait(WaitPolicy::Spin))?;
    child::say(&node.listening().first().context("it listens")?.to_string())?;
    let peer = node.wait_for_peer(CLIENT, START).context("meeting the caller")?.waiting(WaitPolicy::Block);
    let memory = node.region(usize::try_from(MESSAGE)?)?;
    child::say("ready")?;
    for line in std::io::stdin().lines() {
        anyhow::ensure!(line? == "receive", "an unknown command");
        // The next receive is there before the last one has ended.
        let mut posted = peer.post(TAG, &memory, 0..MESSAGE)?;
        loop {
            let next = peer.post(TAG, &memory, 0..MESSAGE)?;
            let len = posted.wait(LIMIT)?;
            posted = next;
            if len == 0 {
                break;
            }
        }
        posted.cancel();
        // Cancelled, as nothing more was sent.
        let _cancelled = posted.wait(LIMIT);
        child::say("received")?;
    }
    Ok(())
}
