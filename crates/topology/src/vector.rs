//! The completion vector of an RDMA device for a waiting thread: one whose interrupt goes to a CPU near the thread.

use core::fmt;

use crate::cpus::{Cpu, Cpus};
use crate::device::Device;
use crate::interrupts::Interrupt;
use crate::topology::Topology;

/// The completion vector that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector {
    /// Number of the vector, less than the device's number of vectors.
    pub number: u32,
    /// Reason for the choice.
    pub reason: VectorReason,
}

/// The reason why a vector was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorReason {
    /// The device has only one.
    Only,
    /// The machine has one node and the threads are not placed, so no vector is nearer.
    NothingToChoose,
    /// The vector's interrupt goes to this CPU, on which the threads may run.
    Interrupt(Cpu),
    /// The machine does not report where the vector's interrupt goes. Drivers assign vectors to CPUs in order, those
    /// near the device first, which gives this vector to this CPU (cpumask_local_spread in `lib/cpumask.c`).
    Turn(Cpu),
    /// No vector belongs to a CPU that the threads may run on.
    NoneNear,
}

/// Chooses one of `vectors` vectors. `seated` holds the CPUs on which the waiting threads were placed, if any;
/// `allowed` holds those that the process may use. `spread`, any number that differs between processes, selects among
/// equally good vectors, so that the processes do not all use the same one.
#[must_use]
pub fn vector_for(
    topology: &Topology,
    device: Option<&Device>,
    interrupts: &[Interrupt],
    vectors: u32,
    (seated, allowed): (Option<&Cpus>, &Cpus),
    spread: u32,
) -> Vector {
    if vectors < 2 {
        return Vector { number: 0, reason: VectorReason::Only };
    }
    let local = device.map_or_else(Cpus::default, |device| near(topology, device));
    let wanted = match seated {
        Some(seated) => seated.clone(),
        None if topology.nodes.len() < 2 => {
            return Vector { number: 0, reason: VectorReason::NothingToChoose };
        }
        // If the scheduler places the threads, an interrupt near the device is the cheapest.
        None => Some(local.and(allowed)).filter(|near| !near.is_empty()).unwrap_or_else(|| allowed.clone()),
    };
    let told: Vec<_> =
        interrupts.iter().filter(|interrupt| interrupt.vector.is_some_and(|at| at < vectors)).collect();
    let candidates: Vec<Vector> = if told.is_empty() {
        let rest = topology.online.without(&local);
        let turns = local.iter().chain(rest.iter()).zip(0..vectors);
        let fits = turns.filter(|(cpu, _)| wanted.contains(*cpu));
        fits.map(|(cpu, number)| Vector { number, reason: VectorReason::Turn(cpu) }).collect()
    } else {
        let fits = told.iter().filter_map(|interrupt| {
            let cpu = interrupt.cpus.and(&wanted).iter().next()?;
            Some(Vector { number: interrupt.vector?, reason: VectorReason::Interrupt(cpu) })
        });
        fits.collect()
    };
    let at = spread.checked_rem(u32::try_from(candidates.len()).unwrap_or(u32::MAX)).unwrap_or(0);
    let chosen = usize::try_from(at).ok().and_then(|at| candidates.get(at)).copied();
    chosen.unwrap_or(Vector { number: 0, reason: VectorReason::NoneNear })
}

/// Returns the online CPUs near a device.
fn near(topology: &Topology, device: &Device) -> Cpus {
    let of_node = || device.node.and_then(|node| topology.node(node)).map(|node| node.cpus.clone());
    let near = if device.cpus.is_empty() { of_node().unwrap_or_default() } else { device.cpus.clone() };
    near.and(&topology.online)
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "completion vector {}", self.number)?;
        match self.reason {
            VectorReason::Only => f.write_str(", the only one"),
            VectorReason::NothingToChoose => f.write_str(", as no vector is nearer"),
            VectorReason::Interrupt(cpu) => write!(f, ", whose interrupt goes to CPU {}", cpu.0),
            VectorReason::Turn(cpu) => write!(f, ", assigned in order to CPU {}", cpu.0),
            VectorReason::NoneNear => f.write_str(", as no vector is near"),
        }
    }
}
