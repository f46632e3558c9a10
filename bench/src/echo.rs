//! The echo service: requests of fixed sizes whose inline handler gives the payload back; and the child that serves it.

use core::hint::black_box;
use core::str::FromStr;
use core::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use pronto::progress::Engine;
use pronto::{Boost, Message, Node, Peer, Rdma, Request, WaitPolicy};

use crate::child::{self, Child};
use crate::placement::{Cpu, pin};
use crate::sample::Recorder;

/// The hidden command of a serving child.
pub(crate) const SERVE: &str = "serve-echo";
/// The node that serves.
pub(crate) const SERVER: u16 = 1;
/// The node that calls.
const CLIENT: u16 = 2;
/// Longer than a start on the busiest machine takes.
const START: Duration = Duration::from_secs(20);
/// A server that is stopped while something else is measured is not down, however slow the machine is.
const LIVENESS: Duration = Duration::from_secs(600);

macro_rules! echoes {
    ($($request:ident, $name:literal => $reply:ident, $reply_name:literal, $class:ident, $bytes:ty;)*) => {$(
        #[derive(Message, Clone, Debug, PartialEq)]
        #[message(name = $reply_name, class = $class)]
        pub(crate) struct $reply {
            pub(crate) bytes: $bytes,
        }

        #[derive(Message, Clone, Debug)]
        #[message(name = $name, reply = $reply, class = $class)]
        pub(crate) struct $request {
            pub(crate) bytes: $bytes,
        }
    )*};
}

echoes! {
    Ask0, "echo.0" => Echo0, "echo.0.reply", control, [u8; 0];
    Ask32, "echo.32" => Echo32, "echo.32.reply", control, [u8; 32];
    Ask64, "echo.64" => Echo64, "echo.64.reply", control, [u8; 64];
    Ask224, "echo.224" => Echo224, "echo.224.reply", control, [u8; 224];
    AskMany, "echo.many" => EchoMany, "echo.many.reply", bulk, Vec<u8>;
}

/// A payload length that is measured, with the function that measures it.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Payload of request and of reply, bytes.
    pub bytes: usize,
    /// The same, as the value of a column.
    pub name: &'static str,
    measure: fn(&Peer, usize, Duration, &mut Recorder) -> anyhow::Result<()>,
}

/// Every size. Up to 224 bytes the payload is an array and travels as control; above, a vector (4 bytes of it are its
/// count), as bulk.
pub const SIZES: &[Size] = &[
    Size {
        bytes: 0,
        name: "0",
        measure: |peer, _, budget, into| echo(peer, &Ask0 { bytes: [] }, budget, into),
    },
    Size {
        bytes: 32,
        name: "32",
        measure: |peer, _, budget, into| echo(peer, &Ask32 { bytes: [7; 32] }, budget, into),
    },
    Size {
        bytes: 224,
        name: "224",
        measure: |peer, _, budget, into| echo(peer, &Ask224 { bytes: [7; 224] }, budget, into),
    },
    Size { bytes: 4096, name: "4096", measure: many },
    Size { bytes: 65_536, name: "65536", measure: many },
];

fn many(peer: &Peer, len: usize, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    echo(peer, &AskMany { bytes: vec![7; len - size_of::<u32>()] }, budget, into)
}

fn echo<M: Request>(peer: &Peer, request: &M, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    into.round(budget, || peer.call(request).map(|reply| drop(black_box(reply)))).context("an echo call")
}

/// One call with a payload of 32 bytes.
///
/// # Errors
/// If it fails.
pub fn call_32(peer: &Peer) -> anyhow::Result<[u8; 32]> {
    Ok(peer.call(&Ask32 { bytes: black_box([7; 32]) }).context("an echo call")?.bytes)
}

/// One call with a payload of 64 bytes.
///
/// # Errors
/// If it fails.
pub fn call_64(peer: &Peer) -> anyhow::Result<[u8; 64]> {
    Ok(peer.call(&Ask64 { bytes: black_box([7; 64]) }).context("an echo call")?.bytes)
}

impl Size {
    /// One call of this size.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn once(&self, peer: &Peer) -> anyhow::Result<()> {
        match self.bytes {
            0 => _ = peer.call(&Ask0 { bytes: [] })?,
            32 => _ = peer.call(&Ask32 { bytes: [7; 32] })?,
            224 => _ = peer.call(&Ask224 { bytes: [7; 224] })?,
            len => _ = peer.call(&AskMany { bytes: vec![7; len - size_of::<u32>()] })?,
        }
        Ok(())
    }

    /// Repeats calls of this size for about `budget` and adds to `into`.
    ///
    /// # Errors
    /// If a call fails.
    pub fn measure(&self, peer: &Peer, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
        (self.measure)(peer, self.bytes, budget, into)
    }
}

/// A transport, as a value of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Shared memory.
    Shm,
    /// TCP over the loopback interface.
    Tcp,
}

/// A waiting policy, as a value of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait(pub WaitPolicy);

impl Provider {
    /// Every transport.
    pub const ALL: [Self; 2] = [Self::Shm, Self::Tcp];

    /// The value of the column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }

    /// Where a node of this process can listen; `name` tells it from others.
    pub(crate) fn address(self, name: &str) -> String {
        match self {
            Self::Shm => format!("shm:@pronto-bench{name}-{}", std::process::id()),
            Self::Tcp => "tcp:127.0.0.1:0".into(),
        }
    }
}

impl Wait {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self(WaitPolicy::Spin), Self(WaitPolicy::Block), Self(WaitPolicy::Adaptive)];

    /// The value of the column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            WaitPolicy::Spin => "spin",
            WaitPolicy::Block => "block",
            WaitPolicy::Adaptive => "adaptive",
        }
    }
}

impl FromStr for Provider {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|known| known.name() == text).context("no such provider")
    }
}

impl FromStr for Wait {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|known| known.name() == text).context("no such policy")
    }
}

/// Where a server listens, and what its links may go over: only addresses of this host, or of the lab's nodes.
#[derive(Clone, Debug)]
pub struct Home {
    /// The address, as a node's configuration has it.
    pub listen: String,
    /// Whether links that begin over TCP go over RDMA.
    pub rdma: Rdma,
}

/// A node in this process that serves all sizes.
///
/// # Errors
/// If it does not start.
pub fn serve(home: &Home, wait: Wait) -> anyhow::Result<Node> {
    serve_with(home, wait, Engine::Idle, Boost::None)
}

fn serve_with(home: &Home, wait: Wait, engine: Engine, boost: Boost) -> anyhow::Result<Node> {
    Node::builder(SERVER)
        .wait(wait.0)
        .engine(engine)
        .boost(boost)
        .listen(&home.listen)
        .plaintext_i_understand()
        .rdma(home.rdma)
        .liveness(LIVENESS)
        .handle_inline(|_, ask: Ask0| Echo0 { bytes: ask.bytes })
        .handle_inline(|_, ask: Ask32| Echo32 { bytes: ask.bytes })
        .handle_inline(|_, ask: Ask64| Echo64 { bytes: ask.bytes })
        .handle_inline(|_, ask: Ask224| Echo224 { bytes: ask.bytes })
        .handle_inline(|_, ask: AskMany| EchoMany { bytes: ask.bytes })
        .start()
        .context("starting the echo service")
}

/// A serving child on a CPU of its own.
#[derive(Debug)]
pub struct Server {
    /// The child.
    pub child: Child,
    address: String,
    rdma: Rdma,
}

impl Server {
    /// Starts the child on this host; it serves when this returns.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn(provider: Provider, wait: Wait, cpu: Cpu) -> anyhow::Result<Self> {
        Self::spawn_at(&Home { listen: provider.address(""), rdma: Rdma::Off }, wait, cpu)
    }

    /// The same with a boost, at an address of its own beside services with another one or that wait otherwise.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_boosted(provider: Provider, wait: Wait, boost: Boost, cpu: Cpu) -> anyhow::Result<Self> {
        let name = format!("{}-{}", wait.name(), boosts(boost));
        let home = Home { listen: provider.address(&name), rdma: Rdma::Off };
        Self::spawn_as(&home, wait, (Engine::Idle, boost), cpu)
    }

    /// The same with another engine. With none, the child looks at its node in a loop of its own.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_with(provider: Provider, wait: Wait, engine: Engine, cpu: Cpu) -> anyhow::Result<Self> {
        let name = if engine == Engine::None { "-without" } else { "" };
        let home = Home { listen: provider.address(name), rdma: Rdma::Off };
        Self::spawn_as(&home, wait, (engine, Boost::None), cpu)
    }

    /// Starts the child at `home`, in the calling thread's network namespace; it serves when this returns, and ends with
    /// that thread.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_at(home: &Home, wait: Wait, cpu: Cpu) -> anyhow::Result<Self> {
        Self::spawn_as(home, wait, (Engine::Idle, Boost::None), cpu)
    }

    fn spawn_as(home: &Home, wait: Wait, (engine, boost): (Engine, Boost), cpu: Cpu) -> anyhow::Result<Self> {
        let rdma = if home.rdma == Rdma::Require { REQUIRE } else { OFF };
        let engine = if engine == Engine::None { WITHOUT } else { WITH };
        let cpu = cpu.0.to_string();
        let mut child = Child::spawn([SERVE, &home.listen, rdma, wait.name(), engine, boosts(boost), &cpu])?;
        let address = child.hear()?;
        Ok(Self { child, address, rdma: home.rdma })
    }

    /// A node that calls it from the calling thread, and the peer to call. The node's own threads sleep while its caller
    /// polls: they share the caller's CPU if that is pinned.
    ///
    /// # Errors
    /// If the two do not meet, or an echo is not what was sent.
    pub fn meet(&self, wait: Wait) -> anyhow::Result<(Node, Peer)> {
        self.meet_with(wait, Engine::Idle)
    }

    /// The same with another engine.
    ///
    /// # Errors
    /// As above.
    pub fn meet_with(&self, wait: Wait, engine: Engine) -> anyhow::Result<(Node, Peer)> {
        let client = Node::builder(CLIENT)
            .wait(WaitPolicy::Block)
            .engine(engine)
            .plaintext_i_understand()
            .rdma(self.rdma)
            .liveness(LIVENESS)
            .peer(SERVER, &self.address)
            .start()
            .context("starting the calling node")?;
        let peer = client.wait_for_peer(SERVER, START).context("meeting the echo service")?.waiting(wait.0);
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let echo = peer.call(&AskMany { bytes: bytes.clone() }).context("the first echo")?;
        anyhow::ensure!(echo.bytes == bytes, "an echo differs from what was sent");
        Ok((client, peer))
    }
}

/// Values of the argument that says whether links go over RDMA.
const OFF: &str = "off";
const REQUIRE: &str = "require";
/// Values of the argument that says whether the service has an engine.
const WITH: &str = "with";
const WITHOUT: &str = "without";

/// Values of the argument that says how the service is boosted.
const BOOSTS: [Boost; 4] = [Boost::None, Boost::Slice, Boost::Fifo, Boost::Module];

/// The name of a boost, as a value of that argument and of columns.
pub(crate) const fn boosts(boost: Boost) -> &'static str {
    match boost {
        Boost::Auto => "auto",
        Boost::Module => "module",
        Boost::Fifo => "fifo",
        Boost::Slice => "slice",
        Boost::Deadline => "deadline",
        Boost::None => "none",
    }
}

pub(crate) fn command() -> Command {
    Command::new(SERVE)
        .hide(true)
        .args(["listen", "rdma", "wait", "engine", "boost", "cpu"].map(|name| Arg::new(name).required(true)))
}

/// Serves until the parent ends this process.
pub(crate) fn serve_command(options: &ArgMatches) -> anyhow::Result<()> {
    child::end_with_parent()?;
    let value = |name: &str| options.get_one::<String>(name).context("all arguments are required");
    let rdma = if value("rdma")? == REQUIRE { Rdma::Require } else { Rdma::Off };
    let (home, wait) = (Home { listen: value("listen")?.clone(), rdma }, value("wait")?.parse()?);
    // Before pinning: what is learned here is to hold for two CPUs.
    let _learned = pronto_node::wake_up_cost();
    pin(Cpu(value("cpu")?.parse().context("a CPU's number")?))?;
    let engine = if value("engine")? == WITHOUT { Engine::None } else { Engine::Idle };
    let named = value("boost")?;
    let boost = BOOSTS.into_iter().find(|boost| boosts(*boost) == named).context("no such boost")?;
    let node = serve_with(&home, wait, engine, boost)?;
    let address = node.listening().first().context("it listens")?;
    child::say(&address.to_string())?;
    loop {
        if engine == Engine::None {
            node.progress();
            continue;
        }
        std::thread::park();
    }
}
