//! The promises of the documents. Each has an id, tests name the ids that they show, and footnotes name the tests.
//!
//! A promise ends with the mark `[^document.name]`. A test cites it in a line of its documentation:
//!
//! ```text
//! /// Shows: calls.deadline, calls.cancel
//! ```
//!
//! The footnotes at the end of a document are written by `cargo xtask tidy --footnotes`. The exception is a promise that no test
//! cites: its footnote says `untested:` and why.

mod citations;
mod document;
mod footnotes;

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};

use super::Tree;
use citations::Citation;
use document::Document;

/// The documents whose promises have ids.
const DOCUMENTS: &[&str] = &[
    "docs/adapters.md",
    "docs/calls.md",
    "docs/embedding.md",
    "docs/messages.md",
    "docs/operations.md",
    "docs/protocol.md",
    "docs/sources.md",
];

/// The tests that show a promise, as `path::test`.
type Tests = BTreeSet<String>;

/// Reports promises that no test shows, citations of unknown promises, and footnotes that differ from the citations.
pub(super) fn are_shown(tree: &Tree) -> Vec<String> {
    let (citations, mut findings) = citations::read(tree);
    let documents = documents(tree);
    let known: BTreeSet<&str> = documents.iter().flat_map(Document::ids).collect();
    for Citation { id, path, line, .. } in citations.iter().filter(|citation| !known.contains(&*citation.id))
    {
        findings.push(format!("{path}:{line}: no document has a promise `{id}`"));
    }
    let shown = by_id(&citations);
    for document in &documents {
        let earlier = findings.len();
        document.check(&shown, &mut findings);
        let has_defects = findings.len() > earlier;
        if !has_defects && document.with_footnotes(&shown) != document.text {
            findings.push(format!(
                "{}: the footnotes differ from what tests cite; run `cargo xtask tidy --footnotes`",
                document.path
            ));
        }
    }
    findings
}

/// Returns the documents whose footnotes differ from what tests cite, with their new text.
pub(super) fn rewritten(tree: &Tree) -> Vec<(&str, String)> {
    let (citations, _) = citations::read(tree);
    let shown = by_id(&citations);
    let texts = documents(tree)
        .into_iter()
        .map(|document| (document.path, document.text, document.with_footnotes(&shown)));
    texts.filter(|(_, before, after)| before != after).map(|(path, _, after)| (path, after)).collect()
}

/// Returns a list of all promises, each with its tests, or with the reason why it has none.
pub(super) fn list(tree: &Tree) -> String {
    let (citations, _) = citations::read(tree);
    let shown = by_id(&citations);
    let (mut list, mut promises, mut untested) = (String::new(), 0, 0);
    for document in documents(tree) {
        for id in document.ids() {
            promises += 1;
            let _ = writeln!(list, "{id}");
            match shown.get(id) {
                Some(tests) => {
                    for test in tests {
                        let _ = writeln!(list, "    {test}");
                    }
                }
                None => {
                    untested += 1;
                    let why = document.reason(id).unwrap_or("no test and no reason");
                    let _ = writeln!(list, "    only a document holds it: {why}");
                }
            }
        }
    }
    let shown = promises - untested;
    let _ = writeln!(list, "{promises} promises: tests show {shown}, only documents hold {untested}");
    list
}

fn documents(tree: &Tree) -> Vec<Document<'_>> {
    let texts = DOCUMENTS.iter().filter_map(|path| Some((*path, tree.get(*path)?)));
    texts.map(|(path, text)| Document::read(path, text)).collect()
}

fn by_id(citations: &[Citation]) -> BTreeMap<&str, Tests> {
    let mut tests = BTreeMap::<_, Tests>::new();
    for citation in citations {
        tests.entry(&*citation.id).or_default().insert(citation.test());
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const TEST: &str = "/// Shows: calls.once\n#[test]\nfn a_call_ends_once() {}\n";
    const FOOTNOTE: &str = "[^calls.once]: `a/tests/calls.rs::a_call_ends_once`\n";

    fn with(test: &str, promises: &str, notes: &str) -> Tree {
        let head = if notes.is_empty() { String::new() } else { format!("\n{}\n\n", footnotes::HEAD) };
        let document = format!("# Calls\n\n{promises}\n{head}{notes}");
        tree(&[("docs/calls.md", &document), ("a/tests/calls.rs", test)])
    }

    #[test]
    fn promises_tests_and_footnotes_agree() {
        let both = with(
            TEST,
            "It ends once.[^calls.once] It is quick.[^calls.quick]",
            &format!("{FOOTNOTE}[^calls.quick]: untested: it depends on the machine\n"),
        );
        assert!(are_shown(&both).is_empty(), "{:?}", are_shown(&both));
        assert!(rewritten(&both).is_empty());
        let expected = "calls.once\n    a/tests/calls.rs::a_call_ends_once\ncalls.quick\n    only a document holds it: it \
            depends on the machine\n2 promises: tests show 1, only documents hold 1\n";
        assert_eq!(list(&both), expected);
    }

    #[test]
    fn each_disagreement_is_reported() {
        let only = |tree: Tree, part: &str| {
            let found = are_shown(&tree);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(part), "{found:?}");
        };
        let once = "It ends once.[^calls.once]";
        only(with(TEST, "It ends.", ""), "a/tests/calls.rs:1: no document has a promise `calls.once`");
        only(with("", once, ""), "docs/calls.md:3: no test shows `calls.once`");
        only(with("", once, "[^calls.once]: untested:\n"), "docs/calls.md:3: no test shows `calls.once`");
        only(with("", once, FOOTNOTE), "docs/calls.md:3: no test shows `calls.once`");
        only(with(TEST, once, ""), "run `cargo xtask tidy --footnotes`");
        only(
            with(TEST, &format!("{once} Always.[^calls.once]"), FOOTNOTE),
            "docs/calls.md:3: `calls.once` marks two promises",
        );
        only(
            with(TEST, once, "[^calls.once]: untested: too hard\n"),
            "docs/calls.md:7: `calls.once` is not untested",
        );
        only(
            with(TEST, &format!("{once} Yes.[^messages.once]"), FOOTNOTE),
            "docs/calls.md:3: `messages.once` is not an id",
        );
    }

    #[test]
    fn footnotes_are_rewritten_from_the_citations() {
        let stale = with(
            TEST,
            "It ends once.[^calls.once]",
            "[^calls.once]: `a/tests/gone.rs::gone`\n[^calls.old]: untested: x\n",
        );
        let fresh = with(TEST, "It ends once.[^calls.once]", FOOTNOTE);
        assert_eq!(rewritten(&stale), [("docs/calls.md", fresh["docs/calls.md"].clone())]);
    }
}
