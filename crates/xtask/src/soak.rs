//! `cargo xtask soak`: the randomised and exhaustive stages, without the limits that make them fit their budgets.

use core::time::Duration;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::stages::{self, Effort, Stage};
use crate::test;
use crate::workspace::Workspace;

/// The stages that find more faults if they run longer. The stages of [`stages::SOAK`] run once, after them.
const STAGES: &[&str] = &["loom", "simulation", "fuzz", "faults"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Minutes, divided evenly; exhaustive searches, the other stages run to their end.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
}

/// Runs the soak.
///
/// # Errors
/// No stage has work to do. A stage that fails is an exit code, not an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let share = Duration::from_secs(60 * options.minutes) / u32::try_from(STAGES.len())?;
    let stages: Vec<&Stage> =
        stages::ALL.iter().filter(|stage| STAGES.contains(&stage.name)).chain(stages::SOAK).collect();
    Ok(test::run_stages(workspace, &stages, Effort::Full(share)))
}
