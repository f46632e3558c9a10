//! The output of `cargo metadata` for this workspace, and the marks that crates set in `[package.metadata.pronto]`.
//!
//! Stages find their work here instead of listing crates, so a new crate joins a stage with one line in its own manifest.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The workspace that this program was built from.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The folder of the root manifest.
    pub(crate) root: PathBuf,
    /// The target folder of cargo. Stages with other compiler flags build in folders below it.
    pub(crate) target: PathBuf,
    /// The packages of the workspace.
    pub(crate) packages: Vec<Package>,
}

/// A member of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) targets: Vec<Target>,
    marks: Value,
}

/// A target of a package.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// Features of the package without which cargo does not build the target.
    pub(crate) required_features: Vec<String>,
}

impl Workspace {
    /// Reads the metadata of the workspace that contains this program.
    ///
    /// # Errors
    /// Cargo does not start, or a manifest is invalid.
    pub(crate) fn discover() -> Result<Self> {
        // Runs at the root: inside a package, cargo would regard that package as the default one.
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        Self::read(&metadata(root, &["--no-deps"])?)
    }

    fn read(metadata: &Value) -> Result<Self> {
        let text =
            |key: &str| metadata[key].as_str().with_context(|| format!("cargo metadata has no `{key}`"));
        let list =
            |key: &str| metadata[key].as_array().with_context(|| format!("cargo metadata has no `{key}`"));
        let mut packages = Vec::new();
        for entry in list("packages")? {
            packages.push(Package::read(entry)?);
        }
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { root: text("workspace_root")?.into(), target: text("target_directory")?.into(), packages })
    }

    /// Returns the packages whose manifest sets `mark = true` under `[package.metadata.pronto]`.
    pub(crate) fn marked<'a>(&'a self, mark: &'a str) -> impl Iterator<Item = &'a Package> {
        self.packages.iter().filter(move |package| package.has(mark))
    }
}

impl Package {
    fn read(entry: &Value) -> Result<Self> {
        let name = entry["name"].as_str().context("a package without a name")?;
        let manifest = Path::new(entry["manifest_path"].as_str().context("a package without a manifest")?);
        let mut targets = Vec::new();
        for target in entry["targets"].as_array().context("a package without targets")? {
            let name = target["name"].as_str().context("a target without a name")?;
            let kind = target["kind"][0].as_str().context("a target without a kind")?;
            let features = target["required-features"].as_array().map_or(&[][..], Vec::as_slice);
            targets.push(Target {
                name: name.into(),
                kind: kind.into(),
                required_features: features.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            });
        }
        Ok(Self {
            name: name.into(),
            folder: manifest.parent().context("a manifest without a folder")?.into(),
            targets,
            marks: entry["metadata"]["pronto"].clone(),
        })
    }

    /// Returns whether the manifest sets `mark = true` under `[package.metadata.pronto]`.
    pub(crate) fn has(&self, mark: &str) -> bool {
        self.marks[mark] == Value::Bool(true)
    }

    /// Returns the value under `[package.metadata.pronto.mark]`.
    pub(crate) fn mark(&self, mark: &str) -> Option<&Value> {
        self.marks.get(mark)
    }

    /// Returns the names of the targets of one kind (`bin`, `test`, ...).
    pub(crate) fn targets_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a str> {
        self.targets.iter().filter(move |t| t.kind == kind).map(|t| t.name.as_str())
    }
}

/// Returns the cargo that runs this program, or `cargo` if this program was started directly.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// Runs `cargo metadata` with `arguments` in `folder`.
///
/// # Errors
/// Cargo does not start, fails (its message is on stderr), or prints invalid JSON.
pub(crate) fn metadata(folder: &Path, arguments: &[&str]) -> Result<Value> {
    let output = Command::new(cargo())
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(folder)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed in {}", folder.display());
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed invalid JSON")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A package for [`workspace`]: its name, its marks, its targets as (kind, name).
    pub(crate) type Sample<'a> = (&'a str, Value, &'a [(&'a str, &'a str)]);

    /// Returns a workspace at `/w` with the given packages.
    pub(crate) fn workspace(packages: &[Sample<'_>]) -> Workspace {
        let entries: Vec<Value> = packages
            .iter()
            .map(|(name, marks, targets)| {
                let targets: Vec<Value> =
                    targets.iter().map(|(kind, name)| json!({ "kind": [kind], "name": name })).collect();
                json!({
                    "id": name, "name": name, "manifest_path": format!("/w/{name}/Cargo.toml"),
                    "targets": targets, "metadata": { "pronto": marks },
                })
            })
            .collect();
        let metadata = json!({
            "packages": entries, "workspace_root": "/w", "target_directory": "/w/target",
        });
        Workspace::read(&metadata).unwrap()
    }

    #[test]
    fn a_mark_counts_only_when_it_is_true() {
        let workspace = workspace(&[
            ("a", json!({ "loom": true }), &[("lib", "a")]),
            ("b", json!({ "loom": false }), &[("lib", "b")]),
            ("c", Value::Null, &[("lib", "c"), ("test", "faults_kill")]),
        ]);
        let names: Vec<_> = workspace.marked("loom").map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["a"]);
        assert_eq!(workspace.packages[2].targets_of("test").collect::<Vec<_>>(), ["faults_kill"]);
    }

    #[test]
    fn this_workspace_has_members() {
        let workspace = Workspace::discover().unwrap();
        assert!(workspace.packages.iter().any(|package| package.name == "pronto-xtask"));
    }

    #[test]
    fn metadata_of_an_unknown_shape_is_an_error() {
        assert!(Workspace::read(&json!({ "packages": [] })).is_err());
    }
}
