//! Identifiers of nodes, CPUs, tasks and the ends of connections.

/// A node: one machine of the cluster with a scheduler of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A CPU, numbered over the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

/// A task (thread), numbered over the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// An address space: tasks of one process share it, and Linux 2.x prefers a task that shares it with the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// A user, whose account pays for boosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub u32);

/// One end of a connection: its task's socket, numbered in the order of connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// A task as its node's scheduler knows it: numbered in the order of creation on that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A CPU as its node's scheduler knows it, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Core(pub u32);

/// A socket: a port of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Task that owns the socket.
    pub task: TaskId,
    /// Port of the socket.
    pub port: PortId,
}

macro_rules! index {
    ($($name:ident),*) => { $(impl $name {
        /// Returns the index in a table of this kind.
        #[must_use]
        pub const fn index(self) -> usize {
            self.0 as usize
        }

        /// Returns the identifier with this index.
        ///
        /// # Panics
        /// Panics from 2^32 on, which no simulated cluster has.
        #[must_use]
        pub fn at(index: usize) -> Self {
            Self(u32::try_from(index).expect("a cluster has fewer than 2^32 objects of each kind"))
        }
    })* };
}

index!(NodeId, CpuId, TaskId, PortId, Slot, Core);
