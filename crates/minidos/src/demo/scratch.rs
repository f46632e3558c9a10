//! The temporary directory of a run, removed when the run ends, however it ends.

use std::io;
use std::path::{Path, PathBuf};

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory that only this user can enter, in the system's temporary directory. The path is short because a
    /// socket name in it may have at most 107 bytes.
    pub(super) fn new() -> io::Result<Self> {
        let template = std::env::temp_dir().join("pronto-demo-XXXXXX");
        Ok(Self(nix::unistd::mkdtemp(&template)?))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the directory stays until the system's temporary directory is cleaned up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_removes_the_directory_and_its_files() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
