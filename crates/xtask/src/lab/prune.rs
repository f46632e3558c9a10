//! Removes old files from the cache. A use of a file sets its modification time.

use core::time::Duration;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use clap::Args;
use indicatif::DecimalBytes;

use super::cache::{Cache, Lock, size_of};
use super::{build, std_source};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Retention time of an image. Each change to a script in lab/ creates one, in a fraction of a second.
const IMAGE_KEPT: Duration = DAY.saturating_mul(2);

/// Retention time of other files. Building them again takes minutes, and the archive may have dropped the packages.
const KEPT: Duration = DAY.saturating_mul(30);

/// Folders of the cache with independent entries, and the retention times of these.
const FOLDERS: &[(&str, Duration)] = &[
    ("images", IMAGE_KEPT),
    ("tools", KEPT),
    ("kernels", KEPT),
    ("modules", KEPT),
    ("debug", KEPT),
    (std_source::FOLDER, KEPT),
];

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Remove everything, including files that are in use
    #[arg(long)]
    all: bool,
}

/// Removes old files, or everything, and prints the amounts.
///
/// # Errors
/// A file or folder cannot be removed.
pub(super) fn run(options: &Options) -> Result<()> {
    let cache = Cache::open()?;
    let lock = cache.lock()?;
    let freed = if options.all { everything(&cache, &lock)? } else { old(&cache, &lock, now())? };
    println!("removed {}; {} are left", DecimalBytes(freed), DecimalBytes(size_of(&cache.path(""))));
    Ok(())
}

/// Removes old files and returns their size in bytes.
///
/// # Errors
/// A file or folder cannot be removed.
pub(super) fn old(cache: &Cache, _held: &Lock, now: SystemTime) -> Result<u64> {
    let mut freed = 0;
    for (folder, kept) in FOLDERS {
        for entry in entries(&cache.path(folder)) {
            if is_older(&entry, now, *kept) {
                freed += remove(&entry)?;
            }
        }
    }
    let in_use: BTreeSet<PathBuf> =
        build::packages(cache).iter().map(|name| cache.path("debs").join(format!("{name}.deb"))).collect();
    for entry in entries(&cache.path("debs")) {
        let is_package = entry.extension().is_some_and(|extension| extension == "deb");
        if is_package && !in_use.contains(&entry) && is_older(&entry, now, KEPT) {
            freed += remove(&entry)?;
        }
    }
    Ok(freed)
}

fn everything(cache: &Cache, _held: &Lock) -> Result<u64> {
    // The lock file stays: other processes may wait for it.
    let doomed = entries(&cache.path("")).into_iter().filter(|entry| entry.is_dir());
    doomed.map(|entry| remove(&entry)).sum()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}

fn is_older(path: &Path, now: SystemTime, kept: Duration) -> bool {
    let changed = path.metadata().and_then(|metadata| metadata.modified());
    changed.is_ok_and(|changed| now.duration_since(changed).is_ok_and(|age| age > kept))
}

fn remove(path: &Path) -> Result<u64> {
    let bytes = size_of(path);
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    removed.with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(bytes)
}

/// Returns the current time, for comparison with modification times.
#[expect(clippy::disallowed_methods, reason = "a tool is an edge: files carry the time of day")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::cache::{tests::scratch_cache, used};

    #[test]
    fn used_files_stay_and_old_ones_are_removed() {
        let cache = scratch_cache("prune");
        let lock = cache.lock().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::create_dir_all(cache.path(name).parent().unwrap()).unwrap();
            std::fs::write(cache.path(name), text).unwrap();
        };
        let contents = r#"{"kernel_version": "1", "kernel_release": "1", "packages": ["bash_5_amd64"]}"#;
        write("tools/a.json", contents);
        write("images/b.cpio", "image");
        write("kernels/1/vmlinux", "kernel");
        write("debs/bash_5_amd64.deb", "in use");
        write("debs/dash_1_amd64.deb", "old");
        write("debs/lock", "");
        let exists = |name: &str| cache.path(name).exists();

        assert_eq!(old(&cache, &lock, now()).unwrap(), 0);
        // Three days later only the image is old. A use keeps it.
        used(&cache.path("images/b.cpio"), now() + 3 * DAY);
        assert_eq!(old(&cache, &lock, now() + 3 * DAY).unwrap(), 0);
        assert_eq!(old(&cache, &lock, now() + 6 * DAY).unwrap(), 5);
        assert!(!exists("images/b.cpio") && exists("kernels/1/vmlinux"));
        // A month later the tools are in use, and so are their packages.
        used(&cache.path("tools/a.json"), now() + 31 * DAY);
        old(&cache, &lock, now() + 31 * DAY).unwrap();
        assert!(exists("debs/bash_5_amd64.deb") && !exists("debs/dash_1_amd64.deb") && exists("debs/lock"));
        assert!(!exists("kernels/1"));

        everything(&cache, &lock).unwrap();
        assert!(!exists("debs") && exists("lock"));
    }
}
