//! The policy in deny.toml, and its objections to a dependency.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use flate2::Crc;
use serde_json::Value;
use toml::Table;

use super::spdx;

/// The rules of deny.toml.
#[derive(Debug, Default)]
pub(super) struct Policy {
    licences: Vec<String>,
    exceptions: Vec<(String, Vec<String>)>,
    clarified: Vec<Clarified>,
    /// Crates, each with the only packages that may use it directly.
    banned: Vec<(String, Vec<String>)>,
    registries: Vec<String>,
}

/// The licence of a package that states none in its manifest, as a person has read it in a file of the package.
#[derive(Debug)]
struct Clarified {
    name: String,
    licence: String,
    /// The files, and the CRC-32 of the content that was read.
    files: Vec<(String, u32)>,
}

impl Clarified {
    fn read(at: &str, entry: &toml::Value) -> Result<Self> {
        let text = |value: &toml::Value, key: &str| {
            let found = value.get(key).and_then(toml::Value::as_str).map(str::to_owned);
            found.with_context(|| format!("an entry of `{at}` has no text `{key}`"))
        };
        let files = entry.get("license-files").and_then(toml::Value::as_array);
        let files = files.with_context(|| format!("an entry of `{at}` names no files"))?;
        let file = |file: &toml::Value| {
            let hash = file.get("hash").and_then(toml::Value::as_integer);
            let hash = hash.and_then(|hash| u32::try_from(hash).ok());
            Ok((text(file, "path")?, hash.with_context(|| format!("a file of `{at}` has no hash"))?))
        };
        Ok(Self {
            name: crate_name(at, entry)?,
            licence: text(entry, "expression")?,
            files: files.iter().map(file).collect::<Result<_>>()?,
        })
    }

    /// Returns whether every file still has the content that was read.
    fn holds(&self, dependency: &Dependency) -> bool {
        self.files.iter().all(|(path, hash)| {
            let text = std::fs::read(dependency.folder.join(path)).unwrap_or_default();
            let mut crc = Crc::new();
            crc.update(&text);
            crc.sum() == *hash
        })
    }
}

/// A package of the dependency graph, including those of the workspace.
#[derive(Debug)]
pub(super) struct Dependency {
    name: String,
    version: String,
    licence: Option<String>,
    /// The registry or repository; `None` for a folder on this machine.
    source: Option<String>,
    /// Whether the package belongs to this workspace.
    is_own: bool,
    folder: PathBuf,
    /// Names of the packages that depend on it directly.
    users: Vec<String>,
}

impl Dependency {
    pub(super) fn read<'a>(package: &Value, users: impl Iterator<Item = &'a str>) -> Result<Self> {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        Ok(Self {
            name: text("name").context("a package without a name")?,
            version: text("version").context("a package without a version")?,
            licence: text("license"),
            source: text("source"),
            is_own: package["source"].is_null(),
            folder: text("manifest_path")
                .map(PathBuf::from)
                .and_then(|at| Some(at.parent()?.into()))
                .unwrap_or_default(),
            users: users.map(str::to_owned).collect(),
        })
    }
}

impl Policy {
    /// Reads the text of deny.toml.
    ///
    /// # Errors
    /// The text is not TOML, or contains a key that only cargo-deny understands: a rule must not look applied if it is not.
    pub(super) fn read(text: &str) -> Result<Self> {
        let mut policy = Self::default();
        for (section, keys) in &text.parse::<Table>()? {
            let keys = keys.as_table().with_context(|| format!("`{section}` is not a table"))?;
            for (key, value) in keys {
                let at = format!("{section}.{key}");
                match at.as_str() {
                    "licenses.allow" => policy.licences = strings(&at, value)?,
                    "licenses.exceptions" => policy.exceptions = exceptions(&at, value)?,
                    "licenses.clarify" => {
                        let entries = value.as_array().with_context(|| format!("`{at}` is not a list"))?;
                        let read = |entry| Clarified::read(&at, entry);
                        policy.clarified = entries.iter().map(read).collect::<Result<_>>()?;
                    }
                    "bans.deny" => policy.banned = bans(&at, value)?,
                    "sources.allow-registry" => policy.registries = strings(&at, value)?,
                    // These keys set the severity of cargo-deny. Here, everything unknown is an objection.
                    "sources.unknown-registry" | "sources.unknown-git" if value.as_str() == Some("deny") => {}
                    "licenses.unused-allowed-license" | "bans.multiple-versions" | "bans.wildcards" => {}
                    _ => bail!("`{at}` is not supported"),
                }
            }
        }
        Ok(policy)
    }

    /// Returns the reasons why this dependency may not be used; empty if it may be used.
    pub(super) fn objections(&self, dependency: &Dependency) -> Vec<String> {
        let Dependency { name, version, .. } = dependency;
        let mut objections = Vec::new();
        let mut object = |why: String| objections.push(format!("{name} {version}: {why}"));
        let extra = self.exceptions.iter().filter(|(of, _)| of == name).flat_map(|(_, licences)| licences);
        let allowed: Vec<&str> = self.licences.iter().chain(extra).map(String::as_str).collect();
        let clarified = self.clarified.iter().find(|known| known.name == *name && known.holds(dependency));
        match dependency.licence.as_ref().or_else(|| clarified.map(|known| &known.licence)) {
            None => object("states no licence".into()),
            Some(licence) => match spdx::satisfied(licence, |term| allowed.contains(&term)) {
                Ok(true) => {}
                Ok(false) => object(format!("its licence, {licence}, is not allowed")),
                Err(error) => object(format!("its licence, {licence}, is unreadable: {error}")),
            },
        }
        if let Some((_, wrappers)) = self.banned.iter().find(|(banned, _)| banned == name) {
            let others: Vec<_> = dependency.users.iter().filter(|user| !wrappers.contains(user)).collect();
            if wrappers.is_empty() || !others.is_empty() {
                object(format!("is banned, and used by {others:?}"));
            }
        }
        let source = dependency.source.as_deref();
        let known = |source: &str| {
            source
                .strip_prefix("registry+")
                .is_some_and(|url| self.registries.iter().any(|known| known == url))
        };
        if !dependency.is_own && !source.is_some_and(known) {
            object(format!("comes from {}, which is not an allowed registry", source.unwrap_or("nowhere")));
        }
        objections
    }
}

fn strings(at: &str, value: &toml::Value) -> Result<Vec<String>> {
    let list = value.as_array().with_context(|| format!("`{at}` is not a list"))?;
    list.iter()
        .map(|v| {
            Ok(v.as_str().with_context(|| format!("`{at}` contains a value that is not a text"))?.to_owned())
        })
        .collect()
}

/// Reads banned crates: each a text, or a table with the key `crate`, and with `wrappers` if some packages may use it.
fn bans(at: &str, value: &toml::Value) -> Result<Vec<(String, Vec<String>)>> {
    let list = value.as_array().with_context(|| format!("`{at}` is not a list"))?;
    list.iter()
        .map(|entry| {
            let wrappers = entry.get("wrappers").map(|wrappers| strings(at, wrappers)).transpose()?;
            Ok((crate_name(at, entry)?, wrappers.unwrap_or_default()))
        })
        .collect()
}

fn crate_name(at: &str, entry: &toml::Value) -> Result<String> {
    let name = entry.as_str().or_else(|| entry.get("crate")?.as_str());
    Ok(name.with_context(|| format!("an entry of `{at}` names no crate"))?.to_owned())
}

fn exceptions(at: &str, value: &toml::Value) -> Result<Vec<(String, Vec<String>)>> {
    let list = value.as_array().with_context(|| format!("`{at}` is not a list"))?;
    list.iter()
        .map(|entry| {
            let allow = entry.get("allow").with_context(|| format!("an entry of `{at}` allows nothing"))?;
            Ok((crate_name(at, entry)?, strings(at, allow)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &str = r#"
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        exceptions = [{ crate = "odd", allow = ["Zlib"] }]
        [bans]
        deny = [{ crate = "openssl", reason = "x" }, "time", { crate = "tokio", wrappers = ["ours"] }]
        [sources]
        unknown-registry = "deny"
        allow-registry = ["https://good"]
    "#;

    fn objections(name: &str, licence: Option<&str>, source: Option<&str>) -> usize {
        let package = json!({ "name": name, "version": "1.0.0", "license": licence, "source": source });
        of(&package, &[])
    }

    fn of(package: &Value, users: &[&str]) -> usize {
        let dependency = Dependency::read(package, users.iter().copied()).unwrap();
        Policy::read(TEXT).unwrap().objections(&dependency).len()
    }

    #[test]
    fn a_banned_crate_may_be_used_by_its_wrappers_only() {
        let package = |name| json!({ "name": name, "version": "1.0.0", "license": "MIT", "source": "registry+https://good" });
        assert_eq!(of(&package("tokio"), &["ours"]), 0);
        assert_eq!(of(&package("tokio"), &["ours", "another"]), 1);
        assert_eq!(of(&package("time"), &["ours"]), 1);
    }

    #[test]
    fn each_rule_objects_to_violations() {
        let good = Some("registry+https://good");
        assert_eq!(objections("fine", Some("MIT OR GPL-3.0"), good), 0);
        assert_eq!(objections("strict", Some("GPL-3.0"), good), 1);
        assert_eq!(objections("silent", None, good), 1);
        assert_eq!(objections("odd", Some("Zlib"), good), 0);
        assert_eq!(objections("even", Some("Zlib"), good), 1);
        assert_eq!(objections("openssl", Some("MIT"), good), 1);
        assert_eq!(objections("time", Some("MIT"), good), 1);
        assert_eq!(objections("forked", Some("MIT"), Some("git+https://good")), 1);
        assert_eq!(objections("elsewhere", Some("MIT"), Some("registry+https://bad")), 1);
        assert_eq!(objections("ours", Some("MIT"), None), 0);
    }

    #[test]
    fn a_clarified_licence_holds_until_its_file_changes() {
        let folder = std::env::temp_dir().join(format!("pronto-clarified-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("LICENSE"), "123456789").unwrap();
        let objections = |hash: u32| {
            let files = format!("license-files = [{{ path = \"LICENSE\", hash = {hash} }}]");
            let entry = format!("{{ crate = \"silent\", expression = \"MIT\", {files} }}");
            let policy =
                Policy::read(&format!("[licenses]\nallow = [\"MIT\"]\nclarify = [{entry}]")).unwrap();
            let package =
                json!({ "name": "silent", "version": "1.0.0", "manifest_path": folder.join("Cargo.toml") });
            policy.objections(&Dependency::read(&package, [].into_iter()).unwrap()).len()
        };
        // The check value of CRC-32.
        assert_eq!(objections(0xcbf4_3926), 0);
        assert_eq!(objections(1), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_unsupported_rule_is_an_error() {
        assert!(Policy::read("[bans]\nskip-tree = []").is_err());
        assert!(Policy::read("[sources]\nunknown-git = \"allow\"").is_err());
        assert!(Policy::read("[licenses]\nallow = \"MIT\"").is_err());
    }
}
