//! Runs the demo as described in the README, and checks its report.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::Workspace;

pub(super) const STAGE: Stage =
    Stage { name: "demo", budget: minutes(1), quick: false, tools: &[tools::CC], plan };

/// The program that `cargo run` at the root runs.
const BINARY: &str = "pronto";

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    if workspace.packages.iter().any(|p| p.is_default && p.targets_of("bin").any(|name| name == BINARY)) {
        plan.command(CommandLine::cargo(["run", "--release", "--", "demo", "--json"]));
        plan.output("the demo's verdict", verdict);
    }
    Ok(plan)
}

/// Checks the report of the demo: one JSON object and nothing else on stdout, without any failure.
fn verdict(output: &[String]) -> Result<()> {
    let result: Value = serde_json::from_str(&output.join("\n")).context("stdout is not one JSON object")?;
    for count in ["lost", "duplicated", "out_of_order", "corrupt"] {
        ensure!(result[count] == 0, "`{count}` is {}, expected 0", result[count]);
    }
    for truth in ["result_equal", "reconciled"] {
        ensure!(result[truth] == true, "`{truth}` is {}, expected true", result[truth]);
    }
    ensure!(result["messages"].as_u64() > Some(0), "no message was sent");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;

    const GOOD: &str = r#"{"messages": 9, "lost": 0, "duplicated": 0, "out_of_order": 0, "corrupt": 0,
        "result_equal": true, "reconciled": true}"#;

    #[test]
    fn the_demo_runs_if_its_binary_is_a_default() {
        let steps = |packages| plan(&workspace(packages), Effort::Bounded).unwrap().steps.len();
        assert_eq!(steps(&[("pronto-daemon", Value::Null, &[("bin", "prontod"), ("bin", "pronto")])]), 2);
        assert_eq!(steps(&[("pronto-bench", Value::Null, &[("bin", "pronto-bench")])]), 0);
    }

    #[test]
    fn only_a_clean_run_passes() {
        assert!(verdict(&[GOOD.into()]).is_ok());
        for (from, to) in [
            ("\"lost\": 0", "\"lost\": 1"),
            ("\"reconciled\": true", "\"x\": 1"),
            ("\"messages\": 9", "\"messages\": 0"),
        ] {
            assert!(verdict(&[GOOD.replace(from, to)]).is_err(), "{to}");
        }
        assert!(verdict(&["progress".into(), GOOD.into()]).is_err());
    }
}
