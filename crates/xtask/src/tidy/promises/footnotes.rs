//! The footnotes of a document, one for each promise: its tests, or why it has none.

use super::Tests;

/// The line before the footnotes. Readers of the rendered page do not see it.
pub(super) const HEAD: &str = "<!-- The tests of the promises above: cargo xtask tidy --footnotes -->";
/// The beginning of the footnote of a promise without a test. A reason follows.
pub(super) const UNTESTED: &str = "untested:";

/// The longest line.
const WIDTH: usize = 140;
/// The indentation of further lines of a footnote.
const INDENTATION: &str = "    ";

/// A footnote, on one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Footnote<'a> {
    /// The line of its beginning, counted from 0.
    pub(super) line: usize,
    pub(super) id: &'a str,
    pub(super) text: String,
}

/// Returns the footnotes of a text.
pub(super) fn read(text: &str) -> impl Iterator<Item = Footnote<'_>> {
    let mut notes: Vec<Footnote<'_>> = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let begun = content.strip_prefix("[^").and_then(|rest| rest.split_once("]:"));
        if let Some((id, text)) = begun {
            notes.push(Footnote { line, id, text: text.trim().to_owned() });
        } else if let (Some(last), false) = (notes.last_mut(), content.trim().is_empty()) {
            last.text.push(' ');
            last.text.push_str(content.trim());
        }
    }
    notes.into_iter()
}

/// Returns the footnote that names the tests of a promise.
pub(super) fn of_tests(id: &str, tests: &Tests) -> String {
    let names: Vec<_> = tests.iter().map(|test| format!("`{test}`")).collect();
    wrapped(id, &names.join(", "))
}

/// Returns the footnote of a promise without a test.
pub(super) fn of_reason(id: &str, reason: &str) -> String {
    wrapped(id, &format!("{UNTESTED} {reason}"))
}

fn wrapped(id: &str, text: &str) -> String {
    let mut lines = format!("[^{id}]:");
    let mut width = lines.chars().count();
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if width + 1 + len > WIDTH {
            lines.push('\n');
            lines.push_str(INDENTATION);
            width = INDENTATION.len();
        } else {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += len;
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_footnote_has_several_lines_and_is_read_as_one() {
        let reason = "a reason of some length ".repeat(10);
        let text = of_reason("x.a", &reason) + &of_reason("x.b", "none");
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let notes: Vec<_> = read(&text).collect();
        let all = format!("{UNTESTED} {}", reason.trim());
        assert_eq!(notes[0], Footnote { line: 0, id: "x.a", text: all });
        assert_eq!((notes[1].id, &*notes[1].text), ("x.b", "untested: none"));
    }

    #[test]
    fn the_tests_of_a_promise_are_in_one_order() {
        let tests = ["b.rs::y", "a.rs::x"].map(String::from).into_iter().collect();
        assert_eq!(of_tests("x.a", &tests), "[^x.a]: `a.rs::x`, `b.rs::y`\n");
    }
}
