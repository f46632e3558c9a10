//! The lab, for experiments that this host's kernel cannot run: the program runs itself again in it.
//!
//! The lab is `cargo xtask lab` (lab/README.md): a machine in QEMU with a stock Debian kernel that sees the source tree and
//! cargo's target folder at the host's paths. The output of the program there is printed here.

mod open_mpi;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

pub(crate) use open_mpi::OpenMpi;

/// The machine of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lab {
    /// Number of CPUs of the machine.
    pub(crate) cpus: u32,
    /// Whether its clock counts instructions (docs/measuring.md).
    pub(crate) virtual_time: bool,
    /// Whether the program must be built with RDMA.
    pub(crate) verbs: bool,
    /// Folder of a kernel module to build first; [`module`] returns its path in the machine.
    pub(crate) module: Option<&'static str>,
    /// Folders of BPF programs to build first; [`bpf`] returns the paths of their objects in the machine.
    pub(crate) bpf: &'static [&'static str],
    /// Whether to copy this host's Open MPI for the machine first; [`open_mpi()`] returns it there.
    pub(crate) open_mpi: bool,
    /// Limit in seconds, including the boot, after which the machine is ended.
    pub(crate) limit: u32,
}

impl Lab {
    /// Two CPUs, nothing built, and time for a boot.
    pub(crate) const PLAIN: Self = Self {
        cpus: 2,
        virtual_time: false,
        verbs: false,
        module: None,
        bpf: &[],
        open_mpi: false,
        limit: 60,
    };
}

/// This program with RDMA.
const WITH_VERBS: Apart = Apart {
    package: env!("CARGO_PKG_NAME"),
    feature: Some("verbs"),
    program: "pronto-bench",
    needs: "cmake clang",
};

/// The program `pronto`.
const PRONTO: Apart = Apart { package: "pronto-daemon", feature: None, program: "pronto", needs: "gcc" };

/// Variable that the lab sets for its programs.
const INSIDE: &str = "PRONTO_LAB";
/// Variable with the path of the module in the machine.
const MODULE: &str = "PRONTO_LAB_MODULE";
/// Prefix of variables with the paths of the objects of BPF programs in the machine; the name of the folder follows.
const BPF: &str = "PRONTO_LAB_BPF_";
/// Variable with the folder of Open MPI.
const OPEN_MPI: &str = "PRONTO_LAB_OPEN_MPI";
/// File that marks the root of the tree.
const ROOT_MARK: &str = "lab/lab.toml";

/// Returns whether this process runs in the lab.
pub(crate) fn inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Returns the path of the module that was built for this run, in the machine.
pub(crate) fn module() -> anyhow::Result<PathBuf> {
    env::var_os(MODULE)
        .map(PathBuf::from)
        .with_context(|| format!("{MODULE} is not set: no kernel module was built for this run"))
}

/// Returns the path of the object of a BPF program that was built for this run, in the machine; `name` is that of its folder.
pub(crate) fn bpf(name: &str) -> anyhow::Result<PathBuf> {
    let variable = format!("{BPF}{}", name.to_uppercase());
    env::var_os(&variable)
        .map(PathBuf::from)
        .with_context(|| format!("{variable} is not set: this BPF program was not built for this run"))
}

/// Returns the Open MPI that was copied for this run.
pub(crate) fn open_mpi() -> anyhow::Result<OpenMpi> {
    let folder = env::var_os(OPEN_MPI).map(PathBuf::from);
    let folder =
        folder.with_context(|| format!("{OPEN_MPI} is not set: Open MPI was not copied for this run"))?;
    Ok(OpenMpi::at(folder))
}

/// Runs this program again with the same `words` in that machine, with the output of this program. `shared` is a folder that it may
/// write to.
pub(crate) fn run(lab: &Lab, words: &[OsString], shared: Option<&Path>) -> anyhow::Result<()> {
    let program = env::current_exe().context("asking for this program's path")?;
    let root = &*root()?;
    let program =
        if lab.verbs && !cfg!(feature = "verbs") { build_apart(root, &WITH_VERBS)? } else { program };
    let mut command = xtask(root);
    if let Some(folder) = lab.module {
        command.env(MODULE, built(root, &["module", "--build-only"], folder)?);
    }
    for folder in lab.bpf {
        let (_, name) = folder.rsplit_once('/').unwrap_or(("", folder));
        command.env(format!("{BPF}{}", name.to_uppercase()), built(root, &["bpf"], folder)?);
    }
    if lab.open_mpi {
        let copied = OpenMpi::copy(&build_apart(root, &PRONTO)?)?;
        command.env(OPEN_MPI, copied.folder());
    }
    command.args(["run", "--cpus", &lab.cpus.to_string(), "--timeout", &lab.limit.to_string()]);
    if lab.virtual_time {
        command.arg("--virtual-time");
    }
    if let Some(folder) = shared {
        command.arg("--share").arg(folder);
    }
    let status = command.arg("--").arg(program).args(words).status().context("starting cargo")?;
    anyhow::ensure!(status.success(), "the program ended with {status} in the lab");
    Ok(())
}

/// Builds what is in a folder of the tree, by a command of the lab. Returns the path that the command prints.
fn built(root: &Path, words: &[&str], folder: &str) -> anyhow::Result<String> {
    let mut command = xtask(root);
    command.args(words).arg(root.join(folder)).stdin(Stdio::null()).stderr(Stdio::inherit());
    let built = command.output().context("starting cargo")?;
    anyhow::ensure!(built.status.success(), "{folder} cannot be built for the lab");
    let path = String::from_utf8(built.stdout).context("the path of a build is not UTF-8")?;
    Ok(path.trim().to_owned())
}

/// Returns the command `cargo xtask lab`, run in the tree.
fn xtask(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["xtask", "lab"]);
    command
}

/// A program of the tree that is built for a run; with a feature, in a folder of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Apart {
    pub(crate) package: &'static str,
    pub(crate) feature: Option<&'static str>,
    pub(crate) program: &'static str,
    /// Packages of Debian that the feature needs.
    pub(crate) needs: &'static str,
}

/// Builds a program. One with a feature is built apart: in cargo's usual folder the build would replace the running program, which starts
/// itself again, or the same program without the feature. Returns the path of the new program.
pub(crate) fn built_apart(apart: &Apart) -> anyhow::Result<PathBuf> {
    build_apart(&root()?, apart)
}

fn build_apart(root: &Path, apart: &Apart) -> anyhow::Result<PathBuf> {
    let Apart { package, feature, program, needs } = apart;
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["build", "--package", package]);
    if let Some(feature) = feature {
        command.args(["--features", feature, "--target-dir"]).arg(root.join("target").join(feature));
    }
    command.args(["--bin", program, "--message-format", "json-render-diagnostics"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let built = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("starting cargo")?;
    anyhow::ensure!(
        built.status.success(),
        "{program} cannot be built; that needs {needs} (apt-get install {needs})"
    );
    let text = String::from_utf8(built.stdout).context("cargo's messages are not UTF-8")?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let path = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    path.context("cargo's messages do not name the program")
}

/// Returns the root of the source tree that contains the current folder or this program.
fn root() -> anyhow::Result<PathBuf> {
    let here = env::current_dir().context("asking for the current folder")?;
    let program = env::current_exe().context("asking for this program's path")?;
    let found = tree(&here).or_else(|| tree(&program)).map(Path::to_path_buf);
    found.with_context(|| {
        format!(
            "this experiment needs the source tree: start it there (no {ROOT_MARK} above {})",
            here.display()
        )
    })
}

/// Returns the root of the source tree that contains `path`.
fn tree(path: &Path) -> Option<&Path> {
    path.ancestors().find(|folder| folder.join(ROOT_MARK).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_found_from_anywhere_in_it() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(tree(&package.join("src/lab/mod.rs")), package.parent());
        assert_eq!(tree(Path::new("/")), None);
    }
}
