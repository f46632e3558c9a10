//! Files of a machine's description, below a root.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::cpus::{Cpu, Cpus, numbers};
use crate::error::{TopologyError, beginning};

/// Most bytes read from a file: a sysfs file holds at most a page, and a list of all CPUs is shorter.
const MOST: u64 = 64 << 10;
/// Most entries read from a folder: a machine has fewer devices and interrupts.
const MOST_ENTRIES: usize = 16_384;

/// Root folder of a machine's description, and how to read below it.
#[derive(Clone, Debug)]
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new(root: &Path) -> Self {
        Self(root.into())
    }

    /// Returns the full path of a file.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Reads a file. Returns `None` if it does not exist or has no value; for some devices the kernel reports an error
    /// instead of a value.
    pub(crate) fn text(&self, path: &str) -> Result<Option<String>, TopologyError> {
        let path = self.0.join(path);
        let mut bytes = Vec::new();
        match fs::File::open(&path).and_then(|file| file.take(MOST).read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(cause) if is_absent(&cause) => Ok(None),
            Err(cause) => Err(TopologyError::Read { path, cause }),
        }
    }

    /// Reads a list of numbers.
    pub(crate) fn list(&self, path: &str) -> Result<Option<BTreeSet<u32>>, TopologyError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        let fault = |fault| TopologyError::List { path: self.0.join(path), fault };
        numbers(&text).map(Some).map_err(fault)
    }

    /// Reads a list of CPUs.
    pub(crate) fn cpus(&self, path: &str) -> Result<Option<Cpus>, TopologyError> {
        Ok(self.list(path)?.map(|numbers| numbers.into_iter().map(Cpu).collect()))
    }

    /// Reads numbers separated by white space.
    pub(crate) fn row(&self, path: &str) -> Result<Option<Vec<u32>>, TopologyError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        let number = |word: &str| {
            let wrong = |_| TopologyError::Number { path: self.0.join(path), text: beginning(word) };
            word.parse().map_err(wrong)
        };
        text.split_whitespace().map(number).collect::<Result<_, _>>().map(Some)
    }

    /// Reads a number, which may be negative.
    pub(crate) fn number(&self, path: &str) -> Result<Option<i64>, TopologyError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        let wrong = |_| TopologyError::Number { path: self.0.join(path), text: beginning(&text) };
        text.trim().parse().map(Some).map_err(wrong)
    }

    /// Returns whether the path exists.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }

    /// Returns the sorted names in a folder; none if the folder does not exist.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, TopologyError> {
        let path = self.0.join(path);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(cause) if is_absent(&cause) => return Ok(Vec::new()),
            Err(cause) => return Err(TopologyError::Read { path, cause }),
        };
        // An entry that disappears during the read is treated as absent.
        let names = entries.take(MOST_ENTRIES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// Returns whether a file is missing or has no value: drivers report EINVAL, EIO and other errors for attributes they
/// lack.
fn is_absent(cause: &std::io::Error) -> bool {
    let errno = |errno: Errno| cause.raw_os_error() == Some(errno as i32);
    matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || [Errno::EINVAL, Errno::EIO, Errno::ENXIO, Errno::ENODEV, Errno::EOPNOTSUPP].into_iter().any(errno)
}
