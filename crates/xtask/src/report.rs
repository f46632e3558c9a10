//! The output of `cargo xtask test` before, between and after its stages.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::Write as _;

use crate::child::Counts;
use crate::disk;
use crate::failed::FailedTest;
use crate::stages::{Plan, Stage, Work};

/// A stage that takes more than this multiple of its budget gets a warning. It does not fail, because machines differ.
const TOLERATED_OVERRUN: u32 = 2;

/// The result of one stage.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) verdict: Verdict,
    pub(crate) tests: Counts,
    pub(crate) failed: Vec<FailedTest>,
    pub(crate) took: Duration,
    /// CPU time of the stage's commands. On two CPUs, a stage that uses both has twice as much as `took`.
    pub(crate) cpu: Duration,
    pub(crate) notes: Vec<String>,
}

impl<'a> Line<'a> {
    /// Returns the result of a stage that has passed without a test.
    pub(crate) fn new(stage: &'a Stage) -> Self {
        let (took, cpu) = (Duration::ZERO, Duration::ZERO);
        let (tests, failed, notes) = (Counts::default(), Vec::new(), Vec::new());
        Self { stage, verdict: Verdict::Passed, tests, failed, took, cpu, notes }
    }
}

#[derive(Debug)]
pub(crate) enum Verdict {
    Passed,
    /// There was no work, or it was skipped for the reasons in the notes.
    NothingRun,
    /// The failures, one entry each.
    Failed(Vec<String>),
}

/// Prints a line of output. A closed pipe or a full disk does not stop the work.
pub(crate) fn print_line(line: &str) {
    let _closed = writeln!(std::io::stdout(), "{line}");
}

/// Announces a stage, with the free disk space in bytes if it is known.
pub(crate) fn heading(stage: &Stage, free: Option<u64>) {
    let free =
        free.map_or_else(String::new, |free| format!(", {} of disk space free", disk::gigabytes(free)));
    print_line(&format!("\n=== {} (budget {} s{free}) ===", stage.name, stage.budget.as_secs()));
}

/// Announces a stage that runs concurrently with those that follow it.
pub(crate) fn concurrent(stage: &Stage) {
    print_line(&format!(
        "\n=== {} runs concurrently with the stages that follow; its output comes after theirs (budget {} s) ===",
        stage.name,
        stage.budget.as_secs()
    ));
}

/// Announces a step of a stage.
pub(crate) fn step(work: &Work) {
    print_line(&format!("--- {work}"));
}

/// Prints the commands and checks of a stage.
pub(crate) fn plan(stage: &Stage, plan: &Plan) {
    heading(stage, None);
    for planned in &plan.steps {
        step(&planned.work);
    }
    if plan.steps.is_empty() && plan.notes.is_empty() {
        print_line("nothing to run: no crate requests this stage");
    }
    for note in &plan.notes {
        print_line(note);
    }
}

/// Prints the closing table, each failure with a command to repeat it, each failed test with the end of its output, and the sum of all tests. Returns whether all stages passed.
pub(crate) fn table(lines: &[Line<'_>]) -> bool {
    print_line(&format!(
        "\n{:<13} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}  result",
        "stage", "time", "CPU", "budget", "passed", "failed", "skipped"
    ));
    let mut sum = Counts::default();
    for line in lines {
        let (took, cpu) = (line.took.as_secs_f64(), line.cpu.as_secs_f64());
        let budget = line.stage.budget.as_secs();
        let Counts { failed, skipped, .. } = line.tests;
        print_line(&format!(
            "{:<13} {took:>5.0} s {cpu:>5.0} s {budget:>5} s {:>7} {failed:>7} {skipped:>7}  {}",
            line.stage.name,
            line.tests.passed(),
            result(line)
        ));
        for note in &line.notes {
            print_line(&format!("{:<13} {note}", ""));
        }
        sum += counted(line);
    }
    let mut good = true;
    for line in lines {
        if let Verdict::Failed(failures) = &line.verdict {
            good = false;
            print_line(&format!(
                "\n{} failed; repeat it with: cargo xtask test --only {}",
                line.stage.name, line.stage.name
            ));
            failures.iter().for_each(|failure| print_line(&format!("  {failure}")));
            for test in &line.failed {
                print_line(&format!("  failed test {}", test.name));
                test.output.iter().for_each(|line| print_line(&format!("    {line}")));
            }
        }
    }
    print_line(&format!("\n{} passed, {} failed, {} skipped", sum.passed(), sum.failed, sum.skipped));
    good
}

/// Returns a note for each reason for which tests were skipped, with their number.
pub(crate) fn skipped(reasons: &[String]) -> Vec<String> {
    let mut tests: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons {
        *tests.entry(reason).or_default() += 1;
    }
    tests.into_iter().map(|(reason, tests)| format!("SKIPPED {tests} tests: {reason}")).collect()
}

fn result(line: &Line<'_>) -> &'static str {
    match line.verdict {
        Verdict::Failed(_) => "FAILED",
        Verdict::NothingRun if line.notes.is_empty() => "NOTHING RUN: no crate requests this stage",
        Verdict::NothingRun => "not run",
        Verdict::Passed if line.took > TOLERATED_OVERRUN * line.stage.budget => {
            "ok; WARNING: took more than twice its budget"
        }
        Verdict::Passed if line.took > line.stage.budget => "ok, over budget",
        Verdict::Passed => "ok",
    }
}

/// Returns the numbers of tests of a stage. A stage that failed without a failing test (a crash, a lint) counts as one failure.
fn counted(line: &Line<'_>) -> Counts {
    let mut tests = line.tests;
    if matches!(line.verdict, Verdict::Failed(_)) {
        tests.failed = tests.failed.max(1);
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::ALL;

    fn line(verdict: Verdict, took: Duration) -> Line<'static> {
        Line {
            stage: &ALL[0],
            verdict,
            tests: Counts { returned: 2, failed: 0, skipped: 0, programs: 1 },
            failed: Vec::new(),
            took,
            cpu: Duration::ZERO,
            notes: Vec::new(),
        }
    }

    #[test]
    fn an_overrun_is_a_warning_not_a_failure() {
        let line = line(Verdict::Passed, 3 * ALL[0].budget);
        assert!(result(&line).contains("WARNING"));
        assert!(table(&[line]));
    }

    #[test]
    fn a_failed_stage_without_tests_counts_as_one_failure() {
        let line = line(Verdict::Failed(vec!["clippy".into()]), Duration::ZERO);
        assert_eq!(counted(&line), Counts { failed: 1, ..line.tests });
        assert!(!table(&[line]));
    }

    #[test]
    fn skipped_tests_are_counted_by_reason() {
        let reasons = ["one CPU", "no device", "one CPU"].map(str::to_owned);
        assert_eq!(skipped(&reasons), ["SKIPPED 1 tests: no device", "SKIPPED 2 tests: one CPU"]);
    }
}
