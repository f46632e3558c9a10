//! A directory of the run's own, gone when the run ends, however it ends.

use std::io;
use std::path::{Path, PathBuf};

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one that nobody else may enter, where the system keeps such things. The path is short, because the name
    /// of a socket in it may not be longer than 107 bytes.
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
        // What cannot be removed now is left to whoever clears the directory that it lies in.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_gone_with_all_that_is_in_it() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
