//! Sleeping handlers, their competition, and their senders: the parts of the Expedite experiments.
//!
//! One CPU of the lab's machine runs the handlers and the background, the other one the senders, which sleep between their messages
//! (docs/measuring.md gives the reason). Handlers and background are separate processes.

mod handler;
mod load;
mod machine;
mod metronome;
mod node;
pub(crate) mod scheduler;
mod sender;
mod victim;

use core::time::Duration;

use pronto_expedite::schedule::Class;
use pronto_expedite::{DEADLINE, SLICE};

pub(crate) use handler::{Handler, Work};
pub(crate) use load::{Kind, Load, Sample};
pub(crate) use machine::{Counters, Machine, PARTITION, Place, Preempt};
pub(crate) use sender::ping_all;
pub(crate) use victim::{Cyclictest, Late, hackbench};

use crate::params::choices;
use crate::side::{Arguments, Side};

/// The process of a handler.
pub(crate) const HANDLER: Side = Side {
    name: "serve-expedite",
    arguments: &["transport", "setting", "pairs", "flagged", "extra_us", "nice"],
    more: None,
    run: serve_handler,
};
/// A background process.
pub(crate) const LOAD: Side =
    Side { name: "load-expedite", arguments: &["kind", "nice"], more: None, run: serve_load };

/// Length of a message in bytes, as in the paper (section 4.1).
pub(crate) const BYTES: usize = 500;

choices! {
    /// Scheduling of a handler.
    pub(crate) enum Setting {
        /// Like any thread.
        Off = "off",
        /// Flagged for the module.
        Module = "module",
        /// Always real-time.
        Fifo = "fifo",
        /// A fixed CPU time in every period.
        Deadline = "deadline",
        /// A short time slice.
        Slice = "slice",
        /// Flagged for the BPF scheduler, which schedules the whole machine meanwhile.
        Scx = "scx",
    }
}

impl Setting {
    /// Returns the class of the handler's thread.
    const fn class(self) -> Class {
        match self {
            Self::Off | Self::Module | Self::Scx => Class::Normal,
            Self::Fifo => Class::Fifo(1),
            Self::Deadline => DEADLINE,
            Self::Slice => Class::Slice(SLICE),
        }
    }
}

choices! {
    /// Channel that a handler waits on.
    pub(crate) enum Transport {
        /// A Pronto node over shared memory.
        Shm = "shm",
        /// A bare Unix socket.
        Unix = "unix",
        /// A Pronto node over TCP.
        Tcp = "tcp",
        /// A bare TCP connection.
        BareTcp = "tcp-bare",
    }
}

impl Transport {
    /// Returns whether the handler is a node.
    pub(crate) const fn is_node(self) -> bool {
        matches!(self, Self::Shm | Self::Tcp)
    }
}

/// Serves as a handler until the parent ends this process.
fn serve_handler(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    machine::join_partition()?;
    let work = Work {
        transport: arguments.get("transport")?,
        setting: arguments.get("setting")?,
        pairs: arguments.get("pairs")?,
        flagged: arguments.get("flagged")?,
        extra: Duration::from_micros(arguments.get("extra_us")?),
        nice: arguments.get("nice")?,
    };
    if work.transport.is_node() { node::serve(&work) } else { handler::serve(&work) }
}

/// Works as a background process until the parent ends it.
fn serve_load(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    machine::join_partition()?;
    load::work(arguments.get("kind")?, arguments.get("nice")?)
}
