//! The length of commit subjects.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Subjects up to this commit are not checked; most of them are longer than the rule permits.
const LAST_UNCHECKED: &str = "c54cf3e9408ee26f08cd484e949172cd19bdddc4";

/// The longest subject that `git log --oneline` shows on one line of a terminal.
const MAX_CHARACTERS: usize = 72;

/// Reports commits after [`LAST_UNCHECKED`] with long subjects. Without their history, prints the reason and reports nothing.
pub(super) fn lengths(root: &Path) -> Vec<String> {
    match subjects_after(LAST_UNCHECKED, root) {
        Ok(log) => too_long(&log),
        Err(reason) => {
            println!("tidy: commit subjects are not checked: {reason:#}");
            Vec::new()
        }
    }
}

/// Returns the abbreviated hash and the subject of each commit after `last`, one commit per line.
///
/// # Errors
/// The tree is not a full clone, or does not contain `last`.
fn subjects_after(last: &str, root: &Path) -> Result<String> {
    ensure!(root.join(".git").exists(), "{} is not the root of a git repository", root.display());
    let is_shallow = git(root, &["rev-parse", "--is-shallow-repository"])?;
    ensure!(is_shallow.trim() == "false", "the checkout is shallow");
    git(root, &["cat-file", "-e", &format!("{last}^{{commit}}")])
        .with_context(|| format!("the history does not contain {last}"))?;
    git(root, &["log", "--format=%h %s", &format!("{last}..HEAD")])
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("git").args(arguments).current_dir(root).output().context("cannot start git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments[0], error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn too_long(log: &str) -> Vec<String> {
    let finding = |line: &str| {
        let (commit, subject) = line.split_once(' ')?;
        let length = subject.chars().count();
        (length > MAX_CHARACTERS).then(|| {
            format!("commit {commit}: the subject has {length} characters, at most {MAX_CHARACTERS}")
        })
    };
    log.lines().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A folder of one test, deleted on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("pronto-subjects-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        /// Creates a repository, and returns the hash of its first commit.
        fn init(&self) -> String {
            git(&self.0, &["init", "--quiet"]).unwrap();
            self.commit(&"first ".repeat(20));
            git(&self.0, &["rev-parse", "HEAD"]).unwrap().trim().to_owned()
        }

        fn commit(&self, message: &str) {
            let author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false"];
            let commit = ["commit", "--quiet", "--allow-empty", "-m", message];
            git(&self.0, &[&author[..], &commit].concat()).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn characters_of_subjects_are_counted() {
        let (fits, long) = ("ä".repeat(72), "a".repeat(73));
        let found = too_long(&format!("1 {fits}\n2 {long}\n3 \n"));
        assert_eq!(found, ["commit 2: the subject has 73 characters, at most 72"]);
    }

    #[test]
    fn only_later_commits_are_checked_without_their_bodies() {
        let folder = Folder::new("later");
        let first = folder.init();
        folder.commit(&format!("short\n\n{}", "long ".repeat(20)));
        folder.commit(&"long ".repeat(20));
        let found = too_long(&subjects_after(&first, &folder.0).unwrap());
        assert!(found.len() == 1 && found[0].contains("has 99 characters"), "{found:?}");
    }

    #[test]
    fn without_the_history_the_rule_is_skipped() {
        let folder = Folder::new("full");
        let first = folder.init();
        folder.commit("second");
        let reason = |last: &str, root: &Path| format!("{:#}", subjects_after(last, root).unwrap_err());
        let missing = "0123456789012345678901234567890123456789";
        assert!(reason(missing, &folder.0).starts_with("the history does not contain 0123"));
        assert!(lengths(&folder.0).is_empty());

        let shallow = folder.0.join("shallow");
        let url = format!("file://{}", folder.0.display());
        git(&folder.0, &["clone", "--quiet", "--depth=1", &url, "shallow"]).unwrap();
        assert_eq!(reason(&first, &shallow), "the checkout is shallow");
        assert!(lengths(&shallow).is_empty());

        let exported = folder.0.join("exported");
        fs::create_dir(&exported).unwrap();
        assert!(reason(&first, &exported).ends_with("exported is not the root of a git repository"));
        assert!(lengths(&exported).is_empty());
    }
}
