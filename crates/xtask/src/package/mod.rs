//! `cargo xtask package`: one archive with the release programs, with RDMA, and their documentation.
//!
//! `pronto-VERSION-ARCH-linux.tar.gz` unpacks to a folder that can be copied below `/usr/local`: `bin`, `lib`, `share` with manual pages and
//! completions, and the documentation. Its SHA-256 is in a file next to it, for `sha256sum --check`.

mod archive;
mod notices;
mod stage;
mod unpacked;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

pub(crate) use unpacked::check;

use crate::tools::{self, Tool};
use crate::workspace::{Workspace, cargo};

/// The packed programs, by the package that builds them.
const PROGRAMS: [(&str, &[&str]); 2] =
    [("pronto-daemon", &["pronto", "prontod"]), ("pronto-bench", &["pronto-bench"])];
/// The packed library, for LD_PRELOAD: the package that builds it, and its file.
const LIBRARY: (&str, &str) = ("pronto-expedite-preload", "libexpedite.so");
/// Packaged programs support RDMA; they load libibverbs if it is installed.
const FEATURES: &str = "pronto-daemon/verbs,pronto-bench/verbs";
/// The programs that are needed to build and to strip them.
pub(crate) const TOOLS: &[Tool] = &[tools::CC, tools::CMAKE, tools::CLANG];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder for the archive and its checksum [default: `package` below cargo's target folder]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Builds the programs, collects the files and packs them.
///
/// # Errors
/// Something does not build, a program does not write its pages, or a file cannot be read or written.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    tools::provide(TOOLS)?;
    let out = options.out.clone().unwrap_or_else(|| default_folder(workspace));
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let folder = out.join(name());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let roots = PROGRAMS.map(|(package, _)| package);
    let notices = notices::of(workspace, FEATURES, &roots)?;
    let library = produced(&messages(workspace, &library_arguments())?, LIBRARY.1)
        .with_context(|| format!("cargo did not report the path of {}", LIBRARY.1))?;
    stage::programs(&build(workspace)?, &folder)?;
    stage::library(&library, &folder)?;
    stage::documents(&workspace.root, &notices, &folder)?;
    let archive = archive::pack(&folder, commit_time(&workspace.root))?;
    println!("{}\n{}", archive.file.display(), archive.checksum.display());
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder of the archive if the command line names none.
fn default_folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("package")
}

/// Returns the name of the packed folder.
fn name() -> String {
    format!("pronto-{}-{}-linux", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

/// Returns cargo's arguments that build the programs.
pub(crate) fn build_arguments() -> Vec<&'static str> {
    let mut arguments = vec!["build", "--release", "--locked", "--features", FEATURES];
    for (package, programs) in PROGRAMS {
        arguments.extend(["--package", package]);
        arguments.extend(programs.iter().flat_map(|program| ["--bin", program]));
    }
    arguments
}

/// Returns cargo's arguments that build the library.
pub(crate) fn library_arguments() -> [&'static str; 5] {
    ["build", "--release", "--locked", "--package", LIBRARY.0]
}

/// Builds with these arguments, and returns cargo's messages.
fn messages(workspace: &Workspace, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(cargo());
    command.current_dir(&workspace.root).args(arguments);
    command.args(["--message-format", "json-render-diagnostics"]);
    let built =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(built.status.success(), "the programs cannot be built");
    Ok(String::from_utf8_lossy(&built.stdout).into_owned())
}

/// Builds the programs and returns their paths.
fn build(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let paths = executables(&messages(workspace, &build_arguments())?);
    for program in PROGRAMS.iter().flat_map(|(_, programs)| *programs) {
        if !paths.iter().any(|path| path.ends_with(program)) {
            bail!("cargo did not report the path of {program}");
        }
    }
    Ok(paths)
}

/// Returns the programs that cargo's messages name.
fn executables(messages: &str) -> Vec<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect()
}

/// Returns the path of a file with this name that cargo's messages name.
fn produced(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let files = messages.flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
    files.filter_map(|file| Some(PathBuf::from(file.as_str()?))).find(|file| file.ends_with(name))
}

/// Returns the time of the last commit in seconds since 1970, so that equal sources give equal archives; 0 without a repository.
fn commit_time(root: &Path) -> u64 {
    let output = Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let output = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n{\"executable\":\"/t/release/pronto\"}\nno json\n";
        assert_eq!(executables(output), [PathBuf::from("/t/release/pronto")]);
    }

    #[test]
    fn a_library_is_found_in_cargos_messages() {
        let output =
            r#"{"filenames":["/t/release/libexpedite.so","/t/release/libexpedite.rlib"],"executable":null}"#;
        assert_eq!(produced(output, "libexpedite.so"), Some("/t/release/libexpedite.so".into()));
        assert_eq!(produced(output, "libother.so"), None);
    }

    #[test]
    fn every_listed_program_is_a_target_of_its_package() {
        let workspace = Workspace::discover().expect("the workspace exists");
        for (package, programs) in PROGRAMS {
            let found = workspace.packages.iter().find(|found| found.name == package);
            let built: Vec<_> = found.into_iter().flat_map(|found| found.targets_of("bin")).collect();
            assert!(programs.iter().all(|program| built.contains(program)), "{package}: {built:?}");
        }
    }
}
