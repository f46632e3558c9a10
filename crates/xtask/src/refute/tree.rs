//! The copy of the tree in which faults are planted, below the target folder.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::list::Fault;
use crate::workspace::Workspace;

/// A copy of the tree, with build output of its own.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: PathBuf,
}

impl Tree {
    /// Brings the copy up to date. Files that are equal stay untouched, so that cargo does not build them again; a fault that an
    /// interrupted run left is removed.
    ///
    /// # Errors
    /// A file or folder cannot be read or written.
    pub(super) fn copy(workspace: &Workspace) -> Result<Self> {
        let root = workspace.target.join("refute");
        let is_source = |name: &OsString| name != "target" && !name.to_string_lossy().starts_with('.');
        mirror(&workspace.root, &root, &is_source)?;
        Ok(Self { root })
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

/// Makes the folder `to` equal to `from`, except for entries that `is_source` excludes.
fn mirror(from: &Path, to: &Path, is_source: &impl Fn(&OsString) -> bool) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let wanted = names(from, is_source)?;
    for gone in names(to, is_source)?.difference(&wanted) {
        let path = to.join(gone);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    for name in wanted {
        let (source, copy) = (from.join(&name), to.join(&name));
        if source.is_dir() {
            mirror(&source, &copy, is_source)?;
            continue;
        }
        let bytes = fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
        if fs::read(&copy).ok().as_ref() != Some(&bytes) {
            fs::write(&copy, bytes).with_context(|| format!("cannot write {}", copy.display()))?;
        }
    }
    Ok(())
}

/// Returns the names of the entries of a folder.
fn names(folder: &Path, is_source: &impl Fn(&OsString) -> bool) -> Result<BTreeSet<OsString>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = BTreeSet::new();
    for entry in entries {
        names.insert(entry.with_context(|| format!("cannot list {}", folder.display()))?.file_name());
    }
    names.retain(is_source);
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_loses_faults_and_old_files_and_keeps_build_output() {
        let root = std::env::temp_dir().join(format!("pronto-mirror-{}", std::process::id()));
        let (from, to) = (root.join("from"), root.join("to"));
        for folder in [from.join("src"), from.join("target"), to.join("src/old"), to.join("target")] {
            fs::create_dir_all(folder).unwrap();
        }
        for file in ["from/src/a.rs", "from/target/x", "to/src/b.rs", "to/target/y"] {
            fs::write(root.join(file), "text").unwrap();
        }
        fs::write(to.join("src/a.rs"), "fault").unwrap();
        mirror(&from, &to, &|name| name != "target").unwrap();
        assert_eq!(fs::read_to_string(to.join("src/a.rs")).unwrap(), "text");
        let exists = ["src/b.rs", "src/old", "target/x", "target/y"].map(|path| to.join(path).exists());
        assert_eq!(exists, [false, false, false, true]);
        fs::remove_dir_all(&root).unwrap();
    }
}
