//! Messages about nodes, tasks and what a process has mapped.

use core::fmt;

use pronto::{Message, Payload};

use super::Stamp;
use crate::page::Address;

/// A process: it has one address space and one origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Payload)]
pub struct ProcessId(pub u32);

/// A task of a process, wherever it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Payload)]
pub struct TaskId(pub u32);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A path of at most 512 bytes, ended by zeroes: of a program, or of what a range maps.
#[derive(Clone, Copy, PartialEq, Eq, Payload)]
pub struct Path(pub [u8; 512]);

impl Path {
    /// `text`, cut to 512 bytes if it is longer.
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

/// What a task is at the point where it moves: here a step of a program and its arguments; in a kernel, the machine's
/// registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Payload)]
pub struct Registers(pub [u64; Self::COUNT]);

impl Registers {
    /// As many as a program's step has arguments.
    pub const COUNT: usize = 16;
}

/// A node says that it is there, and what it is. To every other, once.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.node_info", order = ordered)]
pub struct NodeInfo {
    /// Sender and position.
    pub stamp: Stamp,
    /// Its process on its host.
    pub pid: u32,
    /// Frames of its page cache.
    pub frames: u32,
    /// Bytes of its pages.
    pub page_size: u32,
}

/// From a task's origin: go on with it.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.task_migrate", reply = Pairing, order = ordered)]
pub struct Migrate {
    /// Sender and position.
    pub stamp: Stamp,
    /// Its process.
    pub process: ProcessId,
    /// Its number at its origin.
    pub task: TaskId,
    /// Which move of this task it is, from 0.
    pub hop: u32,
    /// Where the process has what: the twelve addresses that DEX sends of a memory map.
    pub memory_map: [u64; 12],
    /// The program.
    pub program: Path,
    /// Where it goes on.
    pub registers: Registers,
}

/// The task runs. Answers [`Migrate`].
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.task_pairing")]
pub struct Pairing {
    /// Sender and position.
    pub stamp: Stamp,
    /// Its process.
    pub process: ProcessId,
    /// Its number at its origin.
    pub task: TaskId,
    /// Its number here.
    pub remote: TaskId,
}

/// To a task's origin: it comes back.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.task_migrate_back", order = ordered)]
pub struct MigrateBack {
    /// Sender and position.
    pub stamp: Stamp,
    /// Its process.
    pub process: ProcessId,
    /// Its number at its origin.
    pub task: TaskId,
    /// Its number here, which ends.
    pub remote: TaskId,
    /// Where it goes on.
    pub registers: Registers,
}

/// To every node that ran tasks of a process: the process ended; forget its pages.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.task_exit_origin", order = ordered)]
pub struct ExitOrigin {
    /// Sender and position.
    pub stamp: Stamp,
    /// The process.
    pub process: ProcessId,
    /// How many of its tasks ended at that node or came back from it.
    pub tasks: u32,
    /// How it ended.
    pub code: i32,
}

/// To a task's origin: it ended here.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.task_exit_remote", order = ordered)]
pub struct ExitRemote {
    /// Sender and position.
    pub stamp: Stamp,
    /// Its process.
    pub process: ProcessId,
    /// Its number at its origin.
    pub task: TaskId,
    /// How it ended.
    pub code: i32,
}

/// To the origin: what is mapped at this address?
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.vma_info_request", reply = VmaInfoResponse)]
pub struct VmaInfoRequest {
    /// Sender and position.
    pub stamp: Stamp,
    /// The process.
    pub process: ProcessId,
    /// The task that touched it.
    pub task: TaskId,
    /// The address.
    pub address: Address,
}

/// What is mapped there. Answers [`VmaInfoRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.vma_info_response")]
pub struct VmaInfoResponse {
    /// Sender and position.
    pub stamp: Stamp,
    /// Whether anything is.
    pub mapped: bool,
    /// First byte of the range.
    pub start: Address,
    /// Bytes of the range.
    pub length: u64,
    /// Whether tasks may write there.
    pub writable: bool,
    /// Where the range begins in what it maps, bytes.
    pub offset: u64,
    /// What it maps.
    pub path: Path,
}

/// To the origin, from a task that runs elsewhere: change the address space.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.vma_op_request", reply = VmaOpResponse, order = ordered)]
pub struct VmaOpRequest {
    /// Sender and position.
    pub stamp: Stamp,
    /// The process.
    pub process: ProcessId,
    /// The task.
    pub task: TaskId,
    /// What to do.
    pub operation: VmaOp,
    /// Where; 0 to let the origin choose.
    pub address: Address,
    /// How many bytes.
    pub length: u64,
    /// Where the range begins in what it maps, bytes.
    pub offset: u64,
    /// What it maps.
    pub path: Path,
}

/// A change of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Payload)]
pub enum VmaOp {
    /// A new range.
    Map,
}

/// Done, and where. Answers [`VmaOpRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.vma_op_response")]
pub struct VmaOpResponse {
    /// Sender and position.
    pub stamp: Stamp,
    /// The process.
    pub process: ProcessId,
    /// The task that asked.
    pub task: TaskId,
    /// What was done.
    pub operation: VmaOp,
    /// Whether it was.
    pub done: bool,
    /// First byte of the range.
    pub start: Address,
    /// Bytes of the range.
    pub length: u64,
}

/// To the node where a task runs: a signal for it.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.signal", order = ordered)]
pub struct Signal {
    /// Sender and position.
    pub stamp: Stamp,
    /// The process.
    pub process: ProcessId,
    /// The task.
    pub task: TaskId,
    /// The signal's number.
    pub number: u32,
}
