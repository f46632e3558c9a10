//! Makes one known mistake in each scheduling rule and expects a test to notice; `cargo xtask mutate` makes all of them.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::workspace::Workspace;
use crate::{mutate, tools};

pub(super) const STAGE: Stage =
    Stage { name: "mutation", budget: minutes(1), quick: false, tools: &[tools::CC], plan };

fn plan(_: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    plan.check("one mistake in each rule", mutate::check);
    Ok(plan)
}
