//! The list of a crate's faults, and the application of a fault to a source.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The path of the list, in the crate in which its faults are planted.
pub(super) const LIST: &str = "mutations.toml";

/// Beginnings of the unit tests of a source. No fault is planted after it.
const TESTS: &[&str] = &["#[cfg(test)]\nmod tests", "#[cfg(all(test, not(loom)))]\nmod tests"];

/// A fault to plant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutation {
    /// The source file, relative to the subject's folder of sources.
    pub(super) file: String,
    /// The text to replace, which occurs once.
    from: String,
    /// The replacement.
    to: String,
    /// The property that the fault breaks.
    pub(super) breaks: String,
    /// The test of `pronto-sim` that must fail. Without one, a test of the crate itself must fail.
    pub(super) simulation: Option<String>,
    /// The name of a test that fails. It is run first: if it does fail, the others need not run.
    pub(super) detected_by: Option<String>,
}

#[derive(Debug, Deserialize)]
struct List {
    mutation: Vec<Mutation>,
}

/// Returns all mutations of the crate in `folder`, in the order of the list.
///
/// # Errors
/// The list is missing, is not TOML of the known format, or is empty.
pub(super) fn read(folder: &Path) -> Result<Vec<Mutation>> {
    let path = folder.join(LIST);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let list: List = toml::from_str(&text).with_context(|| format!("{} is invalid", path.display()))?;
    ensure!(!list.mutation.is_empty(), "{} contains no mutation", path.display());
    Ok(list.mutation)
}

impl Mutation {
    /// Returns whether the fault is in the source that `file` names: its path, or the last parts of it.
    pub(super) fn is_of(&self, file: &str) -> bool {
        let before = self.file.strip_suffix(file);
        before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    }

    /// Returns `source` with the fault.
    ///
    /// # Errors
    /// The text to replace does not occur exactly once before the tests, or the replacement is identical. If the code was changed, the
    /// list must be updated.
    pub(super) fn applied(&self, source: &str) -> Result<String> {
        planted(source, [&self.from, &self.to]).with_context(|| self.file.clone())
    }
}

/// Returns `source` with its text `from` replaced by `to`.
///
/// # Errors
/// `from` does not occur exactly once before the tests, or `to` is identical.
pub(crate) fn planted(source: &str, [from, to]: [&str; 2]) -> Result<String> {
    let tests = TESTS.iter().filter_map(|tests| source.find(tests)).min();
    let (rule, tests) = source.split_at(tests.unwrap_or(source.len()));
    let found = rule.matches(from).count();
    ensure!(found == 1, "`{from}` occurs {found} times, expected once");
    ensure!(from != to, "`{from}` is replaced by itself");
    Ok(rule.replacen(from, to, 1) + tests)
}

/// Returns the first mutation of each file.
pub(super) fn first_of_each_file(mutations: &[Mutation]) -> Vec<&Mutation> {
    let is_first =
        |(place, m): &(usize, &Mutation)| !mutations[..*place].iter().any(|other| other.file == m.file);
    mutations.iter().enumerate().filter(is_first).map(|(_, m)| m).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutation(file: &str, from: &str, to: &str) -> Mutation {
        let breaks = "it".into();
        Mutation {
            file: file.into(),
            from: from.into(),
            to: to.into(),
            breaks,
            simulation: None,
            detected_by: None,
        }
    }

    #[test]
    fn only_the_rule_is_changed_not_its_tests() {
        for mark in TESTS {
            let source = format!("fn two() {{ 2 }}\n{mark} {{ 2 }}\n");
            let changed = mutation("two.rs", "2", "3").applied(&source).unwrap();
            assert_eq!(changed, format!("fn two() {{ 3 }}\n{mark} {{ 2 }}\n"));
        }
    }

    #[test]
    fn a_text_that_does_not_occur_once_is_an_error() {
        for (source, from, to) in [("a b", "c", "d"), ("a a", "a", "b"), ("a", "a", "a")] {
            assert!(mutation("x.rs", from, to).applied(source).is_err(), "{source}");
        }
    }

    #[test]
    fn a_source_is_named_by_the_last_parts_of_its_path() {
        let fault = mutation("session/calls/open.rs", "1", "2");
        for (file, is_of) in
            [("open.rs", true), ("calls/open.rs", true), ("session/calls/open.rs", true), ("en.rs", false)]
        {
            assert_eq!(fault.is_of(file), is_of, "{file}");
        }
    }

    #[test]
    fn quick_plants_one_fault_per_file() {
        let all = ["a", "a", "b", "a", "c", "b"].map(|file| mutation(file, "1", "2"));
        let files: Vec<_> = first_of_each_file(&all).iter().map(|m| m.file.as_str()).collect();
        assert_eq!(files, ["a", "b", "c"]);
    }

    #[test]
    fn the_list_of_the_policies_applies_and_covers_every_rule() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../sched-policy"));
        let mutations = read(folder).unwrap();
        let source = |file: &str| fs::read_to_string(folder.join("src/policy").join(file)).unwrap();
        for mutation in &mutations {
            mutation.applied(&source(&mutation.file)).unwrap();
        }
        for entry in fs::read_dir(folder.join("src/policy")).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            let named = mutations.iter().filter(|mutation| mutation.file == file).count();
            assert!(file == "mod.rs" || named >= 2, "{file} has {named} mutations");
        }
    }

    /// Parts of the core that change the state of a call, a duty, a phase or a count, and the least number of faults in each.
    const PARTS: &[(&str, usize)] = &[
        ("session/calls/", 8),
        ("session/token.rs", 2),
        ("session/phase.rs", 2),
        ("session/credit.rs", 2),
        ("session/connection.rs", 2),
        ("session/backlog.rs", 2),
        ("session/by_slot.rs", 1),
        ("session/work.rs", 2),
        ("session/engine/", 8),
    ];

    #[test]
    fn the_list_of_the_core_applies_and_covers_every_part() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../comm-core"));
        let faults = read(folder).unwrap();
        assert!(faults.len() >= 40, "{} faults", faults.len());
        for fault in &faults {
            let source = fs::read_to_string(folder.join("src").join(&fault.file)).unwrap();
            fault.applied(&source).unwrap();
            let same = faults.iter().filter(|other| {
                (&other.file, &other.from, &other.to) == (&fault.file, &fault.from, &fault.to)
            });
            assert_eq!(same.count(), 1, "{}: `{}` is planted twice", fault.file, fault.breaks);
        }
        for (part, least) in PARTS {
            let of_part = faults.iter().filter(|fault| fault.file.starts_with(part)).count();
            assert!(of_part >= *least, "{part} has {of_part} faults");
        }
    }
}
