//! Runs the tests of simulated worlds over many seeds: `pronto-sim` and every crate marked `simulation = true`, in the profile
//! `simulation`, which optimises and keeps debug assertions and overflow checks.
//!
//! The stories about threads run once more with `--cfg simulated`, which makes every operation on an atomic a point at which threads are
//! switched. They run in a copy of the tree, in which [`probes`] show that they execute each function of the wait code.

use core::time::Duration;

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes, today};
use crate::child::CommandLine;
use crate::workspace::{Package, Workspace};
use crate::{probes, tools};

pub(super) const STAGE: Stage =
    Stage { name: "simulation", budget: minutes(3), quick: false, tools: &[tools::CC], plan };

/// The profile in the workspace's manifest.
pub(crate) const PROFILE: &str = "simulation";

/// Conservative number of seeds per second of a simulation test, for choosing the number of seeds of a soak.
const SEEDS_PER_SECOND: u64 = 50;

/// Distance between the first fresh seeds of two days: more than a day's run uses, and far above the usual seeds.
const SEEDS_OF_A_DAY: u64 = 1_000_000;

/// Returns whether only this stage runs the tests of a package.
pub(super) fn claims(package: &Package) -> bool {
    package.name == "pronto-sim" || package.has("simulation")
}

fn plan(workspace: &Workspace, effort: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    for package in workspace.packages.iter().filter(|package| claims(package)) {
        let command =
            CommandLine::cargo(["test", "--profile", PROFILE, "--no-fail-fast", "-p", &package.name]);
        plan.tests(seeded(command, effort), 1);
    }
    plan.check("a probe in each function of the wait code", probes::plant);
    plan.tests(switched(workspace, effort), 2);
    plan.check("a story executes each function of the wait code", probes::check);
    if let Effort::Full(_) = effort {
        plan.check("a panic in each function of the wait code", probes::plant_panics);
    }
    Ok(plan)
}

/// Returns the command that runs the stories about threads, and the facade's own tests, with a switch point at every atomic operation.
fn switched(workspace: &Workspace, effort: Effort) -> CommandLine {
    seeded(probes::stories(workspace).args(["--lib", "--no-fail-fast"]), effort)
}

/// Sets the number of seeds of a soak, and the first of the seeds that differ from day to day.
fn seeded(command: CommandLine, effort: Effort) -> CommandLine {
    let command = command.env("PRONTO_SIM_FRESH", fresh(today()).to_string());
    match effort {
        Effort::Full(time) => {
            command.env("PRONTO_SIM_SEEDS", seeds(time).to_string()).env("PRONTO_SIM_SOAK", "1")
        }
        Effort::Bounded => command,
    }
}

/// Returns the first fresh seed of a day.
fn fresh(day: u64) -> u64 {
    day * SEEDS_OF_A_DAY
}

fn seeds(time: Duration) -> u64 {
    time.as_secs() * SEEDS_PER_SECOND
}
