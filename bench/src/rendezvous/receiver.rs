//! The child that posts a receive, computes, and waits; and the side that sends to it.
//!
//! The child's application runs on one CPU. Its node's threads, and all of the sender, run on another one; but for the timer engine,
//! whose thread takes its turns on the CPU of the computation, as the paper's does.

use core::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use pronto::progress::Engine;
use pronto::{Nanos, Node, Peer, Region, WaitPolicy};

use super::work::{compute, steps_for};
use super::{Repetition, Repetitions, parked};
use crate::child::{self, Child};
use crate::clock;
use crate::echo::Provider;
use crate::placement::{Cpu, CpuPair, pin};

/// The hidden command of a receiving child.
pub(crate) const SERVE: &str = "serve-rendezvous";

const RECEIVER: u16 = 1;
const SENDER: u16 = 2;
const TAG: u64 = 3;
/// Longer than a start on the busiest machine takes.
const START: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(30);
/// Thresholds are measured within some milliseconds of an idle processor.
const MEASURED: Duration = Duration::from_secs(5);
/// Longest message, bytes.
pub(crate) const LONGEST: u64 = 16 << 20;

/// A receiving child and a node that sends to it.
#[derive(Debug)]
pub(crate) struct Pair {
    child: Child,
    peer: Peer,
    memory: Region,
    node: Node,
    provider: Provider,
    /// Where the receiver listens, over TCP.
    port: Option<u16>,
    /// Where looks at sockets are made from: its processor has nothing to do in a transfer alone.
    looks: Cpu,
    round: u64,
    /// What the receiver's application does in a transfer alone: it sleeps if its engine moves messages, and waits if it has to.
    alone: Meanwhile,
}

/// What the receiver's application does after it has posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// It computes, and then waits.
    Computes,
    /// It sleeps until the send is over, and calls nothing.
    Sleeps,
    /// It waits for the message, and so moves it itself.
    Waits,
}

impl Meanwhile {
    const fn word(self) -> &'static str {
        match self {
            Self::Computes => "computes",
            Self::Sleeps => "sleeps",
            Self::Waits => "waits",
        }
    }
}

impl Pair {
    /// Starts both. The calling thread is the sender, and should be pinned to the server's CPU.
    ///
    /// # Errors
    /// If either does not start.
    pub(crate) fn start(
        provider: Provider,
        engine: Engine,
        cpus: CpuPair,
        computing: Duration,
    ) -> anyhow::Result<Self> {
        let [computes, serves] = [cpus.caller, cpus.server].map(|cpu| cpu.0.to_string());
        let millis = computing.as_millis().to_string();
        let args = [SERVE, provider.name(), name(engine), &computes, &serves, &millis];
        let mut child = Child::spawn(args)?;
        let address = child.hear()?;
        let node = Node::builder(SENDER).tcp_socket_buffer(SOCKET_BUFFER).peer(RECEIVER, &address);
        let node = node.start().context("starting the sender")?;
        // It is measured once, and holds for every row.
        pronto_node::measure_thresholds();
        let peer = node.wait_for_peer(RECEIVER, START).context("meeting the receiver")?;
        let memory = node.region(usize::try_from(LONGEST).context("a 32-bit machine")?)?;
        // Touched once, so that no repetition pays for fresh memory.
        let touch = vec![1; 1 << 20];
        (0..memory.len()).step_by(touch.len()).try_for_each(|at| memory.write(at, &touch))?;
        let port = address.strip_prefix("tcp:").and_then(|socket| socket.rsplit_once(':')?.1.parse().ok());
        let alone = if engine == Engine::Idle { Meanwhile::Sleeps } else { Meanwhile::Waits };
        let mut pair = Self {
            child,
            peer: peer.waiting(WaitPolicy::Adaptive),
            memory,
            node,
            provider,
            port,
            looks: cpus.caller,
            round: 0,
            alone,
        };
        anyhow::ensure!(pair.child.hear()? == "ready", "the receiver is not ready");
        Ok(pair)
    }

    /// One repetition: a message of so many bytes while the receiver's application does something.
    ///
    /// # Errors
    /// If the message is not received whole.
    pub(crate) fn once(&mut self, size: u64, what: Meanwhile) -> anyhow::Result<Repetition> {
        self.round += 1;
        let mark = self.round.to_le_bytes();
        let last = usize::try_from(size)? - mark.len();
        self.memory.write(last, &mark)?;
        self.child.tell(&format!("{} {size} {}", what.word(), self.round))?;
        anyhow::ensure!(self.child.hear()? == "posted", "the receiver posts nothing");
        let since = clock::now();
        self.peer.send(TAG, &self.memory, 0..size, LIMIT).context("a send")?;
        let send_us = micros(since);
        if what == Meanwhile::Sleeps {
            self.child.tell("done")?;
        }
        let told = self.child.hear()?;
        let words: Vec<f64> = told.split(' ').map(str::parse).collect::<Result<_, _>>().context("figures")?;
        let [wait_us, compute_us, before_end] = words[..] else { anyhow::bail!("the receiver said {told}") };
        Ok(Repetition { send_us, wait_us, compute_us, before_end: before_end != 0.0 })
    }

    /// What the computation takes by itself now, microseconds.
    ///
    /// # Errors
    /// If the receiver is gone.
    pub(crate) fn compute_alone(&mut self) -> anyhow::Result<f64> {
        self.child.tell("compute 0 0")?;
        self.child.hear()?.parse().context("a figure")
    }

    /// Several repetitions beside a computation, and as many alone. Between any two the receiver computes for as long, alone or beside
    /// the first of them, while the sender has nothing to do: so all find the caches, and what sleeps, alike. Which of two comes first
    /// changes: what a node does every other time, as to try whether it may poll, is not all on one side.
    ///
    /// # Errors
    /// If a message is not received whole.
    pub(crate) fn repeat(&mut self, size: u64, times: u32) -> anyhow::Result<Repetitions> {
        let mut all = Repetitions::default();
        // The first one readies memory at both sides.
        self.once(size, Meanwhile::Waits)?;
        all.compute_alone_us.push(self.compute_alone()?);
        for round in 0..times {
            if round % 2 == 1 {
                all.beside.push(self.once(size, Meanwhile::Computes)?);
            }
            all.alone.push(self.once(size, self.alone)?);
            all.compute_alone_us.push(self.compute_alone()?);
            if round % 2 == 0 {
                all.beside.push(self.once(size, Meanwhile::Computes)?);
            }
        }
        if self.alone != Meanwhile::Waits {
            for _ in 0..times.min(WAITED) {
                all.compute_alone_us.push(self.compute_alone()?);
                all.waited.push(self.once(size, Meanwhile::Waits)?);
            }
        }
        all.parked = self.parked(size)?;
        Ok(all)
    }

    /// The most bytes of such a message that lay in sockets at one look; none where there are no sockets, or where no look met any.
    fn parked(&mut self, size: u64) -> anyhow::Result<Option<u64>> {
        let Some(port) = self.port else { return Ok(None) };
        let (looks, alone) = (self.looks, self.alone);
        let times = (WATCHED_BYTES / size).clamp(WATCHED, 20 * WATCHED);
        let repeat = || (0..times).try_for_each(|_| self.once(size, alone).map(drop));
        let ((), seen) = parked::watch(port, looks, repeat)?;
        Ok((seen.most > 0).then_some(seen.most))
    }

    /// Up to which length messages are carried along, bytes: as the node has measured it.
    ///
    /// # Errors
    /// If it does not say.
    pub(crate) fn carries(&self) -> anyhow::Result<u64> {
        let deadline = clock::now() + MEASURED;
        loop {
            let said = self.node.status().carries;
            let of = said.split(", ").find_map(|part| part.strip_prefix(self.provider.name()));
            let words: Vec<&str> = of.unwrap_or_default().split_whitespace().collect();
            match words[..] {
                [bytes, "B"] => return bytes.parse().context("a length"),
                // It could not be measured.
                [bytes, "B", "(assumed)"] if clock::now() >= deadline => {
                    return bytes.parse().context("a length");
                }
                [_, "B", "(assumed)"] => clock::pause(Duration::from_millis(1)),
                _ => anyhow::bail!("the node does not say what it carries along: {said}"),
            }
        }
    }
}

/// Repetitions that say what a receiver which waits is worth; nothing is judged by them.
const WAITED: u32 = 3;
/// Of each socket, bytes: what the kernel can hold of a message is bounded, and the same on every machine.
const SOCKET_BUFFER: u32 = 256 << 10;
/// Repetitions in which sockets are looked at: at least so many, and of short messages more, as a look takes as long as they do.
const WATCHED: u64 = 10;
const WATCHED_BYTES: u64 = 32 << 20;

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

pub(crate) fn command() -> Command {
    let names = ["provider", "engine", "computes", "serves", "millis"];
    Command::new(SERVE).hide(true).args(names.map(|name| Arg::new(name).required(true)))
}

/// Serves until the parent ends this process.
pub(crate) fn serve_command(options: &ArgMatches) -> anyhow::Result<()> {
    child::end_with_parent()?;
    let value = |name: &str| options.get_one::<String>(name).context("all arguments are required");
    let provider: Provider = value("provider")?.parse()?;
    let engine = engine(value("engine")?)?;
    let cpu = |name: &str| anyhow::Ok(Cpu(value(name)?.parse().context("a CPU's number")?));
    let (computes, serves) = (cpu("computes")?, cpu("serves")?);
    let span = Duration::from_millis(value("millis")?.parse().context("milliseconds")?);
    // Before pinning: what is learned here is to hold for two CPUs.
    let _learned = pronto_node::wake_up_cost();
    // The node's threads are where this one is when it starts them.
    pin(if engine == Engine::Idle { serves } else { computes })?;
    let listen = provider.address("-rendezvous");
    let node = Node::builder(RECEIVER)
        .engine(engine)
        .tcp_socket_buffer(SOCKET_BUFFER)
        .listen(&listen)
        .start()
        .context("starting a receiver")?;
    pin(computes)?;
    let memory = node.region(usize::try_from(LONGEST)?)?;
    memory.write(0, &vec![0; usize::try_from(LONGEST)?])?;
    let steps = steps_for(span);
    child::say(&node.listening().first().context("it listens")?.to_string())?;
    let peer = node.wait_for_peer(SENDER, START).context("meeting the sender")?.waiting(WaitPolicy::Adaptive);
    child::say("ready")?;
    while let Some(line) = next_line()? {
        child::say(&answer(&line, &peer, &memory, steps)?)?;
    }
    Ok(())
}

/// What the sender says next, if it says more. The input is free again after that: commands read from it as well.
fn next_line() -> anyhow::Result<Option<String>> {
    Ok(std::io::stdin().lines().next().transpose()?)
}

/// Carries one command out: `computes SIZE MARK`, `sleeps SIZE MARK`, `waits SIZE MARK`, or `compute 0 0`.
fn answer(line: &str, peer: &Peer, memory: &Region, steps: u64) -> anyhow::Result<String> {
    let mut words = line.split(' ');
    let mut word = || words.next().context("three words");
    let (what, size, mark) = (word()?.to_owned(), word()?.parse::<u64>()?, word()?.parse::<u64>()?);
    if what == "compute" {
        let since = clock::now();
        compute(steps);
        return Ok(micros(since).to_string());
    }
    let mut receive = peer.post(TAG, memory, 0..size)?;
    child::say("posted")?;
    let since = clock::now();
    match what.as_str() {
        "computes" => {
            compute(steps);
        }
        "sleeps" => {
            let done = next_line()?.context("the sender says when it is done")?;
            anyhow::ensure!(done == "done", "an unknown command: {done}");
        }
        _ => {}
    }
    let compute_us = micros(since);
    let marked = || {
        let mut there = [0; 8];
        memory.read(usize::try_from(size)? - there.len(), &mut there)?;
        anyhow::Ok(u64::from_le_bytes(there) == mark)
    };
    // Nothing of the node has been called since the receive was posted.
    let before_end = marked()?;
    let since = clock::now();
    let len = receive.wait(LIMIT)?;
    let wait_us = micros(since);
    anyhow::ensure!(len == size && marked()?, "a message of {size} bytes is not whole");
    Ok(format!("{wait_us} {compute_us} {}", u8::from(before_end)))
}

/// The engines, as the paper's figure has them.
pub(crate) const ENGINES: [Engine; 3] = [Engine::None, Engine::Timer(PERIOD), Engine::Idle];
/// The timer's period: the paper's tasklets ran every 10 ms, ours every 4 ms.
const PERIOD: Nanos = Nanos::from_millis(4);

/// The value of the column.
pub(crate) const fn name(engine: Engine) -> &'static str {
    match engine {
        Engine::None => "none",
        Engine::Timer(_) => "timer",
        Engine::Idle => "idle",
    }
}

fn engine(wanted: &str) -> anyhow::Result<Engine> {
    ENGINES.into_iter().find(|engine| name(*engine) == wanted).context("no such engine")
}
