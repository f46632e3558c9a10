//! Debian's archive, with package lists of the lab: the sources and lists of this machine stay as they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use indicatif::DecimalBytes;

use super::cache::{self, Cache, size_of};
use super::progress::{Step, output};
use super::{mirror, prune};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The releases from which the guest's tools and kernel come.
const GUEST_SUITES: &[&str] = &["trixie", "trixie-backports"];

/// apt with the lab's configuration.
#[derive(Debug)]
pub(super) struct Apt {
    configuration: PathBuf,
    debs: PathBuf,
}

/// The system for which packages are chosen.
enum System<'a> {
    /// A system on which nothing is installed; its state is in this folder.
    Empty(&'a Path),
    /// The system of this machine; only the package lists are in this folder.
    Host(&'a Path),
}

impl Apt {
    /// Chooses packages for the guest, on which nothing is installed.
    pub(super) fn guest(cache: &Cache) -> Result<Self> {
        let state = cache.folder("apt/guest")?;
        cache::write_whole(&state.join("status"), b"")?;
        Self::new(cache, &System::Empty(&state), GUEST_SUITES)
    }

    /// Chooses packages for this machine, which runs the Debian release `codename`.
    pub(super) fn host(cache: &Cache, codename: &str) -> Result<Self> {
        let state = cache.folder("apt/host")?;
        Self::new(cache, &System::Host(&state), &[codename, &backports(codename)])
    }

    fn new(cache: &Cache, system: &System<'_>, suites: &[&str]) -> Result<Self> {
        let (System::Empty(folder) | System::Host(folder)) = system;
        let debs = match system {
            System::Empty(_) => cache.folder("debs")?,
            // A separate folder, because another user may have to install them: files that root locks there are locked for others.
            System::Host(folder) => folder.join("debs"),
        };
        std::fs::create_dir_all(debs.join("partial")).context("cannot create the folder of the packages")?;
        std::fs::create_dir_all(folder.join("lists/partial"))
            .context("cannot create the folder of the lists")?;
        let configuration = folder.join("apt.conf");
        cache::write_whole(&folder.join("sources.list"), sources(&mirror::find()?, suites).as_bytes())?;
        cache::write_whole(&configuration, configure(system, &debs).as_bytes())?;
        Ok(Self { configuration, debs })
    }

    /// Returns the beginning of a command line that a person can type.
    pub(super) fn command_line(&self) -> String {
        format!("apt-get -c {}", self.configuration.display())
    }

    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(&self.configuration)
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Fetches the package lists. Without a network, existing lists are used.
    pub(super) fn update(&self, name: &str) -> Result<()> {
        let step = Step::begin(name);
        let mut command = self.command("apt-get");
        command.args(["update", "-q", "--error-on=any"]);
        match step.run_to(&mut command, || 0) {
            Ok(text) => {
                step.done(text.lines().find(|line| line.starts_with("Fetched")).unwrap_or("up to date"))
            }
            Err(error) if self.has_lists() => step.done(&format!("using the existing lists: {error:#}")),
            Err(error) => return Err(error.context("cannot fetch Debian's package lists")),
        }
        Ok(())
    }

    fn has_lists(&self) -> bool {
        let lists = self.configuration.with_file_name("lists");
        std::fs::read_dir(lists).is_ok_and(|mut entries| {
            entries.any(|entry| {
                entry.is_ok_and(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
            })
        })
    }

    /// Fetches these packages (`name` or `name=version`) with all dependencies, and returns their files.
    pub(super) fn fetch(&self, name: &str, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let step = Step::begin(name);
        let install = |option: &str| {
            let mut command = self.command("apt-get");
            command.args(["install", "-y", "-q", "--no-install-recommends", option]).args(packages);
            command
        };
        let files: Vec<_> =
            files(&output(&mut install("--simulate"))?).iter().map(|file| self.debs.join(file)).collect();
        let missing = sizes(&output(&mut install("--print-uris"))?);
        if missing > 0 {
            step.bytes(missing);
            let before = size_of(&self.debs);
            let fetched = || size_of(&self.debs).saturating_sub(before);
            step.run_to(&mut install("--download-only"), fetched)?;
        }
        step.done(&format!("{} packages, {} fetched", files.len(), DecimalBytes(missing)));
        files.iter().for_each(|file| cache::used(file, prune::now()));
        Ok(files)
    }

    /// Fetches packages of one version, unless all are in the cache, because the archive drops old versions. Returns only their
    /// files, in the order of `packages`.
    pub(super) fn pinned(&self, name: &str, packages: &[String], version: &str) -> Result<Vec<PathBuf>> {
        let cached =
            || packages.iter().map(|package| self.cached(package, version)).collect::<Option<Vec<_>>>();
        if let Some(files) = cached() {
            return Ok(files);
        }
        let wanted: Vec<_> = packages.iter().map(|package| format!("{package}={version}")).collect();
        self.fetch(name, &wanted.iter().map(String::as_str).collect::<Vec<_>>())?;
        cached().context("the packages that apt-get fetched are not in the cache")
    }

    /// Returns the path of a package in the cache, if it is there.
    pub(super) fn cached(&self, package: &str, version: &str) -> Option<PathBuf> {
        let place = |architecture| self.debs.join(file_name(package, version, architecture));
        let file = ["amd64", "all"].map(place).into_iter().find(|file| file.is_file())?;
        cache::used(&file, prune::now());
        Some(file)
    }
}

/// Returns the suite of a release that contains newer versions.
pub(super) fn backports(codename: &str) -> String {
    format!("{codename}-backports")
}

fn sources(mirror: &str, suites: &[&str]) -> String {
    suites.iter().map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n")).collect()
}

/// Returns the configuration. Proxies and similar settings of this machine stay; hooks that clean up its own folders are cleared.
fn configure(system: &System<'_>, debs: &Path) -> String {
    let (System::Empty(folder) | System::Host(folder)) = system;
    let folder = folder.display();
    let state = match system {
        System::Empty(_) => {
            format!("Dir::State \"{folder}\";\nDir::State::status \"{folder}/status\";\n")
        }
        System::Host(_) => String::new(),
    };
    format!(
        "Dir::Etc::sourcelist \"{folder}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         {state}\
         Dir::State::lists \"{folder}/lists\";\n\
         Dir::Cache::archives \"{}\";\n\
         Dir::Cache::pkgcache \"\";\n\
         Dir::Cache::srcpkgcache \"\";\n\
         APT::Architecture \"amd64\";\n\
         APT::Architectures {{ \"amd64\"; }};\n\
         APT::Sandbox::User \"root\";\n\
         APT::Keep-Downloaded-Packages \"true\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"3\";\n\
         Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n\
         #clear DPkg::Post-Invoke;\n",
        debs.display()
    )
}

/// Returns the files of the packages that `apt-get --simulate install` would install, from lines
/// `Inst NAME (VERSION ORIGIN [ARCHITECTURE])`.
fn files(simulation: &str) -> Vec<String> {
    simulation
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
            // Brackets after the parentheses are about the order of installation.
            let (version, origin) = rest.split_once('(')?.1.split_once(')')?.0.split_once(' ')?;
            let architecture = origin.rsplit_once('[')?.1.strip_suffix(']')?;
            Some(file_name(name, version, architecture))
        })
        .collect()
}

fn file_name(package: &str, version: &str, architecture: &str) -> String {
    format!("{package}_{}_{architecture}.deb", version.replace(':', "%3a"))
}

/// Returns the bytes that `apt-get --print-uris` would fetch, from lines `'URI' FILE SIZE HASH`.
fn sizes(uris: &str) -> u64 {
    let size = |line: &str| line.strip_prefix('\'')?.split_whitespace().nth(2)?.parse::<u64>().ok();
    uris.lines().filter_map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_simulated_installation_are_found() {
        let text = "NOTE: This is only a simulation!\n\
            Inst gcc-14-base (14.2.0-19 Debian:13.2/stable [amd64])\n\
            Inst libattr1 (1:2.5.2-3 Debian:13.2/stable [amd64]) []\n\
            Inst netbase (6.5 Debian:13.2/stable [all])\n\
            Conf netbase (6.5 Debian:13.2/stable [all])\n";
        assert_eq!(
            files(text),
            ["gcc-14-base_14.2.0-19_amd64.deb", "libattr1_1%3a2.5.2-3_amd64.deb", "netbase_6.5_all.deb"]
        );
    }

    #[test]
    fn sizes_of_missing_packages_are_added_up() {
        let text = "Reading package lists...\n'http://x/a.deb' a_1_amd64.deb 100 SHA256:ab\n'http://x/b.deb' b_1_all.deb 20 \n";
        assert_eq!(sizes(text), 120);
        assert_eq!(sizes("0 upgraded, 0 newly installed"), 0);
    }

    #[test]
    fn lists_are_signed_and_of_the_requested_suites() {
        let text = sources("http://a.example/debian", GUEST_SUITES);
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| line.contains("signed-by=")), "{text}");
        assert!(text.contains(" trixie-backports main"));
    }

    #[test]
    fn only_the_host_uses_the_state_of_this_machine() {
        let folder = Path::new("/c/apt");
        assert!(configure(&System::Empty(folder), Path::new("/c/debs")).contains("Dir::State::status"));
        assert!(!configure(&System::Host(folder), Path::new("/c/debs")).contains("Dir::State::status"));
    }
}
