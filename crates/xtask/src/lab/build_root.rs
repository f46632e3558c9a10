//! The folder for building kernel modules: Debian's compilers and the kernel's headers, with the metadata against which Rust modules
//! are compiled. The compilers of this machine are not used, so its configuration does not matter.
//!
//! Each command runs in its own mount namespace, on these packages. They are in the cache, and all checkouts share
//! them. A command writes to bind-mounted folders, or to a tmpfs that disappears with the namespace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::apt::Apt;
use super::build::Image;
use super::cache::{Cache, Lock, key, used};
use super::kernel::Kernel;
use super::portable::Form;
use super::progress::{Step, output};
use super::{prune, rust_metadata};
use crate::tools::is_root;
use crate::workspace::Workspace;

/// Increased when the same recipe gives another folder.
const REVISION: &str = "1";

/// A script that creates a root: the packages' `/usr` and `/etc`, this machine's `/dev` and `/proc`, and the folders on the command line at
/// their own paths. Arguments: the folder of the packages, the number of bind-mounted folders, these folders, the command.
const ENTER: &str = r#"set -eu
packages=$1 count=$2; shift 2
root=$packages/mnt
mount -t tmpfs tmpfs "$root"
mkdir "$root/usr" "$root/etc" "$root/dev" "$root/proc" "$root/tmp"
for folder in bin lib lib64 sbin; do ln -s "usr/$folder" "$root/$folder"; done
for folder in usr etc; do mount --rbind "$packages/$folder" "$root/$folder"; done
for folder in dev proc; do mount --rbind "/$folder" "$root/$folder"; done
while [ "$count" -gt 0 ]; do
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
    shift; count=$((count - 1))
done
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/usr/sbin LC_ALL=C HOME=/tmp "$@"
"#;

/// The name of that script in the folder.
const SCRIPT: &str = "enter";

/// The packages of the folder, from lab/module.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    pub(super) build: Vec<String>,
    pub(super) metadata: Vec<String>,
}

/// A folder for building modules of one kernel.
#[derive(Debug)]
pub(super) struct BuildRoot {
    pub(super) folder: PathBuf,
    pub(super) kernel: Kernel,
    /// The form of modules that have two.
    pub(super) form: Form,
}

impl BuildRoot {
    /// Returns the folder for the kernel of an image. Builds it if it is not in the cache.
    ///
    /// # Errors
    /// A package is not available, or the built metadata does not match the kernel.
    pub(super) fn provide(workspace: &Workspace, image: &Image) -> Result<Self> {
        if let Some(folder) = image.own_build_root() {
            return Ok(Self::new(folder.to_owned(), image));
        }
        let file = workspace.root.join("lab/module.toml");
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let recipe: Recipe =
            toml::from_str(&text).with_context(|| format!("{} is invalid", file.display()))?;
        let kernel = image.kernel();
        let cache = Cache::open()?;
        let name = key(&[REVISION.as_bytes(), text.as_bytes(), kernel.name().as_bytes()]);
        let folder = cache.path("modules").join(name);
        if !folder.exists() {
            let lock = cache.lock()?;
            if !folder.exists() {
                make(&cache, &lock, &recipe, &kernel, &folder)?;
            }
        }
        used(&folder, prune::now());
        Ok(Self::new(folder, image))
    }

    fn new(folder: PathBuf, image: &Image) -> Self {
        let kernel = image.kernel();
        let default = if rust_metadata::exists(&folder, &kernel) { Form::Rust } else { Form::Portable };
        Self { folder, kernel, form: image.form.unwrap_or(default) }
    }

    /// Returns the path of the headers, as seen by a command that runs in the folder.
    pub(super) fn headers(&self) -> String {
        headers(&self.kernel)
    }

    /// Returns a command that runs in the folder, with the folders `bound` at their own paths.
    ///
    /// # Errors
    /// The user id of this process cannot be determined.
    pub(super) fn command(&self, bound: &[&Path], words: &[&str]) -> Result<Command> {
        command(&self.folder, bound, words)
    }
}

/// Returns the path of a kernel's headers in the folder.
pub(super) fn headers(kernel: &Kernel) -> String {
    format!("/usr/src/linux-headers-{}", kernel.release)
}

/// Returns a command with `packages` as its root. It is killed when this process ends for any reason.
pub(super) fn command(packages: &Path, bound: &[&Path], words: &[&str]) -> Result<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "unshare", "--mount", "--pid", "--fork", "--kill-child"]);
    if !is_root()? {
        command.args(["--user", "--map-root-user"]);
    }
    if !is_mount_point(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()) {
        // A root that was created by chroot alone has no mount at /, so unshare could not change its propagation.
        command.args(["--propagation", "unchanged"]);
    }
    command.args(["--", "sh"]).arg(packages.join(SCRIPT)).arg(packages);
    command.arg(bound.len().to_string()).args(bound);
    command.args(words);
    Ok(command)
}

/// Returns whether / is a mount point, from the text of /proc/self/mountinfo (proc(5): the fifth field).
fn is_mount_point(mounts: &str) -> bool {
    mounts.lines().any(|line| line.split(' ').nth(4) == Some("/"))
}

fn make(cache: &Cache, lock: &Lock, recipe: &Recipe, kernel: &Kernel, place: &Path) -> Result<()> {
    let apt = Apt::guest(cache)?;
    let packages = kernel.build_packages();
    let (source, headers) = packages.split_last().context("a kernel has packages")?;
    let headers = apt.pinned("kernel's headers", headers, &kernel.version)?;
    let build = apt.fetch("compilers", &words(&recipe.build))?;

    let scratch = cache.scratch(lock)?;
    let root = scratch.join("root");
    unpack("unpack for modules", &root, build.iter().chain(&headers))?;
    if rust_metadata::has_rust(&root, kernel)? {
        let source = apt.pinned("kernel's source", core::slice::from_ref(source), &kernel.version)?;
        let all =
            apt.fetch("tools for the metadata", &words(&[&recipe.build[..], &recipe.metadata].concat()))?;
        let source_root = scratch.join("source");
        unpack("unpack for the metadata", &source_root, all.iter().chain(&headers).chain(&source))?;
        rust_metadata::make(&source_root, kernel)?;
        rust_metadata::place(&source_root, &root, kernel)?;
    }
    std::fs::create_dir_all(place.parent().context("the folder has a parent")?)?;
    std::fs::rename(&root, place).with_context(|| format!("cannot rename {}", root.display()))?;
    cache.scratch(lock)?;
    Ok(())
}

/// Unpacks the compilers of a kernel, and its source, which stays an archive.
///
/// # Errors
/// A package is not available.
pub(super) fn unpack_source(
    cache: &Cache,
    _held: &Lock,
    recipe: &Recipe,
    kernel: &Kernel,
    root: &Path,
) -> Result<()> {
    let apt = Apt::guest(cache)?;
    let [.., source] = kernel.build_packages();
    let source = apt.pinned("kernel's source", &[source], &kernel.version)?;
    let tools = apt.fetch("compilers", &words(&[&recipe.build[..], &recipe.metadata].concat()))?;
    unpack("unpack for the kernel", root, tools.iter().chain(&source))
}

pub(super) fn words(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Unpacks packages without running their scripts, except for the one link that the kernel's Makefiles need. Commands can then run
/// in the folder.
///
/// # Errors
/// A package cannot be unpacked.
pub(super) fn unpack<'p>(name: &str, root: &Path, packages: impl Iterator<Item = &'p PathBuf>) -> Result<()> {
    let step = Step::begin(name);
    let mut count = 0;
    for package in packages {
        step.run_to(Command::new("dpkg-deb").arg("-x").arg(package).arg(root), || 0)?;
        count += 1;
    }
    std::os::unix::fs::symlink("mawk", root.join("usr/bin/awk")).context("cannot link awk")?;
    std::fs::create_dir_all(root.join("mnt"))?;
    std::fs::write(root.join(SCRIPT), ENTER)?;
    let size = output(Command::new("du").arg("-sh").arg(root))?;
    step.done(&format!("{count} packages, {}", size.split_whitespace().next().unwrap_or_default()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_of_this_tree_is_read() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/module.toml");
        let recipe: Recipe = toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert!(recipe.build.iter().any(|name| name == "rustc"));
        assert!(recipe.metadata.iter().any(|name| name == "bindgen"));
    }

    #[test]
    fn the_command_is_killed_with_this_process() {
        let command = command(Path::new("/p"), &[Path::new("/a b")], &["make", "x"]).unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words[..3], ["--pdeathsig", "KILL", "--"]);
        assert_eq!(words[words.len() - 5..], ["/p", "1", "/a b", "make", "x"]);
    }
}
