//! Copies programs, and the libraries with which they are linked, from unpacked packages.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cpio::Tree;
use super::progress::output;
use super::recipe::Recipe;

/// Folders of packages for programs.
const PROGRAMS: &[&str] = &["usr/bin", "usr/sbin"];

/// Folders of packages for libraries; the loader searches no others.
const LIBRARIES: &[&str] = &["usr/lib/x86_64-linux-gnu", "usr/lib"];

/// Folders that have moved into /usr.
const MERGED: &[&str] = &["bin", "sbin", "lib", "lib64"];

/// Mount points, and folders that programs expect.
const FOLDERS: &[&str] = &["proc", "sys", "dev", "run", "tmp", "root", "mnt", "var/tmp", "var/lib"];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost lab\n::1 localhost\n";

/// Adds the programs and files of the recipe to the tree. `root` contains the unpacked packages.
///
/// # Errors
/// No package contains a program, file or library.
pub(super) fn add(root: &Path, recipe: &Recipe, tree: &mut Tree) -> Result<()> {
    skeleton(tree);
    let mut linked = Vec::new();
    for tool in &recipe.tools {
        for program in &tool.programs {
            let files: Vec<_> =
                PROGRAMS.iter().flat_map(|folder| matching(root, &format!("{folder}/{program}"))).collect();
            ensure!(!files.is_empty(), "{} has no program {program}", tool.package);
            linked.extend(files);
        }
    }
    let files = recipe.tools.iter().flat_map(|tool| &tool.files).chain(&recipe.libraries.files);
    for file in files {
        let found = matching(root, file);
        ensure!(!found.is_empty(), "no package has {file}");
        linked.extend(found);
    }
    let mut copied = Vec::new();
    while let Some(path) = linked.pop() {
        if let Some(target) = place(root, &path, tree)? {
            linked.push(target);
        } else {
            copied.push(path);
        }
    }
    libraries(root, copied, tree)?;
    applets(root, tree)
}

/// Adds the files that every system has.
fn skeleton(tree: &mut Tree) {
    for folder in FOLDERS {
        tree.folder(folder);
    }
    for folder in MERGED {
        tree.folder(&format!("usr/{folder}"));
        tree.link(folder, &format!("usr/{folder}"));
    }
    // The kernel opens the console before /dev is mounted.
    tree.device("dev/console", 5, 1);
    tree.device("dev/null", 1, 3);
    tree.file("etc/passwd", PASSWD.into());
    tree.file("etc/group", GROUP.into());
    tree.file("etc/hosts", HOSTS.into());
    tree.link("usr/bin/sh", "bash");
}

/// Copies a file into the tree. If it is a link, creates the link and returns its target.
fn place(root: &Path, path: &str, tree: &mut Tree) -> Result<Option<String>> {
    let file = root.join(path);
    if file.is_symlink() {
        let target = std::fs::read_link(&file)?;
        let parent = Path::new(path).parent().context("a link has a parent folder")?;
        tree.link(path, target.to_str().context("the target of a link is not valid UTF-8")?);
        return Ok(Some(normal(&parent.join(&target))));
    }
    tree.copy(&file, path)?;
    Ok(None)
}

/// Returns a path in the tree without `..`. An absolute path is relative to the root.
fn normal(path: &Path) -> String {
    let mut parts = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::ParentDir => {
                parts.pop();
            }
            Component::RootDir => parts = PathBuf::new(),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    parts.to_string_lossy().into_owned()
}

/// Adds the libraries with which `files` are linked, and those of these libraries.
fn libraries(root: &Path, files: Vec<String>, tree: &mut Tree) -> Result<()> {
    let mut open = files;
    let mut seen = BTreeSet::new();
    while !open.is_empty() {
        let mut next = Vec::new();
        for name in needed(root, &open)? {
            if !seen.insert(name.clone()) {
                continue;
            }
            let mut places = LIBRARIES.iter().map(|folder| format!("{folder}/{name}"));
            if let Some(path) = places.find(|path| root.join(path).exists()) {
                // A link to a versioned file is followed, because no program needs the other name.
                tree.copy(&root.join(&path), &path)?;
                next.push(path);
            } else {
                ensure!(name.starts_with("ld-linux"), "no package has the library {name}");
            }
        }
        open = next;
    }
    Ok(())
}

/// Returns the libraries that these files need. Scripts and other text files need none.
fn needed(root: &Path, files: &[String]) -> Result<Vec<String>> {
    let mut binaries = Vec::new();
    for file in files {
        let path = root.join(file);
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if bytes.starts_with(b"\x7fELF") {
            binaries.push(path);
        }
    }
    if binaries.is_empty() {
        return Ok(Vec::new());
    }
    let text = output(Command::new("readelf").arg("-d").args(&binaries).env("LC_ALL", "C"))?;
    Ok(text.lines().filter_map(needed_by).map(str::to_owned).collect())
}

/// Returns the library in a line ` 0x0000000000000001 (NEEDED)  Shared library: [libc.so.6]`.
fn needed_by(line: &str) -> Option<&str> {
    line.split_once("(NEEDED)")?.1.split_once('[')?.1.strip_suffix(']')
}

/// Adds a link to busybox for every command of which the image has no other program.
fn applets(root: &Path, tree: &mut Tree) -> Result<()> {
    let busybox = root.join("usr/bin/busybox");
    for applet in output(Command::new(busybox).arg("--list"))?.lines() {
        if !PROGRAMS.iter().any(|folder| tree.has(&format!("{folder}/{applet}"))) {
            tree.link(&format!("usr/bin/{applet}"), "busybox");
        }
    }
    Ok(())
}

/// Returns the paths below `root` that match a pattern. The last part of the pattern may contain one `*`.
fn matching(root: &Path, pattern: &str) -> Vec<String> {
    let (folder, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let Some((start, end)) = name.split_once('*') else {
        let file = root.join(pattern);
        return if file.exists() || file.is_symlink() { vec![pattern.to_owned()] } else { Vec::new() };
    };
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else { return Vec::new() };
    let mut names: Vec<_> = entries
        .flatten()
        .filter(|entry| !entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| fits(name, start, end))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    names.sort();
    names
}

fn fits(name: &str, start: &str, end: &str) -> bool {
    name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_readelf_is_parsed() {
        let line = " 0x0000000000000001 (NEEDED)             Shared library: [libibverbs.so.1]";
        assert_eq!(needed_by(line), Some("libibverbs.so.1"));
        assert_eq!(needed_by(" 0x000000000000000e (SONAME)  Library soname: [libc.so.6]"), None);
    }

    #[test]
    fn links_are_followed_inside_the_root() {
        assert_eq!(normal(Path::new("usr/sbin/../bin/kmod")), "usr/bin/kmod");
        assert_eq!(normal(Path::new("/usr/bin/kmod")), "usr/bin/kmod");
    }

    #[test]
    fn one_star_matches_any_text() {
        assert!(fits("ib_send_lat", "ib_", ""));
        assert!(fits("librxe-rdmav57.so", "librxe-", ".so"));
        assert!(!fits("ab", "ab", "b"));
    }
}
