//! Runs the simulated worlds: `pronto-sim` and every crate marked `simulation = true`, optimised, with debug assertions,
//! over many seeds.

use core::time::Duration;

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::{Package, Workspace};

pub(super) const STAGE: Stage =
    Stage { name: "simulation", budget: minutes(3), quick: false, tools: &[tools::CC], plan };

/// Seeds that a story of the simulation surely gets through in a second, for sizing a soak.
const SEEDS_PER_SECOND: u64 = 50;

/// Whether this stage, and no other, runs the tests of a package.
pub(super) fn claims(package: &Package) -> bool {
    package.name == "pronto-sim" || package.has("simulation")
}

fn plan(workspace: &Workspace, effort: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    for package in workspace.packages.iter().filter(|package| claims(package)) {
        // Every story is a program of its own; optimising each across crates takes three times as long as all else.
        let mut command = CommandLine::cargo(["test", "--release", "--no-fail-fast", "-p", &package.name])
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            // A broken invariant ends the story in which it is broken.
            .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
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
