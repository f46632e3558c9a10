//! Runs the tests of every crate marked `asan = true` under AddressSanitizer, which includes LeakSanitizer.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::lab;
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
    let Some(cargo) = tools::sanitizing_cargo(TARGET) else { return Ok(without_sanitizer(lab::is_ci())) };
    let crates = packages.len() / 2;
    plan.tests(
        cargo
            .args(["test", "--no-fail-fast", "--lib", "--tests", "--target", TARGET])
            .args(packages)
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env("CARGO_TARGET_DIR", workspace.target.join("asan").to_string_lossy()),
        crates,
    );
    Ok(plan)
}

/// Returns the plan for a machine without a sanitizer: the tests are skipped with a note, and CI fails.
pub(super) fn without_sanitizer(is_ci: bool) -> Plan {
    let skipped = "SKIPPED: neither the pinned toolchain nor a nightly one has AddressSanitizer here";
    if is_ci {
        return Plan::impossible(&anyhow::anyhow!("{skipped}; CI must run these tests"));
    }
    let mut plan = Plan::default();
    plan.note(skipped);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::Work;

    #[test]
    fn a_missing_sanitizer_skips_the_tests_and_fails_in_ci() {
        let here = without_sanitizer(false);
        assert!(here.steps.is_empty() && here.notes[0].starts_with("SKIPPED"), "{here:?}");
        let ci = without_sanitizer(true);
        assert!(matches!(&ci.steps[0].work, Work::Impossible(why) if why.contains("CI must")), "{ci:?}");
    }
}
