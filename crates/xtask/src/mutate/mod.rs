//! `cargo xtask mutate`: plants known faults in the scheduling policies and in the core, one at a time, and expects a test to
//! fail.
//!
//! A rule that can be broken without a failing test is not checked. The faults are listed in each crate's `mutations.toml`; they are
//! planted in a copy below the target folder, never in the tree. [`random`] plants faults that nobody chose.

mod copy;
mod list;
mod random;
mod subject;

use core::time::Duration;
use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;

use crate::child::{CommandLine, End, now};
use crate::probes;
use crate::workspace::Workspace;
use copy::Copy;
use list::Mutation;
pub(crate) use list::planted;
use subject::{Judging, Subject};

/// Time limit for a build or the tests of one fault, which take seconds. It detects faults that cause endless loops.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Plant only the faults that `cargo xtask test` plants
    #[arg(long)]
    quick: bool,
    /// Plant only the faults of this source, such as `budget.rs` or `calls/open.rs` (repeatable)
    #[arg(long, value_name = "FILE")]
    file: Vec<String>,
    /// Plant about this many random faults in the core, the RPC layer, the node and the wire format instead (installs cargo-mutants)
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["quick", "file"], value_parser = clap::value_parser!(u32).range(1..))]
    random: Option<u32>,
    /// Plant a panic in each function of the wait code instead; a story about threads must fail for each
    #[arg(long, conflicts_with_all = ["quick", "file", "random"])]
    panics: bool,
    /// Go on with the random faults of an interrupted run, with the same tree
    #[arg(long, requires = "random")]
    resume: bool,
    /// Choose other random faults
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "random")]
    seed: u32,
}

/// Plants the chosen faults.
///
/// # Errors
/// A file cannot be read or written, a command does not start, or the tests fail without a fault. A fault that no test detects is an
/// exit code, not an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    if let Some(count) = options.random {
        let outcome = random::run(workspace, count, options.seed, options.resume)?;
        return Ok(crate::verdict("mutate", &outcome.findings()));
    }
    if options.panics {
        return Ok(crate::verdict("mutate", &probes::run(workspace)?));
    }
    let mut findings = Vec::new();
    let mut planted = 0;
    for subject in subject::ALL {
        let all = subject.faults(workspace)?;
        let chosen = if options.quick { subject.bounded(&all) } else { all.iter().collect() };
        let is_of =
            |fault: &Mutation| options.file.is_empty() || options.file.iter().any(|file| fault.is_of(file));
        let chosen: Vec<_> = chosen.into_iter().filter(|fault| is_of(fault)).collect();
        planted += chosen.len();
        findings.extend(survivors(workspace, subject, &chosen)?);
    }
    ensure!(planted > 0, "no fault is listed for {}", options.file.join(" or "));
    Ok(crate::verdict("mutate", &findings))
}

/// Plants the faults of a bounded run, for `cargo xtask test`.
///
/// # Errors
/// See [`run`].
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for subject in subject::ALL {
        let all = subject.faults(workspace)?;
        findings.extend(survivors(workspace, subject, &subject.bounded(&all))?);
    }
    Ok(findings)
}

/// Plants some random faults, others each day, and returns those that no test detects if they are more than one of ten.
///
/// # Errors
/// See [`random::run`].
pub(crate) fn sample(workspace: &Workspace) -> Result<Vec<String>> {
    /// Each takes a minute or two.
    const COUNT: u32 = 30;
    let outcome = random::run(workspace, COUNT, u32::try_from(crate::stages::today())?, false)?;
    for finding in outcome.findings() {
        println!("{finding}");
    }
    Ok(outcome.too_few())
}

/// Returns a finding for each fault that no test detects.
fn survivors(workspace: &Workspace, subject: &Subject, faults: &[&Mutation]) -> Result<Vec<String>> {
    if faults.is_empty() {
        return Ok(Vec::new());
    }
    let copy = Copy::make(workspace, &subject.packages(workspace, faults)?, subject.sources)?;
    let mut judges = BTreeMap::new();
    for fault in faults {
        let judging = subject.judging(workspace, fault.simulation.as_deref())?;
        judges.entry(&fault.simulation).or_insert_with(|| Tests::of(&copy, &judging));
    }
    for tests in judges.values() {
        let name = subject.package;
        ensure!(tests.build()?, "the copy of {name} does not build");
        ensure!(tests.fail()?.is_none(), "the tests of {name} fail without any fault");
    }
    let mut findings = Vec::new();
    for (done, fault) in faults.iter().enumerate() {
        let begun = now();
        let tests = &judges[&fault.simulation];
        let source = copy.source(&fault.file)?;
        copy.write(&fault.file, &fault.applied(&source)?)?;
        let outcome = if !tests.build()? {
            findings.push(format!("{}: `{}`: the fault does not compile", fault.file, fault.breaks));
            "does not compile".to_owned()
        } else if let Some(test) = tests.fail_for(fault)? {
            format!("detected by {test}")
        } else {
            findings.push(format!("{}: no test detects this fault: {}", fault.file, fault.breaks));
            "NOT DETECTED".to_owned()
        };
        copy.write(&fault.file, &source)?;
        let (at, of, took) = (done + 1, faults.len(), begun.elapsed().as_secs_f64());
        println!("{at:>3}/{of} {took:>5.1} s  {}: {}: {outcome}", fault.file, fault.breaks);
    }
    Ok(findings)
}

/// The commands that build and run the tests which judge a fault.
struct Tests {
    build: CommandLine,
    run: CommandLine,
}

impl Tests {
    fn of(copy: &Copy, judging: &Judging) -> Self {
        let tests = CommandLine::cargo(["test", "--quiet"])
            .args(judging.targets.iter().cloned())
            .folder(&copy.root)
            .quiet()
            .env("CARGO_TARGET_DIR", copy.root.join("target").to_string_lossy())
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // A crate is built once for each fault.
            .env("CARGO_INCREMENTAL", "1")
            // A fault may leave code unused, and failing inputs of property tests need not be kept.
            .env("RUSTFLAGS", "-Awarnings")
            .env("RUST_BACKTRACE", "0")
            .env("PROPTEST_FAILURE_PERSISTENCE", "off")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0");
        let build = tests.clone().arg("--no-run");
        Self { build, run: tests.arg("--").args(judging.filter) }
    }

    /// Builds the tests. Returns whether the build succeeded.
    fn build(&self) -> Result<bool> {
        Ok(matches!(self.build.run(LIMIT)?.end, End::Exited(status) if status.success()))
    }

    /// Returns the name of a test that fails, or `None` if all tests pass. Runs the test that the list names first.
    fn fail_for(&self, fault: &Mutation) -> Result<Option<String>> {
        if let Some(name) = &fault.detected_by {
            let named = self.run.clone().args(["--exact", name.as_str()]);
            if let (Some(test), _) = failed(&named)? {
                return Ok(Some(test));
            }
        }
        self.fail()
    }

    /// Returns the name of the first test that fails, or `None` if all tests pass.
    fn fail(&self) -> Result<Option<String>> {
        let (test, passed) = failed(&self.run)?;
        ensure!(test.is_some() || passed > 0, "no test ran");
        Ok(test)
    }
}

/// Runs tests up to the first program in which one fails. Returns the name of a test that fails, and the number of those that pass.
fn failed(tests: &CommandLine) -> Result<(Option<String>, u64)> {
    let outcome = tests.run(LIMIT)?;
    let test = match outcome.end {
        End::Exited(status) if status.success() => None,
        End::Exited(_) => {
            let failed = outcome.output.iter().find_map(|line| failed_test(line));
            Some(failed.unwrap_or("the end of the test program").to_owned())
        }
        End::Killed => Some("the time limit".to_owned()),
    };
    Ok((test, outcome.tests.passed()))
}

/// Returns the name of a failed test from the line that begins its output.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failed_test_is_named() {
        assert_eq!(
            failed_test("---- calls::open::tests::ends_once stdout ----"),
            Some("calls::open::tests::ends_once")
        );
        assert_eq!(failed_test("---- nothing"), None);
    }
}
