//! The copy in which mistakes are made: the crate, alone in a workspace of its own, below the target folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::workspace::{Package, Workspace};

/// A crate that may be spoiled.
#[derive(Debug)]
pub(super) struct Copy {
    /// Of the small workspace.
    pub(super) root: PathBuf,
    member: PathBuf,
    original: PathBuf,
}

impl Copy {
    /// Copies `package`; what an earlier run left there goes.
    ///
    /// # Errors
    /// Something cannot be read or written.
    pub(super) fn make(workspace: &Workspace, package: &Package) -> Result<Self> {
        let root = workspace.target.join("mutate");
        let member = root.join("crate");
        if member.exists() {
            fs::remove_dir_all(&member).with_context(|| format!("cannot clear {}", member.display()))?;
        }
        copy_folder(&package.folder, &member)?;
        let manifest = fs::read_to_string(workspace.root.join("Cargo.toml")).context("the root manifest")?;
        fs::write(root.join("Cargo.toml"), alone(&manifest)?).context("cannot write a manifest")?;
        fs::copy(workspace.root.join("Cargo.lock"), root.join("Cargo.lock")).context("the lock file")?;
        Ok(Self { root, member, original: package.folder.clone() })
    }

    /// The source as it is in the tree.
    pub(super) fn source(&self, file: &str) -> Result<String> {
        let path = source_in(&self.original, file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Puts `text` in the place of the copy of a source.
    pub(super) fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = source_in(&self.member, file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn source_in(folder: &Path, file: &str) -> PathBuf {
    folder.join("src/policy").join(file)
}

/// The root manifest with a single member, which depends on nothing in the workspace.
fn alone(manifest: &str) -> Result<String> {
    let mut manifest: Table = manifest.parse().context("the root manifest")?;
    let workspace = manifest
        .get_mut("workspace")
        .and_then(Value::as_table_mut)
        .context("the root manifest has no workspace")?;
    workspace.insert("members".into(), Value::Array(vec!["crate".into()]));
    workspace.remove("default-members");
    if let Some(dependencies) = workspace.get_mut("dependencies").and_then(Value::as_table_mut) {
        dependencies.retain(|_, dependency| dependency.get("path").is_none());
    }
    Ok(manifest.to_string())
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry.with_context(|| format!("cannot list {}", from.display()))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &target)?;
        } else {
            fs::copy(&path, &target).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_workspace_keeps_lints_and_versions_and_drops_neighbours() {
        let manifest = "[workspace]\nmembers = [\"a\", \"b\"]\ndefault-members = [\"a\"]\n\
            [workspace.package]\nversion = \"1.0.0\"\n\
            [workspace.dependencies]\na = { path = \"a\" }\nserde = \"1\"\n\
            [workspace.lints.rust]\nmissing_docs = \"warn\"\n";
        let alone: Table = alone(manifest).unwrap().parse().unwrap();
        let workspace = &alone["workspace"];
        assert_eq!(workspace["members"].as_array().unwrap().len(), 1);
        assert!(workspace.get("default-members").is_none() && workspace["dependencies"].get("a").is_none());
        assert_eq!(workspace["dependencies"]["serde"].as_str(), Some("1"));
        assert!(workspace.get("lints").is_some() && workspace.get("package").is_some());
    }
}
