//! What can be asked of the demo.

use core::time::Duration;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::data::Source;

/// How the nodes are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory.
    Shm,
    /// TCP over the loopback interface.
    Tcp,
    /// Both are offered, and the nodes choose.
    Auto,
}

impl Transport {
    /// Where node `node` listens; `directory` is the run's own.
    pub(super) fn listen(self, directory: &Path, node: u16) -> Vec<String> {
        let shm = || format!("shm:{}", directory.join(format!("n{node}.sock")).display());
        let tcp = || "tcp:127.0.0.1:0".to_owned();
        match self {
            Self::Shm => vec![shm()],
            Self::Tcp => vec![tcp()],
            Self::Auto => vec![shm(), tcp()],
        }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Node processes, 1 to [`Options::MAX_NODES`].
    pub nodes: u16,
    /// How they are connected.
    pub transport: Transport,
    /// The points.
    pub source: Source,
    /// After so long the run has failed, whatever it is doing.
    pub deadline: Duration,
    /// The program that becomes a node, and its arguments; it calls [`crate::node_main`].
    pub node_program: (PathBuf, Vec<OsString>),
}

impl Options {
    /// As many as share a machine sensibly; each has a handful of threads.
    pub const MAX_NODES: u16 = 16;
}
