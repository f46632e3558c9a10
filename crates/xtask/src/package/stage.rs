//! The folder that is packed: the programs, their manual pages and completions, and the documents of the tree.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Documents that are copied from the root. The other documents link to them.
pub(super) const DOCUMENTS: [&str; 5] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// A folder from which all documents are copied.
pub(super) const BOOK: &str = "docs";
/// The file with the licences of the linked crates.
pub(super) const NOTICES: &str = "THIRD-PARTY.txt";
/// The argument that makes a program write its manual pages and completions (`daemon/src/cli_pages.rs`).
const PAGES: &str = "cli-pages";

/// Copies the programs without debug information, and makes each write its manual pages and completions.
///
/// # Errors
/// A program cannot be copied, or does not write its pages.
pub(super) fn programs(built: &[PathBuf], folder: &Path) -> Result<()> {
    let (bin, share) = (folder.join("bin"), folder.join("share"));
    make(&bin)?;
    make(&share)?;
    for program in built {
        let name = program.file_name().context("a program has a name")?;
        let copy = bin.join(name);
        fs::copy(program, &copy).with_context(|| format!("cannot copy {}", program.display()))?;
        if is_linked(&copy)? {
            carry_out(Command::new("strip").arg("--strip-debug").arg(&copy))?;
        }
        carry_out(Command::new(&copy).arg(PAGES).arg(&share))?;
    }
    Ok(())
}

/// Copies the library without debug information.
///
/// # Errors
/// It cannot be copied.
pub(super) fn library(built: &Path, folder: &Path) -> Result<()> {
    let lib = folder.join("lib");
    make(&lib)?;
    let copy = lib.join(built.file_name().context("a library has a name")?);
    fs::copy(built, &copy).with_context(|| format!("cannot copy {}", built.display()))?;
    carry_out(Command::new("strip").arg("--strip-debug").arg(&copy))
}

/// Copies the documents, and writes `notices` next to them.
///
/// # Errors
/// A file cannot be read or written.
pub(super) fn documents(root: &Path, notices: &str, folder: &Path) -> Result<()> {
    for document in DOCUMENTS {
        copy(&root.join(document), &folder.join(document))?;
    }
    book(&root.join(BOOK), &folder.join(BOOK))?;
    let path = folder.join(NOTICES);
    fs::write(&path, notices).with_context(|| format!("cannot write {}", path.display()))
}

fn book(from: &Path, to: &Path) -> Result<()> {
    make(to)?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", from.display()))?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            book(&path, &to.join(name))?;
        } else if path.extension() == Some(OsStr::new("md")) {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// Returns whether the program is an ELF file, not a script.
fn is_linked(program: &Path) -> Result<bool> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    Ok(bytes.starts_with(b"\x7fELF"))
}

fn carry_out(command: &mut Command) -> Result<()> {
    let status =
        command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {}", from.display()))
}
