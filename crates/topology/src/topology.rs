//! A machine: its CPUs, nodes and devices.

use std::path::Path;

use crate::cpus::{Cpu, Cpus, NumaNode};
use crate::device::{self, Device, DeviceClass};
use crate::error::TopologyError;
use crate::files::Files;
use crate::interrupts::{self, Interrupt};

/// Topology of a machine, as its kernel reports it.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Online CPUs.
    pub online: Cpus,
    /// Isolated CPUs (`isolcpus`), which the scheduler leaves alone: a thread runs there only if it was pinned, and
    /// stays on the CPU it was pinned to.
    pub isolated: Cpus,
    /// Nodes in ascending order; one if the machine reports no nodes.
    pub nodes: Vec<Node>,
    /// Devices that carry messages.
    pub devices: Vec<Device>,
    files: Files,
}

/// Online CPUs, grouped by core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(Vec<(Cpu, Cpus)>);

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number of the node.
    pub id: NumaNode,
    /// Online CPUs of the node; empty for a node with memory alone.
    pub cpus: Cpus,
    /// Whether the node has memory.
    pub has_memory: bool,
    /// Distance of each node from this one, in the order of the node list; 10 is the node itself (ACPI SLIT).
    pub distances: Vec<u32>,
}

impl Topology {
    /// Reads the machine whose files are below `root`; `/` is the running machine
    /// (Documentation/ABI/stable/sysfs-devices-node, sysfs-devices-system-cpu; testing/sysfs-devices-system-cpu,
    /// sysfs-bus-pci).
    ///
    /// # Errors
    /// Fails if a file exists but cannot be read, or if its content contradicts its documentation.
    pub fn read(root: &Path) -> Result<Self, TopologyError> {
        let files = Files::new(root);
        let online = files.cpus(&format!("{CPU}/online"))?.unwrap_or_else(|| [Cpu(0)].into_iter().collect());
        let isolated = files.cpus(&format!("{CPU}/isolated"))?.unwrap_or_default();
        let nodes = nodes(&files, &online)?;
        let devices = device::read(&files)?;
        Ok(Self { online, isolated, nodes, devices, files })
    }

    /// Reads the cores, one file per online CPU.
    ///
    /// # Errors
    /// As for [`Topology::read`].
    pub fn cores(&self) -> Result<Cores, TopologyError> {
        let core = |cpu: Cpu| {
            let folder = format!("{CPU}/cpu{}/topology", cpu.0);
            // The second name is the older one.
            let same = match self.files.cpus(&format!("{folder}/core_cpus_list"))? {
                Some(same) => Some(same),
                None => self.files.cpus(&format!("{folder}/thread_siblings_list"))?,
            };
            Ok((cpu, same.unwrap_or_else(|| [cpu].into_iter().collect()).and(&self.online)))
        };
        self.online.iter().map(core).collect::<Result<_, _>>().map(Cores)
    }

    /// Returns the node `id`.
    #[must_use]
    pub fn node(&self, id: NumaNode) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Returns the device of this class and name.
    #[must_use]
    pub fn device(&self, class: DeviceClass, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.class == class && device.name == name)
    }

    /// Reads a device's interrupts and the CPUs that handle them.
    ///
    /// # Errors
    /// As for [`Topology::read`].
    pub fn interrupts(&self, device: &Device) -> Result<Vec<Interrupt>, TopologyError> {
        interrupts::read(&self.files, device)
    }

    /// Returns the nearest node that satisfies `wanted`; `from` itself, if it does.
    pub(crate) fn nearest(&self, from: NumaNode, wanted: impl Fn(&Node) -> bool) -> Option<&Node> {
        let from = self.node(from)?;
        let far = |at: usize| from.distances.get(at).copied().unwrap_or(u32::MAX);
        let fits = self.nodes.iter().enumerate().filter(|(_, node)| wanted(node));
        // Comparing ids first covers machines that report no distances: otherwise a node's own distance is the
        // smallest.
        fits.min_by_key(|(at, node)| (node.id != from.id, far(*at))).map(|(_, node)| node)
    }
}

impl Cores {
    /// Returns the online CPUs that share a core with `cpu`, including `cpu`; empty if `cpu` is offline.
    #[must_use]
    pub fn of(&self, cpu: Cpu) -> Cpus {
        self.0.iter().find(|(of, _)| *of == cpu).map_or_else(Cpus::default, |(_, same)| same.clone())
    }

    /// Returns the number of cores with an online CPU.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().filter(|(cpu, same)| same.iter().next() == Some(*cpu)).count()
    }
}

const CPU: &str = "sys/devices/system/cpu";

fn nodes(files: &Files, online: &Cpus) -> Result<Vec<Node>, TopologyError> {
    const NODES: &str = "sys/devices/system/node";
    let Some(ids) = files.list(&format!("{NODES}/online"))? else {
        let all = Node { id: NumaNode(0), cpus: online.clone(), has_memory: true, distances: vec![10] };
        return Ok(vec![all]);
    };
    let with_memory = files.list(&format!("{NODES}/has_memory"))?;
    let node = |id: &u32| {
        let folder = format!("{NODES}/node{id}");
        Ok(Node {
            id: NumaNode(*id),
            cpus: files.cpus(&format!("{folder}/cpulist"))?.unwrap_or_default().and(online),
            has_memory: with_memory.as_ref().is_none_or(|with| with.contains(id)),
            distances: files.row(&format!("{folder}/distance"))?.unwrap_or_default(),
        })
    };
    ids.iter().map(node).collect()
}
