//! The licences of the crates that the programs are linked with, which ask to be shipped with them.

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace::{Workspace, metadata};

/// How names of licence files begin, in capitals.
const LICENCES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// One text: every crate that is linked into `roots` built with `features`, its licence, and the text of that, each text once.
///
/// # Errors
/// Cargo does not say what is linked, or a licence cannot be read.
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
        for licence in licences(manifest.parent().context("a manifest lies in a folder")?)? {
            texts.entry(licence).or_default().insert(name.clone());
        }
    }
    for (text, crates) in texts {
        let crates: Vec<_> = crates.into_iter().collect();
        write!(list, "\n{}\n{}:\n\n{}\n", "-".repeat(72), crates.join(", "), text.trim())?;
    }
    Ok(list)
}

/// Packages of others that are linked into the workspace's packages `roots`, sorted by name.
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

/// The licence texts in a crate's folder.
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
    fn only_what_is_linked_is_listed_however_far_down() {
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
    fn every_crate_that_ships_is_named_with_a_licence() {
        let workspace = Workspace::discover().expect("this is a workspace");
        let text = of(&workspace, super::super::FEATURES, &["pronto-daemon", "pronto-bench"])
            .expect("crates are here");
        let (list, texts) = text.split_once("----").expect("licences follow the list");
        assert!(list.contains("\nclap 4") && list.contains("\nrdma-mummy-sys "), "{list}");
        assert!(!list.contains("\npronto") && !list.contains("\nloom "), "{list}");
        assert!(texts.contains("Permission is hereby granted") && texts.contains("Apache License"));
    }
}
