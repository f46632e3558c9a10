//! Kernels with debugging checks, built from the source of the stock kernel: small, with all
//! drivers built in. Each is built on demand, and kept with the folder for building its modules.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use super::build::Image;
use super::build_root::{self, Recipe, command};
use super::cache::{Cache, key, used};
use super::kernel::Kernel;
use super::progress::Step;
use super::prune;
use crate::workspace::Workspace;

/// Increased when the same recipe gives another kernel.
const REVISION: &str = "2";

/// The folder of the cache in which it is built. The rest of the cache can be used meanwhile.
const UNFINISHED: &str = "debug-build";

/// The file of the settings that all kinds have, in lab/.
const SETTINGS: &str = "debug.config";

/// The checks of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// Orders of locks (lockdep), with Rust
    Locks,
    /// Accesses to memory (KASAN), without Rust
    Memory,
}

impl Kind {
    /// Returns the file of its own settings, in lab/.
    const fn settings(self) -> &'static str {
        match self {
            Self::Locks => "debug-locks.config",
            Self::Memory => "debug-memory.config",
        }
    }

    /// Returns the variables of its build.
    const fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Locks => &[],
            Self::Memory => &[EARLY],
        }
    }

    /// Returns the end of its release name.
    const fn ending(self) -> &'static str {
        match self {
            Self::Locks => "-pronto-locks",
            Self::Memory => "-pronto-memory",
        }
    }
}

/// A variable of the build: the kernel's entry for QEMU compares strings before KASAN's own memory exists, so these functions are not checked
/// (the kernel's lib/Makefile sets it for another such entry).
const EARLY: &str = "KASAN_SANITIZE_string.o=n";

/// Sources that none of our settings needs; unpacking them would take longer than unpacking all others.
const LEFT_PACKED: &[&str] = &[
    "*/Documentation/*.rst",
    "*/sound/*.c",
    "*/drivers/gpu/*.c",
    "*/drivers/gpu/*.h",
    "*/drivers/media/*.c",
    "*/drivers/net/wireless/*.c",
    "*/drivers/net/ethernet/*.c",
    "*/drivers/staging/*.c",
];

/// A kernel, and the folder for building its modules.
#[derive(Debug)]
struct Files {
    folder: PathBuf,
    kernel: Kernel,
}

/// Returns the image with this kernel instead of the stock one. Builds the kernel if it is not in the cache.
///
/// # Errors
/// A package is not available, or the kernel does not build.
pub(super) fn provide(workspace: &Workspace, image: Image, kind: Kind) -> Result<Image> {
    let files = files(workspace, &image.kernel(), kind)?;
    Ok(image.with_kernel(files.folder.join("vmlinux"), files.folder.join("root"), files.kernel))
}

fn files(workspace: &Workspace, stock: &Kernel, kind: Kind) -> Result<Files> {
    let read = |name: &str| {
        let file = workspace.root.join("lab").join(name);
        std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    let settings = format!("{}{}", read(SETTINGS)?, read(kind.settings())?);
    let recipe_text = read("module.toml")?;
    let recipe: Recipe = toml::from_str(&recipe_text).context("lab/module.toml is invalid")?;
    let upstream = stock.version.split('-').next().unwrap_or(&stock.version);
    let kernel = Kernel { release: format!("{upstream}{}", kind.ending()), version: stock.version.clone() };
    let cache = Cache::open()?;
    let effective = effective(&settings) + &kind.variables().join("\n");
    let pieces = [REVISION, &effective, &recipe_text, &stock.version].map(str::as_bytes);
    let folder = cache.path("debug").join(key(&pieces));
    if !folder.exists() {
        let part = cache.part(UNFINISHED)?;
        let lock = part.lock()?;
        if !folder.exists() {
            let scratch = part.scratch(&lock)?;
            let root = scratch.join("root");
            build_root::unpack_source(&cache, &cache.lock()?, &recipe, &kernel, &root)?;
            make(&scratch, &root, &kernel, (kind, &settings), &folder)?;
            part.scratch(&lock)?;
        }
    }
    used(&folder, prune::now());
    Ok(Files { folder, kernel })
}

fn make(
    scratch: &Path,
    root: &Path,
    kernel: &Kernel,
    (kind, settings): (Kind, &str),
    place: &Path,
) -> Result<()> {
    let source = kernel.source();
    let run = |step: &Step, words: &[&str]| step.run_to(&mut command(root, &[], words)?, || 0);

    let step = Step::begin("kernel's source");
    let archive = format!("{source}.tar.xz");
    let mut unpack = vec!["tar", "-C", "/usr/src", "-xf", &archive];
    let excludes: Vec<_> = LEFT_PACKED.iter().map(|pattern| format!("--exclude={pattern}")).collect();
    unpack.extend(excludes.iter().map(String::as_str));
    run(&step, &unpack)?;
    step.done(&kernel.version);

    let step = Step::begin("kernel's configuration");
    let jobs = format!("-j{}", std::thread::available_parallelism().map_or(1, usize::from));
    let local = format!("LOCALVERSION={}", kind.ending());
    // The build may take an hour, so it has the lowest priority.
    let make = ["nice", "-n", "19", "make", "-s", "-C", &source, &local, &jobs];
    let make = [&make[..], kind.variables()].concat();
    run(&step, &[&make[..], &["tinyconfig"]].concat())?;
    let file = root.join(source.trim_start_matches('/')).join(".config");
    let tiny = std::fs::read_to_string(&file).context("tinyconfig wrote nothing")?;
    std::fs::write(&file, format!("{tiny}{settings}"))?;
    run(&step, &[&make[..], &["olddefconfig"]].concat())?;
    let refused = refused(settings, &std::fs::read_to_string(&file)?);
    ensure!(
        refused.is_empty(),
        "the kernel does not take these lines of lab/{SETTINGS} and lab/{}: {}",
        kind.settings(),
        refused.join(" ")
    );
    step.done(&format!("{} settings", settings_of(settings).count()));

    let step = Step::begin("kernel");
    run(&step, &[&make[..], &["vmlinux", "modules"]].concat())?;
    let built = file.with_file_name("vmlinux");
    ensure!(built.is_file(), "the build did not produce a kernel");
    let inside = |name: &str| format!("{source}/{name}");
    // The machine boots without the debug data, and modules are compiled with the type data.
    run(&step, &["objcopy", "--strip-debug", &inside("vmlinux"), &inside("vmlinux.boots")])?;
    run(&step, &["objcopy", "--only-section=.BTF", &inside("vmlinux"), &inside("vmlinux.types")])?;
    let vmlinux = scratch.join("vmlinux");
    std::fs::rename(file.with_file_name("vmlinux.boots"), &vmlinux)?;
    std::fs::rename(file.with_file_name("vmlinux.types"), &built)?;
    // The remaining files are those against which modules are compiled.
    let objects = [
        "find",
        &source,
        "-name",
        "*.o",
        "-not",
        "-path",
        "*/tools/*",
        "-not",
        "-path",
        "*/scripts/*",
        "-delete",
    ];
    run(&step, &objects)?;
    let headers = root.join(build_root::headers(kernel).trim_start_matches('/'));
    // Relative, so that it is valid here and in the folder as root.
    let target = Path::new(&source).file_name().context("the source has a folder")?;
    std::os::unix::fs::symlink(target, headers)?;
    step.done(&kernel.release);

    let whole = scratch.join("whole");
    std::fs::create_dir_all(&whole)?;
    std::fs::rename(vmlinux, whole.join("vmlinux"))?;
    std::fs::rename(root, whole.join("root"))?;
    std::fs::create_dir_all(place.parent().context("the folder has a parent")?)?;
    std::fs::rename(&whole, place).with_context(|| format!("cannot rename {}", whole.display()))
}

/// Returns the lines of a text that change the kernel: not the comments.
fn effective(text: &str) -> String {
    let is_effective = |line: &&str| line.starts_with("CONFIG_") || line.ends_with(" is not set");
    text.lines().filter(is_effective).flat_map(|line| [line, "\n"]).collect()
}

/// Returns the settings of a text, without comments.
fn settings_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| line.starts_with("CONFIG_"))
}

/// Returns the settings that were requested and are not in effect.
fn refused<'t>(wanted: &'t str, configuration: &str) -> Vec<&'t str> {
    settings_of(wanted).filter(|setting| !configuration.lines().any(|line| line == *setting)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_the_kernel_drops_is_named() {
        let wanted = "# Comment.\nCONFIG_A=y\nCONFIG_B=8\n";
        assert!(refused(wanted, "CONFIG_B=8\n# CONFIG_C is not set\nCONFIG_A=y\n").is_empty());
        assert_eq!(refused(wanted, "CONFIG_A=m\nCONFIG_B=8\n"), ["CONFIG_A=y"]);
    }

    #[test]
    fn comments_do_not_change_the_kernel() {
        let text = "# A comment.\nCONFIG_A=y\n\n# CONFIG_B is not set\n";
        assert_eq!(effective(text), "CONFIG_A=y\n# CONFIG_B is not set\n");
    }

    #[test]
    fn the_settings_of_this_tree_have_the_checks() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        for (kind, check, has_rust) in
            [(Kind::Locks, "CONFIG_PROVE_LOCKING=y", true), (Kind::Memory, "CONFIG_KASAN=y", false)]
        {
            let text = read(SETTINGS) + &read(kind.settings());
            let settings: Vec<_> = settings_of(&text).collect();
            assert!(settings.contains(&check) && settings.contains(&"CONFIG_FAILSLAB=y"), "{kind:?}");
            assert_eq!(settings.contains(&"CONFIG_RUST=y"), has_rust, "{kind:?}");
            let mut sorted = settings.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), settings.len(), "{kind:?}: a setting occurs twice");
        }
    }
}
