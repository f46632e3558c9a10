//! Tests that need their own kernel: in the machine of the lab, and next to it for tests that break machines.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes, unit};
use crate::child::CommandLine;
use crate::lab;
use crate::tools;
use crate::workspace::Workspace;

/// The budget applies to a machine that has built the lab before. The first run also fetches the packages.
pub(super) const STAGE: Stage =
    Stage { name: "lab", budget: minutes(15), quick: false, tools: tools::WORKSPACE, plan };

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    plan_where(workspace, lab::unavailable().as_deref(), lab::is_ci())
}

/// Returns the commands if the lab is available. Otherwise the tests are skipped with a note, and CI fails.
fn plan_where(workspace: &Workspace, unavailable: Option<&str>, is_ci: bool) -> Result<Plan> {
    let mut plan = Plan::default();
    let inside = lab::targets(workspace)?.len();
    let drivers = lab::drivers(workspace);
    if inside + drivers.len() == 0 {
        return Ok(plan);
    }
    if let Some(reason) = unavailable {
        let skipped = format!("SKIPPED {} test programs: {reason}", inside + drivers.len());
        if is_ci {
            return Ok(Plan::impossible(&anyhow::anyhow!("{skipped}; CI must run them")));
        }
        plan.note(skipped);
        return Ok(plan);
    }
    // Not with this program's own file: the tests of the workspace may have replaced it.
    plan.command(CommandLine::cargo(["xtask", "lab", "build"]));
    if inside > 0 {
        plan.tests(CommandLine::cargo(["xtask", "lab", "test"]), inside);
    }
    if !drivers.is_empty() {
        let names = drivers.iter().flat_map(|(_, name)| ["--test", name]);
        let line = unit::selection(workspace).args(names).args(["--", "--ignored", "--test-threads=1"]);
        plan.tests(line, drivers.len());
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::Work;
    use crate::workspace::tests::workspace;
    use serde_json::Value;

    fn lines(plan: &Plan) -> Vec<String> {
        plan.steps.iter().map(|step| step.work.to_string()).collect()
    }

    #[test]
    fn tests_run_in_the_machine_and_next_to_it() {
        let workspace = workspace(&[("x", Value::Null, &[("test", "lab_guest"), ("test", "drives_lab")])]);
        let plan = plan_where(&workspace, None, true).unwrap();
        let lines = lines(&plan);
        assert!(lines[0].ends_with(" lab build") && lines[1].ends_with(" lab test"), "{lines:?}");
        assert!(lines[2].ends_with(" --test drives_lab -- --ignored --test-threads=1"), "{lines:?}");
        assert_eq!(plan.steps.iter().map(|step| step.programs).collect::<Vec<_>>(), [0, 1, 1]);
    }

    #[test]
    fn unavailable_lab_tests_are_skipped_except_in_ci() {
        let workspace = workspace(&[("x", Value::Null, &[("test", "lab_guest")])]);
        let here = plan_where(&workspace, Some("no QEMU"), false).unwrap();
        assert!(here.steps.is_empty() && here.notes[0].ends_with("no QEMU"), "{here:?}");
        let ci = plan_where(&workspace, Some("no QEMU"), true).unwrap();
        assert!(matches!(&ci.steps[0].work, Work::Impossible(why) if why.contains("no QEMU")), "{ci:?}");
    }

    #[test]
    fn without_tests_for_the_lab_nothing_is_built() {
        let workspace = workspace(&[("x", Value::Null, &[("test", "order")])]);
        assert!(plan_where(&workspace, None, true).unwrap().steps.is_empty());
    }
}
