//! Programs that the lab needs on this machine: QEMU, and the programs that build the image.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::apt::{Apt, backports};
use super::cache::{Cache, Lock};
use crate::tools::{WAIT_FOR_LOCK, find, is_root};

/// The program that runs the machine.
pub(super) const QEMU: &str = "qemu-system-x86_64";

const QEMU_PACKAGE: &str = "qemu-system-x86";

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
    find(QEMU).is_some() && find("setpriv").is_some()
}

/// Returns the reason if the lab cannot run here and cannot install the missing programs.
pub(crate) fn unavailable() -> Option<String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("the lab's machine needs Linux on x86-64".to_owned());
    }
    let packages = missing(needed(), |program| find(program).is_some());
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
    Some(format!("missing packages: {}; {why}", packages.join(" ")))
}

/// Returns whether this is a machine of continuous integration, on which no test may be skipped.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false")
}

/// Installs the missing programs, if that is possible without a password. QEMU comes from backports.
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
    let packages = missing(needed.iter().copied(), |program| find(program).is_some());
    if packages.is_empty() {
        return Ok(());
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let Some(codename) = debian(&release) else {
        bail!("missing programs; install (Debian's package names): {}", packages.join(" "));
    };
    let apt = Apt::host(cache, codename)?;
    let suite = backports(codename);
    let options = ["install", "-y", "-q", "--no-install-recommends", "-t", &suite];
    if !is_root()? {
        let (apt, options, packages) = (apt.command_line(), options.join(" "), packages.join(" "));
        bail!("missing programs; run: sudo sh -c '{apt} update && {apt} {options} {packages}'");
    }
    apt.update("lists for this machine")?;
    eprintln!("lab: installing {}", packages.join(" "));
    let mut install: Command = apt.command("apt-get");
    install.arg(WAIT_FOR_LOCK);
    // stdout is reserved for the output of the command in the lab.
    let status =
        install.args(options).args(&packages).stdin(Stdio::null()).stdout(std::io::stderr()).status()?;
    if !status.success() || !missing(needed.into_iter(), |program| find(program).is_some()).is_empty() {
        bail!("apt-get could not install {}", packages.join(" "));
    }
    Ok(())
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
