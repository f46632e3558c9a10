//! Writes an initramfs: a cpio archive of the "newc" kind (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Every file belongs to root and has the time 0, so equal contents give equal bytes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

/// The content of an initramfs, by path without the leading slash.
#[derive(Debug, Default)]
pub(super) struct Tree {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Folder,
    File {
        content: Vec<u8>,
        mode: u32,
    },
    Link(String),
    /// A character device.
    Device {
        major: u32,
        minor: u32,
    },
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;
const DEVICE: u32 = 0o020_600;

impl Tree {
    pub(super) fn folder(&mut self, path: &str) {
        self.add(path, Entry::Folder);
    }

    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.add(path, Entry::Link(target.to_owned()));
    }

    pub(super) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.add(path, Entry::Device { major, minor });
    }

    pub(super) fn program(&mut self, path: &str, content: Vec<u8>) {
        self.add(path, Entry::File { content, mode: FILE | 0o755 });
    }

    pub(super) fn file(&mut self, path: &str, content: Vec<u8>) {
        self.add(path, Entry::File { content, mode: FILE | 0o644 });
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.entries.contains_key(path)
    }

    /// Adds an entry and its parent folders. Keeps existing entries.
    fn add(&mut self, path: &str, entry: Entry) {
        let mut at = 0;
        while let Some(slash) = path[at..].find('/') {
            at += slash + 1;
            self.entries.entry(path[..at - 1].to_owned()).or_insert(Entry::Folder);
        }
        self.entries.entry(path.to_owned()).or_insert(entry);
    }

    /// Returns the archive. Archives can be concatenated; the kernel unpacks them in order.
    ///
    /// # Errors
    /// An entry is longer than the format permits (4 GiB).
    pub(super) fn archive(&self) -> Result<Vec<u8>> {
        let mut archive = Vec::new();
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            let (mode, device, content) = match entry {
                Entry::Folder => (FOLDER, (0, 0), &[][..]),
                Entry::File { content, mode } => (*mode, (0, 0), content.as_slice()),
                Entry::Link(target) => (LINK, (0, 0), target.as_bytes()),
                Entry::Device { major, minor } => (DEVICE, (*major, *minor), &[][..]),
            };
            record(&mut archive, number, path, mode, device, content)?;
        }
        record(&mut archive, 0, "TRAILER!!!", 0, (0, 0), &[])?;
        Ok(archive)
    }

    /// Adds a file of the host to the tree, and keeps its executable bit.
    pub(super) fn copy(&mut self, from: &Path, path: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let context = || format!("cannot read {}", from.display());
        let content = std::fs::read(from).with_context(context)?;
        if std::fs::metadata(from).with_context(context)?.permissions().mode() & 0o111 == 0 {
            self.file(path, content);
        } else {
            self.program(path, content);
        }
        Ok(())
    }
}

fn record(
    archive: &mut Vec<u8>,
    number: u32,
    path: &str,
    mode: u32,
    device: (u32, u32),
    content: &[u8],
) -> Result<()> {
    let length = u32::try_from(content.len()).with_context(|| format!("{path} is too long"))?;
    let name = u32::try_from(path.len() + 1).with_context(|| format!("{path} is too long"))?;
    // After the magic number: inode, mode, uid, gid, links, time, size, device that contains the file (2), device that the file is (2),
    // length of the name, check sum.
    let fields = [number, mode, 0, 0, 1, 0, length, 0, 0, device.0, device.1, name, 0];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(path.as_bytes());
    archive.push(0);
    align(archive);
    archive.extend_from_slice(content);
    align(archive);
    Ok(())
}

fn align(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_their_content() {
        let mut tree = Tree::default();
        tree.file("a/b/c", b"xyz".to_vec());
        assert_eq!(tree.entries.keys().collect::<Vec<_>>(), ["a", "a/b", "a/b/c"]);
        assert_eq!(tree.entries["a/b"], Entry::Folder);
    }

    #[test]
    fn a_record_matches_the_format() {
        let mut tree = Tree::default();
        tree.program("run", b"12345".to_vec());
        let archive = tree.archive().unwrap();
        assert_eq!(&archive[..6], b"070701");
        assert_eq!(&archive[14..22], b"000081ed");
        assert_eq!(&archive[54..62], b"00000005");
        assert_eq!(&archive[110..114], b"run\0");
        assert_eq!(&archive[116..124], b"12345\0\0\0");
        assert_eq!(archive.len() % 4, 0);
        assert!(archive.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
