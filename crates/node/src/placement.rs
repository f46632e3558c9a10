//! Where on its machine a node is: its serving thread and spares, memory for its RDMA devices, and their interrupts. Decided at
//! start by `pronto_topology`, from what the machine tells; here it is done, and told.

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

use crate::calibrate;
use crate::error::NodeError;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Where the serving thread and its spares run.
    pub(crate) serving: Wish,
    /// The device that they are to be near; none: those that have the node's addresses.
    pub(crate) device: Option<String>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Placement {
    machine: Result<Machine, TopologyError>,
    seat: Seat,
    /// Tells nodes of one machine apart.
    spread: u32,
    told: Mutex<Told>,
}

/// The machine, and what of it this process may use.
#[derive(Debug)]
struct Machine {
    root: PathBuf,
    topology: Topology,
    allowed: Cpus,
}

/// What is known only later.
#[derive(Debug, Default)]
struct Told {
    /// The kernel did not put a thread where it belongs.
    refused: Option<Errno>,
    /// What was decided for RDMA devices, by name.
    devices: BTreeMap<String, String>,
}

/// What was decided for an RDMA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DevicePlace {
    pub(crate) memory: Memory,
    pub(crate) vector: Vector,
}

impl Placement {
    /// Decides, on the machine whose files lie below `root`. `interfaces` are those that have the node's addresses.
    ///
    /// # Errors
    /// What was asked for by name is not there, or not for this process.
    pub(crate) fn decide(
        root: &Path,
        asked: &Asked,
        interfaces: &[String],
        spread: u32,
    ) -> Result<Self, NodeError> {
        let machine = Topology::read(root).map(|topology| {
            // More processors than the C library has bits for: then all that run.
            let allowed = allowed().unwrap_or_else(|_| topology.online.clone());
            Machine { root: root.into(), topology, allowed }
        });
        if let Err(error) = &machine {
            tracing::warn!(%error, "this machine's topology is not known");
        }
        let seat = match &machine {
            Ok(machine) => machine.seat(asked, interfaces)?,
            Err(_) => Seat::Anywhere(Anywhere::NoDevice),
        };
        Ok(Self { machine, seat, spread, told: Mutex::default() })
    }

    /// The calling thread serves peers from now on.
    pub(crate) fn adopt(&self) {
        if let Some(cpus) = self.seat.cpus() {
            // What a wake-up costs is measured across all processors, and not within those few.
            let _measured = calibrate::wake_up_cost();
            self.put(cpus);
        }
    }

    /// The calling thread was started by one that serves peers, and serves none.
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
            self.told().refused = Some(errno);
        }
    }

    /// Decides for an RDMA device that has so many completion vectors.
    #[cfg_attr(
        not(any(test, feature = "verbs")),
        expect(dead_code, reason = "there are no such devices without it")
    )]
    pub(crate) fn of_device(&self, name: &str, vectors: u32) -> Option<DevicePlace> {
        let Machine { root, allowed, .. } = self.machine.as_ref().ok()?;
        // Anew: devices come and go while the node runs.
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

    /// A device is used so from now on; `refused` is why its memory comes from anywhere.
    #[cfg_attr(
        not(any(test, feature = "verbs")),
        expect(dead_code, reason = "there are no such devices without it")
    )]
    pub(crate) fn note_device(&self, name: &str, place: DevicePlace, refused: Option<Errno>) {
        let DevicePlace { memory, vector } = place;
        if memory == Memory::OneNode && vector.reason == VectorReason::NothingToChoose {
            return;
        }
        let refused = refused.map_or_else(String::new, |errno| format!(" (refused: {errno})"));
        self.told().devices.insert(name.into(), format!("{name}: {memory}{refused}, {vector}"));
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        // What is told is whole whatever happened to its last user.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Where the serving thread is, and why; what was decided for devices.
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
        let told = self.told();
        if let Some(errno) = told.refused {
            write!(f, "; refused: {errno}")?;
        }
        told.devices.values().try_for_each(|device| write!(f, "; {device}"))
    }
}

#[cfg(test)]
mod tests {
    use pronto_topology::Cpu;

    use super::*;

    /// A machine of two nodes, whose second is near eth1 and mlx5_0. The processors of the first are those that this test has.
    struct Recorded(PathBuf);

    impl Recorded {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("pronto-placement-{name}-{}", std::process::id()));
            let here = allowed().expect("it tells").to_string();
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
                std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
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

    #[test]
    fn nodes_that_ask_for_nothing_are_anywhere() {
        let machine = Recorded::new("nothing");
        let placed = machine.decide(Wish::Off, None, "eth1").expect("nothing can be wrong");
        assert_eq!(placed.to_string(), "anywhere: as configured");
        let before = allowed();
        placed.adopt();
        assert_eq!(allowed(), before);
    }

    #[test]
    fn devices_are_used_where_they_are() {
        let machine = Recorded::new("devices");
        let placed = machine.decide(Wish::Off, None, "lo").expect("nothing can be wrong");
        let place = placed.of_device("mlx5_0", 8).expect("the machine is known");
        assert_eq!(place.memory.node().map(|node| node.0), Some(1));
        // The processors near it are not this process': its own come after them, in turn.
        let first = allowed().expect("it tells").iter().next().expect("one");
        assert_eq!(place.vector, Vector { number: 4, reason: VectorReason::Turn(first) });
        placed.note_device("mlx5_0", place, Some(Errno::EPERM));
        let text = placed.to_string();
        assert!(text.contains("; mlx5_0: memory of node 1 (refused: EPERM"), "{text}");
        assert!(text.contains("), completion vector 4, assigned in order to CPU"), "{text}");
    }

    #[test]
    fn what_is_named_and_not_there_is_an_error() {
        let machine = Recorded::new("named");
        let error =
            |wish, device| machine.decide(wish, device, "eth0").expect_err("it is not there").to_string();
        let far: Cpus = [Cpu(4001)].into_iter().collect();
        assert!(error(Wish::On(far), None).starts_with("placement.serving = \"4001\": this process may not"));
        assert!(error(Wish::Auto, Some("eth7")).contains("device = \"eth7\""));
        let near = machine.decide(Wish::Auto, Some("eth1"), "eth0").expect("it is there").to_string();
        assert!(near.contains("may use none of the CPUs 4000-4003 near eth1"), "{near}");
        let there = machine.decide(Wish::Auto, None, "eth0").expect("it is there").to_string();
        assert_eq!(there, "anywhere: all CPUs of this process are near eth0");
    }

    #[test]
    fn a_thread_is_put_where_it_was_asked_for_and_others_are_not() {
        let machine = Recorded::new("put");
        let all = allowed().expect("it tells");
        let one: Cpus = all.iter().take(1).collect();
        let placed = machine.decide(Wish::On(one.clone()), None, "eth0").expect("it is there");
        let put = std::thread::spawn(move || {
            placed.adopt();
            let adopted = allowed().expect("it tells");
            placed.release();
            (adopted, allowed().expect("it tells"), placed.to_string())
        });
        let (adopted, released, text) = put.join().expect("no panic");
        assert_eq!((adopted, released), (one.clone(), all));
        assert_eq!(text, format!("on CPUs {one}, as configured"));
    }

    #[test]
    fn a_machine_that_is_not_understood_decides_nothing() {
        let machine = Recorded::new("garbled");
        std::fs::write(machine.0.join("sys/devices/system/node/online"), "both\n").expect("a file");
        let placed = machine.decide(Wish::Auto, None, "eth1").expect("it starts all the same");
        assert!(placed.to_string().contains("\"both\" is neither a number nor a range"), "{placed}");
        assert_eq!(placed.of_device("mlx5_0", 8), None);
    }
}
