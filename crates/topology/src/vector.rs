//! Which completion vector of an RDMA device wakes who waits for it: the one whose interrupt goes to a processor near the
//! thread.

use core::fmt;

use crate::cpus::{Cpu, Cpus};
use crate::device::Device;
use crate::interrupts::Interrupt;
use crate::topology::Topology;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector {
    /// The vector, below the number that the device has.
    pub number: u32,
    /// Why this one.
    pub reason: VectorReason,
}

/// Why a vector was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorReason {
    /// The device has one.
    Only,
    /// The threads run anywhere on a machine with one node: none is better.
    NothingToChoose,
    /// Its interrupt goes to this processor, on which the threads may run.
    Interrupt(Cpu),
    /// Its interrupt is not told; drivers hand vectors out to the processors near a device first, in order, and this one is the
    /// turn of this processor (cpumask_local_spread in `lib/cpumask.c`).
    Turn(Cpu),
    /// None belongs to a processor that the threads may run on.
    NoneNear,
}

/// Chooses among `vectors`. `seated` is where the threads that wait were put, `allowed` what the process may use; `spread` (any
/// number that differs between processes) decides among vectors that are as good, so that they do not all meet on one.
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
        // Where the scheduler decides, an interrupt near the device is the cheapest that there is.
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

/// Processors near a device that run.
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
            VectorReason::NothingToChoose => f.write_str(", as none is nearer"),
            VectorReason::Interrupt(cpu) => write!(f, ", whose interrupt goes to processor {}", cpu.0),
            VectorReason::Turn(cpu) => write!(f, ", by its turn that of processor {}", cpu.0),
            VectorReason::NoneNear => f.write_str(", as none is near"),
        }
    }
}
