//! The subcommands, one file each.

mod coschedule;
mod demo;
mod demo_node;
mod doctor;
mod expedite;
mod family;
mod ping;
mod reach;
mod signals;
mod status;
mod trust;
mod waiting;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};

/// A subcommand of `pronto`.
pub(crate) struct Subcommand {
    pub(crate) name: &'static str,
    /// Describes its options and its help.
    pub(crate) describe: fn() -> Command,
    /// Runs it. The program prints an error and exits with a failure code.
    pub(crate) run: fn(&ArgMatches) -> anyhow::Result<ExitCode>,
}

/// All subcommands, in the order of the help.
pub(crate) const ALL: &[Subcommand] = &[
    demo::SUBCOMMAND,
    status::SUBCOMMAND,
    ping::SUBCOMMAND,
    waiting::SUBCOMMAND,
    doctor::SUBCOMMAND,
    trust::SUBCOMMAND,
    expedite::SUBCOMMAND,
    coschedule::SUBCOMMAND,
    demo_node::SUBCOMMAND,
];

/// Returns the subcommand with that name.
pub(crate) fn find(name: &str) -> Option<&'static Subcommand> {
    ALL.iter().find(|subcommand| subcommand.name == name)
}

/// Adds the subcommands of a subcommand, of which one must be given.
fn with_subcommands(command: Command, all: &[Subcommand]) -> Command {
    command
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands(all.iter().map(|subcommand| (subcommand.describe)()))
}

/// Runs the given one of these subcommands.
fn run_one_of(all: &[Subcommand], options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (name, options) = options.subcommand().expect("clap requires a subcommand");
    let subcommand = all.iter().find(|subcommand| subcommand.name == name);
    (subcommand.expect("clap accepts only listed subcommands").run)(options)
}

/// Checks that the subcommands of a command have the names by which they are found.
#[cfg(test)]
fn assert_named(command: Command, all: &[Subcommand]) {
    command.debug_assert();
    for subcommand in all {
        assert_eq!((subcommand.describe)().get_name(), subcommand.name);
    }
}

/// Adds the options for the time between two tables and for their number.
fn with_intervals(command: Command) -> Command {
    command
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("S")
                .value_parser(value_parser!(u32).range(1..=3600))
                .default_value("1")
                .help("Whole seconds between two tables, from 1 to 3600"),
        )
        .arg(
            Arg::new("count")
                .long("count")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .help("End after N tables"),
        )
}

/// Moves the cursor to the top left corner, and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Returns a name without characters that control a terminal: its owner has chosen it.
fn printable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    name.trim_end().chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

/// Writes to standard output. A closed pipe is an error here, not a panic.
fn write_stdout(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Returns whether the error is a closed pipe of standard output.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
