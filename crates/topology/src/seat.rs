//! CPUs for the threads that serve peers: the serving thread and the spare threads that take over from it. Tasklets run
//! on whichever of these threads is on duty.

use core::fmt;

use thiserror::Error;

use crate::cpus::{Cpus, NumaNode};
use crate::device::Device;
use crate::topology::Topology;

/// Placement that the operator configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// No placement: the scheduler decides.
    #[default]
    Off,
    /// Near the devices that carry the node's messages, if that makes a difference.
    Auto,
    /// On these CPUs, wherever the devices are.
    On(Cpus),
}

/// The thread placement that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seat {
    /// Left to the scheduler, for this reason.
    Anywhere(Anywhere),
    /// On CPUs near a device.
    Near {
        /// CPUs near the device that the process may use.
        cpus: Cpus,
        /// NUMA node of the CPUs.
        node: NumaNode,
        /// The device's name.
        device: String,
    },
    /// On CPUs that the operator named.
    Named(Cpus),
}

/// The reason why placement is left to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anywhere {
    /// Placement is not configured.
    NotAsked,
    /// Only one node has CPUs, so all of them are equally near.
    OneNode,
    /// No device with a known node carries the node's messages.
    NoDevice,
    /// Devices on several NUMA nodes carry the messages.
    ManyNodes(Vec<NumaNode>),
    /// The process may use none of the CPUs near the device.
    NotAllowed {
        /// The device's name.
        device: String,
        /// CPUs near the device.
        near: Cpus,
    },
    /// All CPUs that the process may use are near the device already.
    There {
        /// The device's name.
        device: String,
    },
}

/// A configured placement that is impossible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotSeated {
    /// The configured list is empty.
    #[error("\"\": the list of CPUs is empty: name some of {allowed}")]
    NoneNamed {
        /// CPUs that the process may use.
        allowed: Cpus,
    },
    /// The process may not use some of the configured CPUs.
    #[error("\"{wanted}\": this process may not use CPUs {}: name some of {allowed}", wanted.without(allowed))]
    NotAllowed {
        /// CPUs that the operator named.
        wanted: Cpus,
        /// CPUs that the process may use.
        allowed: Cpus,
    },
}

impl Seat {
    /// Returns the CPUs, unless placement is left to the scheduler.
    #[must_use]
    pub const fn cpus(&self) -> Option<&Cpus> {
        match self {
            Self::Anywhere(_) => None,
            Self::Near { cpus, .. } | Self::Named(cpus) => Some(cpus),
        }
    }
}

/// Chooses the CPUs of the threads that serve peers. `allowed` holds the CPUs that the process may use, `devices` those
/// that carry the node's messages.
///
/// # Errors
/// Fails if the operator named no CPU, or one that the process may not use.
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
    // A device on a node with memory alone is served best by the nearest CPUs, which belong to another node.
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
    // The scheduler never moves a thread off an isolated CPU, so only the operator may place one there.
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
            Self::Near { cpus, node, device } => write!(f, "on CPUs {cpus}: {node}, near {device}"),
            Self::Named(cpus) => write!(f, "on CPUs {cpus}, as configured"),
        }
    }
}

impl fmt::Display for Anywhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("as configured"),
            Self::OneNode => f.write_str("this machine has one NUMA node, so there is nothing to choose"),
            Self::NoDevice => f.write_str("no device with a known NUMA node carries messages"),
            Self::ManyNodes(nodes) => {
                f.write_str("devices carry messages on ")?;
                for (at, node) in nodes.iter().enumerate() {
                    write!(f, "{}{node}", if at == 0 { "" } else { " and " })?;
                }
                Ok(())
            }
            Self::NotAllowed { device, near } => {
                write!(f, "this process may use none of the CPUs {near} near {device}")
            }
            Self::There { device } => write!(f, "all CPUs of this process are near {device}"),
        }
    }
}
