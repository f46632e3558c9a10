//! Tests with other communication libraries, in crates marked `foreign = true`: each such test target needs the feature that links its
//! library. Other stages build these crates without the libraries, and run their other tests.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes, unit};
use crate::child::CommandLine;
use crate::lab;
use crate::tools::{self, Tool};
use crate::workspace::{Package, Target, Workspace};

/// The budget applies after the stages that build the workspace.
pub(super) const STAGE: Stage =
    Stage { name: "foreign", budget: minutes(1), quick: false, tools: TOOLS, plan };

/// The tools for building the workspace, and the libraries.
const TOOLS: &[Tool] = &[
    tools::CC,
    tools::CXX,
    tools::CMAKE,
    tools::CLANG,
    tools::PKG_CONFIG,
    tools::PYTHON,
    tools::LIBIBVERBS,
    tools::UCX,
    tools::OPEN_MPI[0],
    tools::OPEN_MPI[1],
    tools::MPICH[0],
    tools::MPICH[1],
];

/// Returns whether only this stage runs a test target of a package.
pub(super) fn claims(package: &Package, target: &Target) -> bool {
    package.has("foreign") && !target.required_features.is_empty()
}

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    Ok(plan_where(workspace, tools::not_installable(TOOLS)?.as_deref(), lab::is_ci()))
}

/// Returns the commands if the libraries are or can be installed. Otherwise the tests are skipped with a note, and CI fails.
fn plan_where(workspace: &Workspace, unavailable: Option<&str>, is_ci: bool) -> Plan {
    let mut plan = Plan::default();
    let tests: Vec<_> = workspace
        .packages
        .iter()
        .flat_map(|package| {
            let tests =
                package.targets.iter().filter(|target| target.kind == "test" && claims(package, target));
            tests.map(move |test| (package, test))
        })
        .collect();
    if tests.is_empty() {
        return plan;
    }
    if let Some(reason) = unavailable {
        let skipped = format!("SKIPPED {} test programs: {reason}", tests.len());
        if is_ci {
            return Plan::impossible(&anyhow::anyhow!("{skipped}; CI must run them"));
        }
        plan.note(skipped);
        return plan;
    }
    let features: Vec<_> = tests
        .iter()
        .flat_map(|(package, test)| test.required_features.iter().map(|f| format!("{}/{f}", package.name)))
        .collect();
    let features = ["--features".to_owned(), features.join(",")];
    let names = tests.iter().flat_map(|(_, test)| ["--test", &test.name]);
    // The selections are those of the stages `lint` and `unit`, so only the adapters are built anew.
    plan.command(
        CommandLine::cargo(["clippy", "--workspace", "--all-targets"])
            .args(features.clone())
            .args(["--", "-D", "warnings"]),
    );
    plan.tests(unit::selection(workspace).args(features).args(names), tests.len());
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::Work;
    use crate::workspace::tests::workspace;
    use serde_json::{Value, json};

    fn adapters() -> Workspace {
        let mut workspace = workspace(&[
            (
                "adapters",
                json!({ "foreign": true }),
                &[("lib", "adapters"), ("test", "ucx"), ("test", "mpi"), ("test", "alone")],
            ),
            ("core", Value::Null, &[("test", "order")]),
        ]);
        let links = |target: &&mut Target| target.kind == "test" && target.name != "alone";
        for target in workspace.packages[0].targets.iter_mut().filter(links) {
            target.required_features = vec![target.name.clone()];
        }
        workspace
    }

    #[test]
    fn each_test_gets_the_feature_of_its_library() {
        let plan = plan_where(&adapters(), None, true);
        let lines: Vec<_> = plan.steps.iter().map(|step| step.work.to_string()).collect();
        assert!(lines[0].ends_with(" --features adapters/ucx,adapters/mpi -- -D warnings"), "{lines:?}");
        assert!(
            lines[1].ends_with(" --features adapters/ucx,adapters/mpi --test ucx --test mpi"),
            "{lines:?}"
        );
        assert_eq!(plan.steps[1].programs, 2);
    }

    #[test]
    fn tests_without_their_library_are_skipped_except_in_ci() {
        let here = plan_where(&adapters(), Some("no apt-get"), false);
        assert!(here.steps.is_empty() && here.notes == ["SKIPPED 2 test programs: no apt-get"], "{here:?}");
        let ci = plan_where(&adapters(), Some("no apt-get"), true);
        assert!(matches!(&ci.steps[0].work, Work::Impossible(why) if why.contains("no apt-get")), "{ci:?}");
    }

    #[test]
    fn without_such_crates_there_is_nothing_to_run() {
        let workspace = workspace(&[("core", Value::Null, &[("test", "order")])]);
        assert!(plan_where(&workspace, Some("no apt-get"), true).steps.is_empty());
    }
}
