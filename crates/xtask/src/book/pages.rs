//! The pages of the book, as `docs/SUMMARY.md` lists them, and their links.

use core::fmt::Write as _;

use crate::tidy::links::{is_local, join, links};

/// The list of pages. Its links are relative to its folder.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";
const FOLDER: &str = "docs";

/// Returns the paths of the pages that a summary lists, from the root of the project.
pub(crate) fn listed(summary: &str) -> Vec<String> {
    summary.lines().flat_map(links).filter(|link| is_local(link)).map(|link| join(FOLDER, link)).collect()
}

/// Returns the summary with links from the root of the project.
pub(super) fn from_root(summary: &str) -> String {
    let mut text = String::new();
    for line in summary.lines() {
        match line.split_once("](").and_then(|(title, rest)| Some((title, rest.split_once(')')?))) {
            Some((title, (target, rest))) if is_local(target) => {
                let _ = writeln!(text, "{title}]({}){rest}", join(FOLDER, target));
            }
            _ => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text
}

/// Returns the text of a page in which only links to other `pages`, or to the web, are left. The others become plain text: the book
/// contains neither source files nor folders.
pub(super) fn with_links_to(text: &str, page: &str, pages: &[String]) -> String {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let is_kept = |target: &str| {
        let file = target.split_once('#').map_or(target, |(file, _)| file);
        !is_local(target) || pages.contains(&join(folder, file))
    };
    let mut in_block = false;
    let mut kept = String::new();
    for line in text.lines() {
        in_block ^= line.trim_start().starts_with("```");
        let _ = writeln!(kept, "{}", if in_block { line.into() } else { unlinked(line, is_kept) });
    }
    kept
}

/// Returns a line whose links are plain text unless `is_kept` accepts their target.
fn unlinked(line: &str, is_kept: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, remaining)) = after.split_once(')') else { break };
        match before.rsplit_once('[') {
            Some((lead, title)) if !is_kept(target) => {
                let _ = write!(text, "{lead}{title}");
            }
            _ => {
                let _ = write!(text, "{before}]({target})");
            }
        }
        rest = remaining;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_summary_are_taken_from_the_root() {
        let summary =
            "# Summary\n\n[Pronto](../README.md)\n\n- [Calls](calls.md)\n  - [One](decisions/0001.md)\n";
        assert_eq!(listed(summary), ["README.md", "docs/calls.md", "docs/decisions/0001.md"]);
        let staged = from_root(summary);
        assert!(
            staged.contains("[Pronto](README.md)") && staged.contains("  - [One](docs/decisions/0001.md)")
        );
        assert!(staged.starts_with("# Summary\n\n"), "{staged}");
    }

    #[test]
    fn links_to_pages_stay_and_others_become_text() {
        let pages = ["README.md".into(), "docs/calls.md".into()];
        let text = "[a](calls.md#x) and [b](../README.md), [c](../core/lib.rs), [`d`](../kernel/) [e](https://x.org) [f](#g)";
        let expected = "[a](calls.md#x) and [b](../README.md), c, `d` [e](https://x.org) [f](#g)\n";
        assert_eq!(with_links_to(text, "docs/calls.md", &pages), expected);
    }

    #[test]
    fn code_blocks_stay_as_they_are() {
        let text = "```rust\nf[0](gone)\n```\n";
        assert_eq!(with_links_to(text, "docs/calls.md", &[]), text);
    }
}
