//! The subcommands, one file each.

mod demo;
mod demo_node;
mod doctor;
mod ping;
mod reach;
mod status;
mod waiting;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{ArgMatches, Command};

/// A subcommand of `pronto`.
pub(crate) struct Subcommand {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its options and its help.
    pub(crate) describe: fn() -> Command,
    /// What it does. An error is printed and becomes a failure.
    pub(crate) run: fn(&ArgMatches) -> anyhow::Result<ExitCode>,
}

/// All of them, in the order of the help.
pub(crate) const ALL: &[Subcommand] = &[
    demo::SUBCOMMAND,
    status::SUBCOMMAND,
    ping::SUBCOMMAND,
    waiting::SUBCOMMAND,
    doctor::SUBCOMMAND,
    demo_node::SUBCOMMAND,
];

/// The subcommand of that name.
pub(crate) fn find(name: &str) -> Option<&'static Subcommand> {
    ALL.iter().find(|subcommand| subcommand.name == name)
}

/// Writes to standard output. An error if nobody reads it any more, and not a panic.
fn say(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Whether an error says that nobody reads the output any more.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
