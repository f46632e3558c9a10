//! Copies of the tree below the target folder, in which faults are planted.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// Brings the copy of the tree in the folder `name` of the target folder up to date, and returns its path. Files that are equal stay
/// untouched, so that cargo does not build them again; a fault that an interrupted run left is removed. Build output in the copy stays.
///
/// # Errors
/// A file or folder cannot be read or written.
pub(crate) fn of_tree(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    of_tree_with(workspace, name, &BTreeMap::new())
}

/// Does the same as [`of_tree`], but gives some files another text. Their paths are relative to the tree.
///
/// # Errors
/// See [`of_tree`].
pub(crate) fn of_tree_with(
    workspace: &Workspace,
    name: &str,
    texts: &BTreeMap<PathBuf, String>,
) -> Result<PathBuf> {
    let root = workspace.target.join(name);
    let is_source = |name: &OsString| name != "target" && !name.to_string_lossy().starts_with('.');
    let texts = texts.iter().map(|(path, text)| (workspace.root.join(path), text.as_str())).collect();
    mirror(&workspace.root, &root, &is_source, &texts)?;
    Ok(root)
}

/// Makes the folder `to` equal to `from`, except for entries that `is_source` excludes and files that have another text in `texts`.
fn mirror(
    from: &Path,
    to: &Path,
    is_source: &impl Fn(&OsString) -> bool,
    texts: &BTreeMap<PathBuf, &str>,
) -> Result<()> {
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
            mirror(&source, &copy, is_source, texts)?;
            continue;
        }
        let bytes = match texts.get(&source) {
            Some(text) => text.as_bytes().to_vec(),
            None => fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?,
        };
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
        let mirror = |texts| mirror(&from, &to, &|name| name != "target", &texts).unwrap();
        mirror([(from.join("src/a.rs"), "probe")].into());
        assert_eq!(fs::read_to_string(to.join("src/a.rs")).unwrap(), "probe");
        mirror(BTreeMap::new());
        assert_eq!(fs::read_to_string(to.join("src/a.rs")).unwrap(), "text");
        let exists = ["src/b.rs", "src/old", "target/x", "target/y"].map(|path| to.join(path).exists());
        assert_eq!(exists, [false, false, false, true]);
        fs::remove_dir_all(&root).unwrap();
    }
}
