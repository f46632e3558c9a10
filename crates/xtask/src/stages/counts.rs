//! Compares the instruction counts of fixed scenarios with the recorded ones; shows changes too small to time.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::counts;
use crate::workspace::Workspace;

pub(super) const STAGE: Stage =
    Stage { name: "counts", budget: minutes(1), quick: false, tools: counts::TOOLS, plan };

fn plan(_: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    plan.check("instructions of fixed scenarios", counts::check);
    Ok(plan)
}
