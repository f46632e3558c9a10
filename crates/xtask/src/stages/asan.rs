//! Runs the tests of every crate marked `asan = true` under AddressSanitizer, which includes LeakSanitizer.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::Workspace;

pub(super) const STAGE: Stage =
    Stage { name: "asan", budget: minutes(3), quick: false, tools: &[tools::CC], plan };

/// Naming the target keeps build scripts and derive macros, which run inside the compiler, free of the sanitizer.
pub(super) const TARGET: &str = "x86_64-unknown-linux-gnu";

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    let packages: Vec<_> = workspace.marked("asan").flat_map(|package| ["-p", &package.name]).collect();
    if packages.is_empty() {
        return Ok(plan);
    }
    if !tools::has_nightly() {
        plan.note("SKIPPED: AddressSanitizer needs a nightly toolchain, and rustup has none here");
        return Ok(plan);
    }
    let crates = packages.len() / 2;
    plan.tests(
        CommandLine::new("rustup", ["run", "nightly", "cargo", "test", "--no-fail-fast", "--lib", "--tests"])
            .args(["--target", TARGET])
            .args(packages)
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env("CARGO_TARGET_DIR", workspace.target.join("asan").to_string_lossy()),
        crates,
    );
    Ok(plan)
}
