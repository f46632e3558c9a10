//! Plants one known fault in each scheduling rule, and all known faults in the core. A test must fail for each of them.
//! `cargo xtask mutate` plants all faults in both.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::workspace::Workspace;
use crate::{mutate, tools};

pub(super) const STAGE: Stage =
    Stage { name: "mutation", budget: minutes(5), quick: false, tools: &[tools::CC], plan };

fn plan(_: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    plan.check("one fault in each rule, all faults in the core", mutate::check);
    Ok(plan)
}
