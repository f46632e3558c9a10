//! Shows the steps of a build, with their durations and sizes.

use core::time::Duration;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};

use crate::child::now;

/// Redraw interval of a bar.
const TICK: Duration = Duration::from_millis(200);

/// Number of output lines of a failed command that are shown.
const SHOWN_LINES: usize = 12;

/// A step of a build: a bar while it runs, a line when it is done.
#[derive(Debug)]
pub(super) struct Step {
    name: String,
    start: Instant,
    bar: ProgressBar,
}

impl Step {
    pub(super) fn begin(name: &str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(name.to_owned());
        bar.enable_steady_tick(TICK);
        Self { name: name.to_owned(), start: now(), bar }
    }

    /// Makes the bar show bytes out of `total`.
    pub(super) fn bytes(&self, total: u64) {
        let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}");
        self.bar.set_style(style.expect("the template is valid"));
        self.bar.set_length(total);
        if self.bar.is_hidden() {
            eprintln!("lab: {}: {} to fetch", self.name, DecimalBytes(total));
        }
    }

    pub(super) fn done(self, result: &str) {
        self.bar.finish_and_clear();
        eprintln!("lab: {:6.1} s  {}: {result}", self.start.elapsed().as_secs_f64(), self.name);
    }

    /// Runs a command while the bar moves. `position` returns the progress in bytes.
    pub(super) fn run_to(&self, command: &mut Command, position: impl Fn() -> u64) -> Result<String> {
        let child = dying_with_us(command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(output) => return checked(command, &output.context("cannot wait for a command")?),
                Err(RecvTimeoutError::Timeout) => self.bar.set_position(position()),
                Err(RecvTimeoutError::Disconnected) => bail!("lost {command:?}"),
            }
        }
    }
}

/// Returns the same command, killed by the kernel when this process ends. The next build repeats unfinished work.
fn dying_with_us(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

/// Runs a command and returns its output.
///
/// # Errors
/// The command does not start, or fails. The error contains the end of its output.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    checked(command, &output)
}

fn checked(command: &Command, output: &Output) -> Result<String> {
    if !output.status.success() {
        let all = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = all.lines().collect();
        let last = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
        bail!("{command:?} failed ({}):\n{last}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns a number of bytes in a human-readable form.
pub(super) fn size(bytes: usize) -> DecimalBytes {
    DecimalBytes(u64::try_from(bytes).unwrap_or(u64::MAX))
}
