//! The child that posts a receive, computes, and waits; and the side that sends to it.
//!
//! The child's application runs on one CPU. Its node's threads, and all of the sender, run on another one; but for the timer engine,
//! whose thread takes its turns on the CPU of the computation, as the paper's does.

use core::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use pronto::progress::Engine;
use pronto::{Builder, Node, Peer, Rdma, Region, WaitPolicy};

use super::work::{compute, steps_for};
use super::{Repetition, Repetitions, parked, touch};
use crate::child::{self, Child, START};
use crate::clock;
use crate::echo::{LIVENESS, Provider};
use crate::home::Home;
use crate::params::{Choice as _, choices};
use crate::placement::{Cpu, CpuPair, pin};
use crate::rdma::nodes::Two;
use crate::rdma::over::Over;
use crate::side::{Arguments, Side, settle};

/// The receiving child.
pub(crate) const SIDE: Side = Side {
    name: "serve-rendezvous",
    arguments: &["listen", "rdma", "engine", "computes", "serves", "millis"],
    more: None,
    run: serve,
};

const RECEIVER: u16 = 1;
const SENDER: u16 = 2;
const TAG: u64 = 3;
const LIMIT: Duration = Duration::from_secs(30);
/// Thresholds are measured within some milliseconds of an idle CPU.
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
    /// Name of the transport.
    provider: &'static str,
    /// Port of the receiver, over TCP.
    port: Option<u16>,
    /// CPU from which sockets are sampled: it is idle in a transfer alone.
    sampler: Cpu,
    round: u64,
    /// Action of the receiver's application in a transfer alone: it sleeps if its engine moves messages, and otherwise waits.
    alone: Meanwhile,
}

choices! {
    /// Action of the receiver's application after it has posted.
    pub(crate) enum Meanwhile {
        /// It computes, and then waits.
        Computes = "computes",
        /// It sleeps until the send is over, and makes no call.
        Sleeps = "sleeps",
        /// It waits for the message, and so moves it itself.
        Waits = "waits",
    }
}

impl Pair {
    /// Starts both. The calling thread is the sender, and should be pinned to the server's CPU.
    pub(crate) fn start(
        over: Over<'_>,
        engine: Engine,
        cpus: CpuPair,
        computing: Duration,
    ) -> anyhow::Result<Self> {
        let [computes, serves] = [cpus.caller, cpus.server].map(|cpu| cpu.0.to_string());
        let millis = computing.as_millis().to_string();
        let home = match over {
            Over::Here(provider) => Home::here(provider.address(&format!("-rendezvous-{}", name(engine)))),
            Over::Nodes(Two([there, _])) => {
                there.enter()?;
                Home { listen: format!("tcp:{}:0", there.address), rdma: Rdma::Require }
            }
        };
        let args = [&home.listen, home.rdma_argument(), name(engine), &computes, &serves, &millis];
        let mut child = Child::spawn(&SIDE, args)?;
        if let Over::Nodes(Two([_, here])) = over {
            here.enter()?;
        }
        let address = child.hear()?;
        let node = builder(SENDER, home.rdma).peer(RECEIVER, &address);
        let node = node.start().context("starting the sender")?;
        // One measurement holds for every row.
        pronto_node::measure_thresholds();
        let peer = node.wait_for_peer(RECEIVER, START).context("meeting the receiver")?;
        let memory = node.region(usize::try_from(LONGEST).context("a 32-bit machine")?)?;
        // Touch the memory once, so that no repetition pays for fresh memory.
        touch(&memory)?;
        let socket = matches!(over, Over::Here(Provider::Tcp)).then(|| address.rsplit_once(':')).flatten();
        let port = socket.and_then(|(_, port)| port.parse().ok());
        let alone = if engine == Engine::Idle { Meanwhile::Sleeps } else { Meanwhile::Waits };
        let mut pair = Self {
            child,
            peer: peer.waiting(WaitPolicy::Adaptive),
            memory,
            node,
            provider: over.name(),
            port,
            sampler: cpus.caller,
            round: 0,
            alone,
        };
        pair.child.expect("ready")?;
        Ok(pair)
    }

    /// Makes one repetition: a message of `size` bytes while the receiver's application does `what`.
    pub(crate) fn once(&mut self, size: u64, what: Meanwhile) -> anyhow::Result<Repetition> {
        self.round += 1;
        let mark = self.round.to_le_bytes();
        let last = usize::try_from(size)? - mark.len();
        self.memory.write(last, &mark)?;
        self.child.tell(&format!("{} {size} {}", what.name(), self.round))?;
        self.child.expect("posted")?;
        let since = clock::now();
        self.peer.send(TAG, &self.memory, 0..size, LIMIT).context("a send")?;
        let send_us = micros(since);
        if what == Meanwhile::Sleeps {
            self.child.tell("done")?;
        }
        let line = self.child.hear()?;
        let words: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().context("figures")?;
        let [wait_us, compute_us, before_end] = words[..] else {
            anyhow::bail!("the receiver status {line}")
        };
        Ok(Repetition { send_us, wait_us, compute_us, before_end: before_end != 0.0 })
    }

    /// Measures the computation alone, in microseconds.
    pub(crate) fn compute_alone(&mut self) -> anyhow::Result<f64> {
        self.child.tell("compute 0 0")?;
        self.child.hear()?.parse().context("a figure")
    }

    /// Makes `times` repetitions during a computation, and as many alone. Between any two, the receiver computes for as long while the
    /// sender is idle, so that all repetitions find caches and sleeping threads in the same state. Their order alternates, so that
    /// actions which a node takes every other time, such as trial polls, do not all fall on one kind.
    pub(crate) fn repeat(&mut self, size: u64, times: u32) -> anyhow::Result<Repetitions> {
        let mut all = Repetitions::default();
        // The first message prepares memory on both sides.
        self.once(size, Meanwhile::Waits)?;
        all.compute_alone_us.push(self.compute_alone()?);
        for round in 0..times {
            if round % 2 == 1 {
                all.computing.push(self.once(size, Meanwhile::Computes)?);
            }
            all.alone.push(self.once(size, self.alone)?);
            all.compute_alone_us.push(self.compute_alone()?);
            if round % 2 == 0 {
                all.computing.push(self.once(size, Meanwhile::Computes)?);
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

    /// Returns the largest sampled number of bytes of such a message in sockets; `None` without sockets, or if no sample found any.
    fn parked(&mut self, size: u64) -> anyhow::Result<Option<u64>> {
        let Some(port) = self.port else { return Ok(None) };
        let (sampler, alone) = (self.sampler, self.alone);
        let times = (WATCHED_BYTES / size).clamp(WATCHED, 20 * WATCHED);
        let repeat = || (0..times).try_for_each(|_| self.once(size, alone).map(drop));
        let ((), seen) = parked::watch(port, sampler, repeat)?;
        Ok((seen.most > 0).then_some(seen.most))
    }

    /// Returns the longest eager message in bytes, as measured by the node; `None` for a transport on which nodes do not measure it.
    pub(crate) fn carries(&self) -> anyhow::Result<Option<u64>> {
        let deadline = clock::now() + MEASURED;
        loop {
            let status = self.node.status().carries;
            let Some(of) = status.split(", ").find_map(|part| part.strip_prefix(self.provider)) else {
                return Ok(None);
            };
            let words: Vec<&str> = of.split_whitespace().collect();
            match words[..] {
                [bytes, "B"] => return bytes.parse().map(Some).context("a length"),
                // The node could not measure it.
                [bytes, "B", "(assumed)"] if clock::now() >= deadline => {
                    return bytes.parse().map(Some).context("a length");
                }
                [_, "B", "(assumed)"] => clock::pause(Duration::from_millis(1)),
                _ => anyhow::bail!("cannot read the longest eager message of the node from {status:?}"),
            }
        }
    }
}

/// Repetitions with a waiting receiver; no claim uses them.
const WAITED: u32 = 3;
/// Size of each socket buffer in bytes: it bounds what the kernel can hold of a message, equally on every machine.
const SOCKET_BUFFER: u32 = 256 << 10;
/// Least number of repetitions in which sockets are sampled. Short messages have more, because a sample takes as long as they do.
const WATCHED: u64 = 10;
const WATCHED_BYTES: u64 = 32 << 20;

fn builder(id: u16, rdma: Rdma) -> Builder {
    let node = Node::builder(id).plaintext_i_understand().rdma(rdma).tcp_socket_buffer(SOCKET_BUFFER);
    // A receiver without an engine polls nothing while it computes.
    node.liveness(LIVENESS)
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// Serves until the parent ends this process.
fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    let home = Home::of(arguments)?;
    let engine = engine(arguments.text("engine")?)?;
    let (computes, serves) = (arguments.cpu("computes")?, arguments.cpu("serves")?);
    let span = Duration::from_millis(arguments.get("millis")?);
    // The node's threads inherit the affinity that this thread has when it starts them.
    settle(if engine == Engine::Idle { serves } else { computes })?;
    let node = builder(RECEIVER, home.rdma).engine(engine).listen(&home.listen);
    let node = node.start().context("starting a receiver")?;
    pin(computes)?;
    let memory = node.region(usize::try_from(LONGEST)?)?;
    touch(&memory)?;
    let steps = steps_for(span);
    child::announce(&node)?;
    let peer = node.wait_for_peer(SENDER, START).context("meeting the sender")?.waiting(WaitPolicy::Adaptive);
    child::say("ready")?;
    while let Some(line) = child::listen()? {
        child::say(&carry_out(&line, &peer, &memory, steps)?)?;
    }
    Ok(())
}

/// Carries out one command: `computes SIZE MARK`, `sleeps SIZE MARK`, `waits SIZE MARK`, or `compute 0 0`.
fn carry_out(line: &str, peer: &Peer, memory: &Region, steps: u64) -> anyhow::Result<String> {
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
            let done = child::listen()?.context("the sender has ended")?;
            anyhow::ensure!(done == "done", "unknown command {done:?}");
        }
        _ => {}
    }
    let compute_us = micros(since);
    let marked = || {
        let mut there = [0; 8];
        memory.read(usize::try_from(size)? - there.len(), &mut there)?;
        anyhow::Ok(u64::from_le_bytes(there) == mark)
    };
    // The application has not called the node since it posted the receive.
    let before_end = marked()?;
    let since = clock::now();
    let len = receive.wait(LIMIT)?;
    let wait_us = micros(since);
    anyhow::ensure!(len == size && marked()?, "a message of {size} bytes is incomplete");
    Ok(format!("{wait_us} {compute_us} {}", u8::from(before_end)))
}

/// The engines, in the order of the paper's figure. The timer's period is the default of a node, which is also the paper's.
pub(crate) const ENGINES: [Engine; 3] =
    [Engine::None, Engine::Timer(pronto_node::config::TIMER), Engine::Idle];

/// Returns the name of an engine, as a value of the column.
pub(crate) const fn name(engine: Engine) -> &'static str {
    match engine {
        Engine::None => "none",
        Engine::Timer(_) => "timer",
        Engine::Idle => "idle",
    }
}

/// Returns the engine with that name.
pub(crate) fn engine(wanted: &str) -> anyhow::Result<Engine> {
    ENGINES
        .into_iter()
        .find(|engine| name(*engine) == wanted)
        .with_context(|| format!("no engine named {wanted}"))
}
