//! The cache of downloads and build results. All checkouts and all runs share it.
//!
//! # Invariants
//! 1. Only the holder of the lock writes.
//! 2. A file with its final name is complete: it was created under another name, then renamed.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};

#[derive(Debug, Clone)]
pub(super) struct Cache {
    folder: PathBuf,
}

/// The right to write to the cache, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Flock<File>,
}

impl Cache {
    /// Opens `$XDG_CACHE_HOME/pronto-lab`, or `~/.cache/pronto-lab`.
    ///
    /// # Errors
    /// Neither variable is set, or the folder cannot be created.
    pub(super) fn open() -> Result<Self> {
        let variable =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let parent = variable("XDG_CACHE_HOME")
            .or_else(|| variable("HOME").map(|home| home.join(".cache")))
            .context("neither XDG_CACHE_HOME nor HOME names a folder for the cache")?;
        let cache = Self { folder: parent.join("pronto-lab") };
        cache.folder("")?;
        Ok(cache)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns a folder of the cache. Creates it if necessary.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.path(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    /// Returns a folder with its own lock and scratch folder, for work that takes long, so that other processes need not wait for it.
    pub(super) fn part(&self, name: &str) -> Result<Self> {
        Ok(Self { folder: self.folder(name)? })
    }

    /// Waits until no other process writes.
    pub(super) fn lock(&self) -> Result<Lock> {
        let path = self.path("lock");
        let open = || OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let context = || format!("cannot lock {}", path.display());
        let held = match Flock::lock(open().with_context(context)?, FlockArg::LockExclusiveNonblock) {
            Ok(held) => held,
            Err((file, _)) => {
                eprintln!("lab: another process is filling {}; waiting for it", self.folder.display());
                Flock::lock(file, FlockArg::LockExclusive)
                    .map_err(|(_, errno)| errno)
                    .with_context(context)?
            }
        };
        Ok(Lock { _file: held })
    }

    /// Returns an empty folder for unfinished work. Removes what a killed process left there.
    pub(super) fn scratch(&self, _held: &Lock) -> Result<PathBuf> {
        let folder = self.path("scratch");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("cannot clear {}", folder.display()))?;
        }
        self.folder("scratch")
    }
}

/// Writes a file under another name, then renames it.
pub(super) fn write_whole(file: &Path, bytes: &[u8]) -> Result<()> {
    let part = file.with_extension("part");
    std::fs::write(&part, bytes).with_context(|| format!("cannot write {}", part.display()))?;
    std::fs::rename(&part, file).with_context(|| format!("cannot rename {}", part.display()))
}

/// Records the time of the last use of this part of the cache. Fails silently if the cache belongs to another user.
pub(super) fn used(path: &Path, now: SystemTime) {
    let _ = File::open(path).and_then(|file| file.set_modified(now));
}

/// Returns the bytes in a file, or in a folder and the folders in it. Files that disappear meanwhile are not counted.
pub(super) fn size_of(path: &Path) -> u64 {
    match path.symlink_metadata() {
        Ok(data) if data.is_dir() => {
            let Ok(entries) = std::fs::read_dir(path) else { return 0 };
            entries.flatten().map(|entry| size_of(&entry.path())).sum()
        }
        Ok(data) => data.len(),
        Err(_) => 0,
    }
}

/// Returns a name for content that is built from these pieces (FNV-1a, 64 bits), independent of the compiler's version.
pub(super) fn key(pieces: &[&[u8]]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for piece in pieces {
        // The length separates the pieces.
        let length = u64::try_from(piece.len()).expect("usize fits").to_le_bytes();
        for byte in length.iter().chain(*piece) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns an empty cache for the test `name`.
    pub(in crate::lab) fn scratch_cache(name: &str) -> Cache {
        let folder = std::env::temp_dir().join(format!("pronto-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Cache { folder }
    }

    #[test]
    fn keys_differ_by_text_and_by_boundaries() {
        assert_eq!(key(&[b"ab", b"c"]), key(&[b"ab", b"c"]));
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_ne!(key(&[b"ab"]), key(&[b"ba"]));
    }
}
