//! The NUMA node from which to take memory that a device accesses.

use core::fmt;

use crate::cpus::NumaNode;
use crate::device::Device;
use crate::topology::Topology;

/// The memory placement that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// First-touch placement, because only one node has memory.
    OneNode,
    /// First-touch placement, because the device's node is unknown.
    UnknownDevice,
    /// Memory of this node, as long as it has some left.
    Prefer(NumaNode),
}

impl Memory {
    /// Returns the node, if there is a choice.
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
            Self::UnknownDevice => f.write_str("memory of any node, as the device's node is unknown"),
            Self::Prefer(node) => write!(f, "memory of {node}"),
        }
    }
}

/// Returns where to take memory for a device: its own node if that has memory, otherwise the nearest node that has.
#[must_use]
pub fn memory_for(topology: &Topology, device: Option<&Device>) -> Memory {
    if topology.nodes.iter().filter(|node| node.has_memory).count() < 2 {
        return Memory::OneNode;
    }
    let near = device.and_then(|device| device.node);
    near.and_then(|near| topology.nearest(near, |node| node.has_memory))
        .map_or(Memory::UnknownDevice, |node| Memory::Prefer(node.id))
}
