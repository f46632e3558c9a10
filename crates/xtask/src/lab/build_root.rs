//! The folder in which kernel modules are built: Debian's compilers and the kernel's headers, unpacked, with the metadata
//! that Rust modules are compiled against. This machine's own compilers are not used, so nothing of it matters.
//!
//! Commands run in it by way of a mount namespace of their own. Its packages lie in the cache and are shared between
//! checkouts; what a command writes goes to folders that are bound in, or is gone with the namespace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::apt::Apt;
use super::build::Image;
use super::cache::{Cache, Lock, key, used};
use super::kernel::Kernel;
use super::progress::{Step, output};
use super::{prune, rust_metadata};
use crate::tools::is_root;
use crate::workspace::Workspace;

/// Raised when the same recipe gives another folder.
const REVISION: &str = "1";

/// Makes a root of its own: the packages' `/usr` and `/etc`, this machine's `/dev` and `/proc`, and the folders named on
/// the command line, at their own paths. Words: the folder of the packages, how many folders are bound, these, the command.
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

/// Where that lies in the folder.
const SCRIPT: &str = "enter";

/// Which packages the folder is made of: lab/module.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    pub(super) build: Vec<String>,
    pub(super) metadata: Vec<String>,
}

/// A folder in which modules for one kernel can be built.
#[derive(Debug)]
pub(super) struct BuildRoot {
    pub(super) folder: PathBuf,
    pub(super) kernel: Kernel,
}

impl BuildRoot {
    /// The folder for the kernel of an image, made if it is not there.
    ///
    /// # Errors
    /// A package cannot be had, or what was built does not fit the kernel.
    pub(super) fn provide(workspace: &Workspace, image: &Image) -> Result<Self> {
        if let Some(folder) = image.own_build_root() {
            return Ok(Self { folder: folder.to_owned(), kernel: image.kernel() });
        }
        let file = workspace.root.join("lab/module.toml");
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let recipe: Recipe = toml::from_str(&text).with_context(|| format!("{} is wrong", file.display()))?;
        let kernel = image.kernel();
        let cache = Cache::open()?;
        let name = key(&[REVISION.as_bytes(), text.as_bytes(), kernel.version.as_bytes()]);
        let folder = cache.path("modules").join(name);
        if !folder.exists() {
            let lock = cache.lock()?;
            if !folder.exists() {
                make(&cache, &lock, &recipe, &kernel, &folder)?;
            }
        }
        used(&folder, prune::now());
        Ok(Self { folder, kernel })
    }

    /// Where the headers lie, for a command that runs in the folder.
    pub(super) fn headers(&self) -> String {
        headers(&self.kernel)
    }

    /// A command that runs in the folder, with `bound` at the same paths.
    ///
    /// # Errors
    /// It cannot be told whether this is root.
    pub(super) fn command(&self, bound: &[&Path], words: &[&str]) -> Result<Command> {
        command(&self.folder, bound, words)
    }
}

/// Where a kernel's headers lie in the folder.
pub(super) fn headers(kernel: &Kernel) -> String {
    format!("/usr/src/linux-headers-{}", kernel.release)
}

/// A command that has `packages` as its root. It ends with this process, however that ends.
pub(super) fn command(packages: &Path, bound: &[&Path], words: &[&str]) -> Result<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "unshare", "--mount", "--pid", "--fork", "--kill-child"]);
    if !is_root()? {
        command.args(["--user", "--map-root-user"]);
    }
    if !is_mount_point(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()) {
        // In a root made by chroot alone there is no mount at / whose propagation could be ended, as unshare would.
        command.args(["--propagation", "unchanged"]);
    }
    command.args(["--", "sh"]).arg(packages.join(SCRIPT)).arg(packages);
    command.arg(bound.len().to_string()).args(bound);
    command.args(words);
    Ok(command)
}

/// Whether something is mounted at /, by the text of /proc/self/mountinfo (proc(5): the fifth field).
fn is_mount_point(mounts: &str) -> bool {
    mounts.lines().any(|line| line.split(' ').nth(4) == Some("/"))
}

fn make(cache: &Cache, lock: &Lock, recipe: &Recipe, kernel: &Kernel, place: &Path) -> Result<()> {
    let apt = Apt::guest(cache)?;
    let kernel_packages =
        apt.pinned("kernel's headers and source", &kernel.build_packages(), &kernel.version)?;
    let (_source, headers) = kernel_packages.split_last().context("a kernel has packages")?;
    let build = apt.fetch("compilers", &words(&recipe.build))?;
    let all = apt.fetch("tools for the metadata", &words(&[&recipe.build[..], &recipe.metadata].concat()))?;

    let scratch = cache.scratch(lock)?;
    let source_root = scratch.join("source");
    unpack("unpack for the metadata", &source_root, all.iter().chain(&kernel_packages))?;
    rust_metadata::make(&source_root, kernel)?;

    let root = scratch.join("root");
    unpack("unpack for modules", &root, build.iter().chain(headers))?;
    rust_metadata::place(&source_root, &root, kernel)?;
    std::fs::create_dir_all(place.parent().context("it lies in a folder")?)?;
    std::fs::rename(&root, place).with_context(|| format!("cannot rename {}", root.display()))?;
    cache.scratch(lock)?;
    Ok(())
}

/// Unpacks what a kernel is compiled with, and its source, which stays an archive.
///
/// # Errors
/// A package cannot be had.
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

fn words(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Unpacks packages; what their scripts would do is not done, but for the one link that the kernel's Makefiles need. Then
/// commands can run there.
fn unpack<'p>(name: &str, root: &Path, packages: impl Iterator<Item = &'p PathBuf>) -> Result<()> {
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
    fn the_command_is_bound_to_this_process() {
        let command = command(Path::new("/p"), &[Path::new("/a b")], &["make", "x"]).unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words[..3], ["--pdeathsig", "KILL", "--"]);
        assert_eq!(words[words.len() - 5..], ["/p", "1", "/a b", "make", "x"]);
    }
}
