//! Fuzzes every binary of the crates marked `fuzz = true` with libFuzzer, guided by coverage.
//!
//! The compiler flags are those of cargo-fuzz. Except for AddressSanitizer, they work with a stable compiler.

use core::time::Duration;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::asan::TARGET;
use super::{Effort, Plan, Stage, minutes};
use crate::child::CommandLine;
use crate::lab;
use crate::tools;
use crate::workspace::{Package, Target, Workspace};

pub(super) const STAGE: Stage =
    Stage { name: "fuzz", budget: minutes(2), quick: false, tools: tools::WORKSPACE, plan };

/// Default time that all targets share. The rest of the budget is for building.
const TIME: Duration = Duration::from_secs(40);

/// Compiler flags that make a program report its edges and compared values to libFuzzer.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

fn plan(workspace: &Workspace, effort: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    let targets: Vec<&Target> = targets(workspace).map(|(_, target)| target).collect();
    if targets.is_empty() {
        return Ok(plan);
    }
    let sanitizing = tools::sanitizing_cargo(TARGET);
    if sanitizing.is_none() {
        if lab::is_ci() {
            return Ok(super::asan::without_sanitizer(true));
        }
        plan.note("without AddressSanitizer: neither the pinned toolchain nor a nightly one has it here");
    }
    let seconds = seconds(targets.len(), effort)?;
    plan.check("create folders for inputs", make_folders);
    plan.command(build(workspace, sanitizing));
    for (package, target) in self::targets(workspace) {
        plan.command(run(workspace, package, target, seconds));
    }
    Ok(plan)
}

fn targets(workspace: &Workspace) -> impl Iterator<Item = (&Package, &Target)> {
    workspace.marked("fuzz").flat_map(|p| p.targets.iter().filter(|t| t.kind == "bin").map(move |t| (p, t)))
}

fn build(workspace: &Workspace, sanitizing: Option<CommandLine>) -> CommandLine {
    let (cargo, flags) = match sanitizing {
        Some(cargo) => (cargo, format!("{COVERAGE} -Zsanitizer=address")),
        None => (CommandLine::cargo([""; 0]), COVERAGE.to_owned()),
    };
    let mut features: Vec<_> = targets(workspace)
        .flat_map(|(p, t)| t.required_features.iter().map(|f| format!("{}/{f}", p.name)))
        .collect();
    features.sort_unstable();
    features.dedup();
    let mut command = cargo
        .args(["build", "--release", "--target", TARGET, "--bins"])
        // The fuzzer itself is C++ code. Optimising it takes longer than running it.
        .args(["--config", "profile.release.package.libfuzzer-sys.opt-level=1"])
        .args(workspace.marked("fuzz").flat_map(|package| ["-p", &package.name]));
    if !features.is_empty() {
        command = command.args(["--features", &features.join(",")]);
    }
    command
        .env("RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", folder(workspace).to_string_lossy())
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true")
}

/// Runs one target. New inputs are kept below the target folder, so that the next run continues from them. Seeds come from the tree.
/// The output names an input that fails.
fn run(workspace: &Workspace, package: &Package, target: &Target, seconds: u64) -> CommandLine {
    let program = folder(workspace).join(TARGET).join("release").join(&target.name);
    let mut command = CommandLine::new(&program.to_string_lossy(), [""; 0])
        .arg(format!("-max_total_time={seconds}"))
        .args(["-timeout=10", "-rss_limit_mb=2048", "-verbosity=0", "-print_final_stats=1"])
        // A peer cannot make this side allocate more in one piece, whatever length it claims.
        .arg("-malloc_limit_mb=64")
        .arg(format!("-artifact_prefix={}/", failures(workspace, target).display()))
        .arg(found(workspace, target).to_string_lossy());
    let seeds = package.folder.join("seeds").join(&target.name);
    if seeds.is_dir() {
        command = command.arg(seeds.to_string_lossy());
    }
    command
}

/// Returns the time of each target in seconds.
fn seconds(targets: usize, effort: Effort) -> Result<u64> {
    let time = match effort {
        Effort::Bounded => TIME,
        Effort::Full(time) => time,
    };
    match std::env::var("PRONTO_FUZZ_SECONDS") {
        Ok(text) => {
            text.parse().with_context(|| format!("PRONTO_FUZZ_SECONDS is `{text}`, not a number of seconds"))
        }
        Err(_) => Ok((time.as_secs() / targets as u64).max(1)),
    }
}

fn make_folders(workspace: &Workspace) -> Result<Vec<String>> {
    for (_, target) in targets(workspace) {
        for folder in [found(workspace, target), failures(workspace, target)] {
            fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
    }
    Ok(Vec::new())
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("fuzz")
}

fn found(workspace: &Workspace, target: &Target) -> PathBuf {
    folder(workspace).join("found").join(&target.name)
}

fn failures(workspace: &Workspace, target: &Target) -> PathBuf {
    folder(workspace).join("failures").join(&target.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;
    use serde_json::{Value, json};

    #[test]
    fn every_binary_of_a_marked_crate_is_a_target() {
        let workspace = workspace(&[
            (
                "pronto-fuzz",
                json!({ "fuzz": true }),
                &[("lib", "pronto_fuzz"), ("bin", "header"), ("bin", "codec")],
            ),
            ("pronto-node", Value::Null, &[("bin", "prontod")]),
        ]);
        let names: Vec<_> = targets(&workspace).map(|(_, target)| target.name.as_str()).collect();
        assert_eq!(names, ["header", "codec"]);
        let line = build(&workspace, Some(CommandLine::new("cargo", [""; 0]))).to_string();
        assert!(line.contains("-Zsanitizer=address") && line.contains("-p pronto-fuzz"), "{line}");
        assert!(!build(&workspace, None).to_string().contains("-Zsanitizer"));
    }

    #[test]
    fn the_targets_share_the_time() {
        assert_eq!(seconds(4, Effort::Full(minutes(2))).unwrap(), 30);
        assert_eq!(seconds(100, Effort::Bounded).unwrap(), 1);
    }
}
