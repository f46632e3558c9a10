//! The ping-pong: the report's `dping`, two processes on two processors, messages by reference into posted buffers.

use core::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use nix::time::{ClockId, clock_gettime};
use pronto::{Node, Peer, Region, WaitPolicy};

use super::{Ran, sleep_until};
use crate::child::{self, Child};
use crate::clock;
use crate::echo::{Provider, Wait};
use crate::placement::{Cpu, CpuPair, pin};

/// The hidden command of a child.
pub(crate) const PING: &str = "serve-ping";

/// Longest message, bytes.
pub(crate) const LONGEST: u64 = 64 << 20;
/// There, and back.
const PING_TAG: u64 = 1;
const PONG_TAG: u64 = 2;
/// Longer than a start on the busiest machine takes.
const START: Duration = Duration::from_secs(20);
/// A message that waits for a computation of higher priority is not lost.
const LIMIT: Duration = Duration::from_secs(300);
/// Nor is a peer down that does.
const LIVENESS: Duration = Duration::from_secs(600);

/// Memory of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// The same in each run, touched before.
    Prefaulted,
    /// Allocated within each run.
    Fresh,
}

/// One run of the ping-pong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Messages there, and as many back.
    pub(crate) messages: u64,
    /// Length of each, bytes.
    pub(crate) bytes: u64,
    pub(crate) buffers: Buffers,
}

/// Both processes; the first sends first.
#[derive(Debug)]
pub(crate) struct Pair([Child; 2]);

impl Buffers {
    pub(crate) const ALL: [Self; 2] = [Self::Prefaulted, Self::Fresh];

    /// The value of the column.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Prefaulted => "prefaulted",
            Self::Fresh => "fresh",
        }
    }
}

impl Pair {
    /// Starts both, and has them meet.
    ///
    /// # Errors
    /// If they do not.
    pub(crate) fn start(provider: Provider, wait: Wait, cpus: CpuPair) -> anyhow::Result<Self> {
        let spawn = |side: &str, address: &str, cpu: Cpu| {
            Child::spawn([PING, side, address, wait.name(), &cpu.0.to_string()])
        };
        let mut pong = spawn(PONG, &provider.address("-ping"), cpus.server)?;
        let mut ping = spawn(PING_SIDE, &pong.hear()?, cpus.caller)?;
        for child in [&mut ping, &mut pong] {
            anyhow::ensure!(child.hear()? == "ready", "a side of the ping-pong is not ready");
        }
        Ok(Self([ping, pong]))
    }

    /// Has both begin then.
    ///
    /// # Errors
    /// If one is gone.
    pub(crate) fn begin(&mut self, job: Job, at: u64) -> anyhow::Result<()> {
        let Job { messages, bytes, buffers } = job;
        let line = format!("{messages} {bytes} {} {at}", u64::from(buffers == Buffers::Fresh));
        self.0.iter_mut().try_for_each(|child| child.tell(&line))
    }

    /// Waits until both are through.
    ///
    /// # Errors
    /// If a message was not received whole, or one is gone.
    pub(crate) fn end(&mut self) -> anyhow::Result<[Ran; 2]> {
        let [ping, pong] = &mut self.0;
        Ok([ping.hear()?.parse()?, pong.hear()?.parse()?])
    }

    /// Their numbers.
    pub(crate) fn processes(&self) -> [u32; 2] {
        self.0.each_ref().map(Child::id)
    }
}

/// Values of the argument that says which side a child is.
const PING_SIDE: &str = "ping";
const PONG: &str = "pong";

pub(crate) fn command() -> Command {
    Command::new(PING)
        .hide(true)
        .args(["side", "address", "wait", "cpu"].map(|name| Arg::new(name).required(true)))
}

/// Plays as it is told to, until the parent ends this process.
pub(crate) fn command_main(options: &ArgMatches) -> anyhow::Result<()> {
    child::end_with_parent()?;
    let value = |name: &str| options.get_one::<String>(name).context("all arguments are required");
    let (side, address) = (value("side")?.as_str(), value("address")?);
    let wait: Wait = value("wait")?.parse()?;
    // Before pinning: what is learned here is to hold for two CPUs.
    let _learned = pronto_node::wake_up_cost();
    pin(Cpu(value("cpu")?.parse().context("a CPU's number")?))?;
    let (own, other) = if side == PING_SIDE { (1, 2) } else { (2, 1) };
    // One thread polls, as in the report: where the application does, the node's own thread sleeps.
    let of_node = if wait.0 == WaitPolicy::Spin { WaitPolicy::Block } else { wait.0 };
    let builder = Node::builder(own).wait(of_node).liveness(LIVENESS);
    let builder = if side == PING_SIDE { builder.peer(other, address) } else { builder.listen(address) };
    let node = builder.start().context("starting a side of the ping-pong")?;
    if let Some(address) = node.listening().first() {
        child::say(&address.to_string())?;
    }
    let peer = node.wait_for_peer(other, START).context("meeting the other side")?.waiting(wait.0);
    let kept = Memory::touched(&node, LONGEST)?;
    child::say("ready")?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [messages, bytes, fresh, at] = numbers[..] else { anyhow::bail!("not four numbers: {line}") };
        sleep_until(at);
        let (since, own) = (clock::shared_ns(), process_ns()?);
        let made = if fresh == 1 { Some(Memory::new(&node, bytes)?) } else { None };
        let memory = made.as_ref().unwrap_or(&kept);
        if side == PING_SIDE {
            ping(&peer, memory, messages, bytes)?;
        } else {
            pong(&peer, memory, messages, bytes)?;
        }
        let (end, cpu_ns) = (clock::shared_ns(), process_ns()? - own);
        let ran = Ran { late_ns: since - at, wall_ns: end - at, cpu_ns, other_ns: 0 };
        child::say(&ran.line())?;
    }
    Ok(())
}

/// What is sent, and where the answer comes.
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
        let touch = vec![1; 1 << 20];
        for region in [&memory.out, &memory.into] {
            (0..region.len()).step_by(touch.len()).try_for_each(|at| region.write(at, &touch))?;
        }
        Ok(memory)
    }
}

fn ping(peer: &Peer, memory: &Memory, messages: u64, bytes: u64) -> anyhow::Result<()> {
    for _ in 0..messages {
        let mut answer = peer.post(PONG_TAG, &memory.into, 0..bytes)?;
        peer.send(PING_TAG, &memory.out, 0..bytes, LIMIT).context("a message")?;
        anyhow::ensure!(answer.wait(LIMIT).context("an answer")? == bytes, "an answer is not whole");
    }
    Ok(())
}

fn pong(peer: &Peer, memory: &Memory, messages: u64, bytes: u64) -> anyhow::Result<()> {
    let post = || peer.post(PING_TAG, &memory.into, 0..bytes);
    let mut next = Some(post()?);
    for left in (0..messages).rev() {
        let mut message = next.take().context("one is posted for each message")?;
        anyhow::ensure!(message.wait(LIMIT).context("a message")? == bytes, "a message is not whole");
        // The next message comes after this answer: nobody writes to what is posted meanwhile.
        if left > 0 {
            next = Some(post()?);
        }
        peer.send(PONG_TAG, &memory.out, 0..bytes, LIMIT).context("an answer")?;
    }
    Ok(())
}

/// Processor time of all threads of this process, nanoseconds.
fn process_ns() -> anyhow::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).context("reading a clock")?;
    u64::try_from(Duration::from(time).as_nanos()).context("five centuries")
}
