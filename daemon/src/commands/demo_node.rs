//! `pronto demo-node`: one node process of the demo, started by `pronto demo` and controlled through its pipes.

use std::io;
use std::process::ExitCode;

use clap::Command;

use super::Subcommand;

pub(super) const NAME: &str = "demo-node";

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: NAME, describe, run };

fn describe() -> Command {
    Command::new(NAME).about("Runs one node of the demo; started by `pronto demo`").hide(true)
}

fn run(_: &clap::ArgMatches) -> anyhow::Result<ExitCode> {
    // The supervisor already has the error and prints it.
    let result = minidos::node_main(io::BufReader::new(io::stdin()), io::stdout());
    Ok(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
