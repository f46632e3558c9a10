//! The echo service: requests of fixed sizes whose inline handler returns the payload, and the child that serves them.

use core::hint::black_box;
use core::net::SocketAddr;
use core::str::FromStr;
use core::time::Duration;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pronto::progress::Engine;
use pronto::{Boost, Builder, Bytes, Message, Node, Peer, Rdma, Request, WaitPolicy};

use crate::child::{self, Child, START};
use crate::home::Home;
use crate::params::Params;
use crate::placement::Cpu;
use crate::rendezvous::receiver;
use crate::sample::Recorder;
use crate::side::{Arguments, Side, settle};
use crate::tls::certificates::source;

/// The serving child.
pub(crate) const SIDE: Side = Side {
    name: "serve-echo",
    arguments: &["listen", "rdma", "wait", "engine", "boost", "cpu"],
    more: Some("certificates"),
    run: serve_child,
};
/// Id of the serving node.
pub(crate) const SERVER: u16 = 1;
/// Id of the calling node.
pub(crate) const CLIENT: u16 = 2;
/// Long enough that a server which is stopped during other measurements does not count as down, even on a slow machine.
pub(crate) const LIVENESS: Duration = Duration::from_secs(600);
/// More than any experiment has.
const MAX_PEERS: usize = 16_384;

macro_rules! echoes {
    ($($request:ident, $name:literal => $reply:ident, $reply_name:literal, $class:ident, $bytes:ty;)*) => {$(
        #[derive(Message, Clone, Debug)]
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
    AskBytes, "echo.bytes" => EchoBytes, "echo.bytes.reply", bulk, Bytes;
}

/// The form of a call with a page or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The handler and the caller get vectors.
    Owned,
    /// The handler gets a vector; the caller receives into a vector of its own.
    Into,
    /// The handler and the caller get the memory where the bytes arrived. The handler replies from there, and the caller reads every byte.
    InPlace,
}

/// A payload length, with the function that measures it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Length of the payload of request and of reply, bytes.
    pub(crate) bytes: usize,
    /// Name of the length, as a value of a column.
    pub(crate) name: &'static str,
    measure: fn(&Peer, usize, Duration, &mut Recorder) -> anyhow::Result<()>,
}

/// Every size. Up to 224 bytes, the payload is an array of class control. Longer payloads are vectors of class bulk, of which 4 bytes
/// are the count.
pub(crate) const SIZES: &[Size] = &[
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

fn in_place(peer: &Peer, len: usize, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let ask = AskBytes { bytes: vec![7; len - size_of::<u32>()].into() };
    into.round(budget, || {
        let echo = peer.call(&ask).context("an echo call")?;
        let mut sum = 0_u64;
        let add = |block: &[u8; 64], _| {
            for word in block.as_chunks().0 {
                sum = sum.wrapping_add(u64::from_ne_bytes(*word));
            }
        };
        echo.bytes.read_blocks(add).context("reading an echo")?;
        black_box(sum);
        Ok(())
    })
}

fn received_into(peer: &Peer, len: usize, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let ask = AskMany { bytes: vec![7; len - size_of::<u32>()] };
    let mut echo = EchoMany { bytes: Vec::new() };
    into.round(budget, || {
        peer.call_into(&ask, &mut echo).context("an echo call")?;
        black_box(&echo);
        Ok(())
    })
}

fn echo<M: Request>(peer: &Peer, request: &M, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    into.round(budget, || peer.call(request).map(|reply| drop(black_box(reply)))).context("an echo call")
}

/// Makes a call with a payload of 32 bytes.
///
/// # Errors
/// If it fails.
pub fn call_32(peer: &Peer) -> anyhow::Result<[u8; 32]> {
    Ok(peer.call(&Ask32 { bytes: black_box([7; 32]) }).context("an echo call")?.bytes)
}

/// Makes a call with a payload of 64 bytes.
pub(crate) fn call_64(peer: &Peer) -> anyhow::Result<[u8; 64]> {
    Ok(peer.call(&Ask64 { bytes: black_box([7; 64]) }).context("an echo call")?.bytes)
}

impl Size {
    /// Makes a call of this size.
    pub(crate) fn once(&self, peer: &Peer) -> anyhow::Result<()> {
        match self.bytes {
            0 => _ = peer.call(&Ask0 { bytes: [] })?,
            32 => _ = peer.call(&Ask32 { bytes: [7; 32] })?,
            224 => _ = peer.call(&Ask224 { bytes: [7; 224] })?,
            len => _ = peer.call(&AskMany { bytes: vec![7; len - size_of::<u32>()] })?,
        }
        Ok(())
    }

    /// Repeats calls of this size for about `budget`, and adds them to `into`.
    pub(crate) fn measure(&self, peer: &Peer, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
        (self.measure)(peer, self.bytes, budget, into)
    }

    /// Measures calls like [`Size::measure`], in this form if the payload is a page or longer.
    pub(crate) fn measure_in(
        &self,
        form: Form,
        peer: &Peer,
        budget: Duration,
        into: &mut Recorder,
    ) -> anyhow::Result<()> {
        let measure = match form {
            Form::Into if self.bytes >= PAGE => received_into,
            Form::InPlace if self.bytes >= PAGE => in_place,
            Form::Owned | Form::Into | Form::InPlace => self.measure,
        };
        measure(peer, self.bytes, budget, into)
    }
}

/// Length from which the form of a call matters, bytes.
const PAGE: usize = 4096;

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

    /// Returns the name, as a value of a column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }

    /// Returns the selected transports.
    pub(crate) fn kept(params: &Params) -> Vec<Self> {
        params.kept("provider", Self::ALL, |provider| provider.name())
    }

    /// Returns an address at which a node of this process can listen; `name` distinguishes it from others.
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

    /// Returns the name, as a value of a column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            WaitPolicy::Spin => "spin",
            WaitPolicy::Block => "block",
            WaitPolicy::Adaptive => "adaptive",
        }
    }
}

impl Wait {
    /// Names of all policies.
    pub(crate) const NAMES: [&'static str; 3] = ["spin", "block", "adaptive"];

    /// Returns the selected policies.
    pub(crate) fn kept(params: &Params) -> Vec<Self> {
        params.kept("wait", Self::ALL, |wait| wait.name())
    }
}

impl FromStr for Provider {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::ALL
            .into_iter()
            .find(|known| known.name() == text)
            .with_context(|| format!("no provider named {text}"))
    }
}

impl FromStr for Wait {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::ALL
            .into_iter()
            .find(|known| known.name() == text)
            .with_context(|| format!("no waiting policy named {text}"))
    }
}

/// Starts a node in this process that serves all sizes.
pub(crate) fn serve(home: &Home, wait: Wait) -> anyhow::Result<Node> {
    serve_with(home, wait, (Engine::Idle, Boost::None), None)
}

/// Starts a node with an engine and a boost, which uses TLS if there is a folder of certificates.
fn serve_with(
    home: &Home,
    wait: Wait,
    (engine, boost): (Engine, Boost),
    certificates: Option<&Path>,
) -> anyhow::Result<Node> {
    trusting(Node::builder(SERVER), SERVER, certificates)
        .wait(wait.0)
        .engine(engine)
        .boost(boost)
        .listen(&home.listen)
        .plaintext_i_understand()
        .rdma(home.rdma)
        .liveness(LIVENESS)
        .max_peers(MAX_PEERS)
        .handle_inline(|_, ask: Ask0| Echo0 { bytes: ask.bytes })
        .handle_inline(|_, ask: Ask32| Echo32 { bytes: ask.bytes })
        .handle_inline(|_, ask: Ask64| Echo64 { bytes: ask.bytes })
        .handle_inline(|_, ask: Ask224| Echo224 { bytes: ask.bytes })
        .handle_inline(|_, ask: AskMany| EchoMany { bytes: ask.bytes })
        .handle_inline(|_, ask: AskBytes| EchoBytes { bytes: ask.bytes })
        .start()
        .context("starting the echo service")
}

/// Returns the builder of a node with its certificate in this folder, if there is one.
fn trusting(builder: Builder, node: u16, certificates: Option<&Path>) -> Builder {
    match certificates {
        Some(folder) => builder.trust(source(folder, node)),
        None => builder,
    }
}

/// A serving child, pinned to a CPU.
#[derive(Debug)]
pub struct Server {
    /// The child.
    pub(crate) child: Child,
    address: String,
    rdma: Rdma,
    /// Folder of the certificates, if its links use TLS.
    certificates: Option<PathBuf>,
}

impl Server {
    /// Starts the child on this host. It serves when this returns.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn(provider: Provider, wait: Wait, cpu: Cpu) -> anyhow::Result<Self> {
        Self::spawn_at(&Home::here(provider.address("")), wait, cpu)
    }

    /// Starts the child with a boost. Its address differs from those of services with another boost or waiting policy.
    pub(crate) fn spawn_boosted(
        provider: Provider,
        wait: Wait,
        boost: Boost,
        cpu: Cpu,
    ) -> anyhow::Result<Self> {
        let name = format!("{}-{}", wait.name(), boosts(boost));
        let home = Home::here(provider.address(&name));
        Self::spawn_as(&home, wait, (Engine::Idle, boost), None, cpu)
    }

    /// Starts the child with another engine. Without a polling one, the child drives its node in a loop.
    pub(crate) fn spawn_with(
        provider: Provider,
        wait: Wait,
        engine: Engine,
        cpu: Cpu,
    ) -> anyhow::Result<Self> {
        let home = Home::here(provider.address(&format!("-{}", receiver::name(engine))));
        Self::spawn_as(&home, wait, (engine, Boost::None), None, cpu)
    }

    /// Starts the child at `home`, in the calling thread's network namespace. It serves when this returns, and ends with
    /// that thread.
    pub(crate) fn spawn_at(home: &Home, wait: Wait, cpu: Cpu) -> anyhow::Result<Self> {
        Self::spawn_as(home, wait, (Engine::Idle, Boost::None), None, cpu)
    }

    /// Starts the child on this host, over TCP, with TLS if there is a folder of certificates.
    pub(crate) fn spawn_trusting(certificates: Option<&Path>, wait: Wait, cpu: Cpu) -> anyhow::Result<Self> {
        let home = Home::here(Provider::Tcp.address(""));
        Self::spawn_as(&home, wait, (Engine::Idle, Boost::None), certificates, cpu)
    }

    fn spawn_as(
        home: &Home,
        wait: Wait,
        (engine, boost): (Engine, Boost),
        certificates: Option<&Path>,
        cpu: Cpu,
    ) -> anyhow::Result<Self> {
        let (rdma, cpu) = (home.rdma_argument(), cpu.0.to_string());
        let args = [&home.listen, rdma, wait.name(), receiver::name(engine), boosts(boost), &cpu];
        let mut child = Child::spawn(&SIDE, args.map(Path::new).into_iter().chain(certificates))?;
        let address = child.hear()?;
        Ok(Self { child, address, rdma: home.rdma, certificates: certificates.map(Path::to_owned) })
    }

    /// Starts a calling node in this thread, and returns it with the peer to call. The node's own threads sleep while the caller
    /// polls; they share the caller's CPU if it is pinned.
    ///
    /// # Errors
    /// If the two do not connect, or an echo differs from the request.
    pub fn meet(&self, wait: Wait) -> anyhow::Result<(Node, Peer)> {
        self.meet_with(wait, Engine::Idle)
    }

    /// Returns the address of its TCP listener.
    pub(crate) fn socket_address(&self) -> anyhow::Result<SocketAddr> {
        let address = self.address.strip_prefix("tcp:").context("the server listens over TCP")?;
        address.parse().context("the address of the server")
    }

    /// Starts a calling node with another engine.
    pub(crate) fn meet_with(&self, wait: Wait, engine: Engine) -> anyhow::Result<(Node, Peer)> {
        let client = trusting(Node::builder(CLIENT), CLIENT, self.certificates.as_deref())
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

/// Boosts of a service.
const BOOSTS: [Boost; 4] = [Boost::None, Boost::Slice, Boost::Fifo, Boost::Module];

/// Returns the name of a boost, as a value of the argument and of columns.
pub(crate) const fn boosts(boost: Boost) -> &'static str {
    match boost {
        Boost::Auto => "auto",
        Boost::Module => "module",
        Boost::Fifo => "fifo",
        Boost::Slice => "slice",
        Boost::Deadline => "deadline",
        Boost::Scx => "scx",
        Boost::None => "none",
    }
}

/// Serves until the parent ends this process.
fn serve_child(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    let (home, wait) = (Home::of(arguments)?, arguments.get("wait")?);
    settle(arguments.cpu("cpu")?)?;
    let engine = receiver::engine(arguments.text("engine")?)?;
    let named = arguments.text("boost")?;
    let boost = BOOSTS.into_iter().find(|boost| boosts(*boost) == named).context("unknown boost")?;
    let certificates = arguments.more("certificates").next().map(Path::new);
    let node = serve_with(&home, wait, (engine, boost), certificates)?;
    child::announce(&node)?;
    if engine != Engine::Idle {
        loop {
            node.progress();
        }
    }
    child::park()
}
