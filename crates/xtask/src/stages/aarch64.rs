//! Runs the tests of every crate marked `aarch64 = true` as programs for that CPU, in QEMU's user mode, and has clippy compile the rest of
//! the workspace for it. The standard library is compiled from source, because no package has one for the pinned compiler.
//!
//! QEMU translates each instruction to one of this machine, whose memory order is stricter than that of a real aarch64 CPU. So the stage
//! finds code that does not compile or computes something else there, but no missing barrier: those are for loom.

use anyhow::Result;

use super::tsan::targets;
use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::lab;
use crate::tools;
use crate::workspace::{Package, Workspace};

pub(super) const STAGE: Stage = Stage {
    name: "aarch64",
    budget: minutes(25),
    quick: false,
    tools: &[tools::CC, tools::AARCH64_GCC, tools::AARCH64_LIBC, tools::AARCH64_QEMU],
    plan,
};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Starts a program for the target, with the libraries of the cross compiler.
const RUNNER: &str = "qemu-aarch64-static -L /usr/aarch64-linux-gnu";

/// Packages that are not compiled, and the reasons.
const LEFT_OUT: &[(&str, &str)] = &[
    ("pronto-fabric-verbs", "it needs the RDMA libraries of the target"),
    ("pronto-fuzz", "it needs a C++ compiler for libFuzzer"),
];

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    let packages: Vec<&Package> = workspace.marked("aarch64").collect();
    if packages.is_empty() {
        return Ok(plan);
    }
    plan.check("the source of the standard library", lab::provide_std_source);
    let tests = cross("test", workspace)?
        .args(["--no-fail-fast", "--lib"])
        .args(packages.iter().flat_map(|package| ["-p", &package.name]))
        .args(targets(&packages).into_iter().flat_map(|name| ["--test", name]));
    plan.tests(tests, packages.len());
    plan.command(
        cross("clippy", workspace)?
            .args(["--workspace", "--all-targets"])
            .args(LEFT_OUT.iter().flat_map(|(name, _)| ["--exclude", name]))
            .args(["--", "-D", "warnings"]),
    );
    for (name, reason) in LEFT_OUT {
        plan.note(format!("not compiled: {name}: {reason}"));
    }
    Ok(plan)
}

fn cross(subcommand: &str, workspace: &Workspace) -> Result<CommandLine> {
    Ok(lab::std_cargo(subcommand, TARGET)?
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", RUNNER)
        .env("CARGO_TARGET_DIR", workspace.target.join("aarch64").to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;
    use serde_json::{Value, json};

    #[test]
    fn marked_crates_are_tested_and_the_others_compiled() {
        let workspace = workspace(&[
            ("rpc", json!({ "aarch64": true }), &[("lib", "rpc"), ("test", "golden"), ("test", "compile")]),
            ("node", Value::Null, &[("lib", "node"), ("test", "recorder")]),
        ]);
        let plan = plan(&workspace, Effort::Bounded).unwrap();
        let lines: Vec<_> = plan.steps.iter().map(|step| step.work.to_string()).collect();
        assert!(lines[1].ends_with(" --no-fail-fast --lib -p rpc --test golden"), "{lines:?}");
        assert!(
            lines[2].contains(" clippy ") && lines[2].contains("--exclude pronto-fabric-verbs"),
            "{lines:?}"
        );
        assert_eq!(plan.steps[1].programs, 1);
    }

    #[test]
    fn without_marked_crates_there_is_nothing_to_run() {
        let workspace = workspace(&[("node", Value::Null, &[("lib", "node")])]);
        assert!(plan(&workspace, Effort::Bounded).unwrap().steps.is_empty());
    }
}
