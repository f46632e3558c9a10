//! A machine: its processors, nodes and devices.

use std::path::Path;

use crate::cpus::{Cpu, Cpus, NumaNode};
use crate::device::{self, Device, DeviceClass};
use crate::error::TopologyError;
use crate::files::Files;
use crate::interrupts::{self, Interrupt};

/// What a machine says about itself.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Processors that run.
    pub online: Cpus,
    /// Of them, those that the scheduler leaves alone (`isolcpus`): a thread is there only if it was put there, and stays on
    /// the one it was put on.
    pub isolated: Cpus,
    /// Nodes, in the order of their numbers; one if the machine says nothing about nodes.
    pub nodes: Vec<Node>,
    /// Devices that carry messages.
    pub devices: Vec<Device>,
    files: Files,
}

/// Which processors that run share a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(Vec<(Cpu, Cpus)>);

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: NumaNode,
    /// Its processors that run; none for a node of memory alone.
    pub cpus: Cpus,
    /// Whether it has memory.
    pub has_memory: bool,
    /// How far each node is from it, in the order of the list of nodes: 10 is its own (ACPI's SLIT).
    pub distances: Vec<u32>,
}

impl Topology {
    /// Reads the machine whose files lie below `root`: `/` for the one that this runs on
    /// (Documentation/ABI/stable/sysfs-devices-node, sysfs-devices-system-cpu; testing/sysfs-devices-system-cpu, sysfs-bus-pci).
    ///
    /// # Errors
    /// A file that is there, and cannot be read or says what its documentation does not.
    pub fn read(root: &Path) -> Result<Self, TopologyError> {
        let files = Files::new(root);
        let online = files.cpus(&format!("{CPU}/online"))?.unwrap_or_else(|| [Cpu(0)].into_iter().collect());
        let isolated = files.cpus(&format!("{CPU}/isolated"))?.unwrap_or_default();
        let nodes = nodes(&files, &online)?;
        let devices = device::read(&files)?;
        Ok(Self { online, isolated, nodes, devices, files })
    }

    /// The cores, which are a file for each processor.
    ///
    /// # Errors
    /// As for [`Topology::read`].
    pub fn cores(&self) -> Result<Cores, TopologyError> {
        let core = |cpu: Cpu| {
            let folder = format!("{CPU}/cpu{}/topology", cpu.0);
            // The second is the older name of the first.
            let same = match self.files.cpus(&format!("{folder}/core_cpus_list"))? {
                Some(same) => Some(same),
                None => self.files.cpus(&format!("{folder}/thread_siblings_list"))?,
            };
            Ok((cpu, same.unwrap_or_else(|| [cpu].into_iter().collect()).and(&self.online)))
        };
        self.online.iter().map(core).collect::<Result<_, _>>().map(Cores)
    }

    /// The node of that number.
    #[must_use]
    pub fn node(&self, id: NumaNode) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The device of that name.
    #[must_use]
    pub fn device(&self, class: DeviceClass, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.class == class && device.name == name)
    }

    /// A device's interrupts, with the processors that take them.
    ///
    /// # Errors
    /// As for [`Topology::read`].
    pub fn interrupts(&self, device: &Device) -> Result<Vec<Interrupt>, TopologyError> {
        interrupts::read(&self.files, device)
    }

    /// The nearest node that is as wanted: the node itself, if it is.
    pub(crate) fn nearest(&self, from: NumaNode, wanted: impl Fn(&Node) -> bool) -> Option<&Node> {
        let from = self.node(from)?;
        let far = |at: usize| from.distances.get(at).copied().unwrap_or(u32::MAX);
        let fits = self.nodes.iter().enumerate().filter(|(_, node)| wanted(node));
        // Its own distance is the least there is, but where a machine gives none.
        fits.min_by_key(|(at, node)| (node.id != from.id, far(*at))).map(|(_, node)| node)
    }
}

impl Cores {
    /// Processors of the same core that run, this one among them; empty for one that does not run.
    #[must_use]
    pub fn of(&self, cpu: Cpu) -> Cpus {
        self.0.iter().find(|(of, _)| *of == cpu).map_or_else(Cpus::default, |(_, same)| same.clone())
    }

    /// How many have a processor that runs.
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
