//! The list of faults that refute claims.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::mutate::planted;

/// The path of the list, relative to the workspace.
const LIST: &str = "bench/refuted.toml";

/// A fault, and the claim that it refutes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    /// Id of the claim.
    pub(super) id: String,
    /// Arguments of `pronto-bench` for the shortest run that judges it.
    pub(super) run: String,
    /// The source file, relative to the workspace.
    pub(super) file: String,
    /// The text to replace, which occurs once before the tests.
    pub(super) from: String,
    /// The replacement.
    pub(super) to: String,
    /// The broken property.
    pub(super) breaks: String,
}

#[derive(Debug, Deserialize)]
struct List {
    fault: Vec<Fault>,
}

/// Returns all faults in the order of the list.
///
/// # Errors
/// The list is missing, is not TOML of the known format, or is empty.
pub(super) fn read(root: &Path) -> Result<Vec<Fault>> {
    let path = root.join(LIST);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let list: List = toml::from_str(&text).with_context(|| format!("{} is invalid", path.display()))?;
    ensure!(!list.fault.is_empty(), "{} contains no fault", path.display());
    Ok(list.fault)
}

impl Fault {
    /// Returns `source` with the fault.
    ///
    /// # Errors
    /// See [`planted`].
    pub(super) fn applied(&self, source: &str) -> Result<String> {
        planted(source, [&self.from, &self.to]).with_context(|| format!("{}: {}", self.id, self.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Least number of faults of the list, and of each paper.
    const LEAST: usize = 15;
    const OF_EACH_PAPER: usize = 2;

    #[test]
    fn every_fault_applies_outside_of_the_judges_and_every_paper_has_some() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let faults = read(root).unwrap();
        assert!(faults.len() >= LEAST, "{} faults", faults.len());
        for fault in &faults {
            let source = fs::read_to_string(root.join(&fault.file)).unwrap();
            fault.applied(&source).unwrap();
            let judges = ["bench/src/experiments/", "bench/src/papers/", "bench/src/claim.rs"];
            assert!(!judges.iter().any(|judge| fault.file.starts_with(judge)), "{}", fault.file);
            let same = faults.iter().filter(|other| other.id == fault.id).count();
            assert_eq!(same, 1, "{} is refuted twice", fault.id);
        }
        for paper in ["K", "X", "S", "P", "Q"] {
            let count = faults.iter().filter(|fault| fault.id.starts_with(paper)).count();
            assert!(count >= OF_EACH_PAPER, "paper {paper} has {count} faults");
        }
    }
}
