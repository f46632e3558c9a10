//! Interrupts of a device, and the CPUs that handle them.

use crate::cpus::Cpus;
use crate::device::{Device, on_bus};
use crate::error::TopologyError;
use crate::files::Files;

/// An interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The kernel's number for it.
    pub number: u32,
    /// CPUs that handle it.
    pub cpus: Cpus,
    /// Completion vector that it serves, if its name shows it: Mellanox drivers use `mlx5_comp3@pci:...` or
    /// `mlx4-comp-3@pci:...`.
    pub vector: Option<u32>,
}

/// Reads a device's interrupts (Documentation/ABI/testing/sysfs-bus-pci: `msi_irqs`;
/// Documentation/core-api/irq/irq-affinity.rst). Returns none for a device without hardware, or if the machine does not
/// list them.
pub(crate) fn read(files: &Files, device: &Device) -> Result<Vec<Interrupt>, TopologyError> {
    let path = format!("sys/class/{}/{}", device.class.folder(), device.name);
    let folder = format!("{}/msi_irqs", on_bus(files, &path));
    let mut found = Vec::new();
    for name in files.names(&folder)? {
        let Ok(number) = name.parse::<u32>() else { continue };
        let folder = format!("proc/irq/{number}");
        // The effective affinity: drivers have it managed, so it may be narrower than the permitted CPUs.
        let cpus = match files.cpus(&format!("{folder}/effective_affinity_list"))? {
            Some(cpus) => Some(cpus),
            None => files.cpus(&format!("{folder}/smp_affinity_list"))?,
        };
        let Some(cpus) = cpus else { continue };
        // The driver's request creates a folder with the interrupt's name here.
        let vector = files.names(&folder)?.iter().find_map(|name| vector(name));
        found.push(Interrupt { number, cpus, vector });
    }
    found.sort_unstable_by_key(|interrupt| interrupt.number);
    Ok(found)
}

/// Parses the number after `comp`, with or without a dash.
fn vector(name: &str) -> Option<u32> {
    let (_, after) = name.split_once("comp")?;
    let after = after.strip_prefix('-').unwrap_or(after);
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_read_from_names() {
        assert_eq!(vector("mlx5_comp12@pci:0000:81:00.0"), Some(12));
        assert_eq!(vector("mlx4-comp-3@pci:0000:03:00.0"), Some(3));
        assert_eq!(vector("mlx5_async0@pci:0000:81:00.0"), None);
        assert_eq!(vector("completion"), None);
        assert_eq!(vector("comp99999999999"), None);
    }
}
