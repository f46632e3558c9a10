//! `pronto coschedule`: runs processes of communicating programs at the same time on different nodes; one file per subcommand.

mod restore;
mod run;
mod top;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use pronto_coschedule::service::default_state;

use super::{Subcommand, run_one_of, with_subcommands};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "coschedule", describe, run };

/// The subcommands, in the order of the help.
const ALL: &[Subcommand] = &[run::SUBCOMMAND, top::SUBCOMMAND, restore::SUBCOMMAND];

fn describe() -> Command {
    let command = Command::new("coschedule")
        .about("Gives communicating programs, which need not know of it, more of the CPU while data wait in their sockets")
        .after_help(
            "A process whose sockets hold data gets a larger weight, so that it runs when its correspondents on other nodes do. prontod\n\
             does the same for the groups of its configuration, and exchanges what it finds with other nodes (docs/operations.md).\n\n\
             Examples:\n  pronto coschedule run -- mpirun -n 2 ./program\n  pronto coschedule top",
        );
    with_subcommands(command, ALL)
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    run_one_of(ALL, options)
}

/// Adds the option for the folder of the state.
fn with_state(command: Command) -> Command {
    command.arg(
        Arg::new("state")
            .long("state")
            .value_name("FOLDER")
            .value_parser(value_parser!(PathBuf))
            .help("Folder of the journal and of the status [default: /run/pronto-coschedule for root, else $XDG_RUNTIME_DIR/pronto-coschedule, or /tmp/pronto-coschedule-UID]"),
    )
}

fn state(options: &ArgMatches) -> PathBuf {
    options.get_one::<PathBuf>("state").cloned().unwrap_or_else(default_state)
}

/// Writes a line to standard error, which may be closed.
fn report(text: &str) {
    let _ = writeln!(std::io::stderr(), "pronto coschedule: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_is_found_by_its_name() {
        crate::commands::assert_named(describe(), ALL);
    }
}
