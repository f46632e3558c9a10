//! A document with promises: its marks, and the reasons in its footnotes.

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};

use super::super::links::prose;
use super::Tests;
use super::footnotes::{self, Footnote};

/// A document, divided into its body and its footnotes.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    body: &'a str,
    /// The ids in the body, in the order of the text, with their lines.
    marks: Vec<(usize, &'a str)>,
    /// The reasons of promises without a test, with the lines of their footnotes.
    reasons: BTreeMap<&'a str, (usize, String)>,
}

impl<'a> Document<'a> {
    pub(super) fn read(path: &'a str, text: &'a str) -> Self {
        let (body, notes) = text.split_once(footnotes::HEAD).unwrap_or((text, ""));
        let first = body.lines().count() + 1;
        let marks = prose(body).flat_map(|(line, text)| marks(text).map(move |id| (line, id))).collect();
        let reasons = footnotes::read(notes)
            .filter_map(|Footnote { line, id, text }| {
                let reason = text.strip_prefix(footnotes::UNTESTED)?.trim().to_owned();
                Some((id, (first + line, reason)))
            })
            .filter(|(_, (_, reason))| !reason.is_empty())
            .collect();
        Self { path, text, body, marks, reasons }
    }

    /// Returns the ids of the promises in the order of the text, each one once.
    pub(super) fn ids(&self) -> impl Iterator<Item = &'a str> {
        let mut seen = BTreeSet::new();
        self.marks.iter().map(|(_, id)| *id).filter(move |id| seen.insert(*id))
    }

    /// Returns why no test shows a promise.
    pub(super) fn reason(&self, id: &str) -> Option<&str> {
        self.reasons.get(id).map(|(_, reason)| reason.as_str())
    }

    /// Adds the defects of marks and reasons, given the tests of all promises.
    pub(super) fn check(&self, shown: &BTreeMap<&str, Tests>, findings: &mut Vec<String>) {
        let mut seen = BTreeSet::new();
        for (line, id) in &self.marks {
            let mut find = |text: &str| findings.push(format!("{}:{line}: {text}", self.path));
            if !self.is_id(id) {
                find(&format!("`{id}` is not an id; write [^{}.some-name]", self.stem()));
            } else if !seen.insert(id) {
                find(&format!("`{id}` marks two promises; give each its own id"));
            } else if !shown.contains_key(id) && self.reason(id).is_none() {
                let advice = format!(
                    "cite it in a test, or write the footnote `[^{id}]: {} why`",
                    footnotes::UNTESTED
                );
                find(&format!("no test shows `{id}`; {advice}"));
            }
        }
        for (id, (line, _)) in self.reasons.iter().filter(|(id, _)| shown.contains_key(*id)) {
            findings.push(format!(
                "{}:{line}: `{id}` is not untested, as a test cites it; remove the reason",
                self.path
            ));
        }
    }

    /// Returns the text with the footnotes that follow from the tests.
    pub(super) fn with_footnotes(&self, shown: &BTreeMap<&str, Tests>) -> String {
        let mut text = format!("{}\n", self.body.trim_end());
        let mut notes = String::new();
        for id in self.ids() {
            match (shown.get(id), self.reason(id)) {
                (Some(tests), _) => notes.push_str(&footnotes::of_tests(id, tests)),
                (None, Some(reason)) => notes.push_str(&footnotes::of_reason(id, reason)),
                (None, None) => {}
            }
        }
        if !notes.is_empty() {
            let _ = write!(text, "\n{}\n\n{notes}", footnotes::HEAD);
        }
        text
    }

    /// Returns the first part of each id.
    fn stem(&self) -> &str {
        let name = self.path.rsplit_once('/').map_or(self.path, |(_, name)| name);
        name.strip_suffix(".md").unwrap_or(name)
    }

    fn is_id(&self, id: &str) -> bool {
        let name = id.strip_prefix(self.stem()).and_then(|rest| rest.strip_prefix('.')).unwrap_or_default();
        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    }
}

/// Returns the labels of the footnotes to which a line refers.
fn marks(line: &str) -> impl Iterator<Item = &str> {
    line.split("[^").skip(1).filter_map(|rest| rest.split_once(']')).map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_outside_of_code_with_their_lines() {
        let text = "a[^x.a] b[^x.b]\n```text\n[^x.c]\n```\n| c | d[^x.d] |\n";
        assert_eq!(Document::read("docs/x.md", text).marks, [(1, "x.a"), (1, "x.b"), (5, "x.d")]);
    }

    #[test]
    fn an_id_begins_with_the_name_of_its_document() {
        let document = Document::read("docs/x.md", "");
        assert!(document.is_id("x.a-2"));
        for wrong in ["x", "x.", "y.a", "x.A", "x.a b", "xa", "x.a_b"] {
            assert!(!document.is_id(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_document_without_promises_stays_as_it_is() {
        let text = "# A page\n\nText.\n";
        assert_eq!(Document::read("docs/x.md", text).with_footnotes(&BTreeMap::new()), text);
    }
}
