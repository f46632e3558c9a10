//! `cargo xtask lab soak`: tests that find more when they run longer, each alone in a machine of its own.
//!
//! A package names them in its manifest (`soak` under `[package.metadata.pronto.lab]`); they read from [`VARIABLE`] for how
//! long they go on.

use core::time::Duration;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use super::build::Image;
use super::machine::{Ending, Machine, Memory};
use super::suite::{self, Program, Target};
use super::test;
use crate::child::now;
use crate::workspace::Workspace;

/// Seconds for which a test shall go on.
const VARIABLE: &str = "PRONTO_SOAK_SECONDS";

/// For booting, for what a test does before and after, and for both on a kernel that checks itself.
const AROUND: Duration = Duration::from_secs(600);

/// How often it is said how far a test is.
const SAID: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Minutes for which each test goes on.
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Only tests of this package (may be given several times).
    #[arg(long, short, value_name = "NAME")]
    package: Vec<String>,
    /// The last line of the output is what came of it, in JSON.
    #[arg(long)]
    json: bool,
    /// Only tests whose names contain this.
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
}

/// What came of all tests.
#[derive(Debug, Serialize)]
struct Summary {
    kernel: String,
    minutes: u64,
    tests: Vec<Line>,
}

/// What came of one test.
#[derive(Debug, Serialize)]
struct Line {
    package: String,
    target: String,
    test: String,
    seconds: u64,
    /// Why it failed, if it did.
    failure: Option<String>,
}

/// Runs the tests one after the other; all of them, also after one has failed.
///
/// # Errors
/// There is no such test, the tests do not build, or QEMU does not start. A test that fails is an exit code.
pub(super) fn run(workspace: &Workspace, image: &Image, options: &Options) -> Result<ExitCode> {
    let mut targets = suite::targets(workspace)?;
    let is_chosen = |name: &String| options.package.is_empty() || options.package.contains(name);
    targets.retain(|target| !target.needs.soak.is_empty() && is_chosen(&target.package));
    ensure!(!targets.is_empty(), "no package with tests to soak");
    let packages: BTreeSet<_> = targets.iter().map(|target| target.package.clone()).collect();
    let mut chosen = Vec::new();
    let mut programs = Vec::new();
    for program in test::build(workspace, &packages, targets)? {
        let soaked = |name: &&String| program.target.needs.soak.iter().any(|part| name.contains(part));
        let wanted = |name: &&String| options.filter.as_ref().is_none_or(|part| name.contains(part));
        let names = test::tests_in(&program, &[])?;
        chosen.extend(names.iter().filter(soaked).filter(wanted).map(|name| (programs.len(), name.clone())));
        programs.push(program);
    }
    ensure!(!chosen.is_empty(), "no test to soak matches");
    test::build_modules(workspace, image, &programs)?;

    let mut summary = Summary { kernel: image.kernel().release, minutes: options.minutes, tests: Vec::new() };
    for (at, name) in chosen {
        summary.tests.push(one(workspace, image, &programs[at], name, options.minutes)?);
    }
    print!("{}", table(&summary));
    if options.json {
        println!("{}", serde_json::to_string(&summary)?);
    }
    let is_good = summary.tests.iter().all(|line| line.failure.is_none());
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one test in a machine.
fn one(workspace: &Workspace, image: &Image, program: &Program, test: String, minutes: u64) -> Result<Line> {
    let Target { package, name, needs, .. } = &program.target;
    let time = Duration::from_secs(60 * minutes);
    let words = ["--ignored", "--test-threads=1", "--nocapture", "--exact", &test].map(str::to_owned);
    let command = suite::command(core::slice::from_ref(program), &words)?;
    let machine = Machine::new(image, workspace, needs.cpus, None)?
        .with_memory(Memory::of(needs.numa))
        .with(needs.accelerator)
        .knowing(format!("{VARIABLE}={}", time.as_secs()));
    let start = now();
    let ending = saying_how_far(&format!("{package} {test}"), minutes, start, || {
        machine.run(&command, time + AROUND)
    })?;
    let failure = match ending {
        Ending::Exited(0) => None,
        Ending::Exited(code) => Some(format!("exit code {code}")),
        Ending::Failed(failure) => Some(failure.to_string()),
    };
    let seconds = start.elapsed().as_secs();
    Ok(Line { package: package.clone(), target: name.clone(), test, seconds, failure })
}

/// Does something, and says every minute how many have passed.
fn saying_how_far<R>(what: &str, minutes: u64, start: Instant, work: impl FnOnce() -> R) -> R {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            eprintln!("soak: {what}: {minutes} min");
            while is_done.recv_timeout(SAID) == Err(RecvTimeoutError::Timeout) {
                eprintln!("soak: {what}: {} of {minutes} min", start.elapsed().as_secs() / 60);
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// What came of it, for people.
fn table(summary: &Summary) -> String {
    let mut text = format!("\nsoak of {} min each on {}\n", summary.minutes, summary.kernel);
    for Line { package, target, test, seconds, failure } in &summary.tests {
        let result = failure.as_deref().map_or_else(|| "passed".to_owned(), |why| format!("FAILED: {why}"));
        text.push_str(&format!("{package} {target} {test}  {seconds} s  {result}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(failure: Option<&str>) -> Line {
        let [package, target, test] = ["expedite", "lab", "storm::x"].map(str::to_owned);
        Line { package, target, test, seconds: 61, failure: failure.map(str::to_owned) }
    }

    #[test]
    fn the_summary_names_what_failed_and_why() {
        let summary = Summary {
            kernel: "7.2.12".to_owned(),
            minutes: 1,
            tests: vec![line(None), line(Some("kernel panic"))],
        };
        let text = table(&summary);
        assert!(text.contains("expedite lab storm::x  61 s  passed\n"), "{text}");
        assert!(text.contains("61 s  FAILED: kernel panic\n"), "{text}");
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!((json["minutes"].as_u64(), json["kernel"].as_str()), (Some(1), Some("7.2.12")));
        assert!(json["tests"][0]["failure"].is_null());
        assert_eq!(json["tests"][1]["failure"], "kernel panic");
    }

    #[test]
    fn what_is_done_is_returned() {
        assert_eq!(saying_how_far("it", 1, now(), || 7), 7);
    }
}
