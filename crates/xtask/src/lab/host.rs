//! Programs that the lab needs on this machine: QEMU, and the programs that build the image.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::apt::{Apt, backports};
use super::cache::{Cache, Lock};
use crate::tools::{WAIT_FOR_LOCK, find, is_root};

/// The program that runs the machine.
pub(super) const QEMU: &str = "qemu-system-x86_64";

const QEMU_PACKAGE: &str = "qemu-system-x86";

/// The first version of QEMU that divides the time until the machine's next timer among the CPUs (docs/measuring.md). With older ones,
/// a CPU that computes delays the others by milliseconds in virtual time.
const OLDEST: Version = (8, 1);

/// Major and minor number of a version.
type Version = (u32, u32);

/// A program, and the Debian package that contains it.
const BUILDERS: &[(&str, &str)] = &[
    ("dpkg-deb", "dpkg"),
    ("depmod", "kmod"),
    ("objcopy", "binutils"),
    ("readelf", "binutils"),
    ("setpriv", "util-linux"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
];

/// Those for making a new system.
const SYSTEM_BUILDERS: &[(&str, &str)] = &[("mmdebstrap", "mmdebstrap"), ("chroot", "coreutils")];

/// Returns whether the programs for running a machine are installed.
pub(super) fn can_run() -> bool {
    is_present(QEMU) && is_present("setpriv")
}

/// Returns whether a program is installed, and new enough.
fn is_present(program: &str) -> bool {
    find(program).is_some() && (program != QEMU || version().is_some_and(|text| is_new_enough(&text)))
}

/// Returns the version of QEMU, such as `10.0.2`.
pub(super) fn version() -> Option<String> {
    let output = Command::new(find(QEMU)?).arg("--version").stdin(Stdio::null()).output().ok()?;
    version_in(&String::from_utf8_lossy(&output.stdout)).map(str::to_owned)
}

fn version_in(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("QEMU emulator version ")?;
    rest.split(|end: char| !end.is_ascii_digit() && end != '.').next()
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= OLDEST)
}

/// Returns the reason if the lab cannot run here and cannot install the missing programs.
pub(crate) fn unavailable() -> Option<String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("the lab's machine needs Linux on x86-64".to_owned());
    }
    let packages = missing(needed(), is_present);
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    lacking(&packages, debian(&release).is_some(), is_root().unwrap_or(false))
}

fn lacking(packages: &[String], is_debian: bool, is_root: bool) -> Option<String> {
    let why = match (is_debian, is_root) {
        _ if packages.is_empty() => return None,
        (true, true) => return None,
        (true, false) => "`cargo xtask lab build` prints the command that installs them",
        (false, _) => "install them (these are Debian's names)",
    };
    Some(format!("missing or old packages: {}; {why}", list(packages)))
}

/// Returns whether this is a machine of continuous integration, on which no test may be skipped.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false")
}

/// Installs the missing programs, and QEMU if it is too old, if that is possible without a password. QEMU comes from backports.
///
/// # Errors
/// A program is missing and this user may not install it (the error contains the command to run), or the installation failed.
pub(super) fn provide(cache: &Cache, held: &Lock) -> Result<()> {
    install(cache, held, needed().collect())
}

/// Installs the missing programs that make a new system. Making it takes root.
///
/// # Errors
/// As for [`provide`].
pub(super) fn provide_for_systems(cache: &Cache, held: &Lock) -> Result<()> {
    install(cache, held, SYSTEM_BUILDERS.to_vec())
}

fn install(cache: &Cache, _held: &Lock, needed: Vec<(&str, &str)>) -> Result<()> {
    let packages = missing(needed.iter().copied(), is_present);
    if packages.is_empty() {
        return Ok(());
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let Some(codename) = debian(&release) else {
        bail!("missing or old programs; install (Debian's package names): {}", list(&packages));
    };
    let apt = Apt::host(cache, codename)?;
    let suite = backports(codename);
    let options = ["install", "-y", "-q", "--no-install-recommends", "-t", &suite];
    if !is_root()? {
        let (apt, options, packages) = (apt.command_line(), options.join(" "), packages.join(" "));
        bail!("missing or old programs; run: sudo sh -c '{apt} update && {apt} {options} {packages}'");
    }
    apt.update("lists for this machine")?;
    eprintln!("lab: installing {}", list(&packages));
    let mut install: Command = apt.command("apt-get");
    install.arg(WAIT_FOR_LOCK);
    // stdout is reserved for the output of the command in the lab.
    let status =
        install.args(options).args(&packages).stdin(Stdio::null()).stdout(std::io::stderr()).status()?;
    if !status.success() || !missing(needed.into_iter(), is_present).is_empty() {
        bail!("apt-get could not install {}", list(&packages));
    }
    Ok(())
}

/// Returns the names of packages for a message, each with its oldest usable version if there is one.
fn list(packages: &[String]) -> String {
    let named = |name: &String| match name.as_str() {
        QEMU_PACKAGE => format!("{name} ({}.{} or newer)", OLDEST.0, OLDEST.1),
        _ => name.clone(),
    };
    packages.iter().map(named).collect::<Vec<_>>().join(" ")
}

/// Returns the programs of every lab, and their packages.
fn needed() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILDERS.iter().copied().chain([(QEMU, QEMU_PACKAGE)])
}

/// Returns the packages of the programs that `present` does not find, without duplicates.
fn missing<'p>(
    needed: impl Iterator<Item = (&'p str, &'p str)>,
    present: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut packages: Vec<_> =
        needed.filter(|(program, _)| !present(program)).map(|(_, package)| package.to_owned()).collect();
    packages.dedup();
    packages
}

/// Returns the name of this release, if /etc/os-release is that of Debian.
fn debian(release: &str) -> Option<&str> {
    let value = |key: &str| {
        release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .map(|text| text.trim_matches('"'))
    };
    value("VERSION_CODENAME").filter(|_| value("ID") == Some("debian"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_packages_are_installed_once() {
        assert_eq!(missing(needed(), |program| !["objcopy", "readelf"].contains(&program)), ["binutils"]);
        assert_eq!(missing(needed(), |program| program != QEMU), [QEMU_PACKAGE]);
        assert!(missing(needed(), |_| true).is_empty());
    }

    #[test]
    fn an_old_qemu_is_recognised() {
        let debian_12 =
            "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003\n";
        assert_eq!(version_in(debian_12), Some("7.2.22"));
        assert_eq!(
            version_in("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2~bpo12+1)\n"),
            Some("10.0.2")
        );
        assert_eq!(version_in("QEMU emulator version 8.1\n"), Some("8.1"));
        assert_eq!(version_in("qemu: no such file"), None);
        assert_eq!(
            ["7.2.22", "8.0.5", "8", "", "8.1", "8.2.0", "10.0.2"].map(is_new_enough),
            [false, false, false, false, true, true, true]
        );
        assert_eq!(
            list(&["kmod".to_owned(), QEMU_PACKAGE.to_owned()]),
            "kmod qemu-system-x86 (8.1 or newer)"
        );
    }

    #[test]
    fn the_lab_is_skipped_only_if_nothing_can_be_installed() {
        let qemu = [QEMU_PACKAGE.to_owned()];
        assert_eq!(lacking(&[], false, false), None);
        assert_eq!(lacking(&qemu, true, true), None);
        assert!(lacking(&qemu, true, false).unwrap().contains(QEMU_PACKAGE));
        assert!(lacking(&qemu, false, true).is_some());
    }

    #[test]
    fn only_debian_has_debians_packages() {
        assert_eq!(debian("PRETTY_NAME=\"x\"\nVERSION_CODENAME=bookworm\nID=debian\n"), Some("bookworm"));
        assert_eq!(debian("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n"), None);
    }
}
