//! The inspected machine: the files below a root, so that tests can inspect recorded files.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

/// At most this many bytes of a file are read. Chosen by us; no source.
const MOST: u64 = 256 << 10;

/// The root of the inspected file system.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) root: PathBuf,
    /// Whether the files are a test's own; they are then deleted with the value.
    #[cfg(test)]
    is_recorded: bool,
}

impl Machine {
    /// Returns the machine on which this program runs.
    pub(super) fn here() -> Self {
        Self {
            root: "/".into(),
            #[cfg(test)]
            is_recorded: false,
        }
    }

    /// Returns the trimmed text of a file, or `None` if it cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        fs::File::open(self.root.join(path)).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Returns the number in a file.
    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the sorted names in a folder; empty if the folder does not exist.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the bracketed choice of a file such as `always [madvise] never`, or the whole text if there are no brackets.
    pub(super) fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let chosen = |mark: [char; 2]| Some(text.split_once(mark[0])?.1.split_once(mark[1])?.0.to_owned());
        Some(chosen(['[', ']']).or_else(|| chosen(['(', ')'])).unwrap_or(text))
    }

    /// Returns whether this process has a capability, by its number in capabilities(7).
    pub(super) fn has_capability(&self, number: u32) -> bool {
        let status = self.text("proc/self/status").unwrap_or_default();
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
        set & (1 << number) != 0
    }
}

#[cfg(test)]
impl Machine {
    /// Records these files as a machine; `name` must be unique per test.
    pub(super) fn recorded(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("pronto-doctor-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("the temporary folder is writable");
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("below the root"))
                .expect("the temporary folder is writable");
            fs::write(path, format!("{text}\n")).expect("the temporary folder is writable");
        }
        Self { root, is_recorded: true }
    }
}

#[cfg(test)]
impl Drop for Machine {
    fn drop(&mut self) {
        if self.is_recorded {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_in_brackets() {
        let files = [("a", "always [madvise] never"), ("b", "none voluntary (full)"), ("c", "tsc")];
        let machine = Machine::recorded("choices", &files);
        let chosen = |path| machine.chosen(path);
        assert_eq!(chosen("a").as_deref(), Some("madvise"));
        assert_eq!(chosen("b").as_deref(), Some("full"));
        assert_eq!(chosen("c").as_deref(), Some("tsc"));
        assert_eq!(chosen("d"), None);
    }

    #[test]
    fn capabilities_are_bits() {
        let machine =
            Machine::recorded("bits", &[("proc/self/status", "Name:\tx\nCapEff:\t0000000000001000")]);
        assert!(machine.has_capability(12) && !machine.has_capability(13));
    }
}
