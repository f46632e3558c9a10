//! Debian's Open MPI for the lab, whose machine has none: that of this host, unchanged.
//!
//! Its starter, its libraries and its plugins are copied into one folder, which the machine sees at the same path. Variables point the
//! starter and the ranks to it. The C library is not copied, because the machine has a newer one.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::peers::build::{Program, target};

/// The starter of Debian's package.
const STARTER: &str = "mpirun.openmpi";
/// Prints the paths of an installation.
const INFO: &str = "ompi_info";
/// Libraries that the machine has.
const OF_THE_MACHINE: [&str; 6] =
    ["ld-linux-", "libc.so.", "libdl.so.", "libgcc_s.so.", "libm.so.", "libpthread.so."];
/// The library that connects starter and ranks; its plugins are in a folder next to it.
const CONNECTS: &str = "libpmix.so.";

/// A folder with Open MPI, a program that uses it, and `pronto`.
#[derive(Clone, Debug)]
pub(crate) struct OpenMpi(PathBuf);

impl OpenMpi {
    /// Copies Open MPI and its program from this host, with the program `pronto`.
    pub(super) fn copy(pronto: &Path) -> anyhow::Result<Self> {
        let program = Program::OpenMpiOverlap.build()?;
        let copied = Self(target()?.join("openmpi"));
        for folder in [copied.libraries(), copied.plugins(), copied.connecting_plugins()] {
            fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        let starter = on_path(STARTER)?;
        let files = [(&*starter, copied.starter()), (&program, copied.program()), (pronto, copied.pronto())];
        for (from, to) in &files {
            copy(from, to)?;
        }
        let plugins = files_of(&plugins()?)?;
        let connects = plugins.iter().filter(|plugin| name(plugin).starts_with("mca_pmix_ext"));
        let needed = libraries(connects.chain([&starter, &program]))?;
        for library in &needed {
            copy(library, &copied.libraries().join(name(library)))?;
        }
        for plugin in &plugins {
            // The others are for networks that the machine does not have.
            if libraries([plugin])?.is_subset(&needed) {
                copy(plugin, &copied.plugins().join(name(plugin)))?;
            }
        }
        if let Some(library) = needed.iter().find(|library| name(library).starts_with(CONNECTS)) {
            let library = fs::canonicalize(library).context("finding a library")?;
            for plugin in files_of(&library.with_file_name("pmix"))? {
                copy(&plugin, &copied.connecting_plugins().join(name(&plugin)))?;
            }
        }
        Ok(copied)
    }

    /// Returns what was copied into a folder.
    pub(super) fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Returns the folder.
    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the program.
    pub(crate) fn program(&self) -> PathBuf {
        self.0.join("overlap")
    }

    /// Returns a command that starts ranks: by `pronto expedite run`, which knows nothing of Open MPI, if `flagged`.
    pub(crate) fn command(&self, flagged: bool) -> Command {
        let mut command = Command::new(if flagged { self.pronto() } else { self.starter() });
        if flagged {
            command.args(["expedite", "run", "--"]).arg(self.starter());
        }
        command
            .env("LD_LIBRARY_PATH", self.libraries())
            .env("OMPI_MCA_mca_base_component_path", self.plugins())
            .env("PMIX_MCA_mca_base_component_path", self.connecting_plugins())
            .stdin(Stdio::null());
        command
    }

    fn starter(&self) -> PathBuf {
        self.0.join("mpirun")
    }

    fn pronto(&self) -> PathBuf {
        self.0.join("pronto")
    }

    fn libraries(&self) -> PathBuf {
        self.0.join("lib")
    }

    fn plugins(&self) -> PathBuf {
        self.0.join("plugins")
    }

    fn connecting_plugins(&self) -> PathBuf {
        self.0.join("pmix")
    }
}

/// Returns the folder of Open MPI's plugins.
fn plugins() -> anyhow::Result<PathBuf> {
    let output = Command::new(INFO).args(["--parsable", "--path", "pkglibdir"]).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("starting {INFO}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let path = text.lines().find_map(|line| line.strip_prefix("path:pkglibdir:"));
    Ok(path.with_context(|| format!("{INFO} does not print the folder of plugins"))?.into())
}

/// Returns the file of a program on the search path.
fn on_path(program: &str) -> anyhow::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).find_map(|folder| fs::canonicalize(folder.join(program)).ok());
    found.with_context(|| format!("{program} is missing; it comes with the compiler's package"))
}

/// Returns the shared objects of a folder, in order.
fn files_of(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    let mut paths = paths.with_context(|| format!("reading {}", folder.display()))?;
    paths.retain(|path| name(path).ends_with(".so"));
    paths.sort();
    Ok(paths)
}

/// Returns the libraries that files are linked with, directly or not, without those of the machine.
fn libraries<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> anyhow::Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").args(files).stdin(Stdio::null()).output().context("starting ldd")?;
    if !output.status.success() {
        bail!("ldd: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(linked(&String::from_utf8_lossy(&output.stdout)))
}

/// Parses the output of `ldd`.
fn linked(text: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| Some(PathBuf::from(line.split_once(" => ")?.1.split_once(" (")?.0));
    let is_copied = |path: &PathBuf| !OF_THE_MACHINE.iter().any(|library| name(path).starts_with(library));
    text.lines().filter_map(path).filter(is_copied).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Copies a file, or the file that a link names.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    // A file that runs cannot be written, but it can be replaced.
    let _absent = fs::remove_file(to);
    fs::copy(from, to).map(drop).with_context(|| format!("copying {} to {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_the_machine_are_not_copied() {
        let text = "mpirun:\n\tlinux-vdso.so.1 (0x7)\n\tlibmpi.so.40 => /usr/lib/libmpi.so.40 (0x7)\n\tlibm.so.6 => /lib/libm.so.6 \
                    (0x7)\n\tlibz.so.1 => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x7)\n";
        assert_eq!(linked(text), BTreeSet::from(["/usr/lib/libmpi.so.40".into()]));
    }
}
