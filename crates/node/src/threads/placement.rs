//! Placement of a node on its machine: the CPUs of its serving and spare threads, the memory of its RDMA devices, and their
//! interrupts. `pronto_topology` makes the decisions from the machine's topology. This module applies and reports them.

use core::fmt;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use pronto_topology::{
    Anywhere, Cpus, Device, DeviceClass, Memory, Seat, Topology, TopologyError, Vector, VectorReason, Wish,
    allowed, memory_for, seat, vector_for,
};

use crate::error::NodeError;
use crate::measure::calibrate;

/// Requested placement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// CPUs of the serving thread and its spare threads.
    pub(crate) serving: Wish,
    /// Device that these threads should be near; `None` for the devices that have the node's addresses.
    pub(crate) device: Option<String>,
}

/// Placement of a node: the decision, and what became of it.
#[derive(Debug)]
pub(crate) struct Placement {
    machine: Result<Machine, TopologyError>,
    seat: Seat,
    /// Number that differs between the nodes of one machine, to distribute them over completion vectors.
    spread: u32,
    outcome: Mutex<Outcome>,
}

/// The machine, and the CPUs that this process may use.
#[derive(Debug)]
struct Machine {
    root: PathBuf,
    topology: Topology,
    allowed: Cpus,
}

/// Results that are known only after the start.
#[derive(Debug, Default)]
struct Outcome {
    /// Error of the last failed attempt to set a thread's affinity.
    refused: Option<Errno>,
    /// Decisions for RDMA devices, by name.
    devices: BTreeMap<String, String>,
}

/// Decision for an RDMA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DevicePlace {
    pub(crate) memory: Memory,
    pub(crate) vector: Vector,
}

impl Placement {
    /// Decides the placement, on the machine whose files are below `root`. `interfaces` are those that have the node's addresses.
    ///
    /// # Errors
    /// Fails if a requested device does not exist, or if this process may not use a requested CPU.
    pub(crate) fn decide(
        root: &Path,
        asked: &Asked,
        interfaces: &[String],
        spread: u32,
    ) -> Result<Self, NodeError> {
        let machine = Topology::read(root).map(|topology| {
            // This fails if the machine has more CPUs than the C library's mask has bits. Then use all online CPUs.
            let allowed = allowed().unwrap_or_else(|_| topology.online.clone());
            Machine { root: root.into(), topology, allowed }
        });
        if let Err(error) = &machine {
            tracing::warn!(%error, "cannot read this machine's topology");
        }
        let seat = match &machine {
            Ok(machine) => machine.seat(asked, interfaces)?,
            Err(_) => Seat::Anywhere(Anywhere::NoDevice),
        };
        Ok(Self { machine, seat, spread, outcome: Mutex::default() })
    }

    /// Binds the calling thread, which serves peers from now on, to the decided CPUs.
    pub(crate) fn adopt(&self) {
        if let Some(cpus) = self.seat.cpus() {
            // The cost of a wake-up must be measured before, across all CPUs of the process.
            let _measured = calibrate::wake_up_cost();
            self.put(cpus);
        }
    }

    /// Binds the calling thread to all CPUs of the process: it inherited the affinity of a serving thread, and serves no peers.
    pub(crate) fn release(&self) {
        if let (Some(_), Ok(machine)) = (self.seat.cpus(), &self.machine) {
            self.put(&machine.allowed);
        }
    }

    fn put(&self, cpus: &Cpus) {
        let mut mask = CpuSet::new();
        let set = cpus.iter().try_for_each(|cpu| mask.set(usize::try_from(cpu.0).unwrap_or(usize::MAX)));
        if let Err(errno) = set.and_then(|()| sched_setaffinity(Pid::from_raw(0), &mask)) {
            tracing::warn!(%cpus, %errno, "a thread is not where it should be");
            self.outcome().refused = Some(errno);
        }
    }

    /// Decides the placement of an RDMA device that has `vectors` completion vectors.
    #[cfg_attr(not(any(test, feature = "verbs")), expect(dead_code, reason = "used only with the feature"))]
    pub(crate) fn of_device(&self, name: &str, vectors: u32) -> Option<DevicePlace> {
        let Machine { root, allowed, .. } = self.machine.as_ref().ok()?;
        // Read again, because devices come and go while the node runs.
        let topology = &Topology::read(root).ok()?;
        let device = topology.device(DeviceClass::Infiniband, name);
        let interrupts = device.map(|device| topology.interrupts(device));
        let interrupts = interrupts.and_then(Result::ok).unwrap_or_default();
        let seated = (self.seat.cpus(), allowed);
        Some(DevicePlace {
            memory: memory_for(topology, device),
            vector: vector_for(topology, device, &interrupts, vectors, seated, self.spread),
        })
    }

    /// Records the placement of a device in use. `refused` is the kernel's reason for not placing its memory.
    #[cfg_attr(not(any(test, feature = "verbs")), expect(dead_code, reason = "used only with the feature"))]
    pub(crate) fn note_device(&self, name: &str, place: DevicePlace, refused: Option<Errno>) {
        let DevicePlace { memory, vector } = place;
        if memory == Memory::OneNode && vector.reason == VectorReason::NothingToChoose {
            return;
        }
        let refused = refused.map_or_else(String::new, |errno| format!(" (refused: {errno})"));
        self.outcome().devices.insert(name.into(), format!("{name}: {memory}{refused}, {vector}"));
    }

    fn outcome(&self) -> std::sync::MutexGuard<'_, Outcome> {
        // The results are consistent even if a lock holder panicked.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    fn seat(&self, asked: &Asked, interfaces: &[String]) -> Result<Seat, NodeError> {
        let devices = match &asked.device {
            Some(name) => vec![self.device(name).ok_or_else(|| NodeError::NoDevice { name: name.clone() })?],
            None => interfaces.iter().filter_map(|name| self.device(name)).collect(),
        };
        seat(&self.topology, &self.allowed, &asked.serving, &devices).map_err(NodeError::NotSeated)
    }

    fn device(&self, name: &str) -> Option<&Device> {
        [DeviceClass::Net, DeviceClass::Infiniband]
            .into_iter()
            .find_map(|class| self.topology.device(class, name))
    }
}

impl fmt::Display for Placement {
    /// Writes where the serving thread runs and why, and the decisions for devices.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.machine {
            Err(error) => write!(f, "anywhere: {error}")?,
            Ok(machine) => {
                write!(f, "{}", self.seat)?;
                if machine.topology.nodes.len() < 2 && self.seat != Seat::Anywhere(Anywhere::OneNode) {
                    f.write_str("; this machine has one NUMA node")?;
                }
            }
        }
        let outcome = self.outcome();
        if let Some(errno) = outcome.refused {
            write!(f, "; could not set the affinity of a thread: {errno}")?;
        }
        outcome.devices.values().try_for_each(|device| write!(f, "; {device}"))
    }
}

#[cfg(test)]
mod tests {
    use pronto_topology::Cpu;

    use super::*;

    /// A machine of two NUMA nodes. The CPUs of the first are those that this test may use; eth1 and mlx5_0 are near the second.
    struct Recorded(PathBuf);

    impl Recorded {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("pronto-placement-{name}-{}", std::process::id()));
            let here = allowed().expect("the kernel reports it").to_string();
            for (path, text) in [
                ("sys/devices/system/cpu/online", &*format!("{here},4000-4003")),
                ("sys/devices/system/node/online", "0-1"),
                ("sys/devices/system/node/node0/cpulist", &here),
                ("sys/devices/system/node/node1/cpulist", "4000-4003"),
                ("sys/class/net/eth0/device/numa_node", "0"),
                ("sys/class/net/eth1/device/numa_node", "1"),
                ("sys/class/infiniband/mlx5_0/device/numa_node", "1"),
            ] {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().expect("the path has a parent")).expect("a folder");
                std::fs::write(path, format!("{text}\n")).expect("a file");
            }
            Self(root)
        }

        fn decide(
            &self,
            serving: Wish,
            device: Option<&str>,
            interface: &str,
        ) -> Result<Placement, NodeError> {
            let asked = Asked { serving, device: device.map(Into::into) };
            Placement::decide(&self.0, &asked, &[interface.into()], 0)
        }
    }

    impl Drop for Recorded {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Shows: operations.serving-set
    #[test]
    fn nodes_without_a_request_are_anywhere() {
        let machine = Recorded::new("nothing");
        let placed = machine.decide(Wish::Off, None, "eth1").expect("the request is valid");
        assert_eq!(placed.to_string(), "anywhere: as configured");
        let before = allowed();
        placed.adopt();
        assert_eq!(allowed(), before);
    }

    /// Shows: operations.placement-status, operations.memory-place
    #[test]
    fn devices_are_used_where_they_are() {
        let machine = Recorded::new("devices");
        let placed = machine.decide(Wish::Off, None, "lo").expect("the request is valid");
        let place = placed.of_device("mlx5_0", 8).expect("the machine is known");
        assert_eq!(place.memory.node().map(|node| node.0), Some(1));
        // This process may not use the CPUs near the device. Its own CPUs come after those, in order.
        let first = allowed().expect("the kernel reports it").iter().next().expect("a CPU");
        assert_eq!(place.vector, Vector { number: 4, reason: VectorReason::Turn(first) });
        placed.note_device("mlx5_0", place, Some(Errno::EPERM));
        let text = placed.to_string();
        assert!(text.contains("; mlx5_0: memory of node 1 (refused: EPERM"), "{text}");
        assert!(text.contains("), completion vector 4, assigned in order to CPU"), "{text}");
    }

    #[test]
    fn a_missing_device_or_cpu_is_an_error() {
        let machine = Recorded::new("named");
        let error =
            |wish, device| machine.decide(wish, device, "eth0").expect_err("it is missing").to_string();
        let far: Cpus = [Cpu(4001)].into_iter().collect();
        assert!(error(Wish::On(far), None).starts_with("placement.serving = \"4001\": this process may not"));
        assert!(error(Wish::Auto, Some("eth7")).contains("device = \"eth7\""));
        let near = machine.decide(Wish::Auto, Some("eth1"), "eth0").expect("the device exists").to_string();
        assert!(near.contains("may use none of the CPUs 4000-4003 near eth1"), "{near}");
        let there = machine.decide(Wish::Auto, None, "eth0").expect("the device exists").to_string();
        assert_eq!(there, "anywhere: all CPUs of this process are near eth0");
    }

    /// Shows: operations.serving-place
    #[test]
    fn serving_threads_are_bound_and_released_ones_are_not() {
        let machine = Recorded::new("put");
        let all = allowed().expect("the kernel reports it");
        let one: Cpus = all.iter().take(1).collect();
        let placed = machine.decide(Wish::On(one.clone()), None, "eth0").expect("the CPU exists");
        let put = std::thread::spawn(move || {
            placed.adopt();
            let adopted = allowed().expect("the kernel reports it");
            placed.release();
            (adopted, allowed().expect("the kernel reports it"), placed.to_string())
        });
        let (adopted, released, text) = put.join().expect("no panic");
        assert_eq!((adopted, released), (one.clone(), all));
        assert_eq!(text, format!("on CPUs {one}, as configured"));
    }

    #[test]
    fn an_unreadable_topology_decides_nothing() {
        let machine = Recorded::new("garbled");
        std::fs::write(machine.0.join("sys/devices/system/node/online"), "both\n").expect("a file");
        let placed = machine.decide(Wish::Auto, None, "eth1").expect("the node still starts");
        assert!(placed.to_string().contains("\"both\" is neither a number nor a range"), "{placed}");
        assert_eq!(placed.of_device("mlx5_0", 8), None);
    }
}
