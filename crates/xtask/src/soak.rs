//! `cargo xtask soak`: the randomised and exhaustive stages without the bounds that make them fit a budget.

use core::time::Duration;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::stages::{self, Effort, Stage};
use crate::test;
use crate::workspace::Workspace;

/// The stages that find more when they run longer.
const STAGES: &[&str] = &["loom", "simulation", "fuzz", "faults"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Minutes to run in all, divided evenly; exhaustive searches take as long as they take.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
}

/// Runs the soak.
///
/// # Errors
/// There is no stage to soak. A stage that fails is an exit code.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let stages: Vec<&Stage> = stages::ALL.iter().filter(|stage| STAGES.contains(&stage.name)).collect();
    let share = Duration::from_secs(60 * options.minutes) / u32::try_from(stages.len())?;
    Ok(test::run_stages(workspace, &stages, Effort::Full(share)))
}
