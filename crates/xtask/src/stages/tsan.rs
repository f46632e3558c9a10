//! Runs the tests of every crate marked `tsan = true` under ThreadSanitizer. The standard library is compiled with it too: otherwise the
//! sanitizer would not see how its locks and channels order the accesses of threads.
//!
//! The stage first checks the sanitizer itself, with a program that has a data race on request. The file `tsan/suppressions` lists the
//! reports that are none, and the reasons.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::asan::TARGET;
use super::{Effort, Plan, Stage, faults, minutes};
use crate::child::CommandLine;
use crate::lab;
use crate::tools;
use crate::workspace::{Package, Workspace};

pub(super) const STAGE: Stage =
    Stage { name: "tsan", budget: minutes(30), quick: false, tools: &[tools::CC], plan };

/// Test targets that run the compiler, and no threads of ours.
const COMPILERS: &[&str] = &["compile", "typestate"];

/// The exit code of a program in which the sanitizer found a race, unless the program fails by itself.
const FOUND: i32 = 66;

fn plan(workspace: &Workspace, _: Effort) -> Result<Plan> {
    let mut plan = Plan::default();
    let packages: Vec<&Package> = workspace.marked("tsan").collect();
    if packages.is_empty() {
        return Ok(plan);
    }
    plan.check("the source of the standard library", lab::provide_std_source);
    plan.check("write a program with a race", write);
    plan.command(with_sanitizer("build", workspace)?.folder(folder(workspace)));
    plan.check("a planted race is reported", planted);
    let names = packages.iter().flat_map(|package| ["-p", &package.name]);
    // Tests start them; `cargo test` would build them as tests.
    plan.command(with_sanitizer("build", workspace)?.arg("--examples").args(names.clone()));
    let suppressions = workspace.root.join("crates/xtask/tsan/suppressions");
    let tests = with_sanitizer("test", workspace)?
        .env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()))
        // A panic that a test expects would look up the names of its functions for longer than a caller waits.
        .env("RUST_BACKTRACE", "0")
        .args(["--no-fail-fast", "--lib"])
        .args(names)
        .args(targets(&packages).into_iter().flat_map(|name| ["--test", name]));
    plan.tests(tests, packages.len());
    Ok(plan)
}

fn with_sanitizer(subcommand: &str, workspace: &Workspace) -> Result<CommandLine> {
    Ok(lab::std_cargo(subcommand, TARGET)?
        .env("RUSTFLAGS", "-Zsanitizer=thread")
        // Without it, tests that copy megabytes exceed the limits of liveness.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_TARGET_DIR", workspace.target.join("tsan").to_string_lossy()))
}

/// Returns the test targets of packages that break nothing and need neither the lab nor a compiler, without duplicates.
pub(super) fn targets<'p>(packages: &[&'p Package]) -> Vec<&'p str> {
    let mut names: Vec<_> = packages
        .iter()
        .flat_map(|package| package.targets_of("test").filter(|name| !faults::claims(package, name)))
        .filter(|name| !name.starts_with("lab") && !COMPILERS.contains(name))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the folder of the program with the race, which is written again in every run.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("tsan-race")
}

fn write(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = folder(workspace);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let source = workspace.root.join("crates/xtask/tsan/race.rs");
    // The profile is that of the workspace, so that both share the standard library.
    let manifest = format!(
        "[package]\nname = \"race\"\nedition = \"2024\"\n\n[workspace]\n\n[[bin]]\nname = \"race\"\n\
         path = \"{}\"\n\n[profile.dev]\ndebug = \"line-tables-only\"\n",
        source.display()
    );
    fs::write(folder.join("Cargo.toml"), manifest).context("cannot write Cargo.toml")?;
    Ok(Vec::new())
}

/// Runs the program with and without its race. Returns what the sanitizer got wrong.
fn planted(workspace: &Workspace) -> Result<Vec<String>> {
    let program = workspace.target.join("tsan").join(TARGET).join("debug/race");
    let mut findings = Vec::new();
    for (argument, expected) in [("race", Some(FOUND)), ("ordered", Some(0))] {
        let output = CommandLine::new(&program.to_string_lossy(), [argument])
            .command()
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let report = String::from_utf8_lossy(&output.stderr);
        let reported = report.contains("ThreadSanitizer: data race");
        if output.status.code() != expected || reported != (expected == Some(FOUND)) {
            findings.push(format!("race {argument}: {}, expected {expected:?}\n{report}", output.status));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;
    use serde_json::{Value, json};

    #[test]
    fn marked_crates_run_all_tests_except_those_of_other_stages() {
        let workspace = workspace(&[
            (
                "node",
                json!({ "tsan": true }),
                &[("lib", "node"), ("test", "calls"), ("test", "faults_kill"), ("test", "lab_network")],
            ),
            ("rpc", json!({ "tsan": true }), &[("test", "compile"), ("test", "calls")]),
            ("wire", Value::Null, &[("lib", "wire"), ("test", "golden")]),
        ]);
        let plan = plan(&workspace, Effort::Bounded).unwrap();
        let last = plan.steps.last().unwrap();
        let line = last.work.to_string();
        assert!(line.ends_with(" --no-fail-fast --lib -p node -p rpc --test calls"), "{line}");
        assert_eq!(last.programs, 2);
    }

    #[test]
    fn without_marked_crates_there_is_nothing_to_run() {
        let workspace = workspace(&[("wire", Value::Null, &[("lib", "wire")])]);
        assert!(plan(&workspace, Effort::Bounded).unwrap().steps.is_empty());
    }
}
