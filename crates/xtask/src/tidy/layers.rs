//! Folders whose modules may depend on each other in one direction only.

use std::collections::{BTreeMap, BTreeSet};

use super::{Tree, rust};

/// The folders, each with a `mod.rs`, and the module path that code uses for them.
const FOLDERS: &[(&str, &str)] = &[("comm-core/src/session", "crate::session")];

/// Reports a cycle among the modules of such a folder.
pub(super) fn one_direction(tree: &Tree) -> Vec<String> {
    FOLDERS.iter().flat_map(|(folder, path)| cycle(tree, folder, path)).collect()
}

/// Returns a message with a cycle among the modules of a folder, if there is one.
fn cycle(tree: &Tree, folder: &str, path: &str) -> Option<String> {
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, text) in rust(tree) {
        let Some(inside) = file.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else {
            continue;
        };
        let module = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
        let is_test = inside.contains("tests");
        if module != "mod" && !is_test {
            uses.entry(module).or_default().extend(named(text, path, inside));
        }
    }
    let modules: BTreeSet<&str> = uses.keys().copied().collect();
    for (module, named) in &mut uses {
        named.retain(|name| modules.contains(name) && name != module);
    }
    // Removes modules that depend on no remaining module, until nothing changes.
    while let Some(free) = uses.iter().find(|(_, named)| named.is_empty()).map(|(module, _)| *module) {
        uses.remove(free);
        uses.values_mut().for_each(|named| {
            named.remove(free);
        });
    }
    // Each remaining module depends on another remaining one, so following these dependencies leads back to a module passed before.
    let mut passed = vec![*uses.keys().next()?];
    loop {
        let next = *uses.get(passed.last()?)?.first()?;
        if let Some(at) = passed.iter().position(|module| *module == next) {
            passed.drain(..at);
            passed.push(next);
            return Some(format!("{folder}: modules depend on each other: {}", passed.join(" -> ")));
        }
        passed.push(next);
    }
}

/// Returns the modules of the folder that a file uses in its code, without its comments and unit tests.
fn named<'t>(text: &'t str, path: &str, inside: &str) -> Vec<&'t str> {
    let above = inside.matches('/').count() + usize::from(!inside.ends_with("/mod.rs"));
    let relative = vec!["super"; above].join("::");
    let code = text.split("\n#[cfg(all(test").next().unwrap_or(text);
    let code = code.split("\n#[cfg(test)]\nmod").next().unwrap_or(code);
    let mut names = Vec::new();
    let mut only_docs = false;
    for line in code.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
        if !only_docs {
            for prefix in [path, relative.as_str()] {
                let prefix = format!("{prefix}::");
                for (at, _) in line.match_indices(&prefix) {
                    let is_whole =
                        !line[..at].ends_with(|c: char| c == ':' || c.is_alphanumeric() || c == '_');
                    let rest = &line[at + prefix.len()..];
                    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                    if is_whole {
                        names.push(&rest[..end]);
                    }
                }
            }
        }
        only_docs = line == "#[cfg(doc)]";
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const PATH: &str = "crate::session";

    #[test]
    fn a_cycle_is_named() {
        let files = tree(&[
            ("s/mod.rs", "mod a; mod b; mod c;"),
            ("s/a.rs", "use super::b::B;"),
            ("s/b/mod.rs", "use super::c::C;\nmod d;"),
            ("s/b/d.rs", "use super::super::c::C;"),
            ("s/c.rs", "fn c(a: crate::session::a::A) {}"),
        ]);
        let found = cycle(&files, "s", PATH);
        assert_eq!(found.as_deref(), Some("s: modules depend on each other: a -> b -> c -> a"));
    }

    #[test]
    fn comments_tests_and_children_are_not_dependencies() {
        let files = tree(&[
            ("s/mod.rs", "mod a; mod b;"),
            ("s/a/mod.rs", "use super::b::B;\nmod d;"),
            ("s/a/d.rs", "use super::A;\nuse crate::session::b::B;"),
            (
                "s/b.rs",
                "// super::a::A\n#[cfg(doc)]\nuse super::a::A;\n\n#[cfg(all(test, not(loom)))]\nmod tests {\n    use super::super::a::A;\n}",
            ),
            ("s/b/tests.rs", "use crate::session::a::A;"),
        ]);
        assert_eq!(cycle(&files, "s", PATH), None);
    }
}
