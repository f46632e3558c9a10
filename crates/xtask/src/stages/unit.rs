//! Unit, conformance and documentation tests of the whole workspace, except those of other stages, and one run of each benchmark.

use anyhow::{Result, ensure};

use super::{Effort, Plan, Stage, faults, foreign, minutes, simulation};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::{Package, Workspace};

pub(super) const STAGE: Stage =
    Stage { name: "unit", budget: minutes(4), quick: true, tools: tools::UNIT, plan };

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    // `cargo test --examples` builds their unit tests alone, and some tests start an example.
    plan.command(selected(workspace, &["build"]).arg("--examples"));
    plan.tests(command(workspace), 1);
    plan.command(selection(workspace).arg("--doc"));
    plan.command(benches(workspace).args(["--", "--test"]));
    plan.output("the benchmarks that ran", ran);
    Ok(plan)
}

/// Returns the command that runs the benchmarks of the workspace, built like the tests. With `-- --test`, each runs once, unmeasured.
pub(super) fn benches(workspace: &Workspace) -> CommandLine {
    let mut names: Vec<_> =
        workspace.packages.iter().flat_map(|package| package.targets_of("bench")).collect();
    names.sort_unstable();
    selected(workspace, &["bench", "--profile", "dev", "--no-fail-fast"])
        .args(names.into_iter().flat_map(|name| ["--bench", name]))
}

/// Checks that a benchmark ran, so that an unknown option or filter is not a success.
fn ran(output: &[String]) -> Result<()> {
    let ended = output.iter().filter(|line| *line == "Success").count();
    let begun = output.iter().filter(|line| line.starts_with("Testing ")).count();
    ensure!(begun > 0 && begun == ended, "{begun} benchmarks began, and {ended} ended");
    Ok(())
}

/// Returns the test command of this stage, without the documentation tests.
pub(super) fn command(workspace: &Workspace) -> CommandLine {
    let mut names: Vec<_> = workspace
        .packages
        .iter()
        .filter(|package| !runs_elsewhere(package))
        .flat_map(|package| {
            let tests = package.targets.iter().filter(|target| target.kind == "test");
            let here =
                tests.filter(|test| !foreign::claims(package, test) && !faults::claims(package, &test.name));
            here.map(|test| test.name.as_str())
        })
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
    selected(workspace, &["test", "--no-fail-fast"])
}

fn selected(workspace: &Workspace, command: &[&str]) -> CommandLine {
    let excluded = workspace.packages.iter().filter(|package| runs_elsewhere(package));
    CommandLine::cargo(command.iter().copied())
        .arg("--workspace")
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
    fn benchmarks_that_do_not_run_or_do_not_end_are_a_failure() {
        let lines = |lines: &[&str]| ran(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        assert!(lines(&["Testing ring/line", "Success", ""]).is_ok());
        assert!(lines(&[]).is_err() && lines(&["Testing ring/line"]).is_err());
        let benches = workspace(&[("bench", Value::Null, &[("bench", "hot_path")])]);
        let line = super::benches(&benches).to_string();
        assert!(line.ends_with(" bench --profile dev --no-fail-fast --workspace --bench hot_path"), "{line}");
    }

    #[test]
    fn tests_of_other_stages_are_excluded() {
        let mut workspace = workspace(&[
            ("core", Value::Null, &[("lib", "core"), ("test", "order"), ("test", "faults_kill")]),
            ("pronto-sim", Value::Null, &[("lib", "pronto_sim"), ("test", "partition")]),
            ("worlds", json!({ "simulation": true }), &[("test", "crash")]),
            ("adapters", json!({ "foreign": true }), &[("test", "ucx"), ("test", "alone")]),
        ]);
        let adapters = workspace.packages.iter_mut().find(|package| package.name == "adapters");
        adapters.expect("the sample").targets[0].required_features = vec!["ucx".to_owned()];
        let line = command(&workspace).to_string();
        assert!(line.ends_with(
            " test --no-fail-fast --workspace --exclude pronto-sim --exclude worlds --lib --bins --examples --test alone --test order"
        ));
    }
}
