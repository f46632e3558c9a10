//! Compares the instruction counts of fixed scenarios with the recorded ones. They show changes that are too small to time.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::workspace::Workspace;
use crate::{call_path, counts};

pub(super) const STAGE: Stage =
    Stage { name: "counts", budget: minutes(1), quick: false, tools: counts::TOOLS, plan };

fn plan(_: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    plan.check("instructions of fixed scenarios", counts::check);
    plan.check("the path of a call, file by file", call_path::check);
    Ok(plan)
}
