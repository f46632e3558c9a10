//! The list of a crate's faults, and what one of them makes of a source.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Where the list lies, in the crate that it mutates.
pub(super) const LIST: &str = "mutations.toml";

/// Where the unit tests of a source begin. No fault is planted behind it.
const TESTS: &[&str] = &["#[cfg(test)]\nmod tests", "#[cfg(all(test, not(loom)))]\nmod tests"];

/// One fault to plant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutation {
    /// The source, below the subject's folder of sources.
    pub(super) file: String,
    /// Stands there once.
    from: String,
    /// What it becomes.
    to: String,
    /// The promise that is lost.
    pub(super) breaks: String,
    /// The test of `pronto-sim` that must notice. Without one, the crate's own tests must.
    pub(super) simulation: Option<String>,
}

#[derive(Debug, Deserialize)]
struct List {
    mutation: Vec<Mutation>,
}

/// All mutations of the crate in `folder`, in the order of the list.
///
/// # Errors
/// There is no list, it is no TOML of the known shape, or it is empty.
pub(super) fn read(folder: &Path) -> Result<Vec<Mutation>> {
    let path = folder.join(LIST);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let list: List = toml::from_str(&text).with_context(|| format!("{} is wrong", path.display()))?;
    ensure!(!list.mutation.is_empty(), "{} names no mutation", path.display());
    Ok(list.mutation)
}

impl Mutation {
    /// Returns whether the fault is in the source that `file` names: its path, or the last parts of it.
    pub(super) fn is_of(&self, file: &str) -> bool {
        let before = self.file.strip_suffix(file);
        before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    }

    /// `source` with the fault in it.
    ///
    /// # Errors
    /// What is to be replaced does not stand there exactly once before the tests, or nothing would change: the rule has
    /// moved, and the list must follow.
    pub(super) fn applied(&self, source: &str) -> Result<String> {
        let tests = TESTS.iter().filter_map(|tests| source.find(tests)).min();
        let (rule, tests) = source.split_at(tests.unwrap_or(source.len()));
        let found = rule.matches(&self.from).count();
        ensure!(found == 1, "`{}` stands in {} {found} times, expected once", self.from, self.file);
        ensure!(self.from != self.to, "`{}` becomes what it is", self.from);
        Ok(rule.replacen(&self.from, &self.to, 1) + tests)
    }
}

/// The first mutation of each file.
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
        Mutation { file: file.into(), from: from.into(), to: to.into(), breaks, simulation: None }
    }

    #[test]
    fn the_rule_is_changed_and_its_tests_are_not() {
        for mark in TESTS {
            let source = format!("fn two() {{ 2 }}\n{mark} {{ 2 }}\n");
            let changed = mutation("two.rs", "2", "3").applied(&source).unwrap();
            assert_eq!(changed, format!("fn two() {{ 3 }}\n{mark} {{ 2 }}\n"));
        }
    }

    #[test]
    fn what_is_not_there_once_is_refused() {
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
    fn quick_takes_one_of_each_file() {
        let all = ["a", "a", "b", "a", "c", "b"].map(|file| mutation(file, "1", "2"));
        let files: Vec<_> = first_of_each_file(&all).iter().map(|m| m.file.as_str()).collect();
        assert_eq!(files, ["a", "b", "c"]);
    }

    #[test]
    fn the_list_of_the_policies_fits_their_sources_and_leaves_no_rule_out() {
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

    /// Parts of the core that change a call's state, a duty, a phase or a count, and how many faults each has at least.
    const PARTS: &[(&str, usize)] = &[
        ("session/calls/", 8),
        ("session/token.rs", 2),
        ("session/phase.rs", 2),
        ("session/credit.rs", 2),
        ("session/lane.rs", 2),
        ("session/backlog.rs", 2),
        ("session/by_slot.rs", 1),
        ("session/work.rs", 2),
        ("session/engine/", 8),
    ];

    #[test]
    fn the_list_of_the_core_fits_its_sources_and_leaves_no_part_out() {
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
