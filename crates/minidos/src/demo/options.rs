//! What can be asked of the demo.

use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;
use core::time::Duration;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::data::Source;

/// How the nodes are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory.
    Shm,
    /// TCP, over the loopback interface or between places.
    Tcp,
    /// RDMA, between places.
    Verbs,
    /// Shared memory and TCP are offered, and the nodes choose.
    Auto,
}

/// Where a node runs: a network namespace, and its address there.
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
        let wanted = || format!("{text:?} is not NAMESPACE=ADDRESS, as in n0=10.0.0.1");
        let (namespace, address) = text.split_once('=').ok_or_else(wanted)?;
        let address = address.parse().map_err(|_| wanted())?;
        if namespace.is_empty() {
            return Err(wanted());
        }
        Ok(Self { namespace: namespace.into(), address })
    }
}

impl Transport {
    /// Where node `node` listens; `directory` is the run's own.
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

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Node processes, 1 to [`Options::MAX_NODES`].
    pub nodes: u16,
    /// How they are connected.
    pub transport: Transport,
    /// Where they run, one after the other, and again from the first; none: here.
    pub places: Vec<Place>,
    /// The points.
    pub source: Source,
    /// After so long the run has failed, whatever it is doing.
    pub deadline: Duration,
    /// The program that becomes a node, and its arguments; it calls [`crate::node_main`].
    pub node_program: (PathBuf, Vec<OsString>),
}

impl Options {
    /// As many as share a machine sensibly; each has a handful of threads.
    pub const MAX_NODES: u16 = 16;

    /// Where node `node` runs, if not here.
    pub(super) fn place(&self, node: u16) -> Option<&Place> {
        self.places.get(usize::from(node.checked_sub(1)?).checked_rem(self.places.len())?)
    }
}
