//! The copy of the tree in which faults are planted.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::list::Fault;
use crate::mirror;
use crate::workspace::Workspace;

/// A copy of the tree, with build output of its own.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: PathBuf,
}

impl Tree {
    /// Brings the copy up to date.
    ///
    /// # Errors
    /// A file or folder cannot be read or written.
    pub(super) fn copy(workspace: &Workspace) -> Result<Self> {
        Ok(Self { root: mirror::of_tree(workspace, "refute")? })
    }

    /// Runs `work` while the copy has this fault.
    pub(super) fn with<T>(&self, fault: &Fault, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let path = self.root.join(&fault.file);
        let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let write =
            |text: &str| fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()));
        write(&fault.applied(&source)?)?;
        let result = work();
        write(&source)?;
        result
    }
}
