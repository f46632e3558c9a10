//! `cargo xtask mutate`: makes known mistakes in the scheduling policies, one at a time, and expects a test to fail.
//!
//! A rule that can be broken without a test noticing is a rule in name only. The mistakes stand in the crate's
//! `mutations.toml`; they are made in a copy below the target folder, never in the tree.

mod copy;
mod list;

use core::time::Duration;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::child::{CommandLine, End, now};
use crate::workspace::{Package, Workspace};
use copy::Copy;
use list::Mutation;

/// The crate whose rules are broken.
const PACKAGE: &str = "pronto-sched-policy";

/// Looks at sources and compiled code, not at what they decide: a mistake that only makes the code look odd proves nothing.
const NOT_BEHAVIOUR: &str = "kernel_rules";

/// A build or the tests of one mistake; they take seconds. A mistake that makes a loop endless is noticed by this.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// One mistake for each rule instead of all.
    #[arg(long)]
    quick: bool,
    /// Only the mistakes of this source, as `budget.rs` (may be given several times).
    #[arg(long, value_name = "FILE")]
    file: Vec<String>,
}

/// Makes the chosen mistakes.
///
/// # Errors
/// Something cannot be read, written or started, or the tests fail without any mistake. A mistake that no test notices is an
/// exit code.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let package = package(workspace)?;
    let all = list::read(&package.folder)?;
    let chosen = if options.quick { list::first_of_each_file(&all) } else { all.iter().collect() };
    let chosen: Vec<_> =
        chosen.into_iter().filter(|m| options.file.is_empty() || options.file.contains(&m.file)).collect();
    ensure!(!chosen.is_empty(), "no mutation is of {}", options.file.join(" or "));
    let findings = survivors(workspace, package, &chosen)?;
    Ok(crate::verdict("mutate", &findings))
}

/// One mistake for each rule: what `cargo xtask test` does.
///
/// # Errors
/// As [`run`].
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let package = package(workspace)?;
    survivors(workspace, package, &list::first_of_each_file(&list::read(&package.folder)?))
}

fn package(workspace: &Workspace) -> Result<&Package> {
    workspace.packages.iter().find(|p| p.name == PACKAGE).with_context(|| format!("there is no {PACKAGE}"))
}

/// The mistakes that no test noticed.
fn survivors(workspace: &Workspace, package: &Package, mutations: &[&Mutation]) -> Result<Vec<String>> {
    let copy = Copy::make(workspace, package)?;
    let tests = Tests::of(package, &copy);
    ensure!(tests.build()?, "the copy of {PACKAGE} does not build");
    ensure!(tests.pass()?, "the tests of {PACKAGE} fail before anything was changed");
    let mut findings = Vec::new();
    for (done, mutation) in mutations.iter().enumerate() {
        let begun = now();
        let source = copy.source(&mutation.file)?;
        copy.write(&mutation.file, &mutation.applied(&source)?)?;
        let outcome = if !tests.build()? {
            findings.push(format!("{}: `{}`: the mutation does not compile", mutation.file, mutation.breaks));
            "does not compile"
        } else if tests.pass()? {
            findings
                .push(format!("{}: no test notices that this is lost: {}", mutation.file, mutation.breaks));
            "NOT NOTICED"
        } else {
            "noticed"
        };
        copy.write(&mutation.file, &source)?;
        let (at, of, took) = (done + 1, mutations.len(), begun.elapsed().as_secs_f64());
        println!("{at:>3}/{of} {took:>5.1} s  {outcome:<8}  {:<20} {}", mutation.file, mutation.breaks);
    }
    Ok(findings)
}

/// The tests of the copy.
struct Tests {
    build: CommandLine,
    run: CommandLine,
}

impl Tests {
    fn of(package: &Package, copy: &Copy) -> Self {
        let targets = package.targets_of("test").filter(|name| *name != NOT_BEHAVIOUR);
        let run = CommandLine::cargo(["test", "--quiet", "--lib"])
            .args(targets.flat_map(|name| ["--test", name]))
            .folder(&copy.root)
            .quiet()
            .env("CARGO_TARGET_DIR", copy.root.join("target").to_string_lossy())
            // A mistake may leave something unused, and what a failing property test found is of no further use.
            .env("RUSTFLAGS", "-Awarnings")
            .env("PROPTEST_FAILURE_PERSISTENCE", "off")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0");
        Self { build: run.clone().arg("--no-run"), run }
    }

    /// Whether it builds.
    fn build(&self) -> Result<bool> {
        Ok(matches!(self.build.run(LIMIT)?.end, End::Exited(status) if status.success()))
    }

    /// Whether all tests pass; stops at the first program in which one does not.
    fn pass(&self) -> Result<bool> {
        let outcome = self.run.run(LIMIT)?;
        let passed = matches!(outcome.end, End::Exited(status) if status.success());
        ensure!(!passed || outcome.tests.passed > 0, "no test was run");
        Ok(passed)
    }
}
