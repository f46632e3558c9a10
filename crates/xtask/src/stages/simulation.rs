//! Runs the tests of simulated worlds over many seeds: `pronto-sim` and every crate marked `simulation = true`, in the profile
//! `simulation`, which optimises and keeps debug assertions and overflow checks.

use core::time::Duration;

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::{Package, Workspace};

pub(super) const STAGE: Stage =
    Stage { name: "simulation", budget: minutes(3), quick: false, tools: &[tools::CC], plan };

/// The profile in the workspace's manifest.
const PROFILE: &str = "simulation";

/// Conservative number of seeds per second of a simulation test, for choosing the number of seeds of a soak.
const SEEDS_PER_SECOND: u64 = 50;

/// Returns whether only this stage runs the tests of a package.
pub(super) fn claims(package: &Package) -> bool {
    package.name == "pronto-sim" || package.has("simulation")
}

fn plan(workspace: &Workspace, effort: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    for package in workspace.packages.iter().filter(|package| claims(package)) {
        let mut command =
            CommandLine::cargo(["test", "--profile", PROFILE, "--no-fail-fast", "-p", &package.name]);
        if let Effort::Full(time) = effort {
            command = command.env("PRONTO_SIM_SEEDS", seeds(time).to_string()).env("PRONTO_SIM_SOAK", "1");
        }
        plan.tests(command, 1);
    }
    Ok(plan)
}

fn seeds(time: Duration) -> u64 {
    time.as_secs() * SEEDS_PER_SECOND
}
