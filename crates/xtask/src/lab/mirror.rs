//! The mirror of Debian's archive: the one that this machine uses itself.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The variable that sets another mirror, which is necessary if this machine does not run Debian.
const VARIABLE: &str = "PRONTO_LAB_MIRROR";

/// End of the address of Debian's main archive on any mirror. The archive of security updates has another one.
const ENDING: &str = "/debian";

/// Returns the address of the archive.
///
/// # Errors
/// The machine's package sources do not contain one.
pub(super) fn find() -> Result<String> {
    if let Ok(address) = std::env::var(VARIABLE) {
        return Ok(address.trim_end_matches('/').to_owned());
    }
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = std::fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.flatten().map(|entry| entry.path()).filter(|path| is_source(path)));
    }
    files.sort();
    files
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .find_map(|text| archive(&text))
        .with_context(|| {
            format!(
                "this machine's package sources contain no mirror of Debian's archive; set {VARIABLE} to one"
            )
        })
}

fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "list" || extension == "sources")
}

/// Returns the first address of a Debian archive in a file of sources, in the one-line format (`deb [options] URI SUITE ...`) or the
/// deb822 format (`URIs: URI ...`).
fn archive(text: &str) -> Option<String> {
    let lines = text.lines().map(str::trim);
    let sources = lines.filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"));
    sources
        .flat_map(str::split_whitespace)
        .map(|word| word.trim_end_matches('/'))
        .find(|word| word.contains("://") && word.ends_with(ENDING))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_sources_are_read() {
        let old = "# deb http://no.example/debian sid main\ndeb [arch=amd64] http://a.example/debian/ bookworm main\n";
        assert_eq!(archive(old).as_deref(), Some("http://a.example/debian"));
        let new = "Types: deb\nURIs: http://b.example/debian\nSuites: bookworm\n";
        assert_eq!(archive(new).as_deref(), Some("http://b.example/debian"));
    }

    #[test]
    fn other_archives_are_ignored() {
        assert_eq!(archive("deb http://a.example/debian-security bookworm-security main\n"), None);
        assert_eq!(archive("URIs: https://c.example/node_20.x\n"), None);
    }
}
