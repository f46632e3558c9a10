//! Probes in the functions of the wait code: each function must be executed by a story about threads, so that a panic planted in it makes
//! a story fail.
//!
//! The stories run in a copy of the tree in which each of these functions begins with a probe. A probe writes its number to a file when it
//! is executed for the first time, or panics if its number was chosen. So one build of the stories serves all functions. A probe is no
//! switch point, and the copy keeps its line numbers, so a seed has the same effect in the copy as in the tree.

mod functions;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::child::{CommandLine, End, now};
use crate::mirror;
use crate::stages::simulation::PROFILE;
use crate::workspace::Workspace;
use functions::{Function, functions, with_probes};

/// The folder whose files are wait code, and the files of the session's interface that are.
const WAIT: &str = "comm-core/src/wait";
const API: &str = "comm-core/src/session/api";
const API_FILES: [&str; 8] =
    ["wait", "room", "sleep", "arming", "deciding", "engine_lock", "fast_path", "doorbells"];
/// The file to which the module of the probes is appended.
const CRATE: &str = "comm-core/src/lib.rs";
const PROBE: &str = include_str!("../../probes/probe.rs");

/// The test program of the stories about threads.
const STORIES: &str = "waiting";
/// Time limit of the stories with a planted panic.
const LIMIT: Duration = Duration::from_secs(600);

/// Functions that no story can execute, and the reasons.
const UNREACHABLE: &[(&str, &str)] = &[
    (
        "comm-core/src/session/api/arming.rs: Session::arm",
        "for a driver without a serving thread, such as the simulation of one thread per node",
    ),
    (
        "comm-core/src/wait/history.rs: Decision::without_history",
        "for the engine thread of a manager without sessions, in the tests of pronto-progress and in pronto-bench",
    ),
];

/// The functions of the wait code, in the order of their probes' numbers.
struct Probes(Vec<(PathBuf, Function)>);

/// Returns the folder of the build of the copy. It is not that of another tree: cargo would take the libraries of one for the other.
fn build(workspace: &Workspace) -> PathBuf {
    workspace.target.join("probes/target")
}

/// Returns the file in which the probes record that they were executed.
fn record(workspace: &Workspace) -> PathBuf {
    build(workspace).join("reached")
}

/// Returns the command that runs the stories in the copy of the tree. With `--cfg simulated` every operation on an atomic is a point at
/// which threads are switched.
pub(crate) fn stories(workspace: &Workspace) -> CommandLine {
    CommandLine::cargo(["test", "--profile", PROFILE, "-p", "pronto-sync", "-p", "pronto-sim"])
        .args(["--test", STORIES])
        .folder(workspace.target.join("probes"))
        .env("RUSTFLAGS", "--cfg simulated")
        .env("CARGO_TARGET_DIR", build(workspace).to_string_lossy())
        .env("PRONTO_REACHED", record(workspace).to_string_lossy())
}

/// Runs the stories with probes, then plants a panic in each function. Returns the findings.
///
/// # Errors
/// See [`plant`] and [`plant_panics`]; also if the stories fail without a panic.
pub(crate) fn run(workspace: &Workspace) -> Result<Vec<String>> {
    plant(workspace)?;
    let outcome = stories(workspace).run(LIMIT)?;
    let passed = matches!(outcome.end, End::Exited(status) if status.success());
    ensure!(passed && outcome.tests.passed() > 0, "the stories fail without a planted panic");
    let mut findings = check(workspace)?;
    findings.extend(plant_panics(workspace)?);
    Ok(findings)
}

/// Brings the copy with its probes up to date, and clears the record. Returns no findings.
///
/// # Errors
/// A file or folder cannot be read or written.
pub(crate) fn plant(workspace: &Workspace) -> Result<Vec<String>> {
    let mut texts = BTreeMap::new();
    let mut count = 0;
    for path in files(workspace)? {
        let source = read(&workspace.root.join(&path))?;
        let functions = functions(&source);
        texts.insert(path, with_probes(&source, &functions, count));
        count += functions.len();
    }
    let root = read(&workspace.root.join(CRATE))?;
    texts
        .insert(CRATE.into(), format!("{root}\nmod probe {{\n{PROBE}\nconst PROBES: usize = {count};\n}}\n"));
    mirror::of_tree_with(workspace, "probes", &texts)?;
    let record = record(workspace);
    let folder = record.parent().context("the record is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(&record, "").with_context(|| format!("cannot clear {}", record.display()))?;
    Ok(Vec::new())
}

/// Returns a finding for each function that no story has executed since [`plant`].
///
/// # Errors
/// A file cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let probes = Probes::of(workspace)?;
    let reached = reached(&read(&record(workspace))?);
    println!("{} of {} functions of the wait code are executed by a story", reached.len(), probes.0.len());
    Ok(probes.findings(&reached, UNREACHABLE))
}

/// Panics in each function of the wait code, one after the other, with the probes of [`plant`]. Returns a finding for each panic with which
/// every story passes.
///
/// # Errors
/// A file cannot be read, or the stories do not start.
pub(crate) fn plant_panics(workspace: &Workspace) -> Result<Vec<String>> {
    let probes = Probes::of(workspace)?;
    let mut findings = Vec::new();
    for (number, function) in probes.names().enumerate() {
        if UNREACHABLE.iter().any(|(unreachable, _)| *unreachable == function) {
            continue;
        }
        let begun = now();
        let planted = stories(workspace).quiet().env("PRONTO_PLANTED", number.to_string());
        let outcome = planted.run(LIMIT)?;
        let passed = matches!(outcome.end, End::Exited(status) if status.success());
        let verdict = if passed { "NOT DETECTED" } else { "a story fails" };
        println!(
            "{number:>3}/{} {:>5.1} s  {function}: {verdict}",
            probes.0.len(),
            begun.elapsed().as_secs_f64()
        );
        if passed {
            findings.push(format!("{function}: no story fails with a panic in it"));
        }
    }
    Ok(findings)
}

impl Probes {
    fn of(workspace: &Workspace) -> Result<Self> {
        let mut probes = Vec::new();
        for path in files(workspace)? {
            let functions = functions(&read(&workspace.root.join(&path))?);
            ensure!(!functions.is_empty() || path.ends_with("mod.rs"), "{} has no functions", path.display());
            probes.extend(functions.into_iter().map(|function| (path.clone(), function)));
        }
        Ok(Self(probes))
    }

    /// Returns the file and the name of each function.
    fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(path, function)| format!("{}: {}", path.display(), function.name))
    }

    fn findings(&self, reached: &BTreeSet<usize>, unreachable: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Vec::new();
        for (number, function) in self.names().enumerate() {
            let is_listed = unreachable.iter().any(|(listed, _)| *listed == function);
            match (reached.contains(&number), is_listed) {
                (false, false) => findings.push(format!("{function}: no story executes this function")),
                (true, true) => {
                    findings.push(format!("{function}: a story executes it, remove it from the list"))
                }
                _ => {}
            }
        }
        for (listed, _) in unreachable {
            if !self.names().any(|function| function == *listed) {
                findings.push(format!("{listed}: no such function, remove it from the list"));
            }
        }
        findings
    }
}

/// Returns the numbers of the probes that the stories executed. Ignores those of other programs.
fn reached(record: &str) -> BTreeSet<usize> {
    let is_of_stories =
        |program: &str| program.strip_prefix(STORIES).is_some_and(|rest| rest.starts_with('-'));
    let lines = record.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter(|(program, _)| is_of_stories(program))
        .filter_map(|(_, number)| number.parse().ok())
        .collect()
}

/// Returns the files of the wait code, relative to the workspace.
fn files(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        API_FILES.iter().map(|name| Path::new(API).join(name).with_extension("rs")).collect();
    let folder = workspace.root.join(WAIT);
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut own = Vec::new();
    for entry in entries {
        let name = entry.with_context(|| format!("cannot list {}", folder.display()))?.file_name();
        own.push(Path::new(WAIT).join(name));
    }
    own.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    own.sort();
    files.extend(own);
    Ok(files)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes() -> Probes {
        let functions = functions("fn first() {}\nfn second() {}\nfn third() {}\n");
        Probes(functions.into_iter().map(|function| ("wait.rs".into(), function)).collect())
    }

    #[test]
    fn only_the_stories_count() {
        let record = "waiting-0f 2\npronto_sim-1 0\nwaiting-0f 1\nwaiting_more-1 4\n";
        assert_eq!(reached(record), [1, 2].into());
    }

    #[test]
    fn a_function_that_no_story_executes_is_reported_unless_it_is_listed() {
        let probes = probes();
        let findings =
            |reached: [usize; 2], listed: &[(&str, &str)]| probes.findings(&reached.into(), listed);
        let found = findings([0, 2], &[]);
        assert!(found.len() == 1 && found[0].starts_with("wait.rs: second: no story"), "{found:?}");
        assert!(findings([0, 2], &[("wait.rs: second", "why")]).is_empty());
        assert_eq!(findings([1, 2], &[("wait.rs: first", "why"), ("wait.rs: second", "why")]).len(), 1);
        assert_eq!(findings([0, 2], &[("wait.rs: second", "why"), ("wait.rs: fourth", "why")]).len(), 1);
    }
}
