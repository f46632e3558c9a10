//! The adapters for other libraries' traits, in `adapters/`: a workspace of its own, so that their dependencies stay out of Pronto's lock
//! file. Formatting, lints, tests, and one run of each example.

use anyhow::Result;

use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::Workspace;

/// The budget is that of a warm build. A cold one takes several minutes.
pub(super) const STAGE: Stage =
    Stage { name: "adapters", budget: minutes(1), quick: false, tools: &[tools::CC], plan };

/// The folder of the workspace.
const FOLDER: &str = "adapters";

/// The number of test programs that must run a test.
const PROGRAMS: usize = 3;

/// The examples. Each ends by itself. A test runs the program of `pronto-stream-grpc`.
const EXAMPLES: [&str; 2] = ["echo", "layers"];

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    let cargo = |arguments: &[&str]| {
        CommandLine::cargo(arguments.iter().copied())
            .env("CARGO_TARGET_DIR", workspace.target.join(FOLDER).to_string_lossy())
            .folder(workspace.root.join(FOLDER))
    };
    let config = workspace.root.to_string_lossy();
    plan.command(cargo(&["fmt", "--all", "--check", "--", "--config-path", &config]));
    plan.command(cargo(&[
        "clippy",
        "--locked",
        "--workspace",
        "--all-features",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]));
    plan.tests(cargo(&["test", "--locked", "--workspace", "--all-features", "--no-fail-fast"]), PROGRAMS);
    // The test command has built them. `cargo run` would build their dependencies again, with the features of one package.
    for example in EXAMPLES {
        let program = workspace.target.join(FOLDER).join("debug/examples").join(example);
        plan.command(CommandLine::new(&program.to_string_lossy(), [""; 0]));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;

    #[test]
    fn every_example_of_the_workspace_runs() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FOLDER);
        let mut found = Vec::new();
        for package in std::fs::read_dir(folder).unwrap() {
            let Ok(examples) = std::fs::read_dir(package.unwrap().path().join("examples")) else { continue };
            found.extend(examples.map(|example| example.unwrap().path().file_stem().unwrap().to_owned()));
        }
        found.sort();
        assert_eq!(found, EXAMPLES);
        let plan = plan(&workspace(&[]), Effort::Bounded).unwrap();
        let lines: Vec<_> = plan.steps.iter().map(|step| step.work.to_string()).collect();
        for example in EXAMPLES {
            assert!(
                lines.iter().any(|line| line.contains(&format!("debug/examples/{example}"))),
                "{lines:?}"
            );
        }
    }
}
