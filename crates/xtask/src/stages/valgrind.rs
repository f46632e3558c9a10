//! Runs the unit tests of every crate marked `valgrind = true` under valgrind's memcheck. It sees what instrumentation by the compiler does not:
//! accesses of assembly, such as the copies of blocks, and of libraries in C.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::{Package, Workspace};

pub(super) const STAGE: Stage =
    Stage { name: "valgrind", budget: minutes(15), quick: false, tools: &[tools::CC, tools::VALGRIND], plan };

/// Starts a program so that a wrong access is its failure. Memory that a test leaves to the end of its process is none.
const RUNNER: &str = "valgrind --quiet --error-exitcode=99 --leak-check=no";

/// Tests run some fifty times slower than without it, so properties are tested with fewer inputs.
const CASES: &str = "8";

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    let packages: Vec<&Package> = workspace.marked("valgrind").collect();
    if packages.is_empty() {
        return Ok(plan);
    }
    let tests = CommandLine::cargo(["test", "--no-fail-fast", "--lib"])
        .args(packages.iter().flat_map(|package| ["-p", &package.name]))
        .env(&runner(std::env::consts::ARCH), RUNNER)
        .env("PROPTEST_CASES", CASES)
        .env("CARGO_TARGET_DIR", workspace.target.join("valgrind").to_string_lossy());
    plan.tests(tests, packages.len());
    Ok(plan)
}

/// Returns the variable in which cargo looks for the runner of programs for this architecture.
fn runner(arch: &str) -> String {
    format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER", arch.to_uppercase())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workspace::tests::workspace;

    #[test]
    fn marked_crates_are_tested() {
        let workspace = workspace(&[
            ("ring", json!({ "valgrind": true }), &[("lib", "ring"), ("test", "far")]),
            ("node", Value::Null, &[("lib", "node")]),
        ]);
        let plan = plan(&workspace, Effort::Bounded).unwrap();
        let lines: Vec<_> = plan.steps.iter().map(|step| step.work.to_string()).collect();
        assert!(lines[0].ends_with(" --no-fail-fast --lib -p ring"), "{lines:?}");
        assert!(lines[0].contains(&format!("{}=", runner(std::env::consts::ARCH))), "{lines:?}");
        assert_eq!((lines.len(), plan.steps[0].programs), (1, 1));
    }
}
