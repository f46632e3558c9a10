//! One experiment in a process of its own.

use std::env;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::Value;

use super::plan::Part;
use super::results::Results;
use crate::results as files;

/// Runs a part. `progress` takes each line that its process writes to stderr. Returns the result.
///
/// # Errors
/// If the process fails, with the last line that it wrote to stderr.
pub(super) fn run(
    part: Part,
    quick: bool,
    results: &Results,
    mut progress: impl FnMut(&str),
) -> anyhow::Result<Value> {
    let program = env::current_exe().context("asking for this program's path")?;
    let unfinished = results.unfinished(part);
    let stdout = File::create(&unfinished).with_context(|| format!("creating {}", unfinished.display()))?;
    let mut command = Command::new(program);
    command.args(part.arguments(quick)).arg("--json");
    if part.experiment.draws {
        command.arg("--plots").arg(results.figures(part));
    }
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    let mut process = command.spawn().context("starting the experiment")?;
    let mut last = String::new();
    if let Some(stderr) = process.stderr.take() {
        // A line that is not text is no reason to stop the experiment.
        for line in
            BufReader::new(stderr).lines().map_while(Result::ok).filter(|line| !line.trim().is_empty())
        {
            progress(&line);
            last = line;
        }
    }
    let status = process.wait().context("waiting for the experiment")?;
    anyhow::ensure!(status.success(), "{} ({status})", last.trim_start_matches("pronto-bench: "));
    files::read(&unfinished)
}
