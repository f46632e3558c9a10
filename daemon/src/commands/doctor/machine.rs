//! The machine that is looked at: its files below a root, so that tests look at recorded ones.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

/// Of a file so much is read.
const MOST: u64 = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) root: PathBuf,
    /// It is a recorded one's; gone with the value.
    #[cfg(test)]
    is_recorded: bool,
}

impl Machine {
    /// The one that this runs on.
    pub(super) fn here() -> Self {
        Self {
            root: "/".into(),
            #[cfg(test)]
            is_recorded: false,
        }
    }

    /// What a file says, without what is blank around it; None if it cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        fs::File::open(self.root.join(path)).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number that a file says.
    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a folder, sorted; none if it is not there.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// The choice in brackets, of files as `always [madvise] never`; the whole text if there are none.
    pub(super) fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let chosen = |mark: [char; 2]| Some(text.split_once(mark[0])?.1.split_once(mark[1])?.0.to_owned());
        Some(chosen(['[', ']']).or_else(|| chosen(['(', ')'])).unwrap_or(text))
    }

    /// Whether this process has a capability, by its number in capabilities(7).
    pub(super) fn has_capability(&self, number: u32) -> bool {
        let status = self.text("proc/self/status").unwrap_or_default();
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
        set & (1 << number) != 0
    }
}

#[cfg(test)]
impl Machine {
    /// A machine of these files; `name` is the test's own.
    pub(super) fn recorded(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("pronto-doctor-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("a folder");
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(path, format!("{text}\n")).expect("a file");
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
    fn choices_stand_in_brackets() {
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
