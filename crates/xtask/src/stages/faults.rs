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

/// Returns whether only this stage runs a test target.
pub(super) fn claims(package: &Package, test: &str) -> bool {
    test.starts_with("faults") || package.has("faults")
}

/// The variable with the duration of a test, in seconds.
const SOAK: &str = "PRONTO_SOAK_SECONDS";
/// The variable that tells tests to repeat more often than usual.
pub(super) const SOAKS: &str = "PRONTO_SOAK";

fn plan(workspace: &Workspace, effort: Effort) -> Result<Plan> {
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
        let mut command =
            unit::selection(workspace).args(names.into_iter().flat_map(|name| ["--test", name]));
        if let Effort::Full(time) = effort {
            // The long-running tests run concurrently for this time. The remaining time is for all other tests.
            command = command.env(SOAK, (time * 2 / 3).as_secs().to_string()).env(SOAKS, "1");
        }
        plan.tests(command, programs);
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
            panic!("the plan has a command")
        };
        assert!(command.to_string().ends_with(" --test faults_kill --test flood"), "{command}");
    }

    #[test]
    fn a_soak_gives_the_tests_two_thirds_of_the_time() {
        let workspace = workspace(&[("node", Value::Null, &[("test", "faults_kill")])]);
        let command = |effort| match &plan(&workspace, effort).unwrap().steps[0].work {
            crate::stages::Work::Command(command) => format!("{command:?}"),
            other => panic!("expected a command, not {other:?}"),
        };
        assert!(!command(Effort::Bounded).contains(SOAKS));
        let soak = command(Effort::Full(core::time::Duration::from_secs(900)));
        assert!(soak.contains(SOAK) && soak.contains("600") && soak.contains("\"PRONTO_SOAK\""), "{soak}");
    }

    #[test]
    fn without_fault_tests_there_is_nothing_to_run() {
        let workspace = workspace(&[("node", Value::Null, &[("test", "order")])]);
        assert!(plan(&workspace, Effort::Bounded).unwrap().steps.is_empty());
    }
}
