//! Why a node cannot start or go on, first branch: whose fault.

use pronto_topology::NotSeated;
use pronto_wire::NodeId;
use thiserror::Error;

use crate::address::Address;
use crate::config::ConfigError;

/// Why a node cannot start or go on. Its `Debug` form is the same text for people: it is what a `main` prints that returns
/// it.
#[derive(Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A message type has two handlers in one service.
    #[error("message type {name:?} is handled twice in one service: register one handler for it")]
    HandledTwice {
        /// The type's name.
        name: &'static str,
    },
    /// More message types than a greeting can list.
    #[error("{count} message types, at most {max} are possible")]
    TooManyTypes {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// A node cannot be its own peer.
    #[error("node {node} is listed as its own peer: give each node its own id")]
    OwnPeer {
        /// The node.
        node: NodeId,
    },
    /// An address outside this host, and nobody said that it is understood that traffic is not encrypted.
    #[error(
        "{key} names {address}, which is not on this host, and traffic would not be encrypted: allow it by `plaintext = \"i understand\"` \
         in the configuration, or by `Builder::plaintext_i_understand`"
    )]
    Plaintext {
        /// The key that it stands under.
        key: &'static str,
        /// The address.
        address: core::net::SocketAddr,
    },
    /// Processors were named for the serving thread that this process may not use.
    #[error("placement.serving = {0}")]
    NotSeated(NotSeated),
    /// A device was named that is not there.
    #[error("placement.device = {name:?}: there is no such network interface, and no such RDMA device")]
    NoDevice {
        /// Its name.
        name: String,
    },
    /// The folder of a socket is not there.
    #[error("listen names {address}, whose folder {} is not there: make it (mkdir -p)", folder.display())]
    NoFolder {
        /// The address.
        address: Address,
        /// Its folder.
        folder: std::path::PathBuf,
    },
    /// Listening at a shared-memory address failed.
    #[error("cannot listen at {address}: {cause}")]
    ListenShm {
        /// Where.
        address: Address,
        /// Why.
        cause: pronto_fabric_shm::SetupError,
    },
    /// Listening at a TCP address failed.
    #[error("cannot listen at {address}: {cause}")]
    ListenTcp {
        /// Where.
        address: Address,
        /// Why.
        cause: pronto_fabric_tcp::SetupError,
    },
    /// No memory for a region.
    #[error("no memory for a region: {0}")]
    Region(pronto_fabric_shm::SetupError),
    /// The operating system refused something that every node needs.
    #[error("the system refused {what}: {errno}")]
    System {
        /// What.
        what: &'static str,
        /// The error number.
        errno: nix::errno::Errno,
    },
    /// The peer did not come up in time.
    #[error("node {peer} did not come up in time: {}", why.as_deref().unwrap_or(
        "is it running, with this id, and was one of the two told where the other listens?"
    ))]
    NotUp {
        /// The peer.
        peer: NodeId,
        /// Why the last attempt to reach it failed, if this node made one.
        why: Option<String>,
    },
    /// The peer did not dial in time, and this node cannot.
    #[error(
        "node {peer} did not come up in time, and no address of it was given: give one (`Builder::peer`, or a [[peer]] in the \
         configuration), or have node {peer} dial this one"
    )]
    NoAddress {
        /// The peer.
        peer: NodeId,
    },
    /// Calls were still open, or handlers running, when the time for draining was over.
    #[error("{calls} calls were still open when the time for draining was over")]
    NotDrained {
        /// Open calls.
        calls: usize,
    },
}

impl core::fmt::Debug for NodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}
