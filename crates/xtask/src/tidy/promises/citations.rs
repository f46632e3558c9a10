//! The ids that tests cite, and the examples of documents, which are tests, too.

use super::super::source::Source;
use super::super::{Tree, rust};

/// The beginning of a line with citations, in the documentation of a test.
const SHOWS: &str = "/// Shows: ";
/// The beginning of a line with citations, before an example of a document.
const EXAMPLE_SHOWS: &str = "<!-- Shows: ";
/// The functions in this folder are tests that each provider runs. They have no `#[test]`.
const SUITE: &str = "crates/conformance/src/chapters/";

/// A test that shows a promise.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Citation {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) line: usize,
    name: String,
}

impl Citation {
    /// Returns the test as `path::name`.
    pub(super) fn test(&self) -> String {
        format!("{}::{}", self.path, self.name)
    }
}

/// Returns all citations, and findings about those that belong to no test.
pub(super) fn read(tree: &Tree) -> (Vec<Citation>, Vec<String>) {
    let (mut citations, mut findings) = (Vec::new(), Vec::new());
    for (path, text) in rust(tree).filter(|(_, text)| text.contains(SHOWS)) {
        in_rust(path, text, &mut citations, &mut findings);
    }
    for (path, text) in tree.iter().filter(|(path, _)| path.ends_with(".md")) {
        in_page(path, text, &mut citations, &mut findings);
    }
    (citations, findings)
}

fn in_rust(path: &str, text: &str, citations: &mut Vec<Citation>, findings: &mut Vec<String>) {
    let source = Source::read(text);
    let code: Vec<&str> = source.code.lines().collect();
    for (at, line) in source.comments.lines().enumerate() {
        let Some(ids) = line.trim().strip_prefix(SHOWS) else { continue };
        match test_after(&code[at..], path.starts_with(SUITE)) {
            Some(name) => citations.extend(each(ids, path, at + 1, &name)),
            None => findings.push(format!("{path}:{}: only a test shows a promise", at + 1)),
        }
    }
}

/// Returns the name of the test whose documentation begins here. `code` is without comments.
fn test_after(code: &[&str], is_suite: bool) -> Option<String> {
    let end = code.iter().position(|line| line.trim_start().starts_with("fn ") || line.contains(" fn "))?;
    let attributes = code[..end].join(" ");
    let is_test = attributes.contains("#[test]") || is_suite;
    if !is_test || attributes.contains(['{', '}', ';']) {
        return None;
    }
    let (_, rest) = code[end].split_once("fn ")?;
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().map(String::from)
}

fn in_page(path: &str, text: &str, citations: &mut Vec<Citation>, findings: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(ids) = line.strip_prefix(EXAMPLE_SHOWS).and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        if lines.get(at + 1) == Some(&"```rust") {
            citations.extend(each(ids, path, at + 1, "example"));
        } else {
            findings.push(format!("{path}:{}: only an example that runs shows a promise", at + 1));
        }
    }
}

fn each(ids: &str, path: &str, line: usize, name: &str) -> impl Iterator<Item = Citation> {
    ids.split(',').map(move |id| Citation {
        id: id.trim().into(),
        path: path.into(),
        line,
        name: name.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::tree;
    use super::*;

    fn cited(path: &str, text: &str) -> Vec<(String, String)> {
        let (citations, findings) = read(&tree(&[(path, text)]));
        assert!(findings.is_empty(), "{findings:?}");
        citations.into_iter().map(|citation| (citation.id.clone(), citation.test())).collect()
    }

    #[test]
    fn all_ids_of_a_test_are_read() {
        let text = "/// A test.\n///\n/// Shows: x.a, x.b\n/// Shows: y.c\n#[test]\n#[expect(x, reason = \"{\")]\npub fn t() {}\n";
        let expected = ["x.a", "x.b", "y.c"].map(|id| (id.to_owned(), "a.rs::t".to_owned()));
        assert_eq!(cited("a.rs", text), expected);
    }

    #[test]
    fn a_citation_in_a_literal_is_none() {
        assert!(cited("a.rs", "const A: &str = \"\n/// Shows: x.a\n#[test]\nfn t() {}\";").is_empty());
    }

    #[test]
    fn the_conformance_suite_and_examples_of_documents_cite() {
        let text = "/// Shows: x.a\nfn chapter_test<H: Harness>(harness: &H) {}\n";
        let path = format!("{SUITE}order.rs");
        assert_eq!(cited(&path, text), [("x.a".to_owned(), format!("{path}::chapter_test"))]);
        let page = "<!-- Shows: x.a -->\n```rust\nassert!(true);\n```\n";
        assert_eq!(cited("docs/x.md", page), [("x.a".to_owned(), "docs/x.md::example".to_owned())]);
    }

    #[test]
    fn a_citation_without_a_test_is_a_finding() {
        for (path, text) in [
            ("a.rs", "/// Shows: x.a\nfn helper() {}\n"),
            ("a.rs", "/// Shows: x.a\nstruct S {}\n#[test]\nfn t() {}\n"),
            ("a.rs", "/// Shows: x.a\n"),
            ("a.md", "<!-- Shows: x.a -->\n\nText.\n"),
            ("a.md", "<!-- Shows: x.a -->\n```rust,ignore\n```\n"),
        ] {
            let (citations, findings) = read(&tree(&[(path, text)]));
            assert_eq!((citations.len(), findings.len()), (0, 1), "{text}: {findings:?}");
            assert!(findings[0].starts_with(&format!("{path}:1: only ")), "{findings:?}");
        }
    }
}
