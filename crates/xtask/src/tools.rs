//! Programs other than Rust that the tests need: finds the missing ones and installs them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::child::CommandLine;
use crate::workspace::{Workspace, cargo};

/// A program, and the Debian package that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tool {
    program: &'static str,
    package: &'static str,
}

/// Creates network namespaces and the links between them.
pub(crate) const IP: Tool = Tool { program: "ip", package: "iproute2" };
/// Drops and delays traffic in those namespaces.
pub(crate) const NFT: Tool = Tool { program: "nft", package: "nftables" };
/// Links all programs.
pub(crate) const CC: Tool = Tool { program: "cc", package: "gcc" };
/// Builds the loader of libibverbs (crates/fabric-verbs).
pub(crate) const CMAKE: Tool = Tool { program: "cmake", package: "cmake" };
/// Reads the headers of libibverbs for that loader.
pub(crate) const CLANG: Tool = Tool { program: "clang", package: "clang" };
/// Finds libraries when rdma-core is configured (for the `ibverbs` crate, which the example of crates/fabric-verbs uses).
pub(crate) const PKG_CONFIG: Tool = Tool { program: "pkg-config", package: "pkgconf" };
/// Generates sources when rdma-core is configured.
pub(crate) const PYTHON: Tool = Tool { program: "python3", package: "python3" };
/// The library with which the `ibverbs` crate is linked.
pub(crate) const LIBIBVERBS: Tool = Tool { program: "libibverbs.so", package: "libibverbs-dev" };
/// Counts instructions.
pub(crate) const VALGRIND: Tool = Tool { program: "valgrind", package: "valgrind" };
/// Builds libFuzzer.
pub(crate) const CXX: Tool = Tool { program: "c++", package: "g++" };

/// Links programs for aarch64.
pub(crate) const AARCH64_GCC: Tool =
    Tool { program: "aarch64-linux-gnu-gcc", package: "gcc-aarch64-linux-gnu" };
/// Runs programs for aarch64.
pub(crate) const AARCH64_QEMU: Tool = Tool { program: "qemu-aarch64-static", package: "qemu-user-static" };
/// The C library for aarch64.
pub(crate) const AARCH64_LIBC: Tool =
    Tool { program: "/usr/aarch64-linux-gnu/lib/libc.so", package: "libc6-dev-arm64-cross" };

/// The library UCX, with its headers.
pub(crate) const UCX: Tool = Tool { program: "libucp.so", package: "libucx-dev" };
/// Compiles for Open MPI, and starts its processes.
pub(crate) const OPEN_MPI: [Tool; 2] = [
    Tool { program: "mpicc.openmpi", package: "libopenmpi-dev" },
    Tool { program: "mpirun.openmpi", package: "openmpi-bin" },
];
/// Compiles for MPICH, and starts its processes.
pub(crate) const MPICH: [Tool; 2] = [
    Tool { program: "mpicc.mpich", package: "libmpich-dev" },
    Tool { program: "mpirun.mpich", package: "mpich" },
];

/// The tools for building the whole workspace.
pub(crate) const WORKSPACE: &[Tool] = &[CC, CXX, CMAKE, CLANG, PKG_CONFIG, PYTHON, LIBIBVERBS];

/// Those, and what unit tests make as root: namespaces.
pub(crate) const UNIT: &[Tool] = &[CC, CXX, CMAKE, CLANG, PKG_CONFIG, PYTHON, LIBIBVERBS, IP];

/// Option of apt-get: wait this number of seconds while another process installs packages. A concurrent stage may do so.
pub(crate) const WAIT_FOR_LOCK: &str = "-oDPkg::Lock::Timeout=600";

/// Installs the missing tools of `needed`, if that is possible without a password.
///
/// # Errors
/// A tool is missing and this user may not install it (the error contains the command to run), or the installation failed.
pub(crate) fn provide(needed: &[Tool]) -> Result<()> {
    let packages = packages(needed, |program| find(program).is_some());
    if packages.is_empty() {
        return Ok(());
    }
    if let Some(reason) = not_installable(needed)? {
        bail!(reason);
    }
    let list = packages.join(" ");
    println!("installing {list}");
    // On a fresh machine the package index is empty or old. It is fetched only then.
    if !apt_get(&["install", "-y", "-q", "--no-install-recommends"], &packages)? {
        apt_get(&["update", "-q"], &[])?;
        if !apt_get(&["install", "-y", "-q", "--no-install-recommends"], &packages)? {
            bail!("apt-get could not install {list}");
        }
    }
    Ok(())
}

/// Returns why this user cannot install the missing tools of `needed`, with the command to run. Returns `None` if [`provide`] can
/// install them, or if none is missing.
///
/// # Errors
/// The user cannot be determined.
pub(crate) fn not_installable(needed: &[Tool]) -> Result<Option<String>> {
    let packages = packages(needed, |program| find(program).is_some());
    if packages.is_empty() {
        return Ok(None);
    }
    let list = packages.join(" ");
    if find("apt-get").is_none() {
        return Ok(Some(format!("missing programs; install (Debian's package names): {list}")));
    }
    let by_others = format!("missing programs; run: sudo apt-get install -y --no-install-recommends {list}");
    Ok(if is_root()? { None } else { Some(by_others) })
}

/// Returns the packages of the tools that `present` does not find, without duplicates.
fn packages(needed: &[Tool], present: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut packages: Vec<_> = needed.iter().filter(|t| !present(t.program)).map(|t| t.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn apt_get(arguments: &[&str], packages: &[&str]) -> Result<bool> {
    let status = Command::new("apt-get")
        .arg(WAIT_FOR_LOCK)
        .args(arguments)
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(std::process::Stdio::null())
        .status()
        .context("cannot start apt-get")?;
    Ok(status.success())
}

/// Finds a program or a library. Also searches administrators' folders, which the PATH of ordinary users lacks.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let libraries = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into(), libraries.into(), "/usr/lib64".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

pub(crate) fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output().context("cannot start id")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

/// A program on crates.io, in a fixed version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crate {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Arguments with which the program shows its version.
    pub(crate) shown_by: &'static [&'static str],
    /// Further options of `cargo install`.
    pub(crate) options: &'static [&'static str],
}

/// Returns the path of a program, which is installed below the target folder if this version is not there.
///
/// # Errors
/// Cargo cannot install the program.
pub(crate) fn installed(workspace: &Workspace, wanted: &Crate) -> Result<PathBuf> {
    let Crate { name, version, shown_by, options } = *wanted;
    let folder = workspace.target.join("tools");
    let program = folder.join("bin").join(name);
    let shown = Command::new(&program).args(shown_by).output();
    if !shown.is_ok_and(|output| shows_version(&output.stdout, version)) {
        println!("installing {name} {version} below {}", folder.display());
        let status = Command::new(cargo())
            .current_dir(&workspace.root)
            .args(["install", name, "--locked", "--version", version])
            .args(options)
            .arg("--root")
            .arg(&folder)
            .status()
            .context("cannot start cargo")?;
        ensure!(status.success(), "cargo cannot install {name} {version}");
    }
    Ok(program)
}

/// Returns whether the output of `--version` ends with this version, such as "mdbook v0.5.4".
fn shows_version(output: &[u8], version: &str) -> bool {
    let text = String::from_utf8_lossy(output);
    text.split_whitespace().next_back().is_some_and(|word| word.trim_start_matches('v') == version)
}

/// Returns a cargo whose compiler has AddressSanitizer for `target`: that of the pinned toolchain, which contains the runtime library, and
/// which accepts unstable options if `RUSTC_BOOTSTRAP` is set; otherwise that of a nightly toolchain. Returns `None` if there is neither.
/// Downloads nothing.
pub(crate) fn sanitizing_cargo(target: &str) -> Option<CommandLine> {
    let sysroot = output_of("rustc", &["--print", "sysroot"])?;
    let libraries = PathBuf::from(sysroot.trim()).join("lib/rustlib").join(target).join("lib");
    if libraries.join("librustc-stable_rt.asan.a").is_file() {
        return Some(CommandLine::cargo([""; 0]).env("RUSTC_BOOTSTRAP", "1"));
    }
    let has_nightly =
        output_of("rustup", &["toolchain", "list"])?.lines().any(|line| line.starts_with("nightly"));
    has_nightly.then(|| CommandLine::new("rustup", ["run", "nightly", "cargo"]))
}

/// Returns the output of a program, or `None` if it cannot be started.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_last_word() {
        assert!(
            shows_version(b"mdbook v0.5.4\n", "0.5.4") && shows_version(b"cargo-mutants 27.1.0\n", "27.1.0")
        );
        assert!(!shows_version(b"mdbook v0.5.40\n", "0.5.4") && !shows_version(b"", "0.5.4"));
    }

    #[test]
    fn only_missing_packages_are_installed_once() {
        assert_eq!(packages(&[IP, NFT, IP], |program| program == "nft"), ["iproute2"]);
        assert!(packages(&[IP, NFT], |_| true).is_empty());
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }
}
