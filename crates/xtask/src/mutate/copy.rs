//! The copy in which faults are planted: a crate and its dependencies, as a small workspace below the target folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::workspace::{Package, Workspace};

/// A copy of a crate and of the workspace crates that it depends on.
#[derive(Debug)]
pub(super) struct Copy {
    /// The root of the small workspace.
    pub(super) root: PathBuf,
    /// The folder of the sources: in the copy, and in the tree.
    sources: [PathBuf; 2],
}

impl Copy {
    /// Copies `packages` and the workspace packages that they depend on. Faults are planted in the folder `sources` of the first
    /// package. Removes the sources of an earlier run, and keeps its build output.
    ///
    /// # Errors
    /// A file or folder cannot be read or written.
    pub(super) fn make(workspace: &Workspace, packages: &[&Package], sources: &str) -> Result<Self> {
        let spoiled = packages.first().context("no package is copied")?;
        let root = workspace.target.join("mutate").join(&spoiled.name);
        let manifest = fs::read_to_string(workspace.root.join("Cargo.toml")).context("the root manifest")?;
        let manifest: Table = manifest.parse().context("the root manifest")?;
        let mut begin = BTreeSet::new();
        for package in packages {
            begin.insert(below(workspace, &package.folder)?);
        }
        let folders = with_dependencies(&manifest, begin, |folder| {
            let path = workspace.root.join(folder).join("Cargo.toml");
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            text.parse().with_context(|| format!("{} is invalid", path.display()))
        })?;
        for folder in &folders {
            let copy = root.join(folder);
            if copy.exists() {
                fs::remove_dir_all(&copy).with_context(|| format!("cannot clear {}", copy.display()))?;
            }
            copy_folder(&workspace.root.join(folder), &copy)?;
        }
        let small = small_workspace(manifest, &folders)?;
        fs::write(root.join("Cargo.toml"), small.to_string()).context("cannot write a manifest")?;
        fs::copy(workspace.root.join("Cargo.lock"), root.join("Cargo.lock")).context("the lock file")?;
        let sources = [root.join(below(workspace, &spoiled.folder)?), spoiled.folder.clone()]
            .map(|folder| folder.join(sources));
        Ok(Self { root, sources })
    }

    /// Returns the source as it is in the tree.
    pub(super) fn source(&self, file: &str) -> Result<String> {
        let path = self.sources[1].join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Replaces the copy of a source by `text`.
    pub(super) fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.sources[0].join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Returns the folder of a package, relative to the workspace.
fn below(workspace: &Workspace, folder: &Path) -> Result<String> {
    let relative = folder.strip_prefix(&workspace.root);
    let relative = relative.with_context(|| format!("{} is outside of the workspace", folder.display()))?;
    Ok(relative.to_str().context("the name of a folder is not valid UTF-8")?.to_owned())
}

/// Returns `folders` and those of all packages that theirs depend on, including dev-dependencies. `read` returns the manifest of a folder.
fn with_dependencies(
    root: &Table,
    folders: BTreeSet<String>,
    read: impl Fn(&str) -> Result<Table>,
) -> Result<BTreeSet<String>> {
    let known = root.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let mut waiting: Vec<_> = folders.iter().cloned().collect();
    let mut found = folders;
    while let Some(folder) = waiting.pop() {
        let manifest = read(&folder)?;
        for name in dependencies(&manifest) {
            let path = known.and_then(|known| known.get(name)?.get("path")?.as_str());
            if let Some(path) = path
                && found.insert(path.to_owned())
            {
                waiting.push(path.to_owned());
            }
        }
    }
    Ok(found)
}

/// Returns the names of all dependencies of a package, of each kind and for each target.
fn dependencies(manifest: &Table) -> impl Iterator<Item = &str> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let tables = core::iter::once(manifest).chain(targets);
    let lists = tables.flat_map(|table| KINDS.iter().filter_map(|kind| table.get(*kind)?.as_table()));
    lists.flat_map(Table::keys).map(String::as_str)
}

/// Returns the root manifest with the packages in `folders` as its only members.
fn small_workspace(mut manifest: Table, folders: &BTreeSet<String>) -> Result<Table> {
    let workspace = manifest
        .get_mut("workspace")
        .and_then(Value::as_table_mut)
        .context("the root manifest has no workspace")?;
    let members = folders.iter().map(|folder| Value::String(folder.clone()));
    workspace.insert("members".into(), Value::Array(members.collect()));
    workspace.remove("default-members");
    if let Some(dependencies) = workspace.get_mut("dependencies").and_then(Value::as_table_mut) {
        dependencies.retain(|_, dependency| {
            let path = dependency.get("path").and_then(Value::as_str);
            path.is_none_or(|path| folders.contains(path))
        });
    }
    Ok(manifest)
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

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    fn root() -> Table {
        table(
            "[workspace]\nmembers = [\"a\", \"c/b\", \"c/d\", \"e\"]\ndefault-members = [\"a\"]\n\
            [workspace.package]\nversion = \"1.0.0\"\n\
            [workspace.dependencies]\na = { path = \"a\" }\nb = { path = \"c/b\" }\nd = { path = \"c/d\" }\n\
            e = { path = \"e\" }\nserde = \"1\"\n\
            [workspace.lints.rust]\nmissing_docs = \"warn\"\n",
        )
    }

    fn set(folders: &[&str]) -> BTreeSet<String> {
        folders.iter().map(|&folder| folder.to_owned()).collect()
    }

    #[test]
    fn a_copy_contains_dependencies_and_dev_dependencies() {
        let read = |folder: &str| {
            Ok(table(match folder {
                "a" => "[dependencies]\nb.workspace = true\nserde.workspace = true\n",
                "c/b" => "[target.'cfg(loom)'.dev-dependencies]\nd.workspace = true\n",
                "c/d" => "[dev-dependencies]\nb.workspace = true\n",
                _ => unreachable!("nothing depends on {folder}"),
            }))
        };
        assert_eq!(with_dependencies(&root(), set(&["a"]), read).unwrap(), set(&["a", "c/b", "c/d"]));
    }

    #[test]
    fn the_small_workspace_keeps_lints_and_versions_and_drops_other_members() {
        let small = small_workspace(root(), &set(&["a", "c/b"])).unwrap();
        let workspace = &small["workspace"];
        assert_eq!(workspace["members"], Value::Array(vec!["a".into(), "c/b".into()]));
        assert!(workspace.get("default-members").is_none());
        let dependencies = workspace["dependencies"].as_table().unwrap();
        assert_eq!(dependencies.keys().collect::<Vec<_>>(), ["a", "b", "serde"]);
        assert!(workspace.get("lints").is_some() && workspace.get("package").is_some());
    }
}
