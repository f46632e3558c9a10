//! The source of the standard library, for stages that compile it themselves: with a sanitizer, or for another CPU. It has the version of
//! the pinned compiler, because another one cannot compile it. It comes from the toolchain, or from Debian's package `rust-src`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::apt::Apt;
use super::cache::{Cache, used};
use super::progress::{Step, output};
use super::prune;
use crate::child::CommandLine;
use crate::tools;
use crate::workspace::Workspace;

/// The folder of the cache with the sources, one folder per version.
pub(super) const FOLDER: &str = "std";

const PACKAGE: &str = "rust-src";

/// The crates that are compiled. Tests link all of them.
const CRATES: &str = "-Zbuild-std=std,panic_abort,test";

/// Names the folder of the source to cargo, which otherwise accepts only that of the toolchain.
const VARIABLE: &str = "__CARGO_TESTS_ONLY_SRC_ROOT";

/// The version of the compiler, and the folder of the source.
struct Place {
    version: String,
    folder: PathBuf,
    /// Whether the source belongs to the toolchain.
    own: bool,
}

/// Returns `cargo SUBCOMMAND` for `target`, with a standard library that is compiled from source. A step of its stage must run
/// [`provide`] before.
///
/// # Errors
/// The compiler does not start, or there is no folder for the cache.
pub(crate) fn cargo(subcommand: &str, target: &str) -> Result<CommandLine> {
    let Place { folder, .. } = place()?;
    Ok(CommandLine::cargo([subcommand, CRATES, "--target", target])
        // Makes a stable compiler accept -Z.
        .env("RUSTC_BOOTSTRAP", "1")
        .env(VARIABLE, folder.to_string_lossy()))
}

/// Fetches the source, unless the toolchain or the cache has it. Returns no findings.
///
/// # Errors
/// Debian has no source of this version, or cannot be reached.
pub(crate) fn provide(_: &Workspace) -> Result<Vec<String>> {
    let Place { version, folder, own } = place()?;
    if !own {
        fetch(&version)
            .with_context(|| format!("no source of std {version}; run `rustup component add {PACKAGE}`"))?;
    }
    println!("std {version} from {}", folder.display());
    Ok(Vec::new())
}

fn place() -> Result<Place> {
    let asked = |arguments| tools::output_of("rustc", arguments).context("cannot start rustc");
    let version = asked(&["--version"])?;
    let version = number(&version).with_context(|| format!("rustc has the version {version:?}"))?;
    let own = PathBuf::from(asked(&["--print", "sysroot"])?.trim()).join("lib/rustlib/src/rust/library");
    if own.join("Cargo.lock").is_file() {
        return Ok(Place { version: version.to_owned(), folder: own, own: true });
    }
    let folder = Cache::open()?.path(FOLDER).join(version).join("library");
    Ok(Place { version: version.to_owned(), folder, own: false })
}

/// Returns the number in `rustc 1.95.0 (59807616e 2026-04-14)`.
fn number(version: &str) -> Option<&str> {
    version.strip_prefix("rustc ")?.split_whitespace().next()
}

fn fetch(version: &str) -> Result<()> {
    let cache = Cache::open()?;
    let place = cache.path(FOLDER).join(version);
    if !place.exists() {
        let lock = cache.lock()?;
        if !place.exists() {
            let apt = Apt::guest(&cache)?;
            apt.update("package lists")?;
            let table = output(apt.command("apt-cache").args(["madison", PACKAGE]))?;
            let debian = packaged(&table, version)
                .with_context(|| format!("Debian has no package {PACKAGE} of this version"))?;
            let package =
                apt.pinned("source of the standard library", &[PACKAGE.to_owned()], debian)?.remove(0);
            let scratch = cache.scratch(&lock)?;
            let step = Step::begin("unpack");
            step.run_to(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&scratch), || 0)?;
            step.done(&package.display().to_string());
            // The package contains the compiler's source, too, which is five times as large.
            let whole = scratch.join("whole");
            std::fs::create_dir_all(&whole)?;
            let library = scratch.join(format!("usr/src/rustc-{version}/library"));
            std::fs::rename(&library, whole.join("library"))
                .with_context(|| format!("package {PACKAGE}: no {}", library.display()))?;
            cache.folder(FOLDER)?;
            std::fs::rename(&whole, &place).context("cannot keep the source")?;
            cache.scratch(&lock)?;
        }
    }
    used(&place, prune::now());
    Ok(())
}

/// Returns Debian's version of the package with this upstream version, from the output of `apt-cache madison`: lines
/// `PACKAGE | VERSION | ORIGIN`. Debian appends `+dfsg1` and more to the upstream version.
fn packaged<'t>(table: &'t str, version: &str) -> Option<&'t str> {
    table
        .lines()
        .filter_map(|line| line.split('|').nth(1).map(str::trim))
        .find(|debian| debian.strip_prefix(version).is_some_and(|rest| rest.starts_with(['+', '-'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_the_package_is_that_of_the_compiler() {
        let table = "rust-src | 1.96.1+dfsg1-2~bpo13+1 | http://a.example trixie-backports/main amd64 Packages\n\
             rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://a.example trixie-backports/main amd64 Packages\n";
        assert_eq!(packaged(table, "1.95.0"), Some("1.95.0+dfsg1-2~bpo13+1"));
        assert_eq!(packaged(table, "1.95"), None);
        assert_eq!(packaged("", "1.95.0"), None);
    }

    #[test]
    fn the_number_of_a_compiler_is_its_second_word() {
        assert_eq!(number("rustc 1.95.0 (59807616e 2026-04-14)"), Some("1.95.0"));
        assert_eq!(number("gcc 12"), None);
    }

    #[test]
    fn the_command_names_the_source_and_the_target() {
        let command = cargo("test", "some-target").unwrap();
        let line = format!("{command:?}");
        assert!(
            line.contains("\"test\", \"-Zbuild-std=std,panic_abort,test\", \"--target\", \"some-target\"")
        );
        assert!(line.contains(VARIABLE) && line.contains("library"), "{line}");
    }
}
