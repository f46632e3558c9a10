//! `cargo xtask refute`: breaks what a claim is about, in a copy of the tree, and expects the experiment to say that the claim no longer
//! holds.
//!
//! A claim that no fault can refute says nothing. The faults are listed in `bench/refuted.toml`. They are planted in the implementation,
//! never in the function that judges the claim.

mod list;
mod tree;

use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::child::{CommandLine, End, now};
use crate::workspace::Workspace;
use list::Fault;
use tree::Tree;

/// Time limits of a build, and of a run, which takes a minute.
const BUILD: Duration = Duration::from_secs(3_600);
const RUN: Duration = Duration::from_secs(600);

/// Number of runs without the fault in one of which the claim has to hold: a busy machine can spoil a run.
const ATTEMPTS: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Refute only these claims, such as X25 (default: all that are listed)
    id: Vec<String>,
}

/// Plants the chosen faults, one after the other.
///
/// # Errors
/// A file cannot be read or written, a command does not start, or the copy does not build. A claim that a fault does not refute is an exit
/// code, not an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let all = list::read(&workspace.root)?;
    for id in &options.id {
        ensure!(all.iter().any(|fault| fault.id == *id), "no fault is listed for {id}");
    }
    let is_chosen = |fault: &&Fault| options.id.is_empty() || options.id.contains(&fault.id);
    let chosen: Vec<_> = all.iter().filter(is_chosen).collect();
    let tree = Tree::copy(workspace)?;
    let bench = Bench::of(&tree);
    println!("building the experiments in {}", tree.root.display());
    ensure!(bench.build()?, "the copy does not build: {}", bench.build);
    let mut without = Vec::new();
    for (at, fault) in (1..).zip(&chosen) {
        println!("{at:>3}/{} {}, without a fault: {}", chosen.len(), fault.id, fault.run);
        without.push(bench.holding(fault)?);
    }
    let mut findings = Vec::new();
    let mut table = vec!["id               without        with           took   broken".to_owned()];
    for ((at, fault), without) in (1..).zip(&chosen).zip(without) {
        let begun = now();
        println!("{at:>3}/{} {}: {}", chosen.len(), fault.id, fault.breaks);
        let with = tree.with(fault, || bench.refuted(fault))?;
        findings.extend(finding(fault, &without, &with));
        let took = begun.elapsed().as_secs();
        table.push(format!("{:<16} {without:<14} {with:<14} {took:>4} s {}", fault.id, fault.breaks));
    }
    table.iter().for_each(|line| println!("{line}"));
    Ok(crate::verdict("refute", &findings))
}

/// Returns a finding unless the claim holds without the fault, and holds in part or not at all with it.
fn finding(fault: &Fault, without: &str, with: &str) -> Option<String> {
    let Fault { id, breaks, .. } = fault;
    if without != HOLDS {
        Some(format!("{id}: {without} without the fault, so this machine cannot refute it"))
    } else if REFUTED.contains(&with) {
        None
    } else {
        Some(format!("{id}: {with} with the fault: {breaks}"))
    }
}

const HOLDS: &str = "holds";
const REFUTED: [&str; 2] = ["in part", "does not hold"];

/// The commands that build the program of the experiments, and run them.
struct Bench {
    build: CommandLine,
    program: PathBuf,
}

impl Bench {
    fn of(tree: &Tree) -> Self {
        let target = tree.root.join("target");
        let build = CommandLine::cargo(["build", "--quiet", "--release", "-p", "pronto-bench", "--bin"])
            .arg("pronto-bench")
            .folder(&tree.root)
            .env("CARGO_TARGET_DIR", target.to_string_lossy())
            // Measured programs are optimised, but need not be linked as a whole for effects this large.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "1")
            // A fault may leave code unused.
            .env("RUSTFLAGS", "-Awarnings");
        Self { build, program: target.join("release/pronto-bench") }
    }

    fn build(&self) -> Result<bool> {
        Ok(matches!(self.build.run(BUILD)?.end, End::Exited(status) if status.success()))
    }

    /// Returns the verdict without a fault, from the first run in which the claim holds.
    fn holding(&self, fault: &Fault) -> Result<String> {
        let mut verdict = String::new();
        for _ in 0..ATTEMPTS {
            verdict = self.verdict(fault)?;
            if verdict == HOLDS {
                break;
            }
        }
        Ok(verdict)
    }

    /// Returns the verdict with the planted fault.
    fn refuted(&self, fault: &Fault) -> Result<String> {
        if self.build()? { self.verdict(fault) } else { Ok("does not compile".to_owned()) }
    }

    /// Returns the verdict of a run, or the reason why it has none.
    fn verdict(&self, fault: &Fault) -> Result<String> {
        let arguments = fault.run.split_whitespace().chain(["--json"]);
        let run = CommandLine::new(&self.program.to_string_lossy(), arguments).quiet();
        let outcome = run.run(RUN)?;
        let status = match outcome.end {
            End::Exited(status) => status,
            End::Killed => return Ok("time limit".to_owned()),
        };
        if !status.success() {
            return Ok("run failed".to_owned());
        }
        let json = outcome.output.last().with_context(|| format!("`{run}` printed nothing"))?;
        let result: Value = serde_json::from_str(json).with_context(|| format!("`{run}` printed no JSON"))?;
        Ok(verdict_of(&result, &fault.id).unwrap_or("not judged").to_owned())
    }
}

/// Returns the verdict on a claim in the result of a run.
fn verdict_of<'a>(result: &'a Value, id: &str) -> Option<&'a str> {
    let claims = result["claims"].as_array()?;
    claims.iter().find(|claim| claim["id"] == id)?["verdict"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_that_of_the_claim() {
        let result = serde_json::json!({ "claims": [
            { "id": "X24", "verdict": "in part" }, { "id": "X25", "verdict": "holds" }
        ] });
        assert_eq!(verdict_of(&result, "X25"), Some("holds"));
        assert_eq!(verdict_of(&result, "X2"), None);
        assert_eq!(verdict_of(&Value::Null, "X25"), None);
    }

    #[test]
    fn only_a_claim_that_no_longer_holds_is_refuted() {
        let fault = Fault {
            id: "X25".into(),
            run: String::new(),
            file: String::new(),
            from: String::new(),
            to: String::new(),
            breaks: "the boost".into(),
        };
        assert_eq!(finding(&fault, "holds", "does not hold"), None);
        assert_eq!(finding(&fault, "holds", "in part"), None);
        for [without, with] in [["holds", "holds"], ["holds", "not resolvable"], ["holds", "run failed"]] {
            assert!(finding(&fault, without, with).is_some_and(|text| text.contains("the boost")), "{with}");
        }
        assert!(finding(&fault, "in part", "does not hold").is_some_and(|text| text.contains("cannot")));
    }
}
