//! Licences, banned crates and sources of every dependency, checked against deny.toml.
//!
//! Reads the part of cargo-deny's configuration that this project uses, and rejects other keys. If cargo-deny is installed, it
//! does the check instead.

mod policy;
mod spdx;

use core::time::Duration;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::child::{CommandLine, End};
use crate::tools;
use crate::workspace::{Workspace, metadata};
use policy::{Dependency, Policy};

const POLICY: &str = "deny.toml";

/// The workspaces, each with its own policy.
const WORKSPACES: [&str; 3] = ["", "bench/peers", "adapters"];

/// Time limit of cargo-deny, which takes seconds.
const LIMIT: Duration = Duration::from_secs(300);

/// Returns one finding for each dependency that violates the policy.
///
/// # Errors
/// The dependencies or the policy cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for folder in WORKSPACES.map(|folder| workspace.root.join(folder)) {
        findings.extend(if tools::find("cargo-deny").is_some() {
            cargo_deny(&folder)?
        } else {
            ours(&folder)?
        });
    }
    Ok(findings)
}

fn ours(folder: &Path) -> Result<Vec<String>> {
    let path = folder.join(POLICY);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let policy = Policy::read(&text).with_context(|| format!("in {}", path.display()))?;
    let dependencies = dependencies(&metadata(folder, &["--locked"])?)?;
    println!("{} packages against {}", dependencies.len(), path.display());
    Ok(dependencies.iter().flat_map(|dependency| policy.objections(dependency)).collect())
}

fn cargo_deny(folder: &Path) -> Result<Vec<String>> {
    let command = CommandLine::cargo(["deny", "check", "licenses", "bans", "sources"]).folder(folder);
    match command.run(LIMIT)?.end {
        End::Exited(status) if status.success() => Ok(Vec::new()),
        End::Exited(status) => Ok(vec![format!("cargo-deny: {status}")]),
        End::Killed => Ok(vec!["cargo-deny hangs".into()]),
    }
}

/// Returns the packages of the dependency graph, on every platform and under every `cfg`.
fn dependencies(metadata: &Value) -> Result<Vec<Dependency>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata has no dependency graph")?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let used = packages.iter().filter(|package| nodes.iter().any(|node| node["id"] == package["id"]));
    used.map(|package| {
        let depends = |node: &&Value| {
            let dependencies = node["dependencies"].as_array();
            dependencies.is_some_and(|dependencies| dependencies.contains(&package["id"]))
        };
        let users: Vec<&Value> = nodes.iter().filter(depends).map(|node| &node["id"]).collect();
        let users = packages.iter().filter(|user| users.contains(&&user["id"]));
        Dependency::read(package, users.filter_map(|user| user["name"].as_str()))
    })
    .collect()
}
