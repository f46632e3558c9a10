//! The child that replies to short calls while long messages are sent to it, one after another; and their sender.

use core::time::Duration;

use anyhow::Context as _;
use pronto::{Node, Peer, WaitPolicy};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::touch;
use crate::child::{self, Child, START};
use crate::echo::{self, LIVENESS, Provider, Wait};
use crate::home::Home;
use crate::placement::Cpu;
use crate::side::{Arguments, Side, settle};

/// The child.
pub(crate) const SIDE: Side =
    Side { name: "serve-stream", arguments: &["provider", "cpu"], more: None, run: serve };

const SERVER: u16 = 1;
const CLIENT: u16 = 2;
const TAG: u64 = 5;
/// Length of a message, bytes.
pub(crate) const MESSAGE: u64 = 64 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// The child, and the peer to call and to send to.
#[derive(Debug)]
pub(crate) struct Stream {
    child: Child,
    /// The child as a peer.
    pub(crate) peer: Peer,
    node: Node,
}

impl Stream {
    /// Starts the child and connects to it. The node's threads inherit the affinity of the calling thread.
    pub(crate) fn start(provider: Provider, cpu: Cpu) -> anyhow::Result<Self> {
        let mut child = Child::spawn(&SIDE, [provider.name(), &cpu.0.to_string()])?;
        let address = child.hear()?;
        let node = Node::builder(CLIENT).wait(WaitPolicy::Block).liveness(LIVENESS);
        let node = node.peer(SERVER, &address).start()?;
        let peer = node.wait_for_peer(SERVER, START).context("meeting the child")?;
        child.expect("ready")?;
        Ok(Self { child, peer: peer.waiting(WaitPolicy::Spin), node })
    }

    /// Sends messages to the child while `meanwhile` runs. Returns the result of `meanwhile`, the number of messages that were
    /// received meanwhile, and the elapsed time.
    pub(crate) fn while_sending<T>(
        &mut self,
        meanwhile: impl FnOnce(&Peer) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, u64, Duration)> {
        let len = usize::try_from(MESSAGE).context("a 32-bit machine")?;
        let memory = self.node.region(len)?;
        touch(&memory)?;
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let peer = self.peer.waiting(WaitPolicy::Block);
        self.child.tell("receive")?;
        // The first message prepares memory on the other side.
        peer.send(TAG, &memory, 0..MESSAGE, LIMIT)?;
        let since = crate::clock::now();
        let (result, sent) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    peer.send(TAG, &memory, 0..MESSAGE, LIMIT)?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                // An empty message is the end.
                anyhow::Ok(peer.send(TAG, &memory, 0..0, LIMIT)?)
            });
            let result = meanwhile(&self.peer);
            stop.store(true, Ordering::Relaxed);
            (result, sender.join().expect("a sender does not panic"))
        });
        let time = since.elapsed();
        sent?;
        self.child.expect("received")?;
        Ok((result?, count.load(Ordering::Relaxed), time))
    }
}

/// Serves until the parent ends this process.
fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    let provider: Provider = arguments.get("provider")?;
    settle(arguments.cpu("cpu")?)?;
    let node = echo::serve(&Home::here(provider.address("-stream")), Wait(WaitPolicy::Spin))?;
    child::announce(&node)?;
    let peer = node.wait_for_peer(CLIENT, START).context("meeting the caller")?.waiting(WaitPolicy::Block);
    let memory = node.region(usize::try_from(MESSAGE)?)?;
    child::say("ready")?;
    while let Some(line) = child::listen()? {
        anyhow::ensure!(line == "receive", "unknown command {line:?}");
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
