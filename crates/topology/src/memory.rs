//! Which node memory should come from that a device reads and writes.

use core::fmt;

use crate::cpus::NumaNode;
use crate::device::Device;
use crate::topology::Topology;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// From wherever it is touched first: there is one node with memory.
    OneNode,
    /// The same: nothing says where the device is.
    UnknownDevice,
    /// From this node, where it has some left.
    Prefer(NumaNode),
}

impl Memory {
    /// The node, if there is a choice.
    #[must_use]
    pub const fn node(self) -> Option<NumaNode> {
        match self {
            Self::Prefer(node) => Some(node),
            Self::OneNode | Self::UnknownDevice => None,
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneNode => f.write_str("one NUMA node has memory"),
            Self::UnknownDevice => f.write_str("memory of any node, as the device has none"),
            Self::Prefer(node) => write!(f, "memory of {node}"),
        }
    }
}

/// Where memory for a device comes from: its own node, or the nearest one to it that has memory.
#[must_use]
pub fn memory_for(topology: &Topology, device: Option<&Device>) -> Memory {
    if topology.nodes.iter().filter(|node| node.has_memory).count() < 2 {
        return Memory::OneNode;
    }
    let near = device.and_then(|device| device.node);
    near.and_then(|near| topology.nearest(near, |node| node.has_memory))
        .map_or(Memory::UnknownDevice, |node| Memory::Prefer(node.id))
}
