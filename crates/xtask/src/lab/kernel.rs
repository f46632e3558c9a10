//! The choice of the machine's kernel among those of Debian.

use core::cmp::Ordering;

use anyhow::{Result, bail};

use super::apt::Apt;
use super::progress::output;

/// Beginnings of the names of packages with a stock kernel. The release follows. The second kind, of Linux before 6.19, contains the
/// modules as well.
const PREFIXES: [&str; 2] = ["linux-binary-", "linux-image-"];

/// The first series whose modules are in a package of their own.
const FIRST_SPLIT: [u64; 2] = [6, 19];

/// Debian's kernel for 64-bit PCs, and the one with PREEMPT_RT. The kernel `cloud` has another ending.
const FLAVOUR: &str = "-amd64";
const REALTIME: &str = "-rt-amd64";

/// Ending of a wanted version that stands for the kernel with PREEMPT_RT.
const WANTED_REALTIME: &str = "-rt";

/// The release of Debian from which the guest comes.
const DEBIAN: &str = "13";

/// A kernel that is in the archive or in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kernel {
    /// The output of `uname -r`, such as `7.2.12+deb13-amd64`.
    pub(super) release: String,
    /// Debian's version, such as `7.2.12-1~bpo13+1`.
    pub(super) version: String,
}

impl Kernel {
    /// Returns its packages that the lab uses: the kernel, its modules, the list of built-in modules.
    pub(super) fn packages(&self) -> Vec<String> {
        let [split, whole] = PREFIXES;
        let starts = if self.is_split() { vec![split, "linux-modules-", "linux-base-"] } else { vec![whole] };
        starts.iter().map(|start| format!("{start}{}", self.release)).collect()
    }

    /// Returns the path at which they put the kernel.
    pub(super) fn image(&self) -> String {
        let release = &self.release;
        if self.is_split() {
            format!("usr/lib/modules/{release}/vmlinuz")
        } else {
            format!("boot/vmlinuz-{release}")
        }
    }

    fn is_split(&self) -> bool {
        series(&self.version) >= FIRST_SPLIT.to_vec()
    }

    /// Returns its packages for building modules: headers, common headers, build tools, source.
    pub(super) fn build_packages(&self) -> [String; 4] {
        let (general, common) = match self.release.strip_suffix(REALTIME) {
            Some(general) => (general, "common-rt"),
            None => (self.release.strip_suffix(FLAVOUR).unwrap_or(&self.release), "common"),
        };
        [
            format!("linux-headers-{}", self.release),
            format!("linux-headers-{general}-{common}"),
            format!("linux-kbuild-{general}"),
            format!("linux-source-{}", self.series_name()),
        ]
    }

    /// Returns a name that differs for each kernel.
    pub(super) fn name(&self) -> String {
        let ending = if self.release.ends_with(REALTIME) { WANTED_REALTIME } else { "" };
        format!("{}{ending}", self.version)
    }

    /// Returns the path at which the package of the source puts it. The archive, with `.tar.xz`, is next to it.
    pub(super) fn source(&self) -> String {
        format!("/usr/src/linux-source-{}", self.series_name())
    }

    /// Returns the first two numbers of the version: `7.2`.
    pub(super) fn series_name(&self) -> String {
        let numbers: Vec<_> = series(&self.version).iter().map(u64::to_string).collect();
        numbers.join(".")
    }

    fn upstream(&self) -> &str {
        self.version.split('-').next().unwrap_or(&self.version)
    }
}

/// Returns the kernel of this version (Debian's, or upstream's), or the newest one of its series. With `-rt` at its end, it is the one
/// with PREEMPT_RT.
///
/// # Errors
/// Debian has no kernel of that series.
pub(super) fn choose(apt: &Apt, wanted: &str) -> Result<Kernel> {
    let (version, flavour) = match wanted.strip_suffix(WANTED_REALTIME) {
        Some(version) => (version, REALTIME),
        None => (wanted, FLAVOUR),
    };
    let pattern = format!("^({})[0-9].*[0-9]{flavour}$", PREFIXES.join("|"));
    let names = output(apt.command("apt-cache").args(["search", "--names-only", &pattern]))?;
    let names: Vec<_> = names.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let table = if names.is_empty() {
        String::new()
    } else {
        output(apt.command("apt-cache").arg("madison").args(&names))?
    };
    // If the packages are in the cache, it does not matter that the archive dropped them.
    let mut kernels = kernels(&table, flavour);
    kernels.extend(cached(apt, version, flavour));
    match pick(&kernels, version) {
        Some(kernel) => {
            if kernel.version != version && kernel.upstream() != version {
                eprintln!("lab: Debian has no kernel {wanted} any more; using {}", kernel.version);
            }
            Ok(kernel.clone())
        }
        None => {
            let mut all: Vec<_> = kernels.iter().map(|kernel| kernel.version.as_str()).collect();
            all.sort_unstable();
            bail!("Debian has no kernel {wanted}, nor one of its series; it has: {}", all.join(", "));
        }
    }
}

/// Returns the kernel with Debian's version `wanted`, if its packages are in the cache. `7.2.12-1~bpo13+1` has the release
/// `7.2.12+deb13-amd64`.
fn cached(apt: &Apt, wanted: &str, flavour: &str) -> Option<Kernel> {
    let (upstream, revision) = wanted.split_once('-')?;
    // A version without this part is of the release itself.
    let debian =
        revision.split_once("~bpo").and_then(|(_, rest)| Some(rest.split_once('+')?.0)).unwrap_or(DEBIAN);
    let kernel = Kernel { release: format!("{upstream}+deb{debian}{flavour}"), version: wanted.to_owned() };
    kernel.packages().iter().all(|package| apt.cached(package, wanted).is_some()).then_some(kernel)
}

/// Parses the output of `apt-cache madison`: lines `PACKAGE | VERSION | ORIGIN`.
fn kernels(table: &str, flavour: &str) -> Vec<Kernel> {
    table
        .lines()
        .filter_map(|line| {
            let mut columns = line.split('|').map(str::trim);
            let package = columns.next()?;
            let release = PREFIXES.iter().find_map(|prefix| package.strip_prefix(prefix))?;
            let version = columns.next()?;
            // `7.2.12+deb13-cloud-amd64` is not for PCs.
            let stock = release.strip_suffix(flavour).is_some_and(|start| !start.contains('-'));
            stock.then(|| Kernel { release: release.to_owned(), version: version.to_owned() })
        })
        .collect()
}

fn pick<'k>(kernels: &'k [Kernel], wanted: &str) -> Option<&'k Kernel> {
    let newest = |fits: &dyn Fn(&Kernel) -> bool| {
        kernels.iter().filter(|kernel| fits(kernel)).max_by(|a, b| compare(&a.version, &b.version))
    };
    newest(&|kernel| kernel.version == wanted)
        .or_else(|| newest(&|kernel| kernel.upstream() == wanted))
        .or_else(|| newest(&|kernel| series(&kernel.version) == series(wanted)))
}

/// Returns the first two numbers of a version.
fn series(version: &str) -> Vec<u64> {
    numbers(version).into_iter().take(2).collect()
}

/// Compares versions by their numbers. This is Debian's order for versions of one kernel source.
fn compare(a: &str, b: &str) -> Ordering {
    numbers(a).cmp(&numbers(b)).then_with(|| a.cmp(b))
}

fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
linux-binary-7.2.9+deb13-amd64 | 7.2.9-1~bpo13+1 | http://x trixie-backports/main amd64 Packages
linux-binary-7.2.11+deb13-amd64 | 7.2.11-1~bpo13+1 | http://x trixie-backports/main amd64 Packages
linux-binary-7.2.11+deb13-cloud-amd64 | 7.2.11-1~bpo13+1 | http://x trixie-backports/main amd64 Packages
linux-binary-7.3.4+deb13-amd64 | 7.3.4-1~bpo13+2 | http://x trixie-backports/main amd64 Packages
linux-image-6.12.117+deb13-amd64 | 6.12.117-1 | http://x trixie/main amd64 Packages
linux-image-6.12.117+deb13-rt-amd64 | 6.12.117-1 | http://x trixie/main amd64 Packages
";

    fn version(wanted: &str) -> Option<String> {
        pick(&kernels(TABLE, FLAVOUR), wanted).map(|kernel| kernel.version.clone())
    }

    #[test]
    fn only_stock_kernels_are_candidates() {
        let kernels = kernels(TABLE, FLAVOUR);
        assert_eq!(kernels.len(), 4);
        assert_eq!(kernels[0].release, "7.2.9+deb13-amd64");
        assert_eq!(kernels[0].packages()[1], "linux-modules-7.2.9+deb13-amd64");
        assert_eq!(kernels[0].build_packages()[1], "linux-headers-7.2.9+deb13-common");
        assert_eq!(kernels[0].build_packages()[3], "linux-source-7.2");
        assert_eq!(kernels[0].image(), "usr/lib/modules/7.2.9+deb13-amd64/vmlinuz");
        assert_eq!(kernels[3].packages(), ["linux-image-6.12.117+deb13-amd64"]);
        assert_eq!(kernels[3].image(), "boot/vmlinuz-6.12.117+deb13-amd64");
    }

    #[test]
    fn the_kernel_with_preempt_rt_has_its_own_packages_and_name() {
        let all = kernels(TABLE, REALTIME);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].packages(), ["linux-image-6.12.117+deb13-rt-amd64"]);
        assert_eq!(all[0].build_packages()[1], "linux-headers-6.12.117+deb13-common-rt");
        assert_eq!(all[0].build_packages()[2], "linux-kbuild-6.12.117+deb13");
        assert_eq!(
            (all[0].name().as_str(), kernels(TABLE, FLAVOUR)[3].name().as_str()),
            ("6.12.117-1-rt", "6.12.117-1")
        );
    }

    #[test]
    fn debians_and_upstreams_versions_are_accepted() {
        assert_eq!(version("7.2.9-1~bpo13+1").as_deref(), Some("7.2.9-1~bpo13+1"));
        assert_eq!(version("7.3.4").as_deref(), Some("7.3.4-1~bpo13+2"));
    }

    #[test]
    fn a_removed_version_is_replaced_by_the_newest_of_its_series() {
        assert_eq!(version("7.2.6-1~bpo13+1").as_deref(), Some("7.2.11-1~bpo13+1"));
        assert_eq!(version("7.1.3"), None);
    }
}
