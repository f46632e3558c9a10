//! `cargo xtask lab dkms`: a Debian package from which DKMS compiles kernel/expedite on the user's machine, in its portable form.
//!
//! `--try` installs the package on a new system of Debian 13 (a folder), with the headers of the lab's kernel and nothing else from this
//! tree, boots that kernel, and loads the installed module there.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};

use super::build::Image;
use super::build_root::BuildRoot;
use super::cache::Cache;
use super::machine::{Ending, Machine};
use super::module::EXPEDITE;
use super::progress::{Step, output};
use super::{host, mirror, portable};
use crate::workspace::Workspace;

/// The other sources that it contains.
const POLICY: &str = "crates/sched-policy/src/policy";

/// Name of the sources below /usr/src, and in `dkms status`.
const NAME: &str = "pronto-expedite";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Files of the package that are not sources: the file in the module's folder, and the path on the user's machine.
const FILES: &[(&str, &str)] = &[
    ("expedite.h", "usr/include/expedite.h"),
    ("debian/udev.rules", "usr/lib/udev/rules.d/70-expedite.rules"),
    ("README.md", "usr/share/doc/pronto-expedite-dkms/README.md"),
    ("debian/copyright", "usr/share/doc/pronto-expedite-dkms/copyright"),
];

/// Files with instructions for the package manager, and whether they are programs.
const CONTROL: &[(&str, bool)] = &[("control", false), ("postinst", true), ("prerm", true)];

/// Time limit for booting and loading the module.
const LOAD_LIMIT: Duration = Duration::from_secs(120);

/// The script in the machine, for the new system, whose folder is `$0`. `modprobe` is the user's second command.
const LOAD: &str = r#"set -eu
for folder in dev proc sys; do mount --rbind "/$folder" "$0/$folder"; done
chroot "$0" modprobe expedite
grep . /sys/module/expedite/version
test -c /dev/expedite
chroot "$0" modprobe --remove expedite
"#;

/// Enters the new system, whose folder is `$0`, and runs a command there.
const ENTER: &str = r#"set -eu
mount -t proc proc "$0/proc"
for folder in dev sys; do mount --rbind "/$folder" "$0/$folder"; done
exec chroot "$0" "$@"
"#;

/// Prints the files that are left after the removal.
const LEFT: &str =
    "dkms status; find /usr/src /usr/lib/modules /var/lib/dkms /usr/share/doc -name '*expedite*'";

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Install the package on a new system, and load the module with its kernel
    #[arg(long = "try")]
    try_out: bool,
    /// Folder for the package [default: `package` below cargo's target folder]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Makes the package, and tries it if the options say so.
///
/// # Errors
/// The object does not compile, a program is missing, or the package cannot be installed.
pub(super) fn run(workspace: &Workspace, image: &Image, options: &Options) -> Result<Ending> {
    let root = BuildRoot::provide(workspace, image)?;
    let out = options.out.clone().unwrap_or_else(|| workspace.target.join("package"));
    let package = make(workspace, &root, &out)?;
    println!("{}", package.display());
    if options.try_out { try_out(workspace, image, &package) } else { Ok(Ending::Exited(0)) }
}

/// Makes the package and returns its path.
fn make(workspace: &Workspace, root: &BuildRoot, out: &Path) -> Result<PathBuf> {
    let step = Step::begin("package for DKMS");
    let folder = workspace.root.join(EXPEDITE);
    let object = portable::object(workspace, root, &folder)?;
    let tree = workspace.target.join("lab-modules/dkms");
    if tree.exists() {
        std::fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    let sources = tree.join(format!("usr/src/{NAME}-{VERSION}"));
    for (part, ending) in [(EXPEDITE, ""), (POLICY, ".rs")] {
        add_sources(&workspace.root.join(part), ending, &sources.join(part))?;
    }
    put(&sources.join(EXPEDITE).join(portable::OBJECT), &std::fs::read(&object)?, 0o644)?;
    put(&sources.join("dkms.conf"), &instructions(&folder, "dkms.conf")?, 0o644)?;
    for (from, to) in FILES {
        let from = folder.join(from);
        let content = std::fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        put(&tree.join(to), &content, 0o644)?;
    }
    for (name, is_program) in CONTROL {
        let mode = if *is_program { 0o755 } else { 0o644 };
        put(&tree.join("DEBIAN").join(name), &instructions(&folder, name)?, mode)?;
    }
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let package = out.canonicalize()?.join(format!("{NAME}-dkms_{VERSION}_amd64.deb"));
    output(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&tree).arg(&package))?;
    let size = std::fs::metadata(&package)?.len();
    step.done(&format!("{}, {}", package.display(), indicatif::DecimalBytes(size)));
    Ok(package)
}

/// Returns the content of a file of `debian/`, with the version.
fn instructions(folder: &Path, name: &str) -> Result<Vec<u8>> {
    let file = folder.join("debian").join(name);
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.replace("@VERSION@", VERSION).into_bytes())
}

/// Copies the sources of a folder and of those below it, except for what makes the package.
fn add_sources(from: &Path, ending: &str, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            if name != "debian" {
                add_sources(&entry.path(), ending, &to.join(name))?;
            }
        } else if name.ends_with(ending) {
            put(&to.join(name), &std::fs::read(entry.path())?, 0o644)?;
        }
    }
    Ok(())
}

fn put(to: &Path, content: &[u8], mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let parent = to.parent().context("a file has a folder")?;
    std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    std::fs::write(to, content).with_context(|| format!("cannot write {}", to.display()))?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Installs the package on a new system, boots its kernel and loads the module.
fn try_out(workspace: &Workspace, image: &Image, package: &Path) -> Result<Ending> {
    let kernel = image.kernel();
    let cache = Cache::open()?;
    host::provide_for_systems(&cache, &cache.lock()?)?;
    let place = workspace.target.join("lab-modules").join(&kernel.release).join("system");
    if place.exists() {
        // Removed by the program that may have made it as another user.
        output(Command::new("rm").args(["-rf", "--one-file-system"]).arg(&place))?;
    }
    let parent = place.parent().context("the system has a folder")?;
    std::fs::create_dir_all(parent)?;
    let step = Step::begin("new system");
    let mirror = mirror::find()?;
    let sources = ["trixie", "trixie-backports"].map(|suite| format!("deb {mirror} {suite} main"));
    let mut bootstrap = Command::new("mmdebstrap");
    bootstrap.args(["--variant=apt", "trixie"]).arg(&place).args(&sources).stdin(Stdio::null());
    step.run_to(&mut bootstrap, || 0)?;
    step.run_to(in_system(&place).args(["apt-get", "update"]), || 0)?;
    // It would be running on that machine.
    let kernel_package = format!("linux-image-{}", kernel.release);
    let suite = if kernel.version.contains("~bpo") { "trixie-backports" } else { "trixie" };
    let install = ["apt-get", "install", "-y", "--no-install-recommends", "-t", suite, &kernel_package];
    step.run_to(in_system(&place).args(install), || 0)?;
    step.done(&format!("Debian 13 with {kernel_package}"));

    std::fs::copy(package, place.join("tmp/package.deb"))?;
    let headers = format!("linux-headers-{}", kernel.release);
    // The user's first command.
    let install = ["apt-get", "install", "-y", "--no-install-recommends", "/tmp/package.deb", &headers];
    let step = Step::begin("apt-get install");
    let before = cpu_seconds()?;
    let text = step.run_to(in_system(&place).args(install), || 0)?;
    step.done(&format!("{headers}, {:.1} s of CPU time", cpu_seconds()? - before));
    let before = cpu_seconds()?;
    let step = Step::begin("dkms build");
    let rebuild =
        ["sh", "-ec", "dkms remove -m $0 -v $1 -k $2 && dkms install -m $0 -v $1 -k $2", NAME, VERSION];
    step.run_to(in_system(&place).args(rebuild).arg(&kernel.release), || 0)?;
    step.done(&format!("again, alone: {:.1} s of CPU time", cpu_seconds()? - before));
    let status = output(in_system(&place).args(["dkms", "status"]))?;
    ensure!(status.contains(": installed"), "DKMS did not install the module: {status}\n{text}");
    eprint!("{status}");
    let folder = place.to_str().context("the path of the system is not valid UTF-8")?;
    let words = ["sh", "-c", LOAD, folder].map(str::to_owned);
    let ending = Machine::new(image, workspace, 2, Some(&place))?.run(&words, LOAD_LIMIT)?;

    let step = Step::begin("upgrade and removal");
    step.run_to(in_system(&place).args(["dpkg", "--install", "/tmp/package.deb"]), || 0)?;
    let status = output(in_system(&place).args(["dkms", "status"]))?;
    ensure!(status.contains(": installed"), "after an upgrade, the module is not installed: {status}");
    step.run_to(in_system(&place).args(["dpkg", "--purge", &format!("{NAME}-dkms")]), || 0)?;
    let left = output(in_system(&place).args(["sh", "-c", LEFT]))?;
    ensure!(left.trim().is_empty(), "after the removal, these files are left: {left}");
    step.done("nothing is left");
    Ok(ending)
}

/// Returns a command in the new system, in its own mount namespace. Its network is that of this machine, for the archive.
fn in_system(place: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--", "sh", "-c", ENTER]).arg(place);
    command.args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"]);
    command.arg("DEBIAN_FRONTEND=noninteractive").stdin(Stdio::null());
    command
}

/// Returns the CPU time of all ended child processes, in seconds.
fn cpu_seconds() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(EXPEDITE)
    }

    #[test]
    fn the_version_of_the_module_is_that_of_the_workspace() {
        let text = std::fs::read_to_string(folder().join("abi.c")).unwrap();
        assert!(
            text.contains(&format!("MODULE_VERSION(\"{VERSION} \"")),
            "abi.c has another version than {VERSION}"
        );
    }

    #[test]
    fn both_forms_have_the_same_parameters() {
        let read = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
        let (rust, c) = (read("expedite_main.rs"), read("portable/module.c"));
        let described: Vec<_> = c.lines().filter_map(|line| line.strip_prefix("PARAMETER(")).collect();
        assert_eq!(described.len(), 7);
        for parameter in described {
            let (name, text) = parameter.split_once(", ").unwrap();
            let text = text.strip_suffix(");").unwrap();
            let (_, of_rust) = rust.split_once(&format!("        {name}: u32 {{")).unwrap();
            let of_rust = of_rust.split_once('}').unwrap().0;
            assert!(of_rust.contains(text), "{name}: {of_rust}");
            let default = c.lines().find_map(|line| line.trim().strip_prefix(&format!(".{name} = ")));
            let default = default.map_or("0", |value| value.trim_end_matches(','));
            assert!(of_rust.contains(&format!("default: {default},")), "{name}: {of_rust}");
        }
    }

    #[test]
    fn each_instruction_has_the_version() {
        for name in CONTROL.iter().map(|(name, _)| *name).chain(["dkms.conf"]) {
            let text = String::from_utf8(instructions(&folder(), name).unwrap()).unwrap();
            assert!(text.contains(VERSION) && !text.contains("@VERSION@"), "{name}: {text}");
        }
    }
}
