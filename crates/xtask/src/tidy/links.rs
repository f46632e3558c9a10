//! Links between documents, and paths of files in documents, must exist.

use super::Tree;

/// Reports relative links of Markdown files, and paths in back quotes, that do not exist in the tree.
pub(super) fn resolve(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.iter().filter(|(path, _)| path.ends_with(".md")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in prose(text) {
            for target in links(line).filter(|target| is_local(target)) {
                let file = target.split_once('#').map_or(target, |(file, _)| file);
                if !exists(tree, &join(folder, file)) {
                    findings
                        .push(format!("{path}:{number}: the target of the link `{target}` does not exist"));
                }
            }
            for name in code_spans(line).filter(|name| is_path(tree, name)) {
                if !exists(tree, name.trim_end_matches('/')) {
                    findings.push(format!("{path}:{number}: `{name}` does not exist"));
                }
            }
        }
    }
    findings
}

/// Returns the numbered lines outside code blocks.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        (!in_block && !is_fence).then_some((at + 1, line))
    })
}

/// Returns the targets of the inline links in a line.
pub(crate) fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

pub(crate) fn is_local(target: &str) -> bool {
    !target.starts_with('#') && !target.contains("://") && !target.starts_with("mailto:")
}

/// Returns the texts in back quotes in a line.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns whether a code span is a path of this tree: it begins with one of the tree's folders and contains no placeholder.
fn is_path(tree: &Tree, name: &str) -> bool {
    let Some((top, _)) = name.split_once('/') else { return false };
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    plain && !top.is_empty() && top != "target" && exists(tree, top)
}

/// Returns whether the tree has a file or a folder with this path.
fn exists(tree: &Tree, path: &str) -> bool {
    path.is_empty() || tree.contains_key(path) || {
        let folder = format!("{path}/");
        tree.range(folder.clone()..).next().is_some_and(|(first, _)| first.starts_with(&folder))
    }
}

/// Resolves `path` relative to `folder`, without `.` and `..`.
pub(crate) fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = if path.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        resolve(&tree(&[
            ("docs/book.md", text),
            ("README.md", ""),
            ("docs/unsafe.md", ""),
            ("core/src/lib.rs", ""),
        ]))
    }

    #[test]
    fn links_to_files_and_folders_resolve() {
        let good = "[a](unsafe.md) [b](../README.md#top) [c](../core/src) [d](https://x.org/y) [e](#here) [f](./unsafe.md)";
        assert!(findings(good).is_empty(), "{:?}", findings(good));
    }

    #[test]
    fn a_dead_link_is_found_with_its_line() {
        let found = findings("fine\n[a](gone.md)\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("docs/book.md:2:"), "{found:?}");
    }

    #[test]
    fn paths_in_back_quotes_resolve_from_the_root() {
        assert!(
            findings(
                "`core/src/lib.rs` `core/` `a/b` `core/*.rs` `rpc::Client::call` 3 `1/2` `/proc/self/fd`"
            )
            .is_empty()
        );
        assert_eq!(findings("see `core/src/gone.rs`").len(), 1);
    }

    #[test]
    fn code_blocks_contain_no_links() {
        assert!(findings("```text\n[a](gone.md) `core/gone.rs`\n```\n").is_empty());
    }
}
