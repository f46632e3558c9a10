//! The style rules that rustfmt and clippy do not check, for the files of the tree and the commits.

mod language;
mod layers;
pub(crate) mod links;
mod promises;
mod rules;
mod source;
mod subjects;
mod summary;
mod unsafe_list;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// Work other than checking.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// First rewrite the footnotes of the documents, which name the tests of their promises
    #[arg(long)]
    footnotes: bool,
    /// Only list the promises of the documents, with their tests
    #[arg(long, conflicts_with = "footnotes")]
    promises: bool,
}

/// The text files of the project, by their paths relative to the root, with `/`.
type Tree = BTreeMap<String, String>;

/// A rule checks the whole tree and returns one sentence per finding, beginning with the file.
type Rule = fn(&Tree) -> Vec<String>;

const RULES: &[Rule] = &[
    rules::file_names,
    rules::module_docs,
    rules::file_lengths,
    rules::attributes,
    rules::unfinished_work,
    rules::forbidden_unsafe,
    unsafe_list::matches_the_code,
    layers::one_direction,
    language::plain,
    links::resolve,
    summary::lists_every_page,
    promises::are_shown,
];

/// Runs the command: checks all rules, unless the options say otherwise.
///
/// # Errors
/// The tree cannot be read, or a document cannot be written.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    if options.promises {
        print!("{}", promises::list(&read(&workspace.root)?));
        return Ok(ExitCode::SUCCESS);
    }
    if options.footnotes {
        for (path, text) in promises::rewritten(&read(&workspace.root)?) {
            std::fs::write(workspace.root.join(path), text)
                .with_context(|| format!("cannot write {path}"))?;
            println!("tidy: {path} was rewritten");
        }
    }
    Ok(crate::verdict("tidy", &check(workspace)?))
}

/// Applies every rule to the files that git tracks or would add, and to the history.
///
/// # Errors
/// The tree cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let tree = read(&workspace.root)?;
    let findings = RULES.iter().flat_map(|rule| rule(&tree));
    Ok(findings.chain(subjects::lengths(&workspace.root)).collect())
}

fn read(root: &Path) -> Result<Tree> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot start git")?;
    if !output.status.success() {
        bail!("git cannot list the files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let mut tree = Tree::new();
    for path in String::from_utf8_lossy(&output.stdout).split_terminator('\0') {
        // A deleted file is skipped, also before the deletion is committed. A binary file is kept without its content.
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            tree.insert(path.into(), text);
        } else if root.join(path).exists() {
            tree.insert(path.into(), String::new());
        }
    }
    Ok(tree)
}

/// Returns the Rust files of the tree.
fn rust(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(path, text)| (path.as_str(), text.as_str()))
}

#[cfg(test)]
fn tree(files: &[(&str, &str)]) -> Tree {
    files.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect()
}
