//! The error of a node that cannot start or continue.

use pronto_topology::NotSeated;
use pronto_wire::NodeId;
use thiserror::Error;

use crate::config::ConfigError;
use crate::config::address::Address;

/// Reason why a node cannot start or continue. `Debug` prints the same human-readable text as `Display`, because that is the form
/// that is printed when `main` returns the error.
#[derive(Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The credentials are wrong.
    #[error(transparent)]
    Trust(#[from] pronto_trust::TrustError),
    /// A configuration to reload has no rules, and the node has some.
    #[error("without any [[allow]] almost everything would be permitted: restart the node if you want that")]
    RulesGone,
    /// A configuration to reload has another mode of trust.
    #[error("trust.mode has changed since the node was started: restart the node")]
    OtherMode,
    /// RDMA needs its own permission next to TLS, as its traffic is never encrypted.
    #[error(
        "rdma = \"require\" with TLS: traffic over RDMA is not encrypted: permit it with `rdma_plaintext = true` in [trust], or with \
         `Builder::rdma_plaintext`"
    )]
    RdmaPlaintext,
    /// A message type has two handlers in one service.
    #[error("message type {name:?} is handled twice in one service: register one handler for it")]
    HandledTwice {
        /// The type's name.
        name: &'static str,
    },
    /// There are more message types than a greeting can list.
    #[error("{count} message types are registered; at most {max} are possible")]
    TooManyTypes {
        /// Number of registered types.
        count: usize,
        /// Maximum number.
        max: usize,
    },
    /// The node is listed as its own peer.
    #[error("node {node} is listed as its own peer: give each node its own id")]
    OwnPeer {
        /// The node.
        node: NodeId,
    },
    /// An address is outside this host, and unencrypted traffic has not been allowed.
    #[error(
        "{key} names {address}, which is not a loopback address, so that unencrypted traffic could leave this host: encrypt it \
         with [trust] (`Builder::trust`), or allow it with `plaintext = \"i understand\"` in the configuration, or with `Builder::plaintext_i_understand`"
    )]
    Plaintext {
        /// The configuration key of the address.
        key: &'static str,
        /// The address.
        address: core::net::SocketAddr,
    },
    /// The serving thread was configured for CPUs that this process may not use.
    #[error("placement.serving = {0}")]
    NotSeated(NotSeated),
    /// A file could not be mapped.
    #[error("cannot map bytes {start}..{end} of the file: {}; the range must not be empty, and the file must have it", std::io::Error::from_raw_os_error(*errno))]
    Map {
        /// First byte of the range.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// Error of the system.
        errno: i32,
    },
    /// The configured device does not exist.
    #[error("placement.device = {name:?}: no network interface or RDMA device has this name")]
    NoDevice {
        /// The configured name.
        name: String,
    },
    /// The folder of a socket does not exist.
    #[error("listen names {address}, but folder {} does not exist: create it (mkdir -p)", folder.display())]
    NoFolder {
        /// The address.
        address: Address,
        /// The missing folder.
        folder: std::path::PathBuf,
    },
    /// The address of a socket is a folder.
    #[error(
        "{key} names {address}, which is a folder: name a file in it, such as {}/1.sock",
        address.to_string().trim_end_matches('/')
    )]
    IsFolder {
        /// The configuration key of the address.
        key: &'static str,
        /// The address.
        address: Address,
    },
    /// Listening at a shared-memory address failed.
    #[error("cannot listen at {address}: {cause}")]
    ListenShm {
        /// The address.
        address: Address,
        /// The error.
        cause: pronto_fabric_shm::SetupError,
    },
    /// Listening at a TCP address failed.
    #[error("cannot listen at {address}: {cause}")]
    ListenTcp {
        /// The address.
        address: Address,
        /// The error.
        cause: pronto_fabric_tcp::SetupError,
    },
    /// The system has no memory for a region.
    #[error("cannot allocate a region: {0}")]
    Region(pronto_fabric_shm::SetupError),
    /// The operating system refused a resource that every node needs.
    #[error("the operating system refused {what}: {errno}")]
    System {
        /// The resource.
        what: &'static str,
        /// The error number.
        errno: nix::errno::Errno,
    },
    /// The peer did not come up in time.
    #[error("node {peer} did not come up in time: {}", why.as_deref().unwrap_or(
        "no attempt to connect has ended yet; check that it runs with this id, and that one of the two nodes has an address of the other"
    ))]
    NotUp {
        /// The peer.
        peer: NodeId,
        /// Reason why this node's last attempt to reach the peer failed, if it made one.
        why: Option<String>,
    },
    /// The peer did not dial in time, and this node has no address to dial.
    #[error(
        "node {peer} did not come up in time, and this node has no address of it: add one (`Builder::peer`, or a [[peer]] in the \
         configuration), or let node {peer} dial this node"
    )]
    NoAddress {
        /// The peer.
        peer: NodeId,
    },
    /// Calls were still open, or handlers still running, at the time limit for draining.
    #[error("draining timed out with {calls} open calls; handlers may still be running")]
    NotDrained {
        /// Number of open calls.
        calls: usize,
    },
}

impl core::fmt::Debug for NodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}
