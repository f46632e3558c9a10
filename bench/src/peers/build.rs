//! The programs of `bench/peers`, built for this run, and the tools that they need.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::report::Report;

/// Paths of the built programs.
pub(crate) type Built = BTreeMap<Program, PathBuf>;

/// Builds each program once, and notes the peers whose program cannot be built.
pub(crate) fn all(wanted: &BTreeSet<(Program, &'static str)>, report: &mut Report) -> Built {
    let mut built = Built::new();
    for program in wanted.iter().map(|(program, _)| *program).collect::<BTreeSet<_>>() {
        match program.build() {
            Ok(path) => drop(built.insert(program, path)),
            Err(error) => {
                let of_program = wanted.iter().filter(|(other, _)| *other == program);
                let peers: Vec<_> = of_program.map(|(_, peer)| *peer).collect();
                report.note(format!("skipped: {}: {error:#}", peers.join(", ")));
            }
        }
    }
    built
}

/// A program of `bench/peers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    /// tarpc, tonic and iceoryx2, built by cargo.
    Crates,
    /// UCX, built by the C compiler.
    Ucx,
    /// Open MPI, built by its compiler.
    Mpi,
    /// libfabric, built by the C compiler.
    Ofi,
    /// Long messages over UCX, built by the C compiler.
    BulkUcx,
    /// Long messages over Open MPI, built by its compiler.
    BulkMpi,
    /// Long messages over libfabric, built by the C compiler.
    BulkOfi,
    /// The overlap of a send and its receiver's computation, built by Open MPI's compiler.
    OpenMpiOverlap,
    /// The overlap of a send and its receiver's computation, built by MPICH's compiler.
    MpichOverlap,
}

impl Program {
    /// Builds the program and returns its path. If a tool is missing, the error names the command that installs it.
    pub(crate) fn build(self) -> anyhow::Result<PathBuf> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let target = target()?;
        let (compiler, needs, libraries, packages): (_, &[&str], &[&str], _) = match self {
            Self::Crates => return crates(&sources, &target),
            Self::Ucx | Self::BulkUcx => ("cc", &["ucp/api/ucp.h"], &["-lucp", "-lucs"], "gcc libucx-dev"),
            Self::Mpi | Self::BulkMpi => ("mpicc", &[], &[], "gcc openmpi-bin libopenmpi-dev"),
            Self::Ofi | Self::BulkOfi => ("cc", &["rdma/fabric.h"], &["-lfabric"], "gcc libfabric-dev"),
            Self::OpenMpiOverlap => ("mpicc.openmpi", &[], &[], "gcc openmpi-bin libopenmpi-dev"),
            Self::MpichOverlap => ("mpicc.mpich", &[], &[], "gcc mpich libmpich-dev"),
        };
        let missing = || format!("run: sudo apt-get install -y --no-install-recommends {packages}");
        if !on_path(compiler) {
            bail!("{compiler} is missing; {}", missing());
        }
        if let Some(header) = needs.iter().find(|header| !Path::new("/usr/include").join(header).exists()) {
            bail!("<{header}> is missing; {}", missing());
        }
        let name = self.name();
        let program = target.join(self.built());
        let built = Command::new(compiler)
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(sources.join("c").join(name).with_extension("c"))
            .args(libraries)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("starting {compiler}"))?;
        if !built.status.success() {
            bail!("{name}.c: {}", String::from_utf8_lossy(&built.stderr).lines().next().unwrap_or_default());
        }
        Ok(program)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Crates => "pronto-peers",
            Self::Ucx => "ucx",
            Self::Mpi => "mpi",
            Self::Ofi => "ofi",
            Self::BulkUcx => "bulk_ucx",
            Self::BulkMpi => "bulk_mpi",
            Self::BulkOfi => "bulk_ofi",
            Self::OpenMpiOverlap | Self::MpichOverlap => "overlap",
        }
    }

    /// Returns the name of the built program: one source may be built several times.
    fn built(self) -> &'static str {
        match self {
            Self::OpenMpiOverlap => "overlap-openmpi",
            Self::MpichOverlap => "overlap-mpich",
            other => other.name(),
        }
    }
}

fn crates(sources: &Path, target: &Path) -> anyhow::Result<PathBuf> {
    let built = Command::new("cargo")
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(sources.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .stdin(Stdio::null())
        // Standard output is reserved for the result.
        .stdout(Stdio::null())
        .status()
        .context("cargo is missing; install Rust as https://rustup.rs says")?;
    if !built.success() {
        bail!("cargo could not build {}", sources.display());
    }
    Ok(target.join("release").join(Program::Crates.name()))
}

/// Returns a folder next to that of this program, which is in cargo's target folder.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("asking for this program's path")?;
    let profile = program.parent().context("this program's path has no folder")?;
    let target = profile.parent().unwrap_or(profile).join("peers");
    fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
    Ok(target)
}

/// Returns whether a program is on the search path.
pub(crate) fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
