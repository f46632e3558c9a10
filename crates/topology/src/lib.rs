//! NUMA topology of a machine: CPUs, memory and devices, read from sysfs. From it follow the placement of a node's
//! threads ([`seat()`]), of memory that a device accesses ([`memory_for`]), and of its interrupts ([`vector_for`]).
//!
//! Reading takes a root folder, so that recorded machines are read in the same way as the running one. A missing file
//! has a default: a kernel without NUMA has one node. A file whose content contradicts its documentation is an error.
//! Placement decisions are pure functions of the topology; nothing here changes a thread, memory or an interrupt.
#![forbid(unsafe_code)]

mod cpus;
mod device;
mod error;
mod files;
mod interrupts;
mod memory;
mod seat;
mod topology;
mod vector;

pub use cpus::{Cpu, Cpus, MAX_CPU, NumaNode, allowed};
pub use device::{Device, DeviceClass};
pub use error::{ListFault, TopologyError};
pub use interrupts::Interrupt;
pub use memory::{Memory, memory_for};
pub use seat::{Anywhere, NotSeated, Seat, Wish, seat};
pub use topology::{Cores, Node, Topology};
pub use vector::{Vector, VectorReason, vector_for};
