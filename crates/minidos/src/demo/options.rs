//! The options of a run.

use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;
use core::time::Duration;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::data::Source;

/// Transport between the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory.
    Shm,
    /// TCP, over the loopback interface or between places.
    Tcp,
    /// RDMA, between places.
    Verbs,
    /// Shared memory and TCP are both offered; the nodes choose.
    Auto,
}

/// Place where a node runs: a network namespace and an address in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The namespace, as `ip netns` names it.
    pub namespace: String,
    /// The address that the node listens at.
    pub address: IpAddr,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted =
            || format!("invalid place {text:?}: expected NAMESPACE=ADDRESS, for example n0=10.0.0.1");
        let (namespace, address) = text.split_once('=').ok_or_else(wanted)?;
        let address = address.parse().map_err(|_| wanted())?;
        if namespace.is_empty() {
            return Err(wanted());
        }
        Ok(Self { namespace: namespace.into(), address })
    }
}

impl Transport {
    /// Returns the addresses at which node `node` listens. `directory` is the run's temporary directory.
    pub(super) fn listen(self, directory: &Path, node: u16, place: Option<&Place>) -> Vec<String> {
        let shm = || format!("shm:{}", directory.join(format!("n{node}.sock")).display());
        let address = place.map_or_else(|| IpAddr::from([127, 0, 0, 1]), |place| place.address);
        let tcp = || format!("tcp:{}", SocketAddr::new(address, 0));
        match self {
            Self::Shm => vec![shm()],
            Self::Tcp | Self::Verbs => vec![tcp()],
            Self::Auto => vec![shm(), tcp()],
        }
    }
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Node processes, 1 to [`Options::MAX_NODES`].
    pub nodes: u16,
    /// Transport between the nodes.
    pub transport: Transport,
    /// Places of the nodes, assigned in turn. If empty, all nodes run in this network namespace.
    pub places: Vec<Place>,
    /// The points.
    pub source: Source,
    /// Time after which the run fails, whatever it is doing.
    pub deadline: Duration,
    /// The program that becomes a node, and its arguments; it calls [`crate::node_main`].
    pub node_program: (PathBuf, Vec<OsString>),
}

impl Options {
    /// Maximum number of nodes. Chosen by us; no source. Each node has several threads, and all share one machine.
    pub const MAX_NODES: u16 = 16;

    /// Returns the place of node `node`, or `None` if it runs in this network namespace.
    pub(super) fn place(&self, node: u16) -> Option<&Place> {
        self.places.get(usize::from(node.checked_sub(1)?).checked_rem(self.places.len())?)
    }
}
