//! Formatting, lints, documentation, style, licences: everything that is wrong before anything runs.

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
            // The project's documentation is for who works on it: private items are there to be linked to.
            .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links"),
    );
    Ok(plan)
}

/// Names what the toolchain lacks, as cargo itself only says that it does not know the command.
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
