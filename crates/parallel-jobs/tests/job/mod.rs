//! A job in processes: the program, its results, and a bound of its time.

#![allow(dead_code, reason = "each test program uses a part of it")]

use core::time::Duration;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Longest time of a job in these tests. It is a bound against hanging; a job takes a fraction of a second.
const LIMIT: Duration = Duration::from_secs(120);

/// Output of a job that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The lines of stdout.
    pub(crate) results: Vec<Value>,
    pub(crate) stderr: String,
}

/// A job that runs.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
}

/// Returns the program with arguments that are separated by spaces.
pub(crate) fn jobs(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pronto-jobs"));
    command.args(arguments.split_whitespace());
    command
}

/// Runs a job to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    start(command).end()
}

/// Starts a job.
pub(crate) fn start(command: &mut Command) -> Running {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the job starts");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let stderr = child.stderr.take().expect("a pipe");
    Running { child, stdout, stderr }
}

impl Running {
    /// Returns the process that was started.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Waits for the result of a run.
    pub(crate) fn next_result(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the output is text");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Waits until every process of the job has ended, which all inherit stdout.
    ///
    /// Kills the process that was started if it has not ended in time.
    pub(crate) fn end(mut self) -> Ended {
        let (done, ended) = channel::<()>();
        let pid = self.pid();
        let guard = std::thread::spawn(move || {
            if ended.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _gone = kill(pid, Signal::SIGKILL);
            }
        });
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            self.stderr.read_to_string(&mut text).map(|_| text)
        });
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("the output is text");
        let stderr = reader.join().expect("no panic").expect("the errors are text");
        let status = self.child.wait().expect("the job ends");
        drop(done);
        guard.join().expect("no panic");
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Ended {
            status,
            results: text.lines().filter(|line| line.starts_with('{')).map(parse).collect(),
            stderr,
        }
    }

    /// Returns the descendant process whose command line or environment contains `text`, as one of its strings.
    pub(crate) fn descendant(&self, text: &str) -> Pid {
        let mut queue = vec![self.pid()];
        while let Some(parent) = queue.pop() {
            let children = format!("/proc/{parent}/task/{parent}/children");
            for child in std::fs::read_to_string(children).unwrap_or_default().split_whitespace() {
                let read = |file: &str| std::fs::read(format!("/proc/{child}/{file}")).unwrap_or_default();
                let strings = [read("cmdline"), read("environ")].concat();
                let strings = String::from_utf8_lossy(&strings).replace('\0', " ");
                let child = Pid::from_raw(child.parse().expect("a pid"));
                if format!(" {strings} ").contains(&format!(" {text} ")) {
                    return child;
                }
                queue.push(child);
            }
        }
        panic!("no descendant has {text:?}")
    }
}

impl Ended {
    /// Checks that a job of `ranks` ranks was verified. Returns its result.
    pub(crate) fn verified(&self, ranks: usize) -> &Value {
        assert!(self.status.success(), "{self:?}");
        let [result] = &self.results[..] else { panic!("one result: {self:?}") };
        assert_eq!(result["verified"], true, "{self:?}");
        assert_eq!(result["ranks"], ranks, "{self:?}");
        assert_eq!(result["by_rank"].as_array().map(Vec::len), Some(ranks), "{self:?}");
        assert!(result["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{self:?}");
        result
    }
}
