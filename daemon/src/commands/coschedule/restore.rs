//! `pronto coschedule restore`: restores what a killed coscheduler has changed.

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use pronto_coschedule::actuator::restore_abandoned;
use pronto_coschedule::service::remove_stale;

use super::{state, with_state};
use crate::commands::{Subcommand, write_stdout};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "restore", describe, run };

fn describe() -> Command {
    let command = Command::new("restore")
        .about("Restores the weights that a killed coscheduler has left behind; the next coscheduler does so, too")
        .after_help(
            "Exit code 1 if a weight was left because something else has changed it, or could not be restored.\n\nExample:\n  pronto coschedule restore",
        );
    with_state(command)
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let state = state(options);
    let restored = restore_abandoned(&state)?;
    remove_stale(&state);
    let nothing = || format!("nothing to restore in {}", state.display());
    let words = restored.in_words().unwrap_or_else(nothing);
    write_stdout(&format!("{words}\n"))?;
    Ok(if restored.left + restored.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
