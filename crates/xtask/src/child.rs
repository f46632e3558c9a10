//! Runs one command: passes its output through, counts its tests, and kills it if it hangs.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use crate::failed::{Collector, FailedTest};
use crate::report::print_line;

/// Number of output lines that are kept for the caller.
const KEPT_LINES: usize = 200;

/// A command line with its environment.
#[derive(Debug, Clone)]
pub(crate) struct CommandLine {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: Option<PathBuf>,
    quiet: bool,
}

/// Numbers of tests, from the closing lines of `cargo test` and the marks of skipped tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of tests that returned, including skipped ones.
    pub(crate) returned: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// Number of test programs in which at least one test ran.
    pub(crate) programs: usize,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    pub(crate) tests: Counts,
    /// The reason of each skipped test.
    pub(crate) skipped: Vec<String>,
    pub(crate) failed: Vec<FailedTest>,
    /// The last lines of its stdout.
    pub(crate) output: Vec<String>,
    /// The time from its start to its last line.
    pub(crate) printed_for: Duration,
}

#[derive(Debug)]
pub(crate) enum End {
    Exited(ExitStatus),
    /// The command exceeded its time limit and was killed, with all its descendants.
    Killed,
}

impl CommandLine {
    pub(crate) fn new<S: Into<String>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            folder: None,
            quiet: false,
        }
    }

    /// Returns a command of the cargo that runs this program.
    pub(crate) fn cargo<S: Into<String>>(arguments: impl IntoIterator<Item = S>) -> Self {
        Self::new(&crate::workspace::cargo(), arguments)
    }

    pub(crate) fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl Into<String>) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    pub(crate) fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Discards the output of the command, because it is expected to fail.
    pub(crate) fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Returns the command, with stdin closed.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }

    /// Runs the command until it ends or `limit` has passed. Passes its stdout through line by line. It inherits stderr unless it is quiet.
    ///
    /// # Errors
    /// The command does not start. A command that starts and fails is an [`Outcome`], not an error.
    pub(crate) fn run(&self, limit: Duration) -> Result<Outcome> {
        let mut command = self.command();
        if self.quiet {
            command.stderr(Stdio::null());
        }
        self.start(command)?.finish(limit)
    }

    /// Starts the command and holds back its output, stderr included, until [`Running::finish`] prints it.
    ///
    /// # Errors
    /// The command does not start.
    pub(crate) fn start_held(&self) -> Result<Running> {
        let mut held = self.clone();
        let program = core::mem::replace(&mut held.program, "sh".to_owned());
        let redirected = ["-c", "exec \"$@\" 2>&1", "sh"].map(str::to_owned);
        held.arguments.splice(0..0, redirected.into_iter().chain([program]));
        self.start(held.command())
    }

    fn start(&self, mut command: Command) -> Result<Running> {
        let start = now();
        let mut child =
            command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{self}`"))?;
        let lines = lines_of(&mut child);
        Ok(Running { line: self.clone(), child, lines, start })
    }
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Running {
    line: CommandLine,
    child: Child,
    /// The lines of its stdout, each with the time at which it was read.
    lines: Receiver<(Instant, String)>,
    start: Instant,
}

impl Running {
    /// Waits until the command ends or `limit` has passed since its start. Prints its stdout line by line.
    ///
    /// # Errors
    /// The kernel does not say how the command ended.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<Outcome> {
        let (mut tests, mut skipped, mut output) = (Counts::default(), Vec::new(), Vec::new());
        let mut failed = Collector::default();
        let mut last = self.start;
        let end = loop {
            match self.lines.recv_timeout(limit.saturating_sub(self.start.elapsed())) {
                Ok((at, line)) => {
                    last = at;
                    if !self.line.quiet {
                        print_line(&line);
                    }
                    tests.add(&line);
                    failed.add(&line);
                    skipped.extend(reason_of(&line).map(str::to_owned));
                    if output.len() == KEPT_LINES {
                        output.remove(0);
                    }
                    output.push(line);
                }
                Err(RecvTimeoutError::Disconnected) => break End::Exited(self.wait()?),
                Err(RecvTimeoutError::Timeout) => {
                    kill_tree(self.child.id());
                    self.wait()?;
                    break End::Killed;
                }
            }
        };
        let printed_for = last.saturating_duration_since(self.start);
        Ok(Outcome { end, tests, skipped, failed: failed.found(), output, printed_for })
    }

    fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().with_context(|| format!("cannot wait for `{}`", self.line))
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.environment {
            write!(f, "{key}='{value}' ")?;
        }
        let is_cargo = self.program == crate::workspace::cargo();
        f.write_str(if is_cargo { "cargo" } else { &self.program })?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

impl Counts {
    pub(crate) const fn passed(self) -> u64 {
        self.returned.saturating_sub(self.skipped)
    }

    /// Adds the numbers of a closing line of a test program, or the mark of a skipped test. Ignores other lines.
    fn add(&mut self, line: &str) {
        self.skipped += u64::from(reason_of(line).is_some());
        let Some((_, numbers)) = line.trim().strip_prefix("test result: ").and_then(|r| r.split_once(". "))
        else {
            return;
        };
        let number = |what: &str| {
            let mut parts = numbers.split("; ").filter_map(|part| part.split_once(' '));
            parts.find(|(_, of)| *of == what).and_then(|(number, _)| number.parse::<u64>().ok()).unwrap_or(0)
        };
        let (returned, failed) = (number("passed"), number("failed"));
        *self += Self { returned, failed, skipped: 0, programs: usize::from(returned + failed > 0) };
    }
}

impl core::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.returned += other.returned;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.programs += other.programs;
    }
}

/// Returns the reason in the mark of a skipped test.
fn reason_of(line: &str) -> Option<&str> {
    let (_place, reason) = line.strip_prefix(pronto_skip::MARK)?.split_once(": ")?;
    Some(reason)
}

/// Returns the current time, for the durations of stages.
#[expect(clippy::disallowed_methods, reason = "a test runner is an edge: it measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time of all children that have ended, and of their descendants for which they waited.
pub(crate) fn cpu_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Duration::ZERO };
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Reads the child's stdout in a separate thread, so that the caller can wait with a time limit. Each line comes with the time at which it
/// was read.
fn lines_of(child: &mut Child) -> Receiver<(Instant, String)> {
    let stdout = child.stdout.take().expect("stdout of the child is piped");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(length) if length > 0) {
            let text = String::from_utf8_lossy(&line);
            if sender.send((now(), text.trim_end_matches('\n').to_owned())).is_err() {
                break;
            }
            line.clear();
        }
    });
    receiver
}

/// Kills a process and all its descendants. They share our process group (so that Ctrl-C reaches them), so the function
/// walks the process tree instead of signalling the group.
fn kill_tree(root: u32) {
    let parents = parents();
    let mut doomed = vec![root];
    let mut next = 0;
    while next < doomed.len() {
        let parent = doomed[next];
        doomed.extend(parents.iter().filter(|(_, of)| **of == parent).map(|(child, _)| *child));
        next += 1;
    }
    let _ = Command::new("kill").arg("-KILL").args(doomed.iter().map(u32::to_string)).status();
}

/// Returns the parent of each visible process.
fn parents() -> HashMap<u32, u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return HashMap::new() };
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name is in parentheses and may contain any character. State and parent follow the last parenthesis.
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> CommandLine {
        CommandLine::new("sh", ["-c", script])
    }

    #[test]
    fn closing_lines_of_cargo_test_are_added_up() {
        let mut counts = Counts::default();
        counts.add(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s",
        );
        counts.add("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out");
        counts.add("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out");
        counts.add("test session::closing ... ok");
        counts.add("a peer sent: test result: ok. 9 passed");
        assert_eq!(counts, Counts { returned: 14, failed: 3, skipped: 0, programs: 2 });
    }

    #[test]
    fn a_skipped_test_does_not_count_as_passed() {
        let closing = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let script = format!("echo; echo '{}a.rs:7: no: device'; echo '{closing}'", pronto_skip::MARK);
        let outcome = shell(&script).run(AMPLE).unwrap();
        assert_eq!(outcome.skipped, ["no: device"]);
        assert_eq!((outcome.tests.passed(), outcome.tests.skipped, outcome.tests.programs), (2, 1, 1));
    }

    #[test]
    fn output_and_exit_code_come_back() {
        let outcome = shell("echo one; echo two; exit 3").run(AMPLE).unwrap();
        assert_eq!(outcome.output, ["one", "two"]);
        assert!(matches!(outcome.end, End::Exited(status) if status.code() == Some(3)));
    }

    #[test]
    fn the_output_of_a_held_command_is_printed_late_and_counted() {
        let closing = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let line = shell(&format!("echo '{closing}'; echo \"$HELD\" >&2; exit 3")).env("HELD", "on stderr");
        let running = line.start_held().unwrap();
        let outcome = running.finish(AMPLE).unwrap();
        assert_eq!(outcome.output, [closing, "on stderr"]);
        assert_eq!(outcome.tests.returned, 3);
        assert!(matches!(outcome.end, End::Exited(status) if status.code() == Some(3)));
        assert!(outcome.printed_for < AMPLE);
    }

    #[test]
    fn a_hanging_command_is_killed_with_its_descendants() {
        let start = now();
        // The inner shell holds the pipe open. If only the outer shell were killed, the reader would wait for ever.
        let hangs = shell("sh -c 'echo $$; tail -f /dev/null'; true");
        // On a busy machine the command may be killed before it has printed its process id.
        let mut outcomes = (0..6).map(|doubled| hangs.run(Duration::from_millis(500 << doubled)).unwrap());
        let outcome = outcomes.find(|outcome| !outcome.output.is_empty()).expect("the command starts");
        assert!(matches!(outcome.end, End::Killed));
        assert!(start.elapsed() < AMPLE);
        let inner = format!("/proc/{}/stat", outcome.output[0]);
        let runs = || {
            let state = std::fs::read_to_string(&inner).unwrap_or_default();
            state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        // The kernel needs a moment between the signal and the end of the process.
        while runs() {
            assert!(start.elapsed() < AMPLE, "the inner shell still runs");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_cpu_time_of_a_child_is_counted() {
        let before = cpu_time();
        shell("sh -c 'i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done'; true").run(AMPLE).unwrap();
        assert!(cpu_time() > before);
    }

    #[test]
    fn a_missing_command_is_named() {
        let error = CommandLine::new("/no/such/program", ["x"]).run(AMPLE).unwrap_err();
        assert!(error.to_string().contains("/no/such/program x"), "{error}");
    }
}
