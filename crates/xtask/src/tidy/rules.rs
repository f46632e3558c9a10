//! Rules for single files.

use super::source::{Source, words};
use super::{Tree, rust};

/// Names that do not describe the content of a file.
const BANNED_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "types"];

/// The longest permitted file.
const MAX_LINES: usize = 1_000;

/// Words in comments that mark unfinished work.
const UNFINISHED: &[&str] = &["TODO", "FIXME", "XXX"];

/// Beginning of the first line of files in the kernel folder.
const LICENCE: &str = "// SPDX-License-Identifier: ";

/// Reports files and folders with names that do not describe their content.
pub(super) fn file_names(tree: &Tree) -> Vec<String> {
    let banned = |part: &&str| {
        let stem = part.split_once('.').map_or(*part, |(stem, _)| stem);
        BANNED_NAMES.contains(&stem)
    };
    rust(tree)
        .filter_map(|(path, _)| {
            let part = path.split('/').find(banned)?;
            Some(format!("{path}: `{part}` does not describe the content; choose another name"))
        })
        .collect()
}

/// Reports files whose first line is not a description. In the kernel folder a line with the licence comes before it.
pub(super) fn module_docs(tree: &Tree) -> Vec<String> {
    let documented = |text: &str| {
        text.lines()
            .find(|line| !line.starts_with(LICENCE))
            .and_then(|line| line.strip_prefix("//!"))
            .is_some_and(|doc| !doc.trim().is_empty())
    };
    rust(tree)
        .filter(|(_, text)| !documented(text))
        .map(|(path, _)| format!("{path}:1: the first line must be `//!` and describe the file"))
        .collect()
}

/// Reports files that are too long.
pub(super) fn file_lengths(tree: &Tree) -> Vec<String> {
    rust(tree)
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{path}: {lines} lines, at most {MAX_LINES}; split it by subject"))
        .collect()
}

/// Reports lints that are allowed without a reason, and ignored tests. Tests that need the lab may be ignored, with a reason, in a
/// file that is named for the lab.
pub(super) fn attributes(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in rust(tree) {
        let for_the_lab = is_for_the_lab(path);
        for (line, inside) in Source::read(text).attributes() {
            let has = |wanted: &str| words(inside).any(|(_, word)| word == wanted);
            if has("allow") && !has("reason") {
                findings.push(format!(
                    "{path}:{line}: an `allow` without reason; write #[expect(lint, reason = \"...\")]"
                ));
            }
            let awaits_the_lab = for_the_lab && inside.starts_with("ignore =");
            if awaits_the_lab {
                continue;
            }
            if inside.trim_start().starts_with("ignore") || (inside.contains("cfg_attr") && has("ignore")) {
                findings.push(format!("{path}:{line}: an ignored test; repair it or remove it"));
            }
        }
    }
    findings
}

/// Returns whether a file is a test target that `cargo xtask lab test` runs, or that starts machines on the host.
fn is_for_the_lab(path: &str) -> bool {
    // A target is a file or a folder in the folder of tests.
    let Some((_, target)) = path.rsplit_once("/tests/") else { return false };
    let name = target.split('/').next().unwrap_or_default();
    let name = name.strip_suffix(".rs").unwrap_or(name);
    let name = name.strip_prefix("drives_").unwrap_or(name);
    name == "lab" || name.starts_with("lab_")
}

/// Reports marks of unfinished work.
pub(super) fn unfinished_work(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in rust(tree) {
        let source = Source::read(text);
        for (line, word) in words(&source.comments).filter(|(_, word)| UNFINISHED.contains(word)) {
            findings.push(format!("{path}:{line}: `{word}`; finish it, or open an issue"));
        }
        for (number, line) in source.code.lines().enumerate() {
            for call in ["todo!", "unimplemented!"].iter().filter(|call| line.contains(**call)) {
                findings.push(format!("{path}:{}: `{call}`; finish it", number + 1));
            }
        }
    }
    let scripts = tree
        .iter()
        .filter(|(path, _)| [".toml", ".sh", ".c", ".h", ".yml"].iter().any(|e| path.ends_with(e)));
    for (path, text) in scripts {
        for (line, word) in words(text).filter(|(_, word)| UNFINISHED.contains(word)) {
            findings.push(format!("{path}:{line}: `{word}`; finish it, or open an issue"));
        }
    }
    findings
}

/// Reports roots of crates without `unsafe` that do not forbid it.
pub(super) fn forbidden_unsafe(tree: &Tree) -> Vec<String> {
    let crates = tree.keys().filter_map(|path| path.strip_suffix("Cargo.toml"));
    let mut findings = Vec::new();
    for folder in crates.filter(|folder| !folder.is_empty()) {
        let sources = || {
            rust(tree)
                .filter(|(path, _)| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with("src/")))
        };
        if sources().any(|(_, text)| has_unsafe(&Source::read(text))) {
            continue;
        }
        for (path, text) in sources() {
            let is_root = ["src/lib.rs", "src/main.rs"].contains(&&path[folder.len()..])
                || path[folder.len()..].starts_with("src/bin/");
            let forbids = Source::read(text).attributes().iter().any(|(_, inside)| {
                inside.trim_start().starts_with("forbid")
                    && words(inside).any(|(_, word)| word == "unsafe_code")
            });
            if is_root && !forbids {
                findings.push(format!("{path}: the crate has no unsafe code; add #![forbid(unsafe_code)]"));
            }
        }
    }
    findings
}

/// Returns whether the code of a file contains the keyword `unsafe`.
pub(super) fn has_unsafe(source: &Source) -> bool {
    words(&source.code).any(|(_, word)| word == "unsafe")
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    #[test]
    fn vague_names_are_found_in_any_part_of_the_path() {
        let tree = tree(&[
            ("a/src/utils.rs", ""),
            ("a/tests/common/mod.rs", ""),
            ("a/src/common_sense.rs", ""),
            ("types/README.md", ""),
        ]);
        let found = file_names(&tree);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn the_first_line_must_be_a_module_doc() {
        let tree = tree(&[
            ("good.rs", "//! A file.\n"),
            ("late.rs", "#![no_std]\n//! A file.\n"),
            ("empty.rs", ""),
            ("bare.rs", "//!\n//! A file.\n"),
        ]);
        assert_eq!(module_docs(&tree).len(), 3);
    }

    #[test]
    fn a_file_may_have_a_thousand_lines() {
        let (fits, long) = ("\n".repeat(MAX_LINES), "\n".repeat(MAX_LINES + 1));
        assert!(file_lengths(&tree(&[("a.rs", &fits)])).is_empty());
        assert_eq!(file_lengths(&tree(&[("a.rs", &long)])).len(), 1);
    }

    #[test]
    fn allow_needs_a_reason_and_tests_must_run() {
        let count = |text: &str| attributes(&tree(&[("a.rs", text)])).len();
        assert_eq!(count("#[allow(dead_code)]"), 1);
        assert_eq!(count("#![cfg_attr(test, allow(dead_code))]"), 1);
        assert_eq!(count("#[allow(dead_code, reason = \"made by a macro\")]"), 0);
        assert_eq!(
            count("#[expect(dead_code, reason = \"x\")] fn f() { policy.allow(x) } // #[allow(x)]"),
            0
        );
        assert_eq!(count("#[test]\n#[ignore]"), 1);
        assert_eq!(count("#[ignore = \"slow\"]"), 1);
        assert_eq!(count("#[cfg_attr(loom, ignore)]"), 1);
        assert_eq!(count("#[doc = \"ignore\"]"), 0);
        let count = |path: &str, text: &str| attributes(&tree(&[(path, text)])).len();
        assert_eq!(count("a/tests/lab_verbs.rs", "#[test]\n#[ignore = \"runs in the lab\"]"), 0);
        assert_eq!(count("a/tests/drives_lab.rs", "#[test]\n#[ignore = \"starts the lab\"]"), 0);
        assert_eq!(count("a/tests/lab_verbs.rs", "#[test]\n#[ignore]"), 1);
        assert_eq!(count("a/tests/label.rs", "#[test]\n#[ignore = \"slow\"]"), 1);
        assert_eq!(count("a/src/lab_x.rs", "#[test]\n#[ignore = \"slow\"]"), 1);
    }

    #[test]
    fn unfinished_work_is_found_in_comments_code_and_manifests() {
        let count = |path: &str, text: &str| unfinished_work(&tree(&[(path, text)])).len();
        assert_eq!(count("a.rs", "// TODO: later"), 1);
        assert_eq!(count("a.rs", "fn f() { todo!() }"), 1);
        assert_eq!(count("a.rs", "fn f() { unimplemented!(\"x\") }"), 1);
        assert_eq!(count("a.rs", "let mark = \"TODO\"; // nothing to do"), 0);
        assert_eq!(count("Cargo.toml", "# FIXME"), 1);
        assert_eq!(count("CONTRIBUTING.md", "no TODO"), 0);
    }

    #[test]
    fn a_crate_without_unsafe_forbids_it_in_every_root() {
        let files = [
            ("a/Cargo.toml", ""),
            ("a/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]"),
            ("a/src/bin/x.rs", "//! X."),
            ("b/Cargo.toml", ""),
            ("b/src/lib.rs", "//! B."),
            ("b/src/map.rs", "//! M.\nunsafe fn f() {}"),
            ("a/tests/alloc.rs", "//! T.\nunsafe fn f() {}"),
        ];
        let found = forbidden_unsafe(&tree(&files));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a/src/bin/x.rs"));
    }
}
