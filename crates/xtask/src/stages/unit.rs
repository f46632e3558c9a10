//! Unit, conformance and documentation tests of the whole workspace, except those of other stages.

use anyhow::Result;

use super::{Effort, Plan, Stage, faults, foreign, minutes, simulation};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::{Package, Workspace};

pub(super) const STAGE: Stage =
    Stage { name: "unit", budget: minutes(4), quick: true, tools: tools::WORKSPACE, plan };

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    plan.tests(command(workspace), 1);
    plan.command(selection(workspace).arg("--doc"));
    Ok(plan)
}

/// Returns the test command of this stage, without the documentation tests.
pub(super) fn command(workspace: &Workspace) -> CommandLine {
    let mut names: Vec<_> = workspace
        .packages
        .iter()
        .filter(|package| !runs_elsewhere(package) && !foreign::claims(package))
        .flat_map(|package| package.targets_of("test").filter(|name| !faults::claims(package, name)))
        .collect();
    names.sort_unstable();
    names.dedup();
    selection(workspace)
        .args(["--lib", "--bins", "--examples"])
        .args(names.into_iter().flat_map(|name| ["--test", name]))
}

/// Returns `cargo test` for every package that is tested in the dev profile. Stages with the same selection share its build, because
/// cargo unites features over the selected packages.
pub(crate) fn selection(workspace: &Workspace) -> CommandLine {
    let excluded = workspace.packages.iter().filter(|package| runs_elsewhere(package));
    CommandLine::cargo(["test", "--workspace", "--no-fail-fast"])
        .args(excluded.flat_map(|package| ["--exclude".to_owned(), package.name.clone()]))
}

fn runs_elsewhere(package: &Package) -> bool {
    simulation::claims(package)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;
    use serde_json::{Value, json};

    #[test]
    fn tests_of_other_stages_are_excluded() {
        let workspace = workspace(&[
            ("core", Value::Null, &[("lib", "core"), ("test", "order"), ("test", "faults_kill")]),
            ("pronto-sim", Value::Null, &[("lib", "pronto_sim"), ("test", "partition")]),
            ("worlds", json!({ "simulation": true }), &[("test", "crash")]),
            ("adapters", json!({ "foreign": true }), &[("test", "ucx")]),
        ]);
        let line = command(&workspace).to_string();
        assert!(line.ends_with(
            " test --workspace --no-fail-fast --exclude pronto-sim --exclude worlds --lib --bins --examples --test order"
        ));
    }
}
