//! Devices that carry messages, and the NUMA node and CPUs next to each.

use core::fmt;

use crate::cpus::{Cpus, MAX_CPU, NumaNode};
use crate::error::{TopologyError, beginning};
use crate::files::Files;

/// Class of a device, by its folder below `/sys/class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceClass {
    /// A network interface.
    Net,
    /// An RDMA device.
    Infiniband,
}

/// A device that carries messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Class of the device.
    pub class: DeviceClass,
    /// The kernel's name for it: `eth0`, `mlx5_0`.
    pub name: String,
    /// NUMA node that the device is attached to. `None` if the machine does not report it, as for devices without
    /// hardware.
    pub node: Option<NumaNode>,
    /// CPUs near the device; empty if the machine does not report them.
    pub cpus: Cpus,
    /// Whether the device has hardware behind it.
    pub is_hardware: bool,
}

impl DeviceClass {
    const ALL: [Self; 2] = [Self::Net, Self::Infiniband];

    /// Returns the name of the class's folder.
    #[must_use]
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Infiniband => "infiniband",
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        match self.node {
            Some(node) => write!(f, " ({node})"),
            None => Ok(()),
        }
    }
}

/// Reads all devices (Documentation/ABI/testing/sysfs-bus-pci: `numa_node`, `local_cpulist`). A soft-RoCE device has no
/// hardware. Its file `parent` names the network interface below it, whose node and CPUs it gets.
pub(crate) fn read(files: &Files) -> Result<Vec<Device>, TopologyError> {
    let mut devices: Vec<Device> = Vec::new();
    for class in DeviceClass::ALL {
        let folder = class.folder();
        for name in files.names(&format!("sys/class/{folder}"))? {
            let path = format!("sys/class/{folder}/{name}");
            let is_hardware = files.has(&format!("{path}/device"));
            let device = if is_hardware {
                let on_bus = on_bus(files, &path);
                let node = node(files, &format!("{on_bus}/numa_node"))?;
                let cpus = files.cpus(&format!("{on_bus}/local_cpulist"))?.unwrap_or_default();
                Device { class, name, node, cpus, is_hardware }
            } else {
                let parent = files.text(&format!("{path}/parent"))?;
                let parent = parent.as_deref().map(str::trim);
                let below = devices.iter().find(|device| Some(device.name.as_str()) == parent);
                let near = below.map(|below| (below.node, below.cpus.clone())).unwrap_or_default();
                Device { class, name, node: near.0, cpus: near.1, is_hardware }
            };
            devices.push(device);
        }
    }
    Ok(devices)
}

/// Returns the device's folder on the PCI bus: its own, or the parent folder for a virtio device.
pub(crate) fn on_bus(files: &Files, path: &str) -> String {
    let (own, above) = (format!("{path}/device"), format!("{path}/device/.."));
    if !files.has(&format!("{own}/numa_node")) && files.has(&format!("{above}/numa_node")) {
        above
    } else {
        own
    }
}

/// Reads a device's node; the kernel reports -1 for "none".
fn node(files: &Files, path: &str) -> Result<Option<NumaNode>, TopologyError> {
    match files.number(path)? {
        None | Some(-1) => Ok(None),
        Some(number) => match u32::try_from(number) {
            Ok(number) if number <= MAX_CPU => Ok(Some(NumaNode(number))),
            _ => Err(TopologyError::Number { path: files.path(path), text: beginning(&number.to_string()) }),
        },
    }
}
