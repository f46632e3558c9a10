//! Runs the tests of simulated worlds over many seeds: `pronto-sim` and every crate marked `simulation = true`, optimised, with debug
//! assertions.

use core::time::Duration;

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::{Package, Workspace};

pub(super) const STAGE: Stage =
    Stage { name: "simulation", budget: minutes(3), quick: false, tools: &[tools::CC], plan };

/// Conservative number of seeds per second of a simulation test, for choosing the number of seeds of a soak.
const SEEDS_PER_SECOND: u64 = 50;

/// Returns whether only this stage runs the tests of a package.
pub(super) fn claims(package: &Package) -> bool {
    package.name == "pronto-sim" || package.has("simulation")
}

fn plan(workspace: &Workspace, effort: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    for package in workspace.packages.iter().filter(|package| claims(package)) {
        // Every test is a separate program. Optimising each across crates takes three times as long as all other work.
        let mut command = CommandLine::cargo(["test", "--release", "--no-fail-fast", "-p", &package.name])
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            // A broken invariant ends the test that breaks it.
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
