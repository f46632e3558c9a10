//! Messages about nodes, tasks and mapped ranges.

use core::fmt;

use pronto::{Message, Payload};

use super::Stamp;
use crate::page::Address;

/// Number of a process. A process has one address space and one origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Payload)]
pub struct ProcessId(pub u32);

/// Number of a task, wherever the task runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Payload)]
pub struct TaskId(pub u32);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A path of at most 512 bytes, padded with zeroes: of a program or of a mapped object.
#[derive(Clone, Copy, PartialEq, Eq, Payload)]
pub struct Path(pub [u8; 512]);

impl Path {
    /// Creates a path from `text`, cut to 512 bytes if it is longer.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; 512];
        for (to, from) in bytes.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        Self(bytes)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).fmt(f)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

/// State of a task at the point where it moves. Here it is a step of a program and its arguments; in a kernel, it would be
/// the machine's registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Payload)]
pub struct Registers(pub [u64; Self::COUNT]);

impl Registers {
    /// Number of registers: the number of arguments of a program's step.
    pub const COUNT: usize = 16;
}

/// Announcement of a node and its properties, sent once to every other node.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.node_info", order = ordered)]
pub struct NodeInfo {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// Process id of the node on its host.
    pub pid: u32,
    /// Frames of the node's page cache.
    pub frames: u32,
    /// Bytes of a page.
    pub page_size: u32,
}

/// Request from a task's origin to continue the task.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.task_migrate", reply = Pairing, order = ordered)]
pub struct Migrate {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The task's process.
    pub process: ProcessId,
    /// The task's number at its origin.
    pub task: TaskId,
    /// Number of the task's move, from 0.
    pub hop: u32,
    /// Memory map of the process: the twelve addresses that DEX sends.
    pub memory_map: [u64; 12],
    /// The program.
    pub program: Path,
    /// State from which the task continues.
    pub registers: Registers,
}

/// Reply to [`Migrate`]: the task runs.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.task_pairing")]
pub struct Pairing {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The task's process.
    pub process: ProcessId,
    /// The task's number at its origin.
    pub task: TaskId,
    /// The task's number at the sending node.
    pub remote: TaskId,
}

/// Notification to a task's origin that the task comes back.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.task_migrate_back", order = ordered)]
pub struct MigrateBack {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The task's process.
    pub process: ProcessId,
    /// The task's number at its origin.
    pub task: TaskId,
    /// The task's number at the sending node, which ends.
    pub remote: TaskId,
    /// State from which the task continues.
    pub registers: Registers,
}

/// Notification to all other nodes that the process ended. They return the pages that they modified.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.task_exit_origin", order = ordered)]
pub struct ExitOrigin {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The process.
    pub process: ProcessId,
    /// Number of tasks of the process.
    pub tasks: u32,
    /// Exit code.
    pub code: i32,
}

/// Notification to a task's origin that the task ended.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.task_exit_remote", order = ordered)]
pub struct ExitRemote {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The task's process.
    pub process: ProcessId,
    /// The task's number at its origin.
    pub task: TaskId,
    /// Exit code.
    pub code: i32,
}

/// Question to the origin: which range is mapped at an address.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.vma_info_request", reply = VmaInfoResponse)]
pub struct VmaInfoRequest {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The process.
    pub process: ProcessId,
    /// The task that touched the address.
    pub task: TaskId,
    /// The address.
    pub address: Address,
}

/// Reply to [`VmaInfoRequest`]: the mapped range.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.vma_info_response")]
pub struct VmaInfoResponse {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// Whether a range is mapped at the address.
    pub mapped: bool,
    /// First byte of the range.
    pub start: Address,
    /// Bytes of the range.
    pub length: u64,
    /// Whether tasks may write to the range.
    pub writable: bool,
    /// Offset of the range in the mapped object, in bytes.
    pub offset: u64,
    /// The mapped object.
    pub path: Path,
}

/// Request to the origin, from a task on another node, to change the address space.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.vma_op_request", reply = VmaOpResponse, order = ordered)]
pub struct VmaOpRequest {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The process.
    pub process: ProcessId,
    /// The task.
    pub task: TaskId,
    /// Operation to perform.
    pub operation: VmaOp,
    /// Address of the range; 0 to let the origin choose.
    pub address: Address,
    /// Bytes of the range.
    pub length: u64,
    /// Offset of the range in the mapped object, in bytes.
    pub offset: u64,
    /// The mapped object.
    pub path: Path,
}

/// A change of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Payload)]
pub enum VmaOp {
    /// Map a new range.
    Map,
}

/// Reply to [`VmaOpRequest`]: the result of the change.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.vma_op_response")]
pub struct VmaOpResponse {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The process.
    pub process: ProcessId,
    /// The requesting task.
    pub task: TaskId,
    /// The requested operation.
    pub operation: VmaOp,
    /// Whether the operation succeeded.
    pub done: bool,
    /// First byte of the range.
    pub start: Address,
    /// Bytes of the range.
    pub length: u64,
}

/// Signal for a task, to the node where it may run.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.signal", order = ordered)]
pub struct Signal {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The process.
    pub process: ProcessId,
    /// The task.
    pub task: TaskId,
    /// The signal's number.
    pub number: u32,
}
