//! The licences of the linked crates, which must be shipped with the programs.

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace::{Workspace, metadata};

/// Beginnings of the names of licence files, in upper case.
const LICENCES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Returns a text with every crate that is linked into `roots` (built with `features`), its licence, and each licence text once.
///
/// # Errors
/// Cargo does not report the linked crates, or a licence file cannot be read.
pub(super) fn of(workspace: &Workspace, features: &str, roots: &[&str]) -> Result<String> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["--locked", "--features", features, "--filter-platform", &platform];
    let metadata = metadata(&workspace.root, &arguments)?;
    let packages = linked(&metadata, roots)?;
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut list = String::from(
        "The programs are linked with the Rust standard library (MIT OR Apache-2.0) and with these crates:\n\n",
    );
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or("see its text below");
        let name = format!("{} {}", text("name"), text("version"));
        writeln!(list, "{name}: {}", text("license"))?;
        let manifest = Path::new(text("manifest_path"));
        for licence in licences(manifest.parent().context("the manifest has a parent folder")?)? {
            texts.entry(licence).or_default().insert(name.clone());
        }
    }
    for (text, crates) in texts {
        let crates: Vec<_> = crates.into_iter().collect();
        write!(list, "\n{}\n{}:\n\n{}\n", "-".repeat(72), crates.join(", "), text.trim())?;
    }
    Ok(list)
}

/// Returns the third-party packages that are linked into the workspace's packages `roots`, sorted by name.
fn linked<'a>(metadata: &'a Value, roots: &[&str]) -> Result<Vec<&'a Value>> {
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata has no dependency graph")?;
    let is_root =
        |package: &&Value| roots.iter().any(|root| package["name"] == *root && package["source"].is_null());
    let mut open: Vec<&str> =
        packages.iter().filter(is_root).filter_map(|package| package["id"].as_str()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == id);
        let dependencies = node.and_then(|node| node["deps"].as_array()).into_iter().flatten();
        let is_linked = |dependency: &&Value| {
            dependency["dep_kinds"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        };
        open.extend(dependencies.filter(is_linked).filter_map(|dependency| dependency["pkg"].as_str()));
    }
    let is_other = |package: &&Value| {
        !package["source"].is_null() && package["id"].as_str().is_some_and(|id| seen.contains(id))
    };
    let mut linked: Vec<_> = packages.iter().filter(is_other).collect();
    linked.sort_by_key(|package| (package["name"].as_str(), package["version"].as_str()));
    Ok(linked)
}

/// Returns the licence texts in the folder of a crate.
fn licences(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && LICENCES.iter().any(|licence| name.starts_with(licence)) {
            let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            texts.push(String::from_utf8_lossy(&text).into_owned());
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_linked_crates_are_listed_also_indirect_ones() {
        let package =
            |name: &str, source: Value| json!({ "id": name, "name": name, "version": "1", "source": source });
        let dependency = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [package("ours", Value::Null), package("core", Value::Null), package("b", json!("r")),
                         package("a", json!("r")), package("tests", json!("r")), package("elsewhere", json!("r"))],
            "resolve": { "nodes": [
                { "id": "ours", "deps": [dependency("core", Value::Null), dependency("tests", json!("dev"))] },
                { "id": "core", "deps": [dependency("b", Value::Null)] },
                { "id": "b", "deps": [dependency("a", Value::Null)] },
            ] },
        });
        let names: Vec<_> =
            linked(&metadata, &["ours"]).unwrap().iter().map(|package| package["name"].clone()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn every_shipped_crate_is_listed_with_its_licence() {
        let workspace = Workspace::discover().expect("the workspace exists");
        let text = of(&workspace, super::super::FEATURES, &["pronto-daemon", "pronto-bench"])
            .expect("the crates are downloaded");
        let (list, texts) = text.split_once("----").expect("the licences follow the list");
        assert!(list.contains("\nclap 4") && list.contains("\nrdma-mummy-sys "), "{list}");
        assert!(!list.contains("\npronto") && !list.contains("\nloom "), "{list}");
        assert!(texts.contains("Permission is hereby granted") && texts.contains("Apache License"));
    }
}
