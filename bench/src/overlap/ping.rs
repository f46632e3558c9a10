//! The ping-pong: the report's `dping`, two processes on two CPUs, messages by reference into posted buffers.

use core::time::Duration;

use anyhow::Context as _;
use pronto::{Node, Peer, Region, WaitPolicy};

use super::{Ran, numbers};
use crate::child::{self, Child, START};
use crate::clock;
use crate::echo::{LIVENESS, Provider, Wait};
use crate::params::choices;
use crate::placement::{Cpu, CpuPair};
use crate::rendezvous::touch;
use crate::side::{Arguments, Side, settle};

/// One side of the ping-pong.
pub(crate) const SIDE: Side =
    Side { name: "serve-ping", arguments: &["side", "address", "wait", "cpu"], more: None, run: serve };

/// Longest message, bytes.
pub(crate) const LONGEST: u64 = 64 << 20;
/// Tags of the messages in both directions.
const PING_TAG: u64 = 1;
const PONG_TAG: u64 = 2;
/// A message that waits for a computation of higher priority is not lost.
const LIMIT: Duration = Duration::from_secs(300);

choices! {
    /// Memory of messages.
    pub(crate) enum Buffers {
        /// Equal in each run, touched before.
        Prefaulted = "prefaulted",
        /// Allocated within each run.
        Fresh = "fresh",
    }
}

/// One run of the ping-pong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Number of messages in each direction.
    pub(crate) messages: u64,
    /// Length of each, bytes.
    pub(crate) bytes: u64,
    pub(crate) buffers: Buffers,
}

/// Both processes; the first one sends first.
#[derive(Debug)]
pub(crate) struct Pair([Child; 2]);

impl Pair {
    /// Starts and connects both.
    pub(crate) fn start(provider: Provider, wait: Wait, cpus: CpuPair) -> anyhow::Result<Self> {
        let spawn = |side: &str, address: &str, cpu: Cpu| {
            Child::spawn(&SIDE, [side, address, wait.name(), &cpu.0.to_string()])
        };
        let mut pong = spawn(PONG, &provider.address("-ping"), cpus.server)?;
        let mut ping = spawn(PING_SIDE, &pong.hear()?, cpus.caller)?;
        for child in [&mut ping, &mut pong] {
            child.expect("ready")?;
        }
        Ok(Self([ping, pong]))
    }

    /// Makes both begin at that time.
    pub(crate) fn begin(&mut self, job: Job, at: u64) -> anyhow::Result<()> {
        let Job { messages, bytes, buffers } = job;
        let line = format!("{messages} {bytes} {} {at}", u64::from(buffers == Buffers::Fresh));
        self.0.iter_mut().try_for_each(|child| child.tell(&line))
    }

    /// Waits until both have finished.
    pub(crate) fn end(&mut self) -> anyhow::Result<[Ran; 2]> {
        let [ping, pong] = &mut self.0;
        Ok([ping.hear()?.parse()?, pong.hear()?.parse()?])
    }

    /// Returns their process ids.
    pub(crate) fn processes(&self) -> [u32; 2] {
        self.0.each_ref().map(Child::id)
    }
}

/// Values of the argument `side`.
const PING_SIDE: &str = "ping";
const PONG: &str = "pong";

/// Plays on command, until the parent ends this process.
fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    let (side, address) = (arguments.text("side")?, arguments.text("address")?);
    let wait: Wait = arguments.get("wait")?;
    settle(arguments.cpu("cpu")?)?;
    let (own, other) = if side == PING_SIDE { (1, 2) } else { (2, 1) };
    // One thread polls, as in the report: if the application polls, the node's own thread sleeps.
    let of_node = if wait.0 == WaitPolicy::Spin { WaitPolicy::Block } else { wait.0 };
    let builder = Node::builder(own).wait(of_node).liveness(LIVENESS);
    let builder = if side == PING_SIDE { builder.peer(other, address) } else { builder.listen(address) };
    let node = builder.start().context("starting a side of the ping-pong")?;
    if side == PONG {
        child::announce(&node)?;
    }
    let peer = node.wait_for_peer(other, START).context("meeting the other side")?.waiting(wait.0);
    let kept = Memory::touched(&node, LONGEST)?;
    child::say("ready")?;
    while let Some(line) = child::listen()? {
        let [messages, bytes, fresh, at] = numbers(&line)?;
        clock::sleep_until_shared(at);
        let (since, own) = (clock::shared_ns(), clock::process_ns());
        let made = if fresh == 1 { Some(Memory::new(&node, bytes)?) } else { None };
        let memory = made.as_ref().unwrap_or(&kept);
        if side == PING_SIDE {
            ping(&peer, memory, messages, bytes)?;
        } else {
            pong(&peer, memory, messages, bytes)?;
        }
        let (end, cpu_ns) = (clock::shared_ns(), clock::process_ns() - own);
        let ran = Ran { late_ns: since - at, wall_ns: end - at, cpu_ns, other_ns: 0 };
        child::say(&ran.line())?;
    }
    Ok(())
}

/// Memory of messages in both directions.
#[derive(Debug)]
struct Memory {
    out: Region,
    into: Region,
}

impl Memory {
    fn new(node: &Node, bytes: u64) -> anyhow::Result<Self> {
        let len = usize::try_from(bytes).context("a 32-bit machine")?;
        Ok(Self { out: node.region(len)?, into: node.region(len)? })
    }

    fn touched(node: &Node, bytes: u64) -> anyhow::Result<Self> {
        let memory = Self::new(node, bytes)?;
        touch(&memory.out)?;
        touch(&memory.into)?;
        Ok(memory)
    }
}

fn ping(peer: &Peer, memory: &Memory, messages: u64, bytes: u64) -> anyhow::Result<()> {
    for _ in 0..messages {
        let mut reply = peer.post(PONG_TAG, &memory.into, 0..bytes)?;
        peer.send(PING_TAG, &memory.out, 0..bytes, LIMIT).context("a message")?;
        anyhow::ensure!(reply.wait(LIMIT).context("a reply")? == bytes, "a reply is incomplete");
    }
    Ok(())
}

fn pong(peer: &Peer, memory: &Memory, messages: u64, bytes: u64) -> anyhow::Result<()> {
    let post = || peer.post(PING_TAG, &memory.into, 0..bytes);
    let mut next = Some(post()?);
    for left in (0..messages).rev() {
        let mut message = next.take().context("one is posted for each message")?;
        anyhow::ensure!(message.wait(LIMIT).context("a message")? == bytes, "a message is incomplete");
        // The next message is sent after this reply, so the posted memory is not written meanwhile.
        if left > 0 {
            next = Some(post()?);
        }
        peer.send(PONG_TAG, &memory.out, 0..bytes, LIMIT).context("a reply")?;
    }
    Ok(())
}
