//! Plants random faults in the core, the RPC layer, the node and the wire format, others each day. Nine of ten must be detected.
//! `cargo xtask mutate --random` plants more, and chosen ones.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::workspace::Workspace;
use crate::{mutate, tools};

pub(super) const STAGE: Stage =
    Stage { name: "random-faults", budget: minutes(60), quick: false, tools: &[tools::CC], plan };

fn plan(_: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    plan.check("random faults of the day", mutate::sample);
    Ok(plan)
}
