//! Links every crate marked `no_std = true` into a program that has neither the standard library nor a C library, and runs the
//! program.
//!
//! The program's own allocator and panic handler would collide with those of `std`, so a crate that uses `std` does not compile.
//! A crate that calls the C library does not link.

use core::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::{Package, Workspace};

pub(super) const STAGE: Stage =
    Stage { name: "no-std", budget: minutes(1), quick: true, tools: &[tools::CC], plan };

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    if workspace.marked("no_std").next().is_none() {
        return Ok(plan);
    }
    let folder = folder(workspace);
    let program = folder.join("program");
    plan.check("write the program", write);
    plan.command(
        CommandLine::cargo(["fmt", "--check", "--", "--config-path"])
            .arg(workspace.root.to_string_lossy())
            .folder(&folder),
    );
    plan.command(
        CommandLine::cargo(["build"])
            .env("CARGO_TARGET_DIR", folder.join("target").to_string_lossy())
            .folder(&folder),
    );
    plan.command(
        CommandLine::new(
            "cc",
            ["-static", "-nostdlib", "-ffreestanding", "-O1", "-fno-tree-loop-distribute-patterns"],
        )
        .arg(source(workspace, "start.c").to_string_lossy())
        .args(["-Wl,--whole-archive", "target/debug/libprobe.a", "-Wl,--no-whole-archive", "-o", "program"])
        .folder(&folder),
    );
    plan.command(CommandLine::new(&program.to_string_lossy(), [""; 0]));
    Ok(plan)
}

/// Returns the folder of the program, which is written again in every run.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("no-std")
}

fn source(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.root.join("crates/xtask/no-std").join(name)
}

/// Writes a package outside the workspace, with the workspace's versions of all dependencies. Inside the workspace, cargo would unite
/// its features with those of crates that use `std`.
fn write(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = folder(workspace);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let packages: Vec<&Package> = workspace.marked("no_std").collect();
    for (name, text) in [
        ("Cargo.toml", manifest(&packages)),
        ("lib.rs", root(&packages, &source(workspace, "runtime.rs").to_string_lossy())),
    ] {
        fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    fs::copy(workspace.root.join("Cargo.lock"), folder.join("Cargo.lock"))
        .context("cannot copy Cargo.lock")?;
    Ok(Vec::new())
}

fn manifest(packages: &[&Package]) -> String {
    let mut text = String::from(
        "[package]\nname = \"probe\"\nedition = \"2024\"\n\n[workspace]\n\n[lib]\npath = \"lib.rs\"\n\
         crate-type = [\"staticlib\"]\n\n[profile.dev]\npanic = \"abort\"\n\n[dependencies]\n",
    );
    for package in packages {
        let path = package.folder.display();
        let _ = writeln!(text, "{} = {{ path = \"{path}\", default-features = false }}", package.name);
    }
    text
}

fn root(packages: &[&Package], runtime: &str) -> String {
    let mut text = String::from("//! Written by `cargo xtask test`.\n#![no_std]\nextern crate alloc;\n");
    for package in packages {
        let _ = writeln!(text, "extern crate {} as _;", package.name.replace('-', "_"));
    }
    let _ = writeln!(text, "#[path = \"{runtime}\"]\nmod runtime;");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;
    use serde_json::{Value, json};

    #[test]
    fn the_program_depends_on_marked_crates_without_default_features() {
        let workspace = workspace(&[
            ("pronto-wire", json!({ "no_std": true }), &[("lib", "pronto_wire")]),
            ("pronto-node", Value::Null, &[("lib", "pronto_node")]),
        ]);
        let packages: Vec<&Package> = workspace.marked("no_std").collect();
        let manifest = manifest(&packages);
        assert!(manifest.contains("pronto-wire = { path = \"/w/pronto-wire\", default-features = false }"));
        assert!(!manifest.contains("pronto-node"));
        assert!(root(&packages, "/r").contains("extern crate pronto_wire as _;"));
    }
}
