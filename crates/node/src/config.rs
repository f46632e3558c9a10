//! A node's configuration: one TOML file, or the same by the builder.

use core::time::Duration;
use std::path::{Path, PathBuf};

use pronto_core::session::{Doorbells, Limits};
use pronto_core::{Nanos, WaitPolicy};
use pronto_progress::{BusyPoll, Engine};
use pronto_topology::{ListFault, Wish};
use serde::Deserialize;
use thiserror::Error;

use crate::address::{Address, AddressError};
use crate::boost::Boost;
use crate::placement::Asked;
use crate::rdma::Rdma;
use crate::shape;

/// A node's configuration as a file says it. Unknown keys are refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The node's id, unique among the nodes that talk to each other.
    pub node: u16,
    /// A name for people.
    #[serde(default)]
    pub name: String,
    /// Where it listens: `shm:PATH`, `tcp:HOST:PORT`.
    #[serde(default)]
    pub listen: Vec<String>,
    /// Peers that it connects to.
    #[serde(default)]
    pub peer: Vec<PeerConfig>,
    /// How its threads wait: `spin`, `block`, `adaptive`.
    #[serde(default)]
    pub wait: Wait,
    /// For how long the serving thread polls after traffic before it sleeps, where it waits adaptively, microseconds; left out, for
    /// what a wake-up costs.
    #[serde(default)]
    pub spin_down_us: Option<u64>,
    /// How they get onto their processors when a message arrives: `auto`, `module`, `fifo`, `slice`, `deadline`, `none`.
    #[serde(default)]
    pub boost: Boost,
    /// Who polls when no thread of the program does: `idle`, `timer`, `none`.
    #[serde(default)]
    pub engine: EngineConfig,
    /// Threads that run handlers.
    #[serde(default = "default_workers")]
    pub workers: usize,
    /// Most peers that it takes.
    #[serde(default = "default_max_peers")]
    pub max_peers: usize,
    /// Traffic outside this host is not encrypted: `"i understand"` allows it all the same.
    #[serde(default)]
    pub plaintext: Option<String>,
    /// Whether its links between hosts go over RDMA: `auto`, `off`, `require`.
    #[serde(default)]
    pub rdma: Rdma,
    /// Sizes and times.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// What TCP connections ask of the kernel.
    #[serde(default)]
    pub tcp: TcpConfig,
    /// Where on its machine the node is.
    #[serde(default)]
    pub placement: PlacementConfig,
}

/// Where on its machine a node is, in a configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementConfig {
    /// Where its serving thread runs: `off` (the scheduler decides), `auto` (near the device that carries the node's messages), or
    /// processors, as in `0-3,8`.
    pub serving: Option<String>,
    /// The network interface or RDMA device that `auto` means; left out, those that have the node's addresses.
    pub device: Option<String>,
}

/// What TCP connections ask of the kernel, in a configuration; what is left out is as the system has it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpConfig {
    /// How long the kernel polls a device when a thread waits for it, microseconds (SO_BUSY_POLL, socket(7); EPIOCSPARAMS for the
    /// serving thread's sleeps, Documentation/networking/napi.rst).
    #[serde(default)]
    pub busy_poll_us: u32,
    /// Packets that it takes in one go when it does (SO_BUSY_POLL_BUDGET, EPIOCSPARAMS); left out, the kernel's own.
    #[serde(default)]
    pub busy_poll_packets: Option<u16>,
    /// Whether that goes before the device's interrupts (SO_PREFER_BUSY_POLL, EPIOCSPARAMS).
    #[serde(default)]
    pub prefer_busy_poll: bool,
    /// Send and receive buffers of each socket, bytes.
    #[serde(default)]
    pub socket_buffer: Option<u32>,
}

/// A peer in a configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// The peer's id.
    pub node: u16,
    /// Where it listens, best first.
    pub address: Vec<String>,
}

/// How threads wait, in a configuration.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Poll.
    Spin,
    /// Sleep.
    Block,
    /// Poll for about what a wake-up costs, then sleep.
    #[default]
    Adaptive,
}

/// Who polls, in a configuration.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EngineConfig {
    /// The serving thread, which polls or sleeps as `wait` says.
    #[default]
    Idle,
    /// The serving thread, every 10 ms (PIOMan's timer, section 4).
    Timer,
    /// The program itself, by [`Node::progress`](crate::Node::progress).
    None,
}

/// The addresses of a configuration, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Where the node listens.
    pub listen: Vec<Address>,
    /// Its peers, each with its addresses, best first.
    pub peers: Vec<(u16, Vec<Address>)>,
}

/// Sizes and times in a configuration; what is left out has its default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    /// Calls to one peer that may be open at a time.
    pub calls: Option<u16>,
    /// Requests that a peer may have under way, by class.
    pub requests: Option<[u16; 2]>,
    /// Longest payload, by class, bytes.
    pub max_payload: Option<[u32; 2]>,
    /// Send memory, by class, bytes.
    pub send_memory: Option<[u32; 2]>,
    /// A peer silent for so long is down, milliseconds.
    pub liveness_ms: Option<u64>,
    /// A silent session says so often that it lives, milliseconds.
    pub heartbeat_ms: Option<u64>,
    /// Receive buffers that the node keeps for what arrives by TCP, bytes. Each connection gets more while it needs them for
    /// the messages that its window (`requests`, `calls`) permits the peer to send.
    pub receive_budget: Option<usize>,
    /// Whether messages to one peer share doorbells, which are writes over TCP; on if nothing is said.
    pub coalesce: Option<bool>,
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// Something in the file is wrong.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What.
        cause: Box<Self>,
    },
    /// The text is no configuration.
    #[error(transparent)]
    Syntax {
        /// Where and why.
        #[from]
        cause: toml::de::Error,
    },
    /// An address is none.
    #[error("{key}: {cause}")]
    Address {
        /// The key that it stands under.
        key: &'static str,
        /// Why.
        cause: AddressError,
    },
    /// A number is outside its limits.
    #[error("{key} = {value}: must be from {least} to {most}")]
    Range {
        /// The key.
        key: &'static str,
        /// The value.
        value: i64,
        /// Least value.
        least: i64,
        /// Greatest value.
        most: i64,
    },
    /// There is something else where a list belongs.
    #[error("{key} = {value}: must be a list, as in {example}")]
    NoList {
        /// The key.
        key: &'static str,
        /// What is written there.
        value: String,
        /// A line with such a list.
        example: &'static str,
    },
    /// Processors are named that are no list of processors.
    #[error("placement.serving = {value:?}: write off, auto, or processors as in 0-3,8: {fault}")]
    Serving {
        /// What is written there.
        value: String,
        /// What is wrong with it.
        fault: ListFault,
    },
    /// A key says nothing without another one.
    #[error("{key} needs {needs}")]
    Needs {
        /// The key.
        key: &'static str,
        /// What must be there as well.
        needs: &'static str,
    },
    /// A peer without an address.
    #[error(
        "peer {0} has no address: write shm:PATH, shm:@NAME or tcp:HOST:PORT, or leave the peer out if it dials itself"
    )]
    NoAddress(u16),
    /// RDMA is required of a program that has none.
    #[error("rdma = \"require\": this program was built without RDMA; build it with `--features verbs`")]
    NoRdma,
    /// A peer is listed twice.
    #[error("peer {0} is listed twice: write one [[peer]] for it, with all its addresses")]
    PeerTwice(u16),
    /// An address of a peer is listed twice.
    #[error("peer {peer} has the address {address} twice: name it once")]
    PeerAddressTwice {
        /// The peer.
        peer: u16,
        /// The address.
        address: Address,
    },
    /// A peer has an address of the node itself.
    #[error(
        "peer {peer} has the address {address}, where this node itself listens: name the one where the peer does"
    )]
    OwnAddress {
        /// The peer.
        peer: u16,
        /// The address.
        address: Address,
    },
    /// Two peers have one address.
    #[error("peers {} and {} have one address, {address}: give each the one where it listens", peers[0], peers[1])]
    SharedAddress {
        /// The two peers.
        peers: [u16; 2],
        /// The address.
        address: Address,
    },
    /// An address to listen at is listed twice.
    #[error("listen names {address} twice: name it once")]
    ListenTwice {
        /// The address.
        address: Address,
    },
    /// `plaintext` says something else.
    #[error("plaintext = {0:?}: write \"i understand\", or leave it out")]
    Plaintext(String),
}

const fn default_workers() -> usize {
    4
}

const fn default_max_peers() -> usize {
    1024
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|cause| ConfigError::Read { path: path.into(), cause })?;
        Self::parse(&text).map_err(|cause| ConfigError::File { path: path.into(), cause: Box::new(cause) })
    }

    /// Reads a text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        shape::check(&toml::from_str(text)?)?;
        let config: Self = toml::from_str(text)?;
        config.addresses()?;
        let mut nodes: Vec<_> = config.peer.iter().map(|peer| peer.node).collect();
        nodes.sort_unstable();
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::PeerTwice(pair[0]));
        }
        if let Some(peer) = config.peer.iter().find(|peer| peer.address.is_empty()) {
            return Err(ConfigError::NoAddress(peer.node));
        }
        if config.rdma == Rdma::Require && !cfg!(feature = "verbs") {
            return Err(ConfigError::NoRdma);
        }
        config.tcp.check()?;
        config.placement.asked()?;
        if let Some(said) = config.plaintext.as_ref().filter(|said| *said != "i understand") {
            return Err(ConfigError::Plaintext(said.clone()));
        }
        Ok(config)
    }

    /// Where it listens, and its peers with their addresses.
    pub fn addresses(&self) -> Result<Addresses, ConfigError> {
        let parse = |key, texts: &[String]| {
            texts
                .iter()
                .map(|text| text.parse().map_err(|cause| ConfigError::Address { key, cause }))
                .collect::<Result<Vec<Address>, _>>()
        };
        let listen = parse("listen", &self.listen)?;
        let peers = self.peer.iter().map(|peer| Ok((peer.node, parse("peer.address", &peer.address)?)));
        Ok(Addresses { listen, peers: peers.collect::<Result<_, ConfigError>>()? })
    }
}

impl PlacementConfig {
    /// What is asked for.
    pub(crate) fn asked(&self) -> Result<Asked, ConfigError> {
        let serving = match self.serving.as_deref() {
            None | Some("off") => Wish::Off,
            Some("auto") => Wish::Auto,
            Some(list) => {
                Wish::On(list.parse().map_err(|fault| ConfigError::Serving { value: list.into(), fault })?)
            }
        };
        if self.device.is_some() && serving != Wish::Auto {
            return Err(ConfigError::Needs {
                key: "placement.device",
                needs: "placement.serving = \"auto\"",
            });
        }
        Ok(Asked { serving, device: self.device.clone() })
    }
}

impl TcpConfig {
    fn check(&self) -> Result<(), ConfigError> {
        let more = [
            (self.busy_poll_packets.is_some(), "tcp.busy_poll_packets"),
            (self.prefer_busy_poll, "tcp.prefer_busy_poll"),
        ];
        if let Some((_, key)) = more.into_iter().find(|(said, _)| *said && self.busy_poll_us == 0) {
            return Err(ConfigError::Needs { key, needs: "tcp.busy_poll_us above 0" });
        }
        Ok(())
    }

    /// How devices are polled within waits.
    pub(crate) fn busy_poll(&self) -> BusyPoll {
        BusyPoll {
            micros: self.busy_poll_us,
            packets: self.busy_poll_packets.unwrap_or(0),
            prefer: self.prefer_busy_poll,
        }
    }
}

impl LimitsConfig {
    /// The session limits that it stands for.
    pub fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            calls: self.calls.unwrap_or(default.calls),
            requests: self.requests.unwrap_or(default.requests),
            max_payload: self.max_payload.unwrap_or(default.max_payload),
            send_memory: self.send_memory.unwrap_or(default.send_memory),
            liveness: default.liveness,
            heartbeat: default.heartbeat,
            doorbells: match self.coalesce {
                Some(false) => Doorbells::PerMessage,
                Some(true) | None => Doorbells::Shared,
            },
        }
        .with_liveness(self.liveness_ms.map(Nanos::from_millis), self.heartbeat_ms.map(Nanos::from_millis))
    }
}

impl From<EngineConfig> for Engine {
    fn from(engine: EngineConfig) -> Self {
        match engine {
            EngineConfig::Idle => Self::Idle,
            EngineConfig::Timer => Self::Timer(TIMER),
            EngineConfig::None => Self::None,
        }
    }
}

impl From<Wait> for WaitPolicy {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Spin => Self::Spin,
            Wait::Block => Self::Block,
            Wait::Adaptive => Self::Adaptive,
        }
    }
}

/// How often a timer's engine polls: as PIOMan's does.
pub const TIMER: Nanos = Nanos::from_millis(10);
/// Default of [`LimitsConfig::receive_budget`], bytes.
pub const RECEIVE_BUDGET: usize = 256 << 20;
/// Time for one handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);
/// Of that, what is left once the greetings fit: for one more connection over any network. Below half of the liveness limit,
/// so that one attempt which stalls does not cost the session.
pub(crate) const ESTABLISH: Duration = Duration::from_millis(1_400);

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        node = 1
        name = "one"
        listen = ["shm:/run/n1.sock", "tcp:127.0.0.1:7001"]
        wait = "block"
        boost = "auto"
        engine = "timer"
        [[peer]]
        node = 2
        address = ["shm:/run/n2.sock"]
        [limits]
        calls = 32
        coalesce = false
        liveness_ms = 1000
        [tcp]
        busy_poll_us = 50
        busy_poll_packets = 16
        prefer_busy_poll = true
        socket_buffer = 262144
        [placement]
        serving = "auto"
        device = "eth1"
    "#;

    #[test]
    fn a_full_configuration_is_read() {
        let config = Config::parse(GOOD).expect("it is good");
        assert_eq!((config.node, config.wait, config.peer[0].node), (1, Wait::Block, 2));
        assert_eq!((config.boost, config.engine), (Boost::Auto, EngineConfig::Timer));
        assert_eq!(Engine::from(config.engine), Engine::Timer(Nanos::from_millis(10)));
        assert_eq!(config.limits.limits().calls, 32);
        assert_eq!(config.limits.limits().doorbells, Doorbells::PerMessage);
        assert_eq!(LimitsConfig::default().limits().doorbells, Doorbells::Shared);
        assert_eq!(config.tcp.busy_poll(), BusyPoll { micros: 50, packets: 16, prefer: true });
        assert_eq!(config.tcp.socket_buffer, Some(256 << 10));
        let asked = config.placement.asked().expect("it was checked");
        assert_eq!((asked.serving, asked.device.as_deref()), (Wish::Auto, Some("eth1")));
        let limits = config.limits.limits();
        assert!(limits.heartbeat.0 < limits.liveness.0, "a short limit has short heartbeats: {limits:?}");
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |from: &str, to: &str| {
            Config::parse(&GOOD.replace(from, to)).expect_err("it is wrong").to_string()
        };
        assert!(wrong("wait =", "wiat =").contains("wiat"));
        assert!(wrong("calls = 32", "cals = 32").contains("cals"));
        assert!(wrong("calls = 32", "calls = 0").contains("limits.calls = 0: must be from 1 to"));
        assert!(wrong("shm:/run/n1", "rdma:/run/n1").contains("names no transport"));
        assert!(wrong("serving = \"auto\"", "").contains("placement.device needs placement.serving"));
        let listed = wrong("serving = \"auto\"", "serving = \"3-1\"");
        assert!(listed.contains("3-1 ends before it begins"), "{listed}");
        let without = wrong("busy_poll_us = 50", "");
        assert!(without.contains("tcp.busy_poll_packets needs tcp.busy_poll_us above 0"), "{without}");
        assert!(wrong("busy_poll_packets = 16", "busy_poll_packets = 0").contains("must be from 1 to 1024"));
        assert!(wrong("\"block\"", "\"doze\"").contains("doze"));
        assert!(wrong("\"auto\"", "\"turbo\"").contains("turbo"));
        let again = "[[peer]]\nnode = 2\naddress = [\"shm:@two\"]\n[limits]";
        assert!(wrong("[limits]", again).contains("listed twice"));
        assert!(wrong("[\"shm:/run/n2.sock\"]", "[]").contains("peer 2 has no address: write shm:PATH"));
        assert!(wrong("node = 1", "node = 70000").contains("70000"));
        assert!(wrong("node = 1", "node = 64000").contains("node = 64000: must be from 1 to 63999"));
        assert!(wrong("node = 2", "node = 0").contains("peer.node = 0"));
        assert!(
            wrong("liveness_ms = 1000", "liveness_ms = 1000\nheartbeat_ms = 1000").contains("from 10 to 999")
        );
    }

    #[test]
    fn rdma_cannot_be_required_of_a_program_without_it() {
        let required = Config::parse(&GOOD.replace("node = 1", "node = 1\nrdma = \"require\""));
        assert_eq!(required.is_ok(), cfg!(feature = "verbs"));
        let said = required.map_err(|error| error.to_string());
        assert!(said.is_ok() || said.is_err_and(|said| said.contains("--features verbs")));
    }
}
