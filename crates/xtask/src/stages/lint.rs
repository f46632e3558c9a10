//! Formatting, lints, documentation, style and licences: checks that need no tests.

use std::process::Command;

use anyhow::{Context, Result};

use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::workspace::{Workspace, cargo};
use crate::{licences, tidy, tools};

pub(super) const STAGE: Stage =
    Stage { name: "lint", budget: minutes(3), quick: true, tools: tools::WORKSPACE, plan };

fn plan(_: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    plan.check("components of the toolchain", components);
    plan.check("tidy", tidy::check);
    plan.command(CommandLine::cargo(["fmt", "--all", "--check"]));
    plan.check("licences", licences::check);
    plan.command(CommandLine::cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    plan.command(
        CommandLine::cargo(["doc", "--workspace", "--no-deps", "--document-private-items"])
            // The documentation is for developers of the project, so private items may be linked.
            .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links"),
    );
    Ok(plan)
}

/// Reports missing components of the toolchain, because cargo's own error does not name them.
fn components(_: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (command, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let output =
            Command::new(cargo()).args([command, "--version"]).output().context("cannot start cargo")?;
        if !output.status.success() {
            findings.push(format!("{component} is missing; run: rustup component add {component}"));
        }
    }
    Ok(findings)
}
