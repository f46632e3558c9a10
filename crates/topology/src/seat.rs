//! Which processors the threads that serve peers should run on: the serving thread, the spares that take over from it, and
//! with them the tasklets, which whoever is on duty runs.

use core::fmt;

use thiserror::Error;

use crate::cpus::{Cpus, NumaNode};
use crate::device::Device;
use crate::topology::Topology;

/// What the operator asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// Nothing: the scheduler decides.
    #[default]
    Off,
    /// Near the devices that carry the node's messages, if that makes a difference.
    Auto,
    /// On these, wherever the devices are.
    On(Cpus),
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seat {
    /// Where the scheduler likes, for this reason.
    Anywhere(Anywhere),
    /// On processors near a device.
    Near {
        /// Which, of those that the process may use.
        cpus: Cpus,
        /// The node they belong to.
        node: NumaNode,
        /// The device's name.
        device: String,
    },
    /// On processors that the operator named.
    Named(Cpus),
}

/// Why the scheduler decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anywhere {
    /// Nobody asked for anything else.
    NotAsked,
    /// There is one node with processors: all are as near.
    OneNode,
    /// No device carries the node's messages whose place is known.
    NoDevice,
    /// Devices on several nodes carry them.
    ManyNodes(Vec<NumaNode>),
    /// The process may use none of the processors near the device.
    NotAllowed {
        /// The device's name.
        device: String,
        /// Processors near it.
        near: Cpus,
    },
    /// The process is there already, as all processors that it may use are near the device.
    There {
        /// The device's name.
        device: String,
    },
}

/// What the operator asked for cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotSeated {
    /// No processor is named.
    #[error("\"\": no processor is named: name some of {allowed}")]
    NoneNamed {
        /// Those that may be used.
        allowed: Cpus,
    },
    /// Not all of the processors named may be used.
    #[error("\"{wanted}\": this process may not use processors {}: name some of {allowed}", wanted.without(allowed))]
    NotAllowed {
        /// Those named.
        wanted: Cpus,
        /// Those it may use.
        allowed: Cpus,
    },
}

impl Seat {
    /// The processors, if the scheduler is not to decide.
    #[must_use]
    pub const fn cpus(&self) -> Option<&Cpus> {
        match self {
            Self::Anywhere(_) => None,
            Self::Near { cpus, .. } | Self::Named(cpus) => Some(cpus),
        }
    }
}

/// Decides where the threads that serve peers run. `allowed` is what the process may use, `devices` are those that carry the
/// node's messages.
///
/// # Errors
/// If the operator named processors that may not be used, or none.
pub fn seat(
    topology: &Topology,
    allowed: &Cpus,
    wish: &Wish,
    devices: &[&Device],
) -> Result<Seat, NotSeated> {
    match wish {
        Wish::Off => Ok(Seat::Anywhere(Anywhere::NotAsked)),
        Wish::On(wanted) => {
            if wanted.is_empty() {
                return Err(NotSeated::NoneNamed { allowed: allowed.clone() });
            }
            if !wanted.is_within(allowed) {
                return Err(NotSeated::NotAllowed { wanted: wanted.clone(), allowed: allowed.clone() });
            }
            Ok(Seat::Named(wanted.clone()))
        }
        Wish::Auto => Ok(near(topology, allowed, devices)),
    }
}

fn near(topology: &Topology, allowed: &Cpus, devices: &[&Device]) -> Seat {
    if topology.nodes.iter().filter(|node| !node.cpus.is_empty()).count() < 2 {
        return Seat::Anywhere(Anywhere::OneNode);
    }
    // A device on memory alone is served best from the nearest processors, which are another node's.
    let of = |device: &&Device| topology.nearest(device.node?, |node| !node.cpus.is_empty());
    let mut nodes: Vec<_> = devices.iter().filter_map(of).map(|node| node.id).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let ([id], Some(device)) = (&*nodes, devices.iter().find(|device| of(device).is_some())) else {
        return Seat::Anywhere(if nodes.is_empty() {
            Anywhere::NoDevice
        } else {
            Anywhere::ManyNodes(nodes)
        });
    };
    let name = device.name.clone();
    let node = topology.node(*id).map_or_else(Cpus::default, |node| node.cpus.clone());
    // A thread on an isolated processor is never moved: only its operator puts it there.
    let cpus = node.and(allowed).without(&topology.isolated);
    if cpus.is_empty() {
        return Seat::Anywhere(Anywhere::NotAllowed { device: name, near: node });
    }
    if allowed.is_within(&cpus) {
        return Seat::Anywhere(Anywhere::There { device: name });
    }
    Seat::Near { cpus, node: *id, device: name }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anywhere(why) => write!(f, "anywhere: {why}"),
            Self::Near { cpus, node, device } => write!(f, "on processors {cpus}: {node}, near {device}"),
            Self::Named(cpus) => write!(f, "on processors {cpus}, as configured"),
        }
    }
}

impl fmt::Display for Anywhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("as configured"),
            Self::OneNode => f.write_str("this machine has one NUMA node, and nothing to choose"),
            Self::NoDevice => f.write_str("no device of known place carries messages"),
            Self::ManyNodes(nodes) => {
                f.write_str("devices carry messages on ")?;
                for (at, node) in nodes.iter().enumerate() {
                    write!(f, "{}{node}", if at == 0 { "" } else { " and " })?;
                }
                Ok(())
            }
            Self::NotAllowed { device, near } => {
                write!(f, "this process may use none of the processors {near} near {device}")
            }
            Self::There { device } => write!(f, "all processors of this process are near {device}"),
        }
    }
}
