//! Files of a machine's description, below a root.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::cpus::{Cpu, Cpus, numbers};
use crate::error::{TopologyError, beginning};

/// Of a file so much is read: a page is what one of sysfs holds, a list of all processors less.
const MOST: u64 = 64 << 10;
/// Of a folder so many entries: devices and interrupts of a machine are fewer.
const MOST_ENTRIES: usize = 16_384;

/// A root, and how to read below it.
#[derive(Clone, Debug)]
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new(root: &Path) -> Self {
        Self(root.into())
    }

    /// Where a file lies.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// What a file says; None if it is not there, or has nothing to say: the kernel answers so for some devices.
    pub(crate) fn text(&self, path: &str) -> Result<Option<String>, TopologyError> {
        let path = self.0.join(path);
        let mut bytes = Vec::new();
        match fs::File::open(&path).and_then(|file| file.take(MOST).read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(cause) if is_absent(&cause) => Ok(None),
            Err(cause) => Err(TopologyError::Read { path, cause }),
        }
    }

    /// A list of numbers.
    pub(crate) fn list(&self, path: &str) -> Result<Option<BTreeSet<u32>>, TopologyError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        let fault = |fault| TopologyError::List { path: self.0.join(path), fault };
        numbers(&text).map(Some).map_err(fault)
    }

    /// A list of processors.
    pub(crate) fn cpus(&self, path: &str) -> Result<Option<Cpus>, TopologyError> {
        Ok(self.list(path)?.map(|numbers| numbers.into_iter().map(Cpu).collect()))
    }

    /// Numbers with spaces between them.
    pub(crate) fn row(&self, path: &str) -> Result<Option<Vec<u32>>, TopologyError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        let number = |word: &str| {
            let wrong = |_| TopologyError::Number { path: self.0.join(path), text: beginning(word) };
            word.parse().map_err(wrong)
        };
        text.split_whitespace().map(number).collect::<Result<_, _>>().map(Some)
    }

    /// A number that may be negative.
    pub(crate) fn number(&self, path: &str) -> Result<Option<i64>, TopologyError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        let wrong = |_| TopologyError::Number { path: self.0.join(path), text: beginning(&text) };
        text.trim().parse().map(Some).map_err(wrong)
    }

    /// Whether it is there.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }

    /// The names in a folder, sorted; none if it is not there.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, TopologyError> {
        let path = self.0.join(path);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(cause) if is_absent(&cause) => return Ok(Vec::new()),
            Err(cause) => return Err(TopologyError::Read { path, cause }),
        };
        // One that goes while the folder is read is as good as gone before.
        let names = entries.take(MOST_ENTRIES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// Not there; or without a value, as EINVAL, EIO and others say for attributes that a driver does not have.
fn is_absent(cause: &std::io::Error) -> bool {
    let errno = |errno: Errno| cause.raw_os_error() == Some(errno as i32);
    matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || [Errno::EINVAL, Errno::EIO, Errno::ENXIO, Errno::ENODEV, Errno::EOPNOTSUPP].into_iter().any(errno)
}
