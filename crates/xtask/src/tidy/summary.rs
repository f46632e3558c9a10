//! The summary of the book lists every page of docs/ once, and nothing that does not exist.

use std::collections::BTreeSet;

use super::Tree;
use crate::book::pages::{self, SUMMARY};

/// Every Markdown file below docs/ is an entry of the summary, and every entry is a file and occurs once.
pub(super) fn lists_every_page(tree: &Tree) -> Vec<String> {
    let listed = pages::listed(tree.get(SUMMARY).map_or("", String::as_str));
    let mut findings = Vec::new();
    let mut entries = BTreeSet::new();
    for page in &listed {
        if !entries.insert(page.as_str()) {
            findings.push(format!("{SUMMARY}: lists {page} twice"));
        }
        if !tree.contains_key(page) {
            findings.push(format!("{SUMMARY}: lists {page}, which does not exist"));
        }
    }
    let is_page = |path: &str| path.starts_with("docs/") && path.ends_with(".md") && path != SUMMARY;
    for path in tree.keys().filter(|path| is_page(path) && !entries.contains(path.as_str())) {
        findings.push(format!("{path}: add it to {SUMMARY}"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn findings(summary: &str) -> Vec<String> {
        lists_every_page(&tree(&[
            (SUMMARY, summary),
            ("README.md", ""),
            ("docs/calls.md", ""),
            ("docs/decisions/0001.md", ""),
        ]))
    }

    #[test]
    fn a_complete_summary_is_accepted() {
        let summary = "[Pronto](../README.md)\n- [Calls](calls.md)\n- [One](decisions/0001.md)\n";
        assert!(findings(summary).is_empty(), "{:?}", findings(summary));
    }

    #[test]
    fn a_page_that_is_not_listed_is_found() {
        assert_eq!(findings("- [Calls](calls.md)\n"), ["docs/decisions/0001.md: add it to docs/SUMMARY.md"]);
    }

    #[test]
    fn an_entry_without_a_page_and_a_second_entry_are_found() {
        let found = findings("- [a](calls.md)\n- [b](calls.md)\n- [c](decisions/0001.md)\n- [d](gone.md)\n");
        assert_eq!(
            found,
            [
                "docs/SUMMARY.md: lists docs/calls.md twice",
                "docs/SUMMARY.md: lists docs/gone.md, which does not exist"
            ]
        );
    }
}
