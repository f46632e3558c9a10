//! The stages of `cargo xtask test`: one file each, registered in [`ALL`] or [`SOAK`].

mod aarch64;
mod adapters;
mod asan;
mod build;
mod counts;
mod faults;
mod foreign;
mod fuzz;
mod lab;
mod lint;
mod loom;
mod mutation;
mod no_std;
mod package;
mod random_faults;
pub(crate) mod simulation;
mod tsan;
pub(crate) mod unit;
mod valgrind;

use core::fmt;
use core::time::Duration;
use std::time::SystemTime;

use anyhow::Result;

use crate::child::CommandLine;
use crate::tools::Tool;
use crate::workspace::Workspace;

/// Every stage, in the order in which they run: fast ones that fail often first.
pub(crate) const ALL: &[Stage] = &[
    lint::STAGE,
    build::STAGE,
    no_std::STAGE,
    unit::STAGE,
    lab::STAGE,
    foreign::STAGE,
    counts::STAGE,
    mutation::STAGE,
    loom::STAGE,
    simulation::STAGE,
    fuzz::STAGE,
    faults::STAGE,
    asan::STAGE,
    package::STAGE,
];

/// The stage that runs concurrently with those that follow it: its machines use about one CPU.
pub(crate) const CONCURRENT: &str = lab::STAGE.name;

/// The stages that only `--only` and `cargo xtask soak` run: they compile the standard library, many dependencies of others, or the core for
/// each of many faults, and take too long for every change.
pub(crate) const SOAK: &[Stage] =
    &[tsan::STAGE, aarch64::STAGE, adapters::STAGE, valgrind::STAGE, random_faults::STAGE];

/// Returns the number of today, from 1970-01-01: randomised tests have other seeds each day.
#[expect(clippy::disallowed_methods, reason = "each day has its seeds")]
pub(crate) fn today() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / (24 * 3_600)
}

/// Returns the stages of both lists.
pub(crate) fn every() -> impl Iterator<Item = &'static Stage> {
    ALL.iter().chain(SOAK)
}

/// One part of the whole test, which can run alone.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// The expected time on two CPUs.
    pub(crate) budget: Duration,
    /// Whether `--quick` runs it.
    pub(crate) quick: bool,
    /// Programs that it needs, apart from Rust.
    pub(crate) tools: &'static [Tool],
    /// Finds the work of the stage in this workspace.
    pub(crate) plan: fn(&Workspace, Effort) -> Result<Plan>,
}

/// The extent of randomised and exhaustive tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// The extent that fits the budgets.
    Bounded,
    /// The extent that fits this time per stage.
    Full(Duration),
}

/// The work of a stage.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// The skipped work, and the reasons. The closing table contains them.
    pub(crate) notes: Vec<String>,
}

/// A command, or a check in this program.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) work: Work,
    /// The least number of programs in which a test must run, so that a filter without a match is not a success.
    pub(crate) programs: usize,
}

#[derive(Debug)]
pub(crate) enum Work {
    Command(CommandLine),
    /// A check of the output of the last command.
    Output(&'static str, fn(&[String]) -> Result<()>),
    /// A check inside this program: its name, and the function that returns the findings.
    Check(&'static str, fn(&Workspace) -> Result<Vec<String>>),
    /// The stage lacks a prerequisite, and fails.
    Impossible(String),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => write!(f, "{command}"),
            Self::Output(name, _) | Self::Check(name, _) => f.write_str(name),
            Self::Impossible(_) => f.write_str("prepare"),
        }
    }
}

impl Plan {
    pub(crate) fn command(&mut self, command: CommandLine) {
        self.steps.push(Step { work: Work::Command(command), programs: 0 });
    }

    /// Adds a command in which a test must run in at least `programs` test programs.
    pub(crate) fn tests(&mut self, command: CommandLine, programs: usize) {
        self.steps.push(Step { work: Work::Command(command), programs });
    }

    pub(crate) fn check(&mut self, name: &'static str, check: fn(&Workspace) -> Result<Vec<String>>) {
        self.steps.push(Step { work: Work::Check(name, check), programs: 0 });
    }

    pub(crate) fn output(&mut self, name: &'static str, check: fn(&[String]) -> Result<()>) {
        self.steps.push(Step { work: Work::Output(name, check), programs: 0 });
    }

    /// Returns a plan that fails with this error.
    pub(crate) fn impossible(error: &anyhow::Error) -> Self {
        let mut plan = Self::default();
        plan.steps.push(Step { work: Work::Impossible(format!("{error:#}")), programs: 0 });
        plan
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_budgets_fit_the_whole() {
        let mut names: Vec<_> = every().map(|stage| stage.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len() + SOAK.len());
        let concurrent = ALL.iter().position(|stage| stage.name == CONCURRENT).unwrap();
        let sum = |stages: &[Stage]| stages.iter().map(|stage| stage.budget).sum::<Duration>();
        assert!(ALL[concurrent].budget <= sum(&ALL[concurrent + 1..]));
        assert!(sum(ALL) - ALL[concurrent].budget <= minutes(40));
    }
}
