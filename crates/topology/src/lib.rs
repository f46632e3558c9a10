//! What of a machine is near what: processors, memory and devices, read from sysfs; and what follows from it for the threads
//! of a node ([`seat()`]), for memory that a device reaches ([`memory_for`]), and for its interrupts ([`vector_for`]).
//!
//! Reading takes a root, so that recorded machines can be read like the one it runs on. A file that is not there says nothing:
//! a kernel without NUMA has one node. A file that says something else than its documentation is an error. What is decided is
//! decided by functions of what was read; nothing here changes a thread, memory or an interrupt.
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
