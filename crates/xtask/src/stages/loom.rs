//! Model-checks every crate marked `loom = true`: its tests named `loom`, built with `--cfg loom`.

use anyhow::Result;

use super::faults::SOAKS;
use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::Workspace;

pub(super) const STAGE: Stage =
    Stage { name: "loom", budget: minutes(2), quick: true, tools: &[tools::CC], plan };

/// The limit of involuntary switches per interleaving. `cargo xtask soak` explores interleavings with more: models without a bound of their
/// own explore all, and the others read [`SOAKS`].
const MAX_PREEMPTIONS: &str = "3";

fn plan(workspace: &Workspace, effort: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    let packages: Vec<_> = workspace.marked("loom").flat_map(|package| ["-p", &package.name]).collect();
    if packages.is_empty() {
        return Ok(plan);
    }
    let crates = packages.len() / 2;
    // One command for all crates: cargo would build loom again for each crate, with other features.
    let mut command = CommandLine::cargo(["test", "--release", "--no-fail-fast", "--lib"])
        .args(packages)
        .arg("loom")
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", workspace.target.join("loom").to_string_lossy())
        // Models are small, so optimising across crates would cost more than it saves.
        .env("CARGO_PROFILE_RELEASE_LTO", "off");
    if effort == Effort::Bounded {
        let preemptions = std::env::var("LOOM_MAX_PREEMPTIONS");
        command = command.env("LOOM_MAX_PREEMPTIONS", preemptions.as_deref().unwrap_or(MAX_PREEMPTIONS));
    } else {
        command = command.env(SOAKS, "1");
    }
    plan.tests(command, crates);
    Ok(plan)
}
