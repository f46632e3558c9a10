//! A node's configuration, read from a TOML file. The builder has the same settings.

pub mod address;
pub(crate) mod checks;
pub mod coschedule;
#[cfg(test)]
mod documented;
mod shape;
mod trust;

use core::net::IpAddr;
use core::time::Duration;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use pronto_core::session::{Doorbells, Limits};
use pronto_core::{Nanos, WaitPolicy};
use pronto_progress::{BusyPoll, Engine};
use pronto_topology::{ListFault, Wish};
use pronto_trust::PublicKeyError;
use serde::Deserialize;
use thiserror::Error;

use crate::access::{Rule, RuleError};
use crate::config::address::{Address, AddressError};
use crate::config::coschedule::CoscheduleConfig;
use crate::links::{Connect, IDLE};
use crate::rdma::Rdma;
use crate::serving::futures::MAX_FUTURES;
use crate::threads::boost::Boost;
use crate::threads::placement::Asked;

/// Configuration of a node, as read from a file. Unknown keys are rejected.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Id of the node, unique among the nodes that communicate with each other.
    pub node: u16,
    /// Human-readable name.
    #[serde(default)]
    pub name: String,
    /// Addresses where the node listens: `shm:PATH`, `tcp:HOST:PORT`.
    #[serde(default)]
    pub listen: Vec<String>,
    /// Peers to connect to.
    #[serde(default)]
    pub peer: Vec<PeerConfig>,
    /// Wait policy of the node's threads: `spin`, `block`, `adaptive`.
    #[serde(default)]
    pub wait: Wait,
    /// Time that an adaptive serving thread polls after traffic before it sleeps, in microseconds. Default: the cost of a wake-up.
    #[serde(default)]
    pub spin_down_us: Option<u64>,
    /// Boost for threads that handle messages: `auto`, `module`, `fifo`, `slice`, `deadline`, `none`.
    #[serde(default)]
    pub boost: Boost,
    /// Engine that polls while no thread of the program does: `idle`, `timer`, `none`.
    #[serde(default)]
    pub engine: EngineConfig,
    /// Maximum number of threads that run handlers at the same time.
    #[serde(default = "default_workers")]
    pub workers: usize,
    /// Maximum number of futures of async handlers that exist at the same time.
    #[serde(default = "default_max_futures")]
    pub max_futures: usize,
    /// Maximum number of peers.
    #[serde(default = "default_max_peers")]
    pub max_peers: usize,
    /// Permission for unencrypted traffic outside this host; the only permitted value is `"i understand"`.
    #[serde(default)]
    pub plaintext: Option<String>,
    /// Encryption and authentication of TCP connections.
    #[serde(default)]
    pub trust: TrustConfig,
    /// Use of RDMA for links between hosts: `auto`, `off`, `require`.
    #[serde(default)]
    pub rdma: Rdma,
    /// Sizes and times.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// The times at which the node has links to its peers.
    #[serde(default)]
    pub mesh: MeshConfig,
    /// Socket options of TCP connections.
    #[serde(default)]
    pub tcp: TcpConfig,
    /// Placement of the node on its machine.
    #[serde(default)]
    pub placement: PlacementConfig,
    /// Rules of which peers may use which message types. Without a rule: every peer all of them.
    #[serde(default)]
    pub allow: Vec<AllowConfig>,
    /// Coscheduling of processes by `prontod`.
    pub coschedule: Option<CoscheduleConfig>,
}

/// The times at which a node has links to its peers, in a configuration.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshConfig {
    /// `always`, or `on-demand`: a link to a peer with an address is made when a message needs one, and ends when it is idle.
    #[serde(default)]
    pub connect: ConnectConfig,
    /// Time without requests and notifications after which a link that was made on demand ends, in milliseconds.
    pub idle_ms: Option<u64>,
}

/// The choice of the times at which a node has links, in a configuration.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectConfig {
    /// The node keeps a link to each peer.
    #[default]
    Always,
    /// The node has links only to the peers with which it communicates.
    OnDemand,
}

/// Placement of a node on its machine, in a configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementConfig {
    /// CPUs of the serving thread: `off` (the scheduler decides), `auto` (near the device that carries the node's messages), or a
    /// list such as `0-3,8`.
    pub serving: Option<String>,
    /// Network interface or RDMA device that `auto` refers to. Default: the interfaces that carry the node's addresses.
    pub device: Option<String>,
}

/// Socket options of TCP connections, in a configuration. A missing key leaves the system's default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpConfig {
    /// Time that the kernel polls a device when a thread waits for it, in microseconds (SO_BUSY_POLL, socket(7); EPIOCSPARAMS for the
    /// serving thread's sleeps, Documentation/networking/napi.rst).
    #[serde(default)]
    pub busy_poll_us: u32,
    /// Maximum number of packets per such poll (SO_BUSY_POLL_BUDGET, EPIOCSPARAMS). Default: the kernel's.
    #[serde(default)]
    pub busy_poll_packets: Option<u16>,
    /// Whether busy polling takes precedence over the device's interrupts (SO_PREFER_BUSY_POLL, EPIOCSPARAMS).
    #[serde(default)]
    pub prefer_busy_poll: bool,
    /// Size of the send buffer and of the receive buffer of each socket, in bytes.
    #[serde(default)]
    pub socket_buffer: Option<u32>,
}

/// A peer in a configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// Id of the peer.
    pub node: u16,
    /// Addresses where the peer listens, best first. None if it dials this node.
    #[serde(default)]
    pub address: Vec<String>,
    /// Networks or addresses from which the peer connects over TCP, apart from the hosts of its addresses.
    #[serde(default)]
    pub from: Vec<String>,
    /// Number of the user of the peer's processes, which connect over shared memory. Default: the user of this node.
    #[serde(default)]
    pub user: Option<u32>,
    /// Public key of the peer, for `trust.mode = "keys"`.
    #[serde(default)]
    pub key: Option<String>,
}

/// Encryption and authentication of TCP connections, in a configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustConfig {
    /// `none`, `tls` (certificates) or `keys` (public keys of the peers).
    #[serde(default)]
    pub mode: TrustMode,
    /// PEM file with the certificate of the node, and those between it and the authority.
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of the node.
    pub key: Option<PathBuf>,
    /// PEM file with the certificates of the authorities that issue the nodes' certificates.
    pub authorities: Option<PathBuf>,
    /// PEM file with the revocation lists of these authorities.
    pub revoked: Option<PathBuf>,
    /// The side of the system calls that encrypts after the handshake.
    #[serde(default)]
    pub encrypted_by: EncryptedBy,
    /// Permission for links over RDMA, whose traffic is not encrypted.
    #[serde(default)]
    pub rdma_plaintext: bool,
    /// Permission for soft-RoCE among these, which lets a peer read more memory than it was granted.
    #[serde(default)]
    pub rdma_soft_roce: bool,
}

/// The choice of what encrypts connections with TLS, in a configuration.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EncryptedBy {
    /// The kernel, where it can.
    #[default]
    Kernel,
    /// The node.
    Node,
}

/// The proof that nodes have of each other over TCP.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum TrustMode {
    /// None; nothing is encrypted.
    #[default]
    None,
    /// Certificates of an authority.
    Tls,
    /// Public keys in the configuration.
    Keys,
}

/// A rule in a configuration: the message types that some peers may use.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowConfig {
    /// The peers: `node:2`, `same-user`, `anyone`.
    pub who: Vec<String>,
    /// The names of the types, or beginnings of names: `bank.deposit`, `bank.*`, `*`.
    pub types: Vec<String>,
}

/// Wait policy in a configuration.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Always polls.
    Spin,
    /// Sleeps immediately.
    Block,
    /// Polls for about the cost of a wake-up, then sleeps.
    #[default]
    Adaptive,
}

/// Engine in a configuration: the thread that polls while no thread of the program does.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EngineConfig {
    /// The serving thread, which polls or sleeps according to `wait`.
    #[default]
    Idle,
    /// The serving thread, every 10 ms (PIOMan's timer, section 4).
    Timer,
    /// The program itself, by calling [`Node::progress`](crate::Node::progress).
    None,
}

/// Parsed addresses of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Addresses where the node listens.
    pub listen: Vec<Address>,
    /// Peers, each with its addresses, best first.
    pub peers: Vec<(u16, Vec<Address>)>,
    /// Networks from which peers connect over TCP.
    pub from: Vec<(u16, IpNet)>,
}

/// Sizes and times in a configuration. A missing key has its default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    /// Maximum number of open calls to one peer.
    pub calls: Option<u16>,
    /// Maximum number of requests that a peer may have in flight, by class.
    pub requests: Option<[u16; 2]>,
    /// Number of these when a link begins, by class.
    pub first_requests: Option<[u16; 2]>,
    /// Maximum payload length in bytes, by class.
    pub max_payload: Option<[u32; 2]>,
    /// Send memory in bytes, by class.
    pub send_memory: Option<[u32; 2]>,
    /// Time of silence after which a peer is down, in milliseconds.
    pub liveness_ms: Option<u64>,
    /// Interval of heartbeats in a session without other traffic, in milliseconds.
    pub heartbeat_ms: Option<u64>,
    /// Receive buffers that the node keeps for messages that arrive over TCP, in bytes. A connection gets more while it needs them
    /// for the messages that its window (`requests`, `calls`) permits the peer to send.
    pub receive_budget: Option<usize>,
    /// Whether messages to one peer share doorbells; over TCP a doorbell is a write. Default: true.
    pub coalesce: Option<bool>,
}

/// Reason why a configuration is rejected. `Debug` prints the same text as `Display`, because that is the form that is printed when
/// `main` returns the error.
#[derive(Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        cause: std::io::Error,
    },
    /// The content of the file is wrong.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error in it.
        cause: Box<Self>,
    },
    /// The text is not a valid configuration.
    #[error(transparent)]
    Syntax {
        /// Position and reason.
        #[from]
        cause: toml::de::Error,
    },
    /// A text is not an address.
    #[error("{key}: {cause}")]
    Address {
        /// The configuration key of the address.
        key: &'static str,
        /// The reason.
        cause: AddressError,
    },
    /// A rule is wrong.
    #[error(transparent)]
    Allow(#[from] RuleError),
    /// A text is neither a network nor an address.
    #[error("peer.from: {0:?} is neither a network nor an address: write 10.0.0.0/8, fd00::/64 or 10.0.0.7")]
    Network(String),
    /// A number that stands for many users.
    #[error(
        "peer.user = {user}: in this user namespace all users without a number of their own have this one: name another user, or \
         add it to the namespace"
    )]
    Overflow {
        /// The number.
        user: u32,
    },
    /// A number is out of range.
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
    /// A value that must be a list is not one.
    #[error("{key} = {value}: must be a list, as in {example}")]
    NoList {
        /// The key.
        key: &'static str,
        /// The value in the file.
        value: String,
        /// An example line.
        example: &'static str,
    },
    /// The value of `placement.serving` is neither a keyword nor a list of CPUs.
    #[error("placement.serving = {value:?}: write off, auto, or a list of CPUs such as 0-3,8: {fault}")]
    Serving {
        /// The value in the file.
        value: String,
        /// The fault in the list.
        fault: ListFault,
    },
    /// A key is missing that another one requires.
    #[error("{key} needs {needs} too")]
    Missing {
        /// The key.
        key: &'static str,
        /// The missing key.
        needs: &'static str,
    },
    /// A key contradicts another one.
    #[error("{key} has no effect with {with}: remove it")]
    Useless {
        /// The key.
        key: &'static str,
        /// The other key and its value.
        with: &'static str,
    },
    /// A public key of a peer is wrong.
    #[error("peer {peer}: key: {cause}")]
    PublicKey {
        /// The peer.
        peer: u16,
        /// The reason.
        cause: PublicKeyError,
    },
    /// A peer that links over TCP has no public key.
    #[error(
        "peer {0} needs `key` with trust.mode = \"keys\": write the public key that `pronto trust key` prints for it"
    )]
    NoKey(u16),
    /// A key has no effect without another one.
    #[error("{key} needs {needs}")]
    Needs {
        /// The key.
        key: &'static str,
        /// The required key and value.
        needs: &'static str,
    },
    /// A peer has no address.
    #[error(
        "peer {0} has no address: write shm:PATH, shm:@NAME or tcp:HOST:PORT, or, if it dials this node, `from` with its network"
    )]
    NoAddress(u16),
    /// RDMA is required, but the program was built without it.
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
        "peer {peer} has the address {address}, where this node itself listens: write the address where the peer listens"
    )]
    OwnAddress {
        /// The peer.
        peer: u16,
        /// The address.
        address: Address,
    },
    /// Two peers have the same address.
    #[error("peers {} and {} have the same address, {address}: give each peer its own", peers[0], peers[1])]
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
    /// The value of `plaintext`, as it is in the file, is not `"i understand"`.
    #[error(
        "plaintext = {0}: write \"i understand\" to permit unencrypted traffic to other hosts, or remove the key"
    )]
    Plaintext(String),
}

impl core::fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

const fn default_workers() -> usize {
    4
}

const fn default_max_futures() -> usize {
    MAX_FUTURES
}

const fn default_max_peers() -> usize {
    1024
}

impl Config {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|cause| ConfigError::Read { path: path.into(), cause })?;
        Self::parse(&text).map_err(|cause| ConfigError::File { path: path.into(), cause: Box::new(cause) })
    }

    /// Parses and checks a text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        shape::check(&toml::from_str(text)?)?;
        let config: Self = toml::from_str(text)?;
        config.addresses()?;
        let mut nodes: Vec<_> = config.peer.iter().map(|peer| peer.node).collect();
        nodes.sort_unstable();
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::PeerTwice(pair[0]));
        }
        if let Some(peer) = config.peer.iter().find(|peer| !peer.can_connect()) {
            return Err(ConfigError::NoAddress(peer.node));
        }
        if config.rdma == Rdma::Require && !cfg!(feature = "verbs") {
            return Err(ConfigError::NoRdma);
        }
        config.tcp.check()?;
        config.placement.request()?;
        config.rules().try_for_each(|rule| rule.map(drop))?;
        config.trust_source()?;
        Ok(config)
    }

    /// Returns the rules of which peers may use which message types.
    pub(crate) fn rules(&self) -> impl Iterator<Item = Result<Rule, ConfigError>> {
        self.allow.iter().map(|rule| Ok(Rule::new(&rule.who, &rule.types)?))
    }

    /// Returns the addresses where the node listens, and those of its peers.
    pub fn addresses(&self) -> Result<Addresses, ConfigError> {
        let parse = |key, texts: &[String]| {
            texts
                .iter()
                .map(|text| text.parse().map_err(|cause| ConfigError::Address { key, cause }))
                .collect::<Result<Vec<Address>, _>>()
        };
        let listen = parse("listen", &self.listen)?;
        let peers = self.peer.iter().map(|peer| Ok((peer.node, parse("peer.address", &peer.address)?)));
        let from = self.peer.iter().flat_map(|peer| peer.from.iter().map(|text| (peer.node, text)));
        let from = from.map(|(node, text)| Ok((node, network_of(text)?)));
        Ok(Addresses {
            listen,
            peers: peers.collect::<Result<_, ConfigError>>()?,
            from: from.collect::<Result<_, ConfigError>>()?,
        })
    }
}

/// Reads a network, or an address as the network of one host.
pub(crate) fn network_of(text: &str) -> Result<IpNet, ConfigError> {
    let address = || text.parse().map(|address: IpAddr| IpNet::from(address.to_canonical()));
    let network = text.parse().or_else(|_| address()).ok();
    // Addresses are compared in their IPv4 form, which such a network would not contain.
    let is_mapped = |network: &IpNet| network.addr() != network.addr().to_canonical();
    network.filter(|network| !is_mapped(network)).ok_or_else(|| ConfigError::Network(text.into()))
}

impl PlacementConfig {
    /// Returns the requested placement.
    pub(crate) fn request(&self) -> Result<Asked, ConfigError> {
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
        if let Some((_, key)) = more.into_iter().find(|(is_set, _)| *is_set && self.busy_poll_us == 0) {
            return Err(ConfigError::Needs { key, needs: "tcp.busy_poll_us above 0" });
        }
        Ok(())
    }

    /// Returns the parameters of busy polling.
    pub(crate) fn busy_poll(&self) -> BusyPoll {
        BusyPoll {
            micros: self.busy_poll_us,
            packets: self.busy_poll_packets.unwrap_or(0),
            prefer: self.prefer_busy_poll,
        }
    }
}

impl MeshConfig {
    /// Returns when the node has links.
    pub(crate) fn connect(&self) -> Connect {
        let idle = self.idle_ms.map_or(IDLE, Duration::from_millis);
        match self.connect {
            ConnectConfig::Always => Connect::Always,
            ConnectConfig::OnDemand => Connect::OnDemand { idle },
        }
    }
}

impl LimitsConfig {
    /// Returns the session limits, with defaults for missing keys.
    pub fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            calls: self.calls.unwrap_or(default.calls),
            requests: self.requests.unwrap_or(default.requests),
            first_requests: self.first_requests.unwrap_or(default.first_requests),
            max_payload: self.max_payload.unwrap_or(default.max_payload),
            send_memory: self.send_memory.unwrap_or(default.send_memory),
            liveness: default.liveness,
            heartbeat: default.heartbeat,
            pause_after: default.pause_after,
            doorbells: match self.coalesce {
                Some(false) => Doorbells::PerMessage,
                Some(true) | None => Doorbells::Shared,
            },
            placement: default.placement,
            pressure: default.pressure,
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

/// Interval between two polls of the timer engine. Source: PIOMan.
pub const TIMER: Nanos = Nanos::from_millis(10);
/// Default of [`LimitsConfig::receive_budget`], bytes.
pub const RECEIVE_BUDGET: usize = 256 << 20;
/// Time limit of a handshake that this node accepts.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time limit of a handshake that this node dials. It is less than 5 s, the limit in `pronto ping` and in the guides, so that the error
/// of a wait names the outcome of the first attempt.
pub(crate) const DIAL: Duration = Duration::from_secs(4);
/// Remaining time limit of a handshake after the greetings were accepted; enough for one more connection over any network. It is
/// less than half of the default liveness limit, so that one stalled attempt does not cost the session.
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

    /// Shows: operations.heartbeat, sources.timer
    #[test]
    fn a_full_configuration_is_read() {
        let config = Config::parse(GOOD).expect("the configuration is valid");
        assert_eq!((config.node, config.wait, config.peer[0].node), (1, Wait::Block, 2));
        assert_eq!((config.boost, config.engine), (Boost::Auto, EngineConfig::Timer));
        assert_eq!(Engine::from(config.engine), Engine::Timer(Nanos::from_millis(10)));
        assert_eq!(config.limits.limits().calls, 32);
        assert_eq!(config.limits.limits().doorbells, Doorbells::PerMessage);
        assert_eq!(LimitsConfig::default().limits().doorbells, Doorbells::Shared);
        assert_eq!(config.tcp.busy_poll(), BusyPoll { micros: 50, packets: 16, prefer: true });
        assert_eq!(config.tcp.socket_buffer, Some(256 << 10));
        let request = config.placement.request().expect("`parse` has checked it");
        assert_eq!((request.serving, request.device.as_deref()), (Wish::Auto, Some("eth1")));
        let limits = config.limits.limits();
        assert_eq!(
            limits.heartbeat,
            Nanos::from_millis(600),
            "a short limit shortens heartbeats: {limits:?}"
        );
    }

    /// Shows: protocol.establish
    #[test]
    fn a_stalled_attempt_does_not_cost_the_session() {
        let liveness = Duration::from_nanos(LimitsConfig::default().limits().liveness.0);
        assert_eq!(
            (ESTABLISH, liveness),
            (Duration::from_millis(1_400), Duration::from_secs(3)),
            "documented"
        );
        assert!(2 * ESTABLISH < liveness);
    }

    /// Shows: operations.unknown-keys
    #[test]
    fn mistakes_are_named() {
        let wrong = |from: &str, to: &str| {
            Config::parse(&GOOD.replace(from, to)).expect_err("the configuration is wrong").to_string()
        };
        let unknown = wrong("wait =", "wiat =");
        assert!(unknown.contains("wiat") && unknown.contains("line 5, column 9"), "{unknown}");
        assert!(wrong("calls = 32", "cals = 32").contains("cals"));
        assert!(wrong("calls = 32", "calls = 0").contains("limits.calls = 0: must be from 1 to"));
        assert!(wrong("shm:/run/n1", "rdma:/run/n1").contains("names no known transport"));
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

    /// Shows: operations.rdma-require
    #[test]
    fn rdma_cannot_be_required_of_a_program_without_it() {
        let required = Config::parse(&GOOD.replace("node = 1", "node = 1\nrdma = \"require\""));
        assert_eq!(required.is_ok(), cfg!(feature = "verbs"));
        let text = required.map_err(|error| error.to_string());
        assert!(text.is_ok() || text.is_err_and(|text| text.contains("--features verbs")));
    }
}
