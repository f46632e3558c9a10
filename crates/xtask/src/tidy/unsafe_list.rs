//! The list of modules with `unsafe` in docs/unsafe.md must match the code.

use std::collections::BTreeSet;

use super::rules::has_unsafe;
use super::source::Source;
use super::{Tree, rust};

const LIST: &str = "docs/unsafe.md";

/// Reports files with `unsafe` that have no row in the list, rows without such a file, and rows with an empty cell.
pub(super) fn matches_the_code(tree: &Tree) -> Vec<String> {
    let rows = rows(tree.get(LIST).map_or("", String::as_str));
    let listed: BTreeSet<&str> = rows.iter().map(|row| row.file).collect();
    let mut findings = Vec::new();
    let with_unsafe: BTreeSet<&str> =
        rust(tree).filter(|(_, text)| has_unsafe(&Source::read(text))).map(|(path, _)| path).collect();
    for path in with_unsafe.difference(&listed) {
        findings.push(format!("{path}: contains `unsafe` but has no row in {LIST}"));
    }
    for path in listed.difference(&with_unsafe) {
        findings.push(format!("{LIST}: lists {path}, which contains no `unsafe` or does not exist"));
    }
    for row in rows.iter().filter(|row| !row.is_complete) {
        findings
            .push(format!("{LIST}: the row of {} must contain the invariants and their checks", row.file));
    }
    findings
}

struct Row<'a> {
    file: &'a str,
    is_complete: bool,
}

/// Returns the rows of the table whose first cell is a Rust file in back quotes.
fn rows(list: &str) -> Vec<Row<'_>> {
    list.lines()
        .filter_map(|line| {
            let cells: Vec<&str> =
                line.strip_prefix('|')?.trim_end().strip_suffix('|')?.split('|').map(str::trim).collect();
            let file = cells[0].strip_prefix('`')?.strip_suffix('`')?;
            let is_complete = cells.len() == 3 && cells.iter().all(|cell| !cell.is_empty());
            file.ends_with(".rs").then_some(Row { file, is_complete })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const LISTED: &str = "| module | invariants | checks |\n|---|---|---|\n| `a/map.rs` | I1 | loom |\n";

    #[test]
    fn list_and_code_agree() {
        assert!(matches_the_code(&tree(&[(LIST, LISTED), ("a/map.rs", "unsafe fn f() {}")])).is_empty());
    }

    #[test]
    fn an_unlisted_module_is_found_and_so_is_a_stale_row() {
        let files =
            tree(&[(LIST, LISTED), ("b/map.rs", "unsafe fn f() {}"), ("a/map.rs", "// unsafe no more")]);
        let found = matches_the_code(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("b/map.rs") && found[1].contains("lists a/map.rs"));
    }

    #[test]
    fn forbidding_unsafe_is_not_unsafe_code() {
        assert!(
            matches_the_code(&tree(&[("a.rs", "#![forbid(unsafe_code)]\n#![deny(unsafe_op_in_unsafe_fn)]")]))
                .is_empty()
        );
    }

    #[test]
    fn a_row_without_a_check_is_found() {
        let list = "| `a/map.rs` | I1 |  |";
        assert_eq!(matches_the_code(&tree(&[(LIST, list), ("a/map.rs", "unsafe fn f() {}")])).len(), 1);
    }
}
