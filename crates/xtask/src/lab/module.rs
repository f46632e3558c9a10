//! `cargo xtask lab module DIR`: builds a kernel module against the stock kernel, loads it in the lab, and prints its messages.

use core::time::Duration;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use nix::fcntl::{Flock, FlockArg};

use super::build::Image;
use super::build_root::BuildRoot;
use super::kernel::Kernel;
use super::machine::{Ending, Machine};
use super::portable::{self, Fault, Form};
use crate::child::now;
use crate::workspace::Workspace;

/// Time limit for booting, and for loading and unloading a module.
const LOAD_LIMIT: Duration = Duration::from_secs(120);

/// The module that `lab check` loads.
const HELLO: &str = "kernel/hello";

/// The module that has a portable form.
pub(super) const EXPEDITE: &str = "kernel/expedite";

/// The sources that are also compiled as a part of kernel modules.
const POLICY: &str = "crates/sched-policy/src/lib.rs";

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Folder with a Kbuild file and sources in Rust, C or both
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Print the path of the module without loading it
    #[arg(long)]
    build_only: bool,
    /// Build the portable form of kernel/expedite with this fault, which the trial at load must find
    #[arg(long = "break", value_name = "FAULT")]
    fault: Option<Fault>,
    /// Parameters of the module
    #[arg(value_name = "NAME=VALUE")]
    parameters: Vec<String>,
}

/// Builds a module, loads it in a machine with the parameters, prints its messages, and unloads it.
///
/// # Errors
/// The module cannot be built, or QEMU does not start. A module that does not load is an exit code, not an error.
pub(super) fn run(workspace: &Workspace, image: &Image, options: &Options) -> Result<Ending> {
    let root = BuildRoot::provide(workspace, image)?;
    let module = match options.fault {
        Some(fault) => broken(workspace, &root, fault)?,
        None => build(workspace, &root, &options.folder)?,
    };
    let name = module.to_str().context("the path of the module is not valid UTF-8")?.to_owned();
    if options.build_only {
        println!("{name}");
        return Ok(Ending::Exited(0));
    }
    let words: Vec<_> =
        ["lab-module".to_owned(), name].into_iter().chain(options.parameters.clone()).collect();
    Machine::new(image, workspace, 2, None)?.run(&words, LOAD_LIMIT)
}

/// Builds the module `hello` and returns its path.
///
/// # Errors
/// The module cannot be built.
pub(super) fn hello(workspace: &Workspace, root: &BuildRoot) -> Result<PathBuf> {
    build(workspace, root, &workspace.root.join(HELLO))
}

/// Builds the module `expedite` in its portable form and returns its path.
///
/// # Errors
/// The module cannot be built.
pub(super) fn portable_expedite(workspace: &Workspace, root: &BuildRoot) -> Result<PathBuf> {
    let _alone = alone(workspace)?;
    portable(workspace, root, &workspace.root.join(EXPEDITE).canonicalize()?, None)
}

/// Builds the module `expedite` with a fault, in its portable form, and returns its path.
///
/// # Errors
/// The module cannot be built.
pub(super) fn broken(workspace: &Workspace, root: &BuildRoot, fault: Fault) -> Result<PathBuf> {
    let _alone = alone(workspace)?;
    portable(workspace, root, &workspace.root.join(EXPEDITE).canonicalize()?, Some(fault))
}

/// Waits until no other process builds a module of this tree: two builds of one module would write the same files. Others wait until the
/// returned lock is dropped.
fn alone(workspace: &Workspace) -> Result<Flock<File>> {
    let folder = workspace.target.join("lab-modules");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock).or_else(|(file, _)| {
        eprintln!("lab: waits until another command has built a module");
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)
    });
    locked.with_context(|| format!("cannot lock {}", path.display()))
}

fn portable(workspace: &Workspace, root: &BuildRoot, folder: &Path, fault: Option<Fault>) -> Result<PathBuf> {
    let name = folder.file_name().and_then(OsStr::to_str).context("a folder has a name")?;
    let name = fault.map_or_else(|| folder_of(name, Form::Portable), |fault| fault.folder(name));
    let object = portable::object(workspace, root, folder)?;
    portable::module(root, folder, &object, &place(workspace, &root.kernel, &name)?, fault)
}

/// Returns the name of the folder in which a form of a module is built. Tests rely on it.
fn folder_of(module: &str, form: Form) -> String {
    format!("{module}-{}", form.name())
}

/// Builds the module in a folder and returns its path. The build writes below cargo's target folder.
///
/// # Errors
/// The folder has no Kbuild file, the build fails (its messages are on stderr), or it does not produce exactly one module.
pub(super) fn build(workspace: &Workspace, root: &BuildRoot, folder: &Path) -> Result<PathBuf> {
    let _alone = alone(workspace)?;
    let start = now();
    let folder = folder.canonicalize().with_context(|| format!("no folder {}", folder.display()))?;
    ensure!(folder.join("Kbuild").is_file(), "{} has no Kbuild file", folder.display());
    let has_forms = portable::has_form(&folder);
    if root.form == Form::Portable && has_forms {
        let module = portable(workspace, root, &folder, None)?;
        eprintln!("lab: {:6.1} s  portable module: {}", start.elapsed().as_secs_f64(), module.display());
        return Ok(module);
    }
    let name = folder.file_name().and_then(OsStr::to_str).context("a folder has a name")?;
    let name = if has_forms { folder_of(name, Form::Rust) } else { name.to_owned() };
    let place = place(workspace, &root.kernel, &name)?;
    // Sources may include other files of this tree by their paths.
    let tree = workspace.root.canonicalize()?;
    let mut bound = vec![tree.as_path(), place.as_path()];
    if !folder.starts_with(&tree) {
        bound.push(&folder);
    }
    let sources = format!("M={}", folder.display());
    let output = format!("MO={}", place.display());
    let headers = root.headers();
    let words = [
        "make",
        "--no-print-directory",
        "-s",
        "-C",
        &headers,
        &sources,
        &output,
        "EXPEDITE_FORM=rust",
        "modules",
    ];
    let mut make = root.command(&bound, &words)?;
    // stdout is reserved for the output of the module or of the lab.
    let status = make.stdin(Stdio::null()).stdout(std::io::stderr()).status().context("cannot start make")?;
    ensure!(status.success(), "the module in {} cannot be built", folder.display());
    let module = only_module(&place)?;
    eprintln!("lab: {:6.1} s  module: {}", start.elapsed().as_secs_f64(), module.display());
    Ok(module)
}

/// Creates the build folder of a module, below cargo's target folder: `lab-modules/RELEASE/NAME`. Tests rely on this path.
fn place(workspace: &Workspace, kernel: &Kernel, name: &str) -> Result<PathBuf> {
    let place = workspace.target.join("lab-modules").join(&kernel.release).join(name);
    std::fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    Ok(place.canonicalize()?)
}

/// Returns the only module in a folder.
pub(super) fn only_module(folder: &Path) -> Result<PathBuf> {
    let mut modules: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "ko"))
        .collect();
    match (modules.pop(), modules.pop()) {
        (Some(module), None) => Ok(module),
        (None, _) => bail!("the build did not produce a module in {}", folder.display()),
        (Some(_), Some(_)) => bail!("several modules in {}; expected one", folder.display()),
    }
}

/// Compiles the scheduling policy with the kernel's own compiler. Warnings are errors.
///
/// # Errors
/// The policy does not compile (the messages are on stderr).
pub(super) fn check_policy(workspace: &Workspace, root: &BuildRoot) -> Result<()> {
    let tree = workspace.root.canonicalize()?;
    let source = tree.join(POLICY);
    let source = source.to_str().context("the path of the policy is not valid UTF-8")?;
    let words = [
        "rustc",
        "--edition=2021",
        "--crate-type=lib",
        "-Copt-level=2",
        "-Coverflow-checks=yes",
        "-Dwarnings",
    ];
    let output = ["--emit=obj", "-o", "/tmp/policy.o", source];
    let mut compile = root.command(&[&tree], &[&words[..], &output].concat())?;
    let status =
        compile.stdin(Stdio::null()).stdout(std::io::stderr()).status().context("cannot start rustc")?;
    ensure!(status.success(), "{POLICY} does not compile with the kernel's compiler");
    let version = super::progress::output(&mut root.command(&[], &["rustc", "--version"])?)?;
    eprintln!("lab: crates/sched-policy compiles with {}", version.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;
    use std::sync::mpsc::channel;

    #[test]
    fn a_build_waits_for_another_one() {
        let mut workspace = workspace(&[]);
        workspace.target = std::env::temp_dir().join(format!("pronto-modules-{}", std::process::id()));
        let first = alone(&workspace).unwrap();
        let (sender, entered) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(alone(&workspace).map(drop)));
            assert!(entered.recv_timeout(Duration::from_millis(50)).is_err());
            drop(first);
            entered.recv().unwrap().unwrap();
        });
        std::fs::remove_dir_all(&workspace.target).unwrap();
    }

    #[test]
    fn exactly_one_module_is_expected() {
        let folder = std::env::temp_dir().join(format!("pronto-one-module-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.o"), b"").unwrap();
        assert!(only_module(&folder).is_err());
        std::fs::write(folder.join("a.ko"), b"").unwrap();
        assert_eq!(only_module(&folder).unwrap(), folder.join("a.ko"));
        std::fs::write(folder.join("b.ko"), b"").unwrap();
        assert!(only_module(&folder).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
