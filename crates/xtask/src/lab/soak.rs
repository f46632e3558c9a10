//! `cargo xtask lab soak`: tests that find more faults if they run longer, each alone in a machine.
//!
//! A package lists them in its manifest (`soak` under `[package.metadata.pronto.lab]`). They read their duration from [`VARIABLE`].

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

/// The variable with the duration of a test, in seconds.
const VARIABLE: &str = "PRONTO_SOAK_SECONDS";

/// Extra time for booting and for what a test does before and after, also on a kernel with debugging checks.
const AROUND: Duration = Duration::from_secs(600);

/// Interval of progress reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Minutes for which each test runs
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Only tests of this package (repeatable)
    #[arg(long, short, value_name = "NAME")]
    package: Vec<String>,
    /// Print the summary as JSON in the last line of the output
    #[arg(long)]
    json: bool,
    /// Only tests whose names contain FILTER
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
}

/// The results of all tests.
#[derive(Debug, Serialize)]
struct Summary {
    kernel: String,
    minutes: u64,
    tests: Vec<Line>,
}

/// The result of one test.
#[derive(Debug, Serialize)]
struct Line {
    package: String,
    target: String,
    test: String,
    seconds: u64,
    /// The reason of the failure; `None` if the test passed.
    failure: Option<String>,
}

/// Runs all chosen tests in order, also after a failure.
///
/// # Errors
/// No test matches, the tests do not build, or QEMU does not start. A test that fails is an exit code, not an error.
pub(super) fn run(workspace: &Workspace, image: &Image, options: &Options) -> Result<ExitCode> {
    let mut targets = suite::targets(workspace)?;
    let is_chosen = |name: &String| options.package.is_empty() || options.package.contains(name);
    targets.retain(|target| !target.needs.soak.is_empty() && is_chosen(&target.package));
    ensure!(!targets.is_empty(), "no matching package has tests to soak");
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
    ensure!(!chosen.is_empty(), "no matching test to soak");
    let form = test::build_modules(workspace, image, &programs)?;

    let mut summary = Summary { kernel: image.kernel().release, minutes: options.minutes, tests: Vec::new() };
    for (at, name) in chosen {
        summary.tests.push(one(workspace, image, &programs[at], name, options.minutes, form.clone())?);
    }
    print!("{}", table(&summary));
    if options.json {
        println!("{}", serde_json::to_string(&summary)?);
    }
    let is_good = summary.tests.iter().all(|line| line.failure.is_none());
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one test in a machine.
fn one(
    workspace: &Workspace,
    image: &Image,
    program: &Program,
    test: String,
    minutes: u64,
    form: Option<String>,
) -> Result<Line> {
    let Target { package, name, needs, .. } = &program.target;
    let time = Duration::from_secs(60 * minutes);
    let words = ["--ignored", "--test-threads=1", "--nocapture", "--exact", &test].map(str::to_owned);
    let command = suite::command(core::slice::from_ref(program), &words)?;
    let machine = Machine::new(image, workspace, needs.cpus, None)?
        .with_memory(Memory::of(needs.numa))
        .with(needs.accelerator)
        .with_variable(format!("{VARIABLE}={}", time.as_secs()));
    let machine = form.into_iter().fold(machine, Machine::with_variable);
    let start = now();
    let ending =
        with_progress(&format!("{package} {test}"), minutes, start, || machine.run(&command, time + AROUND))?;
    let failure = match ending {
        Ending::Exited(0) => None,
        Ending::Exited(code) => Some(format!("exit code {code}")),
        Ending::Failed(failure) => Some(failure.to_string()),
    };
    let seconds = start.elapsed().as_secs();
    Ok(Line { package: package.clone(), target: name.clone(), test, seconds, failure })
}

/// Runs `work`, and prints the number of elapsed minutes every minute.
fn with_progress<R>(name: &str, minutes: u64, start: Instant, work: impl FnOnce() -> R) -> R {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            eprintln!("soak: {name}: {minutes} min");
            while is_done.recv_timeout(REPORT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                eprintln!("soak: {name}: {} of {minutes} min", start.elapsed().as_secs() / 60);
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Returns the human-readable summary.
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
    fn the_summary_contains_failures_and_reasons() {
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
    fn the_result_of_the_work_is_returned() {
        assert_eq!(with_progress("it", 1, now(), || 7), 7);
    }
}
