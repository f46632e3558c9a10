//! Handlers that sleep, what competes with them, and who sends to them: what the experiments of Expedite are made of.
//!
//! One processor of the lab's machine belongs to the handlers and to the background, the other one to the senders, which sleep between
//! their messages (docs/measuring.md says why). Handlers and background are processes of their own.

mod handler;
mod load;
mod machine;
mod metronome;
mod node;
mod sender;
mod victim;

use core::str::FromStr;
use core::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use pronto_expedite::schedule::Class;
use pronto_expedite::{DEADLINE, SLICE};

pub(crate) use handler::{Handler, Work};
pub(crate) use load::{Kind, Load, Sample};
pub(crate) use machine::{Counters, Machine, Preempt};
pub(crate) use sender::ping_all;
pub(crate) use victim::{Cyclictest, Late, hackbench};

/// The hidden command of a handler's process.
pub(crate) const HANDLER: &str = "serve-expedite";
/// The same of a background process.
pub(crate) const LOAD: &str = "load-expedite";

/// Of a message, bytes: the paper's (section 4.1).
pub(crate) const BYTES: usize = 500;

/// How a handler gets its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// As any thread.
    Off,
    /// Flagged.
    Module,
    /// Real-time for good.
    Fifo,
    /// So much in every period.
    Deadline,
    /// A short time slice.
    Slice,
}

impl Setting {
    pub(crate) const ALL: [Self; 5] = [Self::Off, Self::Module, Self::Fifo, Self::Deadline, Self::Slice];

    /// The value of the column.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Module => "module",
            Self::Fifo => "fifo",
            Self::Deadline => "deadline",
            Self::Slice => "slice",
        }
    }

    /// The class of the handler's thread.
    const fn class(self) -> Class {
        match self {
            Self::Off | Self::Module => Class::Normal,
            Self::Fifo => Class::Fifo(1),
            Self::Deadline => DEADLINE,
            Self::Slice => Class::Slice(SLICE),
        }
    }
}

/// What a handler waits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A node of Pronto over shared memory.
    Shm,
    /// A Unix socket, bare.
    Unix,
    /// A node of Pronto over TCP.
    Tcp,
    /// A TCP connection, bare.
    BareTcp,
}

impl Transport {
    pub(crate) const ALL: [Self; 4] = [Self::Shm, Self::Unix, Self::Tcp, Self::BareTcp];

    /// The value of the column.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
            Self::BareTcp => "tcp-bare",
        }
    }

    /// Whether it is a node's.
    pub(crate) const fn is_node(self) -> bool {
        matches!(self, Self::Shm | Self::Tcp)
    }
}

impl FromStr for Setting {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|known| known.name() == text).context("no such setting")
    }
}

impl FromStr for Transport {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|known| known.name() == text).context("no such transport")
    }
}

pub(crate) fn commands() -> [Command; 2] {
    let with = |name, arguments: &'static [&'static str]| {
        Command::new(name)
            .hide(true)
            .args(arguments.iter().map(|name| Arg::new(*name).required(true).allow_negative_numbers(true)))
    };
    [
        with(HANDLER, &["transport", "setting", "pairs", "flagged", "extra_us", "nice"]),
        with(LOAD, &["kind", "nice"]),
    ]
}

/// A value of a hidden command.
fn value<T: FromStr<Err: core::error::Error + Send + Sync + 'static>>(
    options: &ArgMatches,
    name: &str,
) -> anyhow::Result<T> {
    text(options, name)?.parse().with_context(|| format!("reading {name}"))
}

fn text<'a>(options: &'a ArgMatches, name: &str) -> anyhow::Result<&'a str> {
    Ok(options.get_one::<String>(name).context("all arguments are required")?)
}

/// A handler: it serves until its parent ends it.
pub(crate) fn handler_command(options: &ArgMatches) -> anyhow::Result<()> {
    crate::child::end_with_parent()?;
    machine::join_partition()?;
    let work = Work {
        transport: text(options, "transport")?.parse()?,
        setting: text(options, "setting")?.parse()?,
        pairs: value(options, "pairs")?,
        flagged: value(options, "flagged")?,
        extra: Duration::from_micros(value(options, "extra_us")?),
        nice: value(options, "nice")?,
    };
    if work.transport.is_node() { node::serve(&work) } else { handler::serve(&work) }
}

/// A background process: it computes until its parent ends it.
pub(crate) fn load_command(options: &ArgMatches) -> anyhow::Result<()> {
    crate::child::end_with_parent()?;
    machine::join_partition()?;
    load::work(text(options, "kind")?.parse()?, value(options, "nice")?)
}
