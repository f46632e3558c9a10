//! Injects faults into real processes and real links: test targets named `faults*`, and every crate marked
//! `faults = true`.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes, unit};
use crate::tools;
use crate::workspace::{Package, Workspace};

pub(super) const STAGE: Stage = Stage {
    name: "faults",
    budget: minutes(3),
    quick: false,
    tools: &[tools::CC, tools::IP, tools::NFT],
    plan,
};

/// Whether this stage, and no other, runs a test target.
pub(super) fn claims(package: &Package, test: &str) -> bool {
    test.starts_with("faults") || package.has("faults")
}

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    let mut names: Vec<_> = workspace
        .packages
        .iter()
        .flat_map(|package| package.targets_of("test").filter(|name| claims(package, name)))
        .collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        let programs = names.len();
        plan.tests(
            unit::selection(workspace).args(names.into_iter().flat_map(|name| ["--test", name])),
            programs,
        );
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;
    use serde_json::{Value, json};

    #[test]
    fn fault_tests_are_found_by_name_and_by_mark() {
        let workspace = workspace(&[
            ("node", Value::Null, &[("test", "faults_kill"), ("test", "order")]),
            ("storm", json!({ "faults": true }), &[("test", "flood")]),
        ]);
        let plan = plan(&workspace, Effort::Bounded).unwrap();
        let crate::stages::Work::Command(command) = &plan.steps[0].work else {
            panic!("a command is planned")
        };
        assert!(command.to_string().ends_with(" --test faults_kill --test flood"), "{command}");
    }

    #[test]
    fn without_fault_tests_there_is_nothing_to_run() {
        let workspace = workspace(&[("node", Value::Null, &[("test", "order")])]);
        assert!(plan(&workspace, Effort::Bounded).unwrap().steps.is_empty());
    }
}
