//! `cargo xtask lab bpf DIR`: builds a BPF program with Debian's clang and libbpf, against the types of the lab's kernel.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;

use super::apt::Apt;
use super::build::Image;
use super::build_root::{command, unpack, words};
use super::cache::{Cache, key, used};
use super::prune;
use crate::child::now;
use crate::workspace::Workspace;

/// Increased when the same recipe gives another folder.
const REVISION: &str = "1";

/// Ending of the files that a build produces.
const OBJECT: &str = ".bpf.o";

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Folder with a Makefile that has the variables BTF and OUTPUT
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
}

/// The packages with which BPF programs are built, from lab/bpf.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    build: Vec<String>,
}

/// Builds the BPF program in a folder and returns the path of its object. The build writes below cargo's target folder.
///
/// # Errors
/// The folder has no Makefile, a package is not available, the build fails (its messages are on stderr), or it does not produce
/// exactly one object.
pub(super) fn build(workspace: &Workspace, image: &Image, folder: &Path) -> Result<PathBuf> {
    let start = now();
    let folder = folder.canonicalize().with_context(|| format!("no folder {}", folder.display()))?;
    ensure!(folder.join("Makefile").is_file(), "{} has no Makefile", folder.display());
    let root = provide(workspace)?;
    let place = place(workspace, image, &folder)?;
    std::fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let place = place.canonicalize()?;
    let types = image.kernel.canonicalize().context("the image has a kernel")?;
    let kernels = types.parent().context("the kernel is in a folder")?;
    let [source, output, btf] = [("-C", &folder), ("OUTPUT=", &place), ("BTF=", &types)]
        .map(|(name, path)| format!("{name}{}", path.display()));
    let make = ["make", "--no-print-directory", "-s", &source, &output, &btf];
    // stdout is reserved for the path of the object.
    // The Makefiles share a file in the folder above.
    let sources = folder.parent().context("the sources are in a folder")?;
    let status = command(&root, &[sources, &place, kernels], &make)?
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .context("cannot start make")?;
    ensure!(status.success(), "the BPF program in {} cannot be built", folder.display());
    let object = only_object(&place)?;
    eprintln!("lab: {:6.1} s  BPF program: {}", start.elapsed().as_secs_f64(), object.display());
    Ok(object)
}

/// Returns the build folder of a BPF program, below cargo's target folder: `lab-bpf/RELEASE/FOLDER`. Tests rely on this path.
pub(super) fn place(workspace: &Workspace, image: &Image, folder: &Path) -> Result<PathBuf> {
    let name = folder.file_name().context("a folder has a name")?;
    Ok(workspace.target.join("lab-bpf").join(image.kernel().release).join(name))
}

/// Returns the folder with the compilers. Unpacks them if they are not in the cache.
fn provide(workspace: &Workspace) -> Result<PathBuf> {
    let file = workspace.root.join("lab/bpf.toml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let recipe: Recipe = toml::from_str(&text).with_context(|| format!("{} is invalid", file.display()))?;
    let cache = Cache::open()?;
    // Next to the folders for kernel modules, which are removed by the same rule.
    let folder = cache.path("modules").join(key(&[b"bpf", REVISION.as_bytes(), text.as_bytes()]));
    if !folder.exists() {
        let lock = cache.lock()?;
        if !folder.exists() {
            let packages = Apt::guest(&cache)?.fetch("compilers for BPF", &words(&recipe.build))?;
            let root = cache.scratch(&lock)?.join("root");
            unpack("unpack for BPF programs", &root, packages.iter())?;
            std::fs::create_dir_all(cache.path("modules"))?;
            std::fs::rename(&root, &folder).with_context(|| format!("cannot rename {}", root.display()))?;
            cache.scratch(&lock)?;
        }
    }
    used(&folder, prune::now());
    Ok(folder)
}

/// Returns the only object in a folder.
fn only_object(folder: &Path) -> Result<PathBuf> {
    let mut objects: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(OBJECT)))
        .collect();
    match (objects.pop(), objects.pop()) {
        (Some(object), None) => Ok(object),
        (None, _) => bail!("the build did not produce a BPF object in {}", folder.display()),
        (Some(_), Some(_)) => bail!("several BPF objects in {}; expected one", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_of_this_tree_is_read() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/bpf.toml");
        let recipe: Recipe = toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert!(recipe.build.iter().any(|name| name == "clang"));
    }
}
