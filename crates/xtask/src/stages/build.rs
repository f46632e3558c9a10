//! Builds the programs of users and those of the unit stage, so that later stages measure tests, not compilers.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes, unit};
use crate::child::CommandLine;
use crate::workspace::Workspace;
use crate::{counts, package, tools};

pub(super) const STAGE: Stage =
    Stage { name: "build", budget: minutes(6), quick: false, tools: tools::WORKSPACE, plan };

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    // With RDMA, for the stage `package`.
    plan.command(CommandLine::cargo(package::build_arguments()));
    plan.command(CommandLine::cargo(package::library_arguments()));
    // Without RDMA, for the stage `counts`.
    plan.command(counts::build_command());
    plan.command(unit::command(workspace).arg("--no-run"));
    plan.command(unit::benches(workspace).arg("--no-run"));
    Ok(plan)
}
