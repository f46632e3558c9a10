//! Builds the image that a machine boots: kernel and initramfs, from Debian's packages and the scripts in lab/.
//!
//! The cache keeps three parts separately: the kernel, the initramfs of the tools, and that initramfs with the scripts. The name of
//! each contains a hash of its inputs. A changed script therefore needs no download, and checkouts do not affect each other.

use core::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::apt::Apt;
use super::cache::{Cache, Lock, key, used, write_whole};
use super::cpio::Tree;
use super::portable::Form;
use super::progress::{Step, size};
use super::recipe::Recipe;
use super::{host, kernel, modules, programs, prune, vmlinux};
use crate::workspace::Workspace;

/// Increased when the same recipe gives another image.
const REVISION: &str = "1";

/// Files in lab/ that are not copied to the guest.
const NOT_SCRIPTS: &[&str] = &[
    "README.md",
    "lab.toml",
    "module.toml",
    "bpf.toml",
    "debug.config",
    "debug-locks.config",
    "debug-memory.config",
];

/// The files with which a machine boots.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
    /// Words of the kernel's command line.
    pub(super) parameters: Vec<String>,
    /// The form of modules that have two, if it was chosen.
    pub(super) form: Option<Form>,
    contents: Contents,
    /// The folder for building modules, if the kernel is not the stock one.
    build_root: Option<PathBuf>,
}

/// The inputs of the tools' initramfs, in a file next to it.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    kernel_version: String,
    kernel_release: String,
    /// Names of the packages' files, with their versions.
    packages: Vec<String>,
}

impl Image {
    /// Replaces the kernel: by this file and this version, with the folder for building modules.
    pub(super) fn with_kernel(mut self, file: PathBuf, build_root: PathBuf, kernel: kernel::Kernel) -> Self {
        self.kernel = file;
        self.build_root = Some(build_root);
        self.contents.kernel_release = kernel.release;
        self.contents.kernel_version = kernel.version;
        self
    }

    /// Chooses the form of modules that have two.
    pub(super) fn with_form(mut self, form: Option<Form>) -> Self {
        self.form = form;
        self
    }

    /// Returns the folder for building modules, if the kernel is not the stock one.
    pub(super) fn own_build_root(&self) -> Option<&Path> {
        self.build_root.as_deref()
    }

    /// Returns the kernel of the image.
    pub(super) fn kernel(&self) -> kernel::Kernel {
        self.contents.kernel()
    }
}

impl Contents {
    fn kernel(&self) -> kernel::Kernel {
        kernel::Kernel { release: self.kernel_release.clone(), version: self.kernel_version.clone() }
    }
}

/// Returns the image for this tree. Builds it if it is not in the cache.
///
/// # Errors
/// A package or a program of this machine is not available.
pub(super) fn provide(workspace: &Workspace, kernel: Option<&str>) -> Result<Image> {
    let folder = workspace.root.join("lab");
    let file = folder.join("lab.toml");
    let recipe = Recipe::read(&file)?;
    let wanted = kernel.unwrap_or(&recipe.kernel.version);
    let text = std::fs::read(&file)?;
    let scripts = scripts(&folder)?;
    let tools = key(&[REVISION.as_bytes(), &text, wanted.as_bytes()]);
    let pieces = scripts.iter().flat_map(|(name, content)| [name.as_bytes(), content]);
    let whole = key(&[tools.as_bytes()].into_iter().chain(pieces).collect::<Vec<_>>());

    let cache = Cache::open()?;
    if let Some(image) = find(&cache, &recipe, &tools, &whole).filter(|_| host::can_run()) {
        return Ok(image);
    }
    let lock = cache.lock()?;
    host::provide(&cache, &lock)?;
    if !has_tools(&cache, &tools) {
        make_tools(&cache, &lock, &recipe, wanted, &tools)?;
    }
    let mut archive = std::fs::read(cache.path(&archive(&tools)))?;
    archive.extend(with_scripts(scripts).archive()?);
    cache.folder("images")?;
    write_whole(&cache.path(&initramfs_name(&whole)), &archive)?;
    let image = find(&cache, &recipe, &tools, &whole).context("the new image is not in the cache")?;
    let freed = prune::old(&cache, &lock, prune::now())?;
    if freed > 0 {
        eprintln!("lab: removed {} of old files from the cache", indicatif::DecimalBytes(freed));
    }
    Ok(image)
}

/// Returns the image if all its parts are in the cache, and marks them as used.
fn find(cache: &Cache, recipe: &Recipe, tools: &str, whole: &str) -> Option<Image> {
    let contents = read(&cache.path(&contents(tools)))?;
    let kernel = cache.path(&kernel_file(&contents.kernel().name()));
    let initramfs = cache.path(&initramfs_name(whole));
    if !(kernel.is_file() && initramfs.is_file()) {
        return None;
    }
    let parts = [
        self::contents(tools),
        archive(tools),
        initramfs_name(whole),
        kernel_folder(&contents.kernel().name()),
    ];
    parts.iter().for_each(|part| used(&cache.path(part), prune::now()));
    let parameters = recipe.kernel.parameters.clone();
    Some(Image { kernel, initramfs, parameters, form: None, contents, build_root: None })
}

/// Returns whether the cache has the tools and their kernel.
fn has_tools(cache: &Cache, tools: &str) -> bool {
    read(&cache.path(&contents(tools))).is_some_and(|contents| {
        cache.path(&archive(tools)).exists() && cache.path(&kernel_file(&contents.kernel().name())).exists()
    })
}

fn read(contents: &Path) -> Option<Contents> {
    serde_json::from_slice(&std::fs::read(contents).ok()?).ok()
}

/// Returns the packages of all tools in the cache: the names of their files, without the extension.
pub(super) fn packages(cache: &Cache) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(cache.path("tools")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| read(&entry.path())).flat_map(|contents| contents.packages).collect()
}

fn contents(tools: &str) -> String {
    format!("tools/{tools}.json")
}

fn archive(tools: &str) -> String {
    format!("tools/{tools}.cpio")
}

fn initramfs_name(whole: &str) -> String {
    format!("images/{whole}.cpio")
}

fn kernel_file(name: &str) -> String {
    format!("{}/vmlinux", kernel_folder(name))
}

fn kernel_folder(name: &str) -> String {
    format!("kernels/{name}")
}

/// Fetches the packages, and builds the kernel and the tools' initramfs.
fn make_tools(cache: &Cache, lock: &Lock, recipe: &Recipe, wanted: &str, tools: &str) -> Result<()> {
    let apt = Apt::guest(cache)?;
    apt.update("package lists")?;
    let kernel = kernel::choose(&apt, wanted)?;
    let packages = apt.fetch("tools", &recipe.packages())?;
    let kernel_packages = apt.pinned("kernel", &kernel.packages(), &kernel.version)?;

    let scratch = cache.scratch(lock)?;
    let root = scratch.join("root");
    let step = Step::begin("unpack");
    for package in packages.iter().chain(&kernel_packages) {
        let mut unpack = Command::new("dpkg-deb");
        step.run_to(unpack.arg("-x").arg(package).arg(&root), || 0)?;
    }
    step.done(&format!("{} packages", packages.len() + kernel_packages.len()));

    let step = Step::begin("kernel");
    let unpacked = scratch.join("vmlinux");
    vmlinux::extract(&root.join(kernel.image()), &scratch, &unpacked)
        .with_context(|| format!("in the packages of kernel {}", kernel.version))?;
    let length = std::fs::metadata(&unpacked)?.len();
    let place = cache.path(&kernel_file(&kernel.name()));
    std::fs::create_dir_all(place.parent().context("the kernel has a parent folder")?)?;
    std::fs::rename(&unpacked, &place)?;
    step.done(&format!("{} {}, {}", kernel.version, kernel.release, indicatif::DecimalBytes(length)));

    let step = Step::begin("initramfs");
    let mut tree = Tree::default();
    programs::add(&root, recipe, &mut tree)?;
    let count = modules::add(&root, &kernel.release, &recipe.modules.names, &scratch, &mut tree)
        .with_context(|| format!("in the packages of kernel {}", kernel.version))?;
    let bytes = tree.archive()?;
    cache.folder("tools")?;
    write_whole(&cache.path(&archive(tools)), &bytes)?;
    step.done(&format!("{count} modules, {} in all", size(bytes.len())));

    let names = packages.iter().chain(&kernel_packages);
    let contents_of = Contents {
        kernel_version: kernel.version,
        kernel_release: kernel.release,
        packages: names.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned())).collect(),
    };
    // Written last: if this file exists, all other parts exist.
    write_whole(&cache.path(&contents(tools)), &serde_json::to_vec_pretty(&contents_of)?)?;
    cache.scratch(lock)?;
    Ok(())
}

/// Returns the names and contents of the guest's scripts, in order.
fn scripts(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut scripts = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a file name in lab/ is not valid UTF-8")?;
        if entry.file_type()?.is_file() && !NOT_SCRIPTS.contains(&name.as_str()) {
            scripts.push((name, std::fs::read(entry.path())?));
        }
    }
    scripts.sort();
    Ok(scripts)
}

/// Returns an archive of the scripts. The kernel unpacks it over that of the tools.
fn with_scripts(scripts: Vec<(String, Vec<u8>)>) -> Tree {
    let mut tree = Tree::default();
    for (name, content) in scripts {
        let path = if name == "init" { name } else { format!("usr/bin/{name}") };
        tree.program(&path, content);
    }
    tree
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |file: &Path| {
            indicatif::DecimalBytes(std::fs::metadata(file).map_or(0, |metadata| metadata.len())).to_string()
        };
        writeln!(f, "kernel    {} ({})", self.contents.kernel_version, self.contents.kernel_release)?;
        writeln!(f, "          {} {}", self.kernel.display(), length(&self.kernel))?;
        writeln!(f, "initramfs {} {}", self.initramfs.display(), length(&self.initramfs))?;
        write!(f, "made from {} packages", self.contents.packages.len())
    }
}
