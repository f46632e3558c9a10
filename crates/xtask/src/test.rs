//! `cargo xtask test`: runs the stages in order and prints the result of each at the end.

use core::time::Duration;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;

use crate::child::{CommandLine, Counts, End, Outcome, Running, cpu_time, now};
use crate::disk;
use crate::failed::FailedTest;
use crate::report::{self, Line, Verdict};
use crate::stages::{self, Effort, Plan, Stage, Work};
use crate::tools;
use crate::workspace::Workspace;

/// A command that runs for this multiple of its stage's budget is regarded as hanging, and is killed.
const HANGS_AFTER_BUDGETS: u32 = 8;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only lint, no-std, unit and loom.
    #[arg(long)]
    quick: bool,
    /// Run only these stages (repeatable); tsan, aarch64, adapters, valgrind and random-faults run only if they are named here, and in `cargo xtask soak`.
    #[arg(long, value_name = "STAGE", value_parser = stage_named)]
    only: Vec<&'static str>,
    /// List the stages and their commands without running them, those of `cargo xtask soak` included.
    #[arg(long)]
    list: bool,
}

/// Runs the chosen stages. If one fails, the others still run, so that one run shows all failures.
///
/// # Errors
/// A stage could not find its work. A stage that fails is an exit code, not an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let stages = chosen(options);
    if options.list {
        for stage in stages {
            report::plan(stage, &(stage.plan)(workspace, Effort::Bounded)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(free) = disk::free(workspace).filter(|free| !options.quick && *free < disk::ALL_STAGES) {
        let (free, all) = (disk::gigabytes(free), disk::gigabytes(disk::ALL_STAGES));
        report::print_line(&format!(
            "{free} of disk space are free; all stages from the beginning need about {all}"
        ));
    }
    Ok(run_stages(workspace, &stages, Effort::Bounded))
}

/// Returns the stages to run or to list. A list of all includes the stages of the soak.
fn chosen(options: &Options) -> Vec<&'static Stage> {
    if !options.only.is_empty() {
        return stages::every().filter(|stage| options.only.contains(&stage.name)).collect();
    }
    let soak = if options.list && !options.quick { stages::SOAK } else { &[] };
    stages::ALL.iter().filter(|stage| stage.quick || !options.quick).chain(soak).collect()
}

/// Runs `stages` and prints the closing table.
pub(crate) fn run_stages(workspace: &Workspace, stages: &[&Stage], effort: Effort) -> ExitCode {
    let mut lines = Vec::new();
    let mut concurrent = None;
    for (at, stage) in stages.iter().enumerate() {
        let is_followed = at + 1 < stages.len();
        if stage.name == stages::CONCURRENT
            && effort == Effort::Bounded
            && is_followed
            && concurrent.is_none()
        {
            concurrent = start_concurrently(workspace, stage).map(|running| (at, running));
            if concurrent.is_some() {
                continue;
            }
        }
        lines.push(run_stage(workspace, stage, effort));
    }
    if let Some((at, running)) = concurrent {
        lines.insert(at, finish_concurrent(stages[at], running));
    }
    let good = report::table(&lines);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts a stage as a process of its own, whose output [`finish_concurrent`] prints. Returns `None` if it has no commands to run, or cannot
/// start: it then runs like the others, and reports why.
fn start_concurrently(workspace: &Workspace, stage: &Stage) -> Option<Running> {
    let plan = (stage.plan)(workspace, Effort::Bounded).ok()?;
    plan.steps.iter().find(|step| matches!(step.work, Work::Command(_)))?;
    // Not with this program's own file: the tests of the workspace may have replaced it.
    let running = CommandLine::cargo(["xtask", "test", "--only", stage.name]).start_held().ok()?;
    report::concurrent(stage);
    Some(running)
}

/// Waits for a stage that ran concurrently with others, and prints its output.
fn finish_concurrent<'a>(stage: &'a Stage, running: Running) -> Line<'a> {
    report::heading(stage, None);
    let cpu = cpu_time();
    let limit = HANGS_AFTER_BUDGETS * stage.budget;
    let mut line = Line::new(stage);
    let result = running.finish(limit).and_then(|outcome| {
        let result = judge(&outcome, 0, limit);
        let Outcome { tests, failed, skipped, printed_for: took, .. } = outcome;
        line = Line { tests, failed, took, notes: report::skipped(&skipped), ..Line::new(stage) };
        result
    });
    if let Err(error) = result {
        line.verdict = Verdict::Failed(vec![format!("{error:#}")]);
    }
    line.cpu = cpu_time().saturating_sub(cpu);
    line
}

/// Runs one stage.
fn run_stage<'a>(workspace: &Workspace, stage: &'a Stage, effort: Effort) -> Line<'a> {
    report::heading(stage, disk::free(workspace));
    let (start, cpu) = (now(), cpu_time());
    let mut plan = prepare(workspace, stage, effort).unwrap_or_else(|error| Plan::impossible(&error));
    let Ran { verdict, tests, skipped, failed } = run_plan(workspace, stage, &plan, effort);
    plan.notes.extend(report::skipped(&skipped));
    if matches!(verdict, Verdict::Failed(_)) {
        plan.notes.extend(disk::free(workspace).and_then(disk::shortage));
    }
    // Such a machine runs each stage once.
    if std::env::var_os("CI").is_some_and(|ci| !ci.is_empty()) {
        disk::remove(workspace, stage);
    }
    let (took, cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu));
    Line { stage, verdict, tests, failed, took, cpu, notes: plan.notes }
}

/// Finds the work of a stage, and installs the programs that it needs.
fn prepare(workspace: &Workspace, stage: &Stage, effort: Effort) -> Result<Plan> {
    let plan = (stage.plan)(workspace, effort)?;
    if !plan.steps.is_empty() {
        tools::provide(stage.tools)?;
    }
    Ok(plan)
}

/// The results of the steps of a plan.
struct Ran {
    verdict: Verdict,
    tests: Counts,
    /// The reason of each skipped test.
    skipped: Vec<String>,
    failed: Vec<FailedTest>,
}

fn run_plan(workspace: &Workspace, stage: &Stage, plan: &Plan, effort: Effort) -> Ran {
    let (mut tests, mut skipped, mut failed) = (Counts::default(), Vec::new(), Vec::new());
    if plan.steps.is_empty() {
        return Ran { verdict: Verdict::NothingRun, tests, skipped, failed };
    }
    let more = if let Effort::Full(time) = effort { 2 * time } else { Duration::ZERO };
    let limit = HANGS_AFTER_BUDGETS * stage.budget + more;
    let mut failures = Vec::new();
    let mut output = Vec::new();
    for step in &plan.steps {
        report::step(&step.work);
        let result = match &step.work {
            Work::Command(command) => command.run(limit).and_then(|outcome| {
                tests += outcome.tests;
                let result = judge(&outcome, step.programs, limit);
                skipped.extend(outcome.skipped);
                failed.extend(outcome.failed);
                output = outcome.output;
                result
            }),
            Work::Output(_, check) => check(&output),
            Work::Impossible(why) => Err(anyhow!("{why}")),
            Work::Check(_, check) => check(workspace).and_then(|findings| {
                findings.iter().for_each(|finding| report::print_line(finding));
                ensure!(findings.is_empty(), "{} findings", findings.len());
                Ok(())
            }),
        };
        failures.extend(result.err().map(|error| format!("{}: {error:#}", step.work)));
    }
    let verdict = if failures.is_empty() { Verdict::Passed } else { Verdict::Failed(failures) };
    Ran { verdict, tests, skipped, failed }
}

fn judge(outcome: &Outcome, programs: usize, limit: Duration) -> Result<()> {
    match outcome.end {
        End::Killed => bail!("killed after {} s", limit.as_secs()),
        End::Exited(status) if !status.success() => bail!("{status}"),
        End::Exited(_) if outcome.tests.programs < programs => {
            bail!("tests ran in {} programs, expected at least {programs}", outcome.tests.programs)
        }
        End::Exited(_) => Ok(()),
    }
}

fn stage_named(name: &str) -> Result<&'static str> {
    let names: Vec<_> = stages::every().map(|stage| stage.name).collect();
    match names.iter().find(|known| **known == name) {
        Some(known) => Ok(known),
        None => bail!("unknown stage; the stages are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;
    use serde_json::Value;

    fn failures(plan: &Plan) -> Vec<String> {
        let workspace = workspace(&[("core", Value::Null, &[])]);
        match run_plan(&workspace, &stages::ALL[0], plan, Effort::Bounded).verdict {
            Verdict::Failed(failures) => failures,
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_failed_command_fails_the_stage_and_is_named() {
        let mut plan = Plan::default();
        plan.command(CommandLine::new("false", ["again"]));
        plan.command(CommandLine::new("true", ["fine"]));
        let failures = failures(&plan);
        assert_eq!(failures.len(), 1);
        assert!(failures[0].starts_with("false again: exit status"), "{failures:?}");
    }

    #[test]
    fn a_filter_that_matches_no_test_fails_the_stage() {
        let failed = |line: &str, programs| {
            let mut plan = Plan::default();
            plan.tests(CommandLine::new("echo", [line]), programs);
            !failures(&plan).is_empty()
        };
        assert!(failed("test result: ok. 0 passed; 0 failed; 0 ignored", 1));
        assert!(!failed("test result: ok. 1 passed; 0 failed; 0 ignored", 1));
        assert!(failed("test result: ok. 1 passed; 0 failed; 0 ignored", 2));
    }

    #[test]
    fn a_check_of_the_output_sees_the_previous_command() {
        let mut plan = Plan::default();
        plan.command(CommandLine::new("echo", ["wrong"]));
        plan.output("verdict", |lines| if lines == ["right"] { Ok(()) } else { bail!("{lines:?}") });
        assert_eq!(failures(&plan), ["verdict: [\"wrong\"]"]);
    }

    #[test]
    fn stages_of_the_soak_run_only_if_they_are_named() {
        let options = |only: &[&'static str], list| Options { quick: false, only: only.to_vec(), list };
        let runs = |options: &Options, name| chosen(options).iter().any(|stage| stage.name == name);
        assert!(!runs(&options(&[], false), "tsan") && runs(&options(&[], false), "asan"));
        assert!(runs(&options(&[], true), "tsan"));
        assert!(runs(&options(&["tsan"], false), "tsan") && !runs(&options(&["tsan"], false), "asan"));
    }

    #[test]
    fn the_error_for_an_unknown_stage_lists_the_stages() {
        assert_eq!(stage_named("loom").unwrap(), "loom");
        assert!(stage_named("lom").unwrap_err().to_string().contains("loom"));
    }
}
