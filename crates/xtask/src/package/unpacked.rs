//! Unpacks the archive into a temporary folder, as a user does, and uses what is in it.

use core::time::Duration;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{LIBRARY, PROGRAMS, default_folder, name, stage};
use crate::child::{CommandLine, End};
use crate::workspace::Workspace;

/// Time limit of one command. Each takes seconds.
const LIMIT: Duration = Duration::from_secs(240);

/// Exit codes of `pronto doctor` (docs/operations.md): no problem, and at least one.
const INSPECTED: [i32; 2] = [0, 3];

/// Unpacks the archive that `cargo xtask package` made. Returns what is missing or does not work.
///
/// # Errors
/// There is no archive, or it cannot be unpacked.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let archive = default_folder(workspace).join(format!("{}.tar.gz", name()));
    let temporary = Temporary::new()?;
    unpack(&archive, &temporary.0)?;
    let package = temporary.0.join(name());
    let mut findings = missing(&workspace.root, &package)?;
    let used = [
        ("help and version", help(&package)),
        ("the library", library(&package)),
        ("doctor", doctor(&package)),
        ("a node", node(&package)),
        ("the demo", demo(&package)),
    ];
    let failed = used.into_iter().filter_map(|(use_, result)| Some((use_, result.err()?)));
    findings.extend(failed.map(|(use_, error)| format!("{use_}: {error:#}")));
    Ok(findings)
}

/// A folder that is removed with its content.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("pronto-unpacked-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Checks the checksum of the archive, and unpacks it.
fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let place = archive.parent().context("the archive is in a folder")?;
    let sum = format!("{}.sha256", archive.file_name().unwrap_or_default().to_string_lossy());
    succeeded(&CommandLine::new("sha256sum", ["--check", "--quiet", &sum]).folder(place))?;
    let file = archive.to_string_lossy().into_owned();
    succeeded(&CommandLine::new("tar", ["-xzf".to_owned(), file]).folder(folder)).map(drop)
}

/// Returns the documents of the tree that the package lacks or has otherwise, and the missing manual pages and completions.
fn missing(root: &Path, package: &Path) -> Result<Vec<String>> {
    let mut documents: Vec<String> = stage::DOCUMENTS.map(str::to_owned).to_vec();
    markdown(root, Path::new(stage::BOOK), &mut documents)?;
    ensure!(documents.len() > 2 * stage::DOCUMENTS.len(), "{} has no documents", root.display());
    let mut findings = Vec::new();
    for document in documents {
        let original = fs::read(root.join(&document)).with_context(|| format!("cannot read {document}"))?;
        if fs::read(package.join(&document)).ok() != Some(original) {
            findings.push(format!("{document} is missing, or differs from the tree's"));
        }
    }
    let notices = fs::read_to_string(package.join(stage::NOTICES)).unwrap_or_default();
    for text in ["\nclap ", "\nrdma-mummy-sys ", "Permission is hereby granted", "Apache License"] {
        if !notices.contains(text) {
            findings.push(format!("{} does not contain {text:?}", stage::NOTICES));
        }
    }
    for program in programs() {
        for file in [
            format!("share/man/man1/{program}.1"),
            format!("share/bash-completion/completions/{program}.bash"),
            format!("share/zsh/site-functions/_{program}"),
            format!("share/fish/vendor_completions.d/{program}.fish"),
        ] {
            if fs::metadata(package.join(&file)).map_or(0, |found| found.len()) == 0 {
                findings.push(format!("{file} is missing or empty"));
            }
        }
    }
    Ok(findings)
}

/// Adds the documents in a folder of the tree and in the folders in it.
fn markdown(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<()> {
    let entries =
        fs::read_dir(root.join(folder)).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = folder.join(entry.context("cannot list a folder of documents")?.file_name());
        if root.join(&path).is_dir() {
            markdown(root, &path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

fn programs() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().flat_map(|(_, programs)| *programs).copied()
}

/// Returns a command of an unpacked program, which runs in the unpacked folder.
fn program<'a>(package: &Path, program: &str, arguments: impl IntoIterator<Item = &'a str>) -> CommandLine {
    CommandLine::new(&package.join("bin").join(program).to_string_lossy(), arguments).folder(package)
}

/// Runs a command that must succeed, and returns its output.
fn succeeded(command: &CommandLine) -> Result<Vec<String>> {
    exited(command, &[0])
}

/// Runs a command that must end with one of these exit codes, and returns its output.
fn exited(command: &CommandLine, codes: &[i32]) -> Result<Vec<String>> {
    let outcome = command.run(LIMIT)?;
    match outcome.end {
        End::Exited(status) if status.code().is_some_and(|code| codes.contains(&code)) => Ok(outcome.output),
        End::Exited(status) => anyhow::bail!("`{command}`: {status}"),
        End::Killed => anyhow::bail!("`{command}`: killed after {} s", LIMIT.as_secs()),
    }
}

/// Every program prints its help and this version.
fn help(package: &Path) -> Result<()> {
    for name in programs() {
        let help = succeeded(&program(package, name, ["--help"]))?;
        ensure!(help.iter().any(|line| line.starts_with("Usage:")), "{name} --help has no usage");
        let version = succeeded(&program(package, name, ["--version"]))?;
        let expected = format!("{name} {}", env!("CARGO_PKG_VERSION"));
        ensure!(version == [expected.as_str()], "{name} --version: {version:?}, expected {expected}");
    }
    Ok(())
}

/// Programs run with the library, which replaces `fcntl`.
fn library(package: &Path) -> Result<()> {
    let library = package.join("lib").join(LIBRARY.1);
    let output = Command::new("sh").args(["-c", "exec true"]).env("LD_PRELOAD", &library).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && text.is_empty(), "{}: {text}", library.display());
    Ok(())
}

/// `pronto doctor` inspects this machine, and is built with RDMA.
fn doctor(package: &Path) -> Result<()> {
    let output = exited(&program(package, "pronto", ["doctor", "--json"]), &INSPECTED)?;
    let report: Value = serde_json::from_str(&output.join("\n")).context("stdout is not one JSON object")?;
    let findings = report["findings"].as_array().context("the report has no findings")?;
    let rdma = findings.iter().find(|finding| finding["subject"] == "rdma").context("nothing about RDMA")?;
    let text = rdma["text"].as_str().unwrap_or_default();
    ensure!(!text.contains("built without"), "{text}");
    Ok(())
}

/// `prontod` accepts a configuration, listens, answers `pronto ping`, and ends at SIGTERM.
fn node(package: &Path) -> Result<()> {
    let config = package.join("1.toml");
    let socket = package.join("1.sock");
    fs::write(&config, format!("node = 1\nlisten = [\"shm:{}\"]\n", socket.display()))
        .context("cannot write a configuration")?;
    succeeded(&program(package, "prontod", ["--config", "1.toml", "--check"]))?;
    let mut daemon = Daemon::start(package)?;
    let address = format!("shm:{}", socket.display());
    succeeded(&program(package, "pronto", ["ping", "1", "--at", &address, "--count", "3"]))?;
    let pid = daemon.child.id().to_string();
    succeeded(&CommandLine::new("kill", ["-TERM", &pid]))?;
    // It closes its stderr when it ends, at the latest after its drain time.
    let ended = daemon.end.recv_timeout(LIMIT);
    ensure!(ended == Err(RecvTimeoutError::Disconnected), "prontod does not end at SIGTERM");
    let status = daemon.child.wait().context("cannot wait for prontod")?;
    ensure!(status.success(), "prontod at SIGTERM: {status}");
    Ok(())
}

/// A running `prontod`, killed when it is dropped.
struct Daemon {
    child: Child,
    /// Disconnected when the daemon has closed its stderr.
    end: Receiver<()>,
}

impl Daemon {
    /// Starts the daemon, and returns when it listens.
    fn start(package: &Path) -> Result<Self> {
        let mut command = Command::new(package.join("bin/prontod"));
        command.args(["--config", "1.toml"]).current_dir(package).stdin(Stdio::null());
        let (open, end) = channel::<()>();
        let child = command.stderr(Stdio::piped()).spawn().context("cannot start prontod")?;
        let mut daemon = Self { child, end };
        let mut lines = BufReader::new(daemon.child.stderr.take().expect("stderr is piped")).lines();
        let first = lines.next().context("prontod ended early")?.context("prontod printed no text")?;
        ensure!(first.contains("listens at"), "prontod: {first}");
        // Reads on, so that the daemon never waits for a reader.
        std::thread::spawn(move || {
            lines.for_each(drop);
            drop(open);
        });
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The demo's report is one JSON object and nothing else on stdout, without any failure.
fn demo(package: &Path) -> Result<()> {
    verdict(&succeeded(&program(package, "pronto", ["demo", "--json"]))?)
}

fn verdict(output: &[String]) -> Result<()> {
    let result: Value = serde_json::from_str(&output.join("\n")).context("stdout is not one JSON object")?;
    for count in ["lost", "duplicated", "out_of_order", "corrupt"] {
        ensure!(result[count] == 0, "`{count}` is {}, expected 0", result[count]);
    }
    for truth in ["result_equal", "reconciled"] {
        ensure!(result[truth] == true, "`{truth}` is {}, expected true", result[truth]);
    }
    ensure!(result["messages"].as_u64() > Some(0), "no message was sent");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"messages": 9, "lost": 0, "duplicated": 0, "out_of_order": 0, "corrupt": 0,
        "result_equal": true, "reconciled": true}"#;

    #[test]
    fn only_a_clean_run_of_the_demo_passes() {
        assert!(verdict(&[GOOD.into()]).is_ok());
        for (from, to) in [
            ("\"lost\": 0", "\"lost\": 1"),
            ("\"reconciled\": true", "\"x\": 1"),
            ("\"messages\": 9", "\"messages\": 0"),
        ] {
            assert!(verdict(&[GOOD.replace(from, to)]).is_err(), "{to}");
        }
        assert!(verdict(&["progress".into(), GOOD.into()]).is_err());
    }

    #[test]
    fn an_empty_package_lacks_every_document_and_page() {
        let workspace = Workspace::discover().expect("the workspace exists");
        let findings =
            missing(&workspace.root, Path::new("/no/such/folder")).expect("the tree has documents");
        for file in ["README.md", "LICENSE-MIT", "docs/operations.md", "THIRD-PARTY.txt", "man1/prontod.1"] {
            assert!(findings.iter().any(|finding| finding.contains(file)), "{file}: {findings:?}");
        }
    }
}
