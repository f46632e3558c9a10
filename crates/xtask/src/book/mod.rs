//! `cargo xtask book`: the documentation as an HTML book, made by mdbook from `docs/SUMMARY.md`.
//!
//! The pages lie in several folders and link to each other by relative paths, so that they also work on a code host. They are copied into
//! a folder of the same shape, where mdbook turns these paths into links of the book.

pub(crate) mod pages;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::tools::{self, Crate};
use crate::workspace::Workspace;

const MDBOOK: Crate = Crate {
    name: "mdbook",
    version: "0.5.4",
    shown_by: &["--version"],
    options: &["--no-default-features", "--features", "search"],
};
const CONFIGURATION: &str = "docs/book.toml";

/// Builds the book and prints its path.
///
/// # Errors
/// mdbook cannot be installed or fails, or a page cannot be read or written.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let mdbook = tools::installed(workspace, &MDBOOK)?;
    let source = workspace.target.join("book-src");
    stage(&workspace.root, &source)?;
    let book = workspace.target.join("book");
    let status = Command::new(mdbook)
        .arg("build")
        .arg(&source)
        .arg("--dest-dir")
        .arg(&book)
        .status()
        .context("cannot start mdbook")?;
    ensure!(status.success(), "mdbook failed");
    println!("{}", book.join("index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Writes the configuration, the summary and all pages to `folder`, which is emptied first.
fn stage(root: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let summary = read(root, pages::SUMMARY)?;
    write(folder, "book.toml", &read(root, CONFIGURATION)?)?;
    write(folder, "src/SUMMARY.md", &pages::from_root(&summary))?;
    let listed = pages::listed(&summary);
    for page in &listed {
        let text = pages::with_links_to(&read(root, page)?, page, &listed);
        write(folder, &format!("src/{page}"), &text)?;
    }
    Ok(())
}

fn read(root: &Path, path: &str) -> Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

fn write(folder: &Path, path: &str, text: &str) -> Result<()> {
    let file = folder.join(path);
    let parent = file.parent().context("a file without a folder")?;
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(&file, text))
        .with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_of_the_project_are_staged() {
        let folder = std::env::temp_dir().join(format!("pronto-book-{}", std::process::id()));
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        stage(root, &folder).expect("every page can be read");
        let first = std::fs::read_to_string(folder.join("src/README.md")).expect("the first page is staged");
        assert!(first.contains("(docs/tutorial.md)"), "the README links to the tutorial");
        assert!(folder.join("src/docs/tutorial.md").is_file() && folder.join("book.toml").is_file());
        std::fs::remove_dir_all(&folder).expect("the folder was made by this test");
    }
}
