//! The metadata against which Rust modules are compiled. Debian builds its kernels with Rust, but its headers lack this metadata.
//!
//! The kernel's `rust/` folder is compiled once more, from Debian's source, with Debian's compilers and the configuration of the stock
//! kernel. A check proves that the result is the code of the running kernel: the mangled names contain hashes of crates and types, and
//! the set of names must equal that in the stock `Module.symvers`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::build_root::{command, headers};
use super::kernel::Kernel;
use super::progress::Step;

/// Sources that are configured but not compiled. Leaving them packed saves half of the time for unpacking.
const LEFT_PACKED: &[&str] = &["*/drivers/*.c", "*/sound/*.c", "*/fs/*.c", "*/Documentation/*.rst"];

/// Beginning of lines that export a symbol of Rust.
const EXPORT: &str = "EXPORT_SYMBOL_RUST_GPL(";

/// Beginnings of names of Rust code in `Module.symvers`: mangled names, and C wrappers of inline functions.
const RUST_NAMES: &[&str] = &["_R", "rust_"];

/// Number of differing lines that are shown.
const SHOWN: usize = 10;

/// Returns whether the kernel contains Rust code. `root` contains its headers.
///
/// # Errors
/// The headers have no configuration.
pub(super) fn has_rust(root: &Path, kernel: &Kernel) -> Result<bool> {
    let configuration = read(root, &format!("{}/.config", headers(kernel)))?;
    Ok(configuration.lines().any(|line| line == "CONFIG_RUST=y"))
}

/// Returns whether a folder has the metadata of the kernel.
pub(super) fn exists(root: &Path, kernel: &Kernel) -> bool {
    inside(root, &format!("{}/rust/libkernel.rmeta", headers(kernel))).is_file()
}

/// Builds the metadata in a folder of unpacked packages, and checks that it matches the stock kernel.
///
/// # Errors
/// The configuration or a symbol differs, so the compilers are not those of the kernel.
pub(super) fn make(root: &Path, kernel: &Kernel) -> Result<()> {
    let headers = headers(kernel);
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
    let stock = read(root, &format!("{headers}/.config"))?;
    std::fs::write(inside(root, &format!("{source}/.config")), &stock)?;
    let compiler =
        format!("CC={}", compiler(&stock).context("the configuration does not contain the compiler")?);
    let release = format!("EXTRAVERSION={}", extra(kernel));
    let jobs = format!("-j{}", std::thread::available_parallelism().map_or(1, usize::from));
    let make = ["make", "-C", &source, &release, "LOCALVERSION=", &compiler, &jobs];
    run(&step, &[&make[..], &["olddefconfig"]].concat())?;
    let differences = differences(&stock, &read(root, &format!("{source}/.config"))?);
    ensure!(
        differences.is_empty(),
        "with these compilers the kernel's configuration differs, so its Rust code would differ as well:\n{}",
        differences[..differences.len().min(SHOWN)].join("\n")
    );
    step.done("equal to that of the stock kernel");

    let step = Step::begin("Rust metadata");
    run(&step, &[&make[..], &["prepare"]].concat())?;
    let ours = exported(&folder(&inside(root, &format!("{source}/rust")))?)?;
    let theirs = rust_symbols(&read(root, &format!("{headers}/Module.symvers"))?);
    step.done(&compare(&ours, &theirs)?);
    Ok(())
}

/// Copies the metadata to the folder in which the headers expect it.
///
/// # Errors
/// The source folder has no metadata.
pub(super) fn place(from: &Path, to: &Path, kernel: &Kernel) -> Result<()> {
    let source = kernel.source();
    let target = inside(to, &format!("{}/rust", headers(kernel)));
    std::fs::create_dir_all(&target)?;
    let mut count = 0;
    for file in folder(&inside(from, &format!("{source}/rust")))? {
        if file.extension().is_some_and(|extension| extension == "rmeta" || extension == "so") {
            std::fs::copy(&file, target.join(file.file_name().context("a file has a name")?))?;
            count += 1;
        }
    }
    ensure!(count > 0, "the kernel's source has no Rust metadata");
    // A relative link of the headers leads from here to another package.
    let scripts = inside(to, &format!("{}/scripts", headers(kernel)));
    std::fs::copy(inside(from, &format!("{source}/scripts/target.json")), scripts.join("target.json"))
        .context("cannot copy the description of the target")?;
    Ok(())
}

/// Returns the part of the release that Debian adds to the version: `+deb13-amd64`.
fn extra(kernel: &Kernel) -> &str {
    kernel.release.find('+').map_or("", |at| &kernel.release[at..])
}

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn read(root: &Path, path: &str) -> Result<String> {
    let file = inside(root, path);
    std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

fn folder(path: &Path) -> Result<Vec<PathBuf>> {
    std::fs::read_dir(path)
        .with_context(|| format!("no folder {}", path.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect()
}

/// Returns the C compiler of a configuration: `CONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-14 (Debian ...`.
fn compiler(configuration: &str) -> Option<&str> {
    let text = configuration.lines().find_map(|line| line.strip_prefix("CONFIG_CC_VERSION_TEXT=\""))?;
    text.split_whitespace().next()
}

/// Returns settings that only one of two configurations has, with `-` before those of the first and `+` before the others.
fn differences(first: &str, second: &str) -> Vec<String> {
    let settings =
        |text| -> BTreeSet<String> { str::lines(text).filter(is_setting).map(str::to_owned).collect() };
    let (first, second) = (settings(first), settings(second));
    let only = |mark, a: &BTreeSet<String>, b: &BTreeSet<String>| -> Vec<String> {
        a.difference(b).map(|line| format!("{mark} {line}")).collect()
    };
    [only('-', &first, &second), only('+', &second, &first)].concat()
}

/// Returns whether a line is a setting; the comment with the version is not.
fn is_setting(line: &&str) -> bool {
    line.starts_with("CONFIG_") || line.starts_with("# CONFIG_")
}

/// Returns the symbols that the compiled kernel crates export.
fn exported(files: &[PathBuf]) -> Result<BTreeSet<String>> {
    let mut symbols = BTreeSet::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("exports_") && name.ends_with(".h") {
            symbols.extend(exports(&std::fs::read_to_string(file)?));
        }
    }
    Ok(symbols)
}

fn exports(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| Some(line.strip_prefix(EXPORT)?.split_once(')')?.0.to_owned()))
}

/// Returns the symbols of Rust that a stock kernel exports, from lines `CRC NAME OBJECT KIND`, with tabs.
fn rust_symbols(symvers: &str) -> BTreeSet<String> {
    symvers
        .lines()
        .filter_map(|line| {
            let mut columns = line.split('\t').skip(1);
            let (name, object) = (columns.next()?, columns.next()?);
            let is_rust = RUST_NAMES.iter().any(|start| name.starts_with(start));
            (is_rust && object == "vmlinux").then(|| name.to_owned())
        })
        .collect()
}

/// Returns the number of equal symbols as a text, or an error with the differing ones.
fn compare(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Result<String> {
    ensure!(!ours.is_empty(), "the kernel's Rust code exports nothing");
    let only: Vec<_> = ours.symmetric_difference(theirs).collect();
    if only.is_empty() {
        return Ok(format!("{} symbols, equal to those of the stock kernel", ours.len()));
    }
    let shown: Vec<_> = only.iter().take(SHOWN).map(|name| name.as_str()).collect();
    bail!(
        "{} of {} Rust symbols differ from those of the stock kernel, so modules would not load: {} ...",
        only.len(),
        ours.len(),
        shown.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMVERS: &str = "0x0\t_RNvCs1_6kernel3foo\tvmlinux\tEXPORT_SYMBOL_GPL\t\n\
                           0x0\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n\
                           0x0\trust_helper_kfree\tvmlinux\tEXPORT_SYMBOL_GPL\t\n\
                           0x0\t_RNvCs2_3drm3bar\tdrivers/gpu/drm\tEXPORT_SYMBOL_GPL\t\n";

    #[test]
    fn every_symbol_must_equal_that_of_the_stock_kernel() {
        let ours: BTreeSet<_> = exports(
            "EXPORT_SYMBOL_RUST_GPL(_RNvCs1_6kernel3foo);\nEXPORT_SYMBOL_RUST_GPL(rust_helper_kfree);\n",
        )
        .collect();
        let theirs = rust_symbols(SYMVERS);
        assert!(compare(&ours, &theirs).unwrap().starts_with("2 symbols"));
        let renamed: BTreeSet<_> = ours.iter().map(|name| name.replace("Cs1", "Cs3")).collect();
        assert!(compare(&renamed, &theirs).unwrap_err().to_string().contains("_RNvCs3_6kernel3foo"));
        let fewer: BTreeSet<_> = ours.iter().skip(1).cloned().collect();
        assert!(compare(&fewer, &theirs).is_err(), "a missing symbol is an error as well");
        assert!(compare(&BTreeSet::new(), &BTreeSet::new()).is_err(), "an empty comparison proves nothing");
    }

    #[test]
    fn only_settings_make_a_configuration_differ() {
        let stock = "# Linux/x86 7.2.12 Kernel Configuration\nCONFIG_A=y\n# CONFIG_B is not set\n";
        assert!(differences(stock, &stock.replace("7.2.12", "7.2.12+deb13")).is_empty());
        assert_eq!(
            differences(stock, &stock.replace("CONFIG_A=y", "CONFIG_A=m")),
            ["- CONFIG_A=y", "+ CONFIG_A=m"]
        );
    }

    #[test]
    fn the_compiler_is_read_from_the_configuration() {
        let text = "CONFIG_CC_VERSION_TEXT=\"x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0\"\n";
        assert_eq!(compiler(text), Some("x86_64-linux-gnu-gcc-14"));
    }
}
