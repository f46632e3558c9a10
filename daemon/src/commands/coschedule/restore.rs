//! `pronto coschedule restore`: restores what a killed coscheduler has changed.

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use pronto_coschedule::actuator::restore_abandoned;

use super::{in_words, state, with_state};
use crate::commands::{Subcommand, write_stdout};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "restore", describe, run };

fn describe() -> Command {
    let command = Command::new("restore")
        .about("Restores the weights that a killed coscheduler has left behind; the next coscheduler does so, too")
        .after_help("Example:\n  pronto coschedule restore");
    with_state(command)
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let restored = restore_abandoned(&state(options))?;
    let words = in_words(restored).unwrap_or_else(|| "nothing to restore".to_owned());
    write_stdout(&format!("{words}\n"))?;
    Ok(if restored.left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
