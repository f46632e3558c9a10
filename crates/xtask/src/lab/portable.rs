//! The portable form of a kernel module: its Rust sources compiled ahead to one object for all kernels, its C sources for each.
//!
//! A folder with `portable/build.sh` has this form. The script makes the object, and `Kbuild` takes it from `portable/rust.o_shipped`. So the
//! files that are compiled against a kernel are those of the DKMS package.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Deserialize;

use super::build_root::BuildRoot;
use super::module::only_module;
use crate::workspace::Workspace;

/// The script that makes the object.
const SCRIPT: &str = "portable/build.sh";

/// Where `Kbuild` expects the object.
pub(super) const OBJECT: &str = "portable/rust.o_shipped";

/// Endings of files that are compiled against a kernel, or used for that.
const PARTS: &[&str] = &[".c", ".S", ".h", ".awk", "Kbuild"];

/// How a module is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// With the kernel's Rust code
    Rust,
    /// With the Rust sources compiled ahead, for kernels without Rust
    Portable,
}

impl Form {
    /// Returns the name, as in `/sys/module/expedite/version`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Portable => "portable",
        }
    }
}

/// A fault that the module has in a build for tests: the trial at load must find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// Raising a thread does nothing
    Raise,
    /// Lowering a thread does nothing
    Lower,
}

impl Fault {
    /// Returns the value of `EXPEDITE_BREAK` in `Kbuild`.
    const fn name(self) -> &'static str {
        match self {
            Self::Raise => "raise",
            Self::Lower => "lower",
        }
    }

    /// Returns the name of the folder in which the module with this fault is built. Tests rely on it.
    pub(super) fn folder(self, module: &str) -> String {
        format!("{module}-without-{}", self.name())
    }
}

/// Returns whether the module in a folder has this form.
pub(super) fn has_form(folder: &Path) -> bool {
    folder.join(SCRIPT).is_file()
}

/// Compiles the object of a module and returns its path, below cargo's target folder. It does not depend on the kernel.
///
/// # Errors
/// The sources do not compile (the messages are on stderr).
pub(super) fn object(workspace: &Workspace, root: &BuildRoot, folder: &Path) -> Result<PathBuf> {
    let name = folder.file_name().context("a folder has a name")?;
    let place = workspace.target.join("lab-modules/portable").join(name);
    std::fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let place = place.canonicalize()?;
    let object = place.join("rust.o");
    let tree = workspace.root.canonicalize()?;
    let text = |path: &Path| -> Result<String> {
        Ok(path.to_str().context("a path of the module is not valid UTF-8")?.to_owned())
    };
    let words = [text(&folder.join(SCRIPT))?, text(&object)?];
    let words: Vec<_> = ["sh"].into_iter().chain(words.iter().map(String::as_str)).collect();
    let mut command = root.command(&[&tree, &place], &words)?;
    let status =
        command.stdin(Stdio::null()).stdout(std::io::stderr()).status().context("cannot start sh")?;
    ensure!(status.success(), "the Rust sources in {} cannot be compiled", folder.display());
    Ok(object)
}

/// Copies the files that are compiled against a kernel to a folder. Files that are there and equal stay as they are.
///
/// # Errors
/// A file cannot be read or written.
pub(super) fn stage(folder: &Path, object: &Path, to: &Path) -> Result<()> {
    for part in ["", "portable"] {
        let to = to.join(part);
        std::fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
        for entry in std::fs::read_dir(folder.join(part))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_file() && PARTS.iter().any(|ending| name.ends_with(ending)) {
                copy(&entry.path(), &to.join(name))?;
            }
        }
    }
    copy(object, &to.join(OBJECT))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let content = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if !std::fs::read(to).is_ok_and(|old| old == content) {
        std::fs::write(to, content).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

/// Builds the module in this form, below `place`, and returns its path in that folder. `fault` is one that the module plants.
///
/// # Errors
/// The build fails (its messages are on stderr).
pub(super) fn module(
    root: &BuildRoot,
    folder: &Path,
    object: &Path,
    place: &Path,
    fault: Option<Fault>,
) -> Result<PathBuf> {
    let sources = place.join("sources");
    stage(folder, object, &sources)?;
    let headers = root.headers();
    let sources_word = format!("M={}", sources.display());
    let fault_word = format!("EXPEDITE_BREAK={}", fault.map_or("", Fault::name));
    let words = [
        "make",
        "--no-print-directory",
        "-s",
        "-C",
        &headers,
        &sources_word,
        "EXPEDITE_FORM=portable",
        &fault_word,
        "modules",
    ];
    let mut make = root.command(&[place], &words)?;
    let status = make.stdin(Stdio::null()).stdout(std::io::stderr()).status().context("cannot start make")?;
    ensure!(status.success(), "the module in {} cannot be built", folder.display());
    let built = only_module(&sources)?;
    let module = place.join(built.file_name().context("a module has a name")?);
    std::fs::copy(&built, &module).with_context(|| format!("cannot write {}", module.display()))?;
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_compiled_against_a_kernel_are_staged() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/expedite");
        let to = std::env::temp_dir().join(format!("pronto-stage-{}", std::process::id()));
        std::fs::create_dir_all(&to).unwrap();
        let object = to.join("object");
        std::fs::write(&object, b"an object").unwrap();
        assert!(has_form(&folder));
        stage(&folder, &object, &to.join("out")).unwrap();
        for name in ["Kbuild", "layout.awk", "glue.h", "waiters.c", "portable/module.c", OBJECT] {
            assert!(to.join("out").join(name).is_file(), "{name}");
        }
        assert!(!to.join("out/engine.rs").exists() && !to.join("out/README.md").exists());
        std::fs::remove_dir_all(&to).unwrap();
    }
}
