//! Builds the programs of users and those of the unit stage, so that later stages measure tests, not compilers.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes, unit};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::Workspace;

pub(super) const STAGE: Stage =
    Stage { name: "build", budget: minutes(6), quick: false, tools: tools::WORKSPACE, plan };

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    plan.command(CommandLine::cargo(["build", "--release"]));
    plan.command(unit::command(workspace).arg("--no-run"));
    Ok(plan)
}
