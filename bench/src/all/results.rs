//! The folder of results: one file for each, and a record of the build that measured them, so that a later run can keep them.
//!
//! # Invariants
//! 1. A file `NAME.json` is complete: it is written under another name, and renamed.
//! 2. The record names only results that this build measured in runs of the recorded length.

use core::hash::Hasher as _;
use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::hash::DefaultHasher;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::Part;
use crate::page::Result as Found;
use crate::results as files;

/// The folder, and what is in it.
#[derive(Debug)]
pub(super) struct Results {
    folder: PathBuf,
    record: Record,
}

/// The content of `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    /// Hash of the program.
    build: String,
    /// Whether the runs were quick.
    quick: bool,
    /// Names of the parts with a result.
    done: BTreeSet<String>,
}

impl Results {
    /// Opens the folder. If `resume` is set, results are kept that this program measured in runs of the same length.
    pub(super) fn open(folder: &Path, quick: bool, resume: bool) -> anyhow::Result<Self> {
        Self::open_for(folder, quick, resume, build()?)
    }

    fn open_for(folder: &Path, quick: bool, resume: bool, build: String) -> anyhow::Result<Self> {
        let fresh = Record { build, quick, done: BTreeSet::new() };
        let known = fs::read_to_string(folder.join(RECORD)).ok();
        let known = known.and_then(|text| serde_json::from_str::<Record>(&text).ok());
        let is_same = |known: &Record| resume && (&known.build, known.quick) == (&fresh.build, quick);
        let record = known.filter(is_same).unwrap_or(fresh);
        let mut results = Self { folder: folder.to_owned(), record };
        let lost = |part: &Part| results.has(*part) && files::read(&results.path(*part)).is_err();
        for part in Part::every().filter(lost).collect::<Vec<_>>() {
            results.record.done.remove(&part.name());
        }
        results.save()?;
        Ok(results)
    }

    /// Returns whether there is a result of the part.
    pub(super) fn has(&self, part: Part) -> bool {
        self.record.done.contains(&part.name())
    }

    /// Returns the number of results.
    pub(super) fn count(&self) -> usize {
        self.record.done.len()
    }

    /// Returns the path of a part's output while it runs.
    pub(super) fn unfinished(&self, part: Part) -> PathBuf {
        self.folder.join(format!("{}.json.unfinished", part.name()))
    }

    /// Returns the folder of a part's figures.
    pub(super) fn figures(&self, part: Part) -> PathBuf {
        self.folder.join("figures").join(part.name())
    }

    /// Adds a result, whose text is in the unfinished file.
    pub(super) fn add(&mut self, part: Part, json: &Value) -> anyhow::Result<()> {
        let (unfinished, path) = (self.unfinished(part), self.path(part));
        let name = json["experiment"].as_str().unwrap_or_default();
        anyhow::ensure!(name == part.experiment.name, "the result is one of {name:?}");
        fs::rename(&unfinished, &path).with_context(|| format!("renaming {}", unfinished.display()))?;
        self.record.done.insert(part.name());
        self.save()
    }

    /// Removes a result of an earlier run, and its figures.
    pub(super) fn forget(&mut self, part: Part) -> anyhow::Result<()> {
        self.record.done.remove(&part.name());
        self.save()?;
        let gone = |removed: std::io::Result<()>| match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        gone(fs::remove_file(self.path(part)))
            .and_then(|()| gone(fs::remove_dir_all(self.figures(part))))
            .with_context(|| format!("removing the earlier result of {}", part.name()))
    }

    /// Reads all results, in the order of the experiments.
    pub(super) fn read(&self) -> anyhow::Result<Vec<Found>> {
        let read = |part: Part| super::found(files::read(&self.path(part))?, &self.figures(part));
        Part::every().filter(|part| self.has(*part)).map(read).collect()
    }

    fn path(&self, part: Part) -> PathBuf {
        self.folder.join(format!("{}.json", part.name()))
    }

    fn save(&self) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.record).context("formatting the record")?;
        let (path, unfinished) = (self.folder.join(RECORD), self.folder.join("run.json.unfinished"));
        fs::write(&unfinished, text + "\n")
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("writing {}", path.display()))
    }
}

/// Returns a hash of the program's file.
fn build() -> anyhow::Result<String> {
    let path = env::current_exe().context("asking for this program's path")?;
    let mut file = File::open(&path).with_context(|| format!("reading {}", path.display()))?;
    let (mut hasher, mut block) = (DefaultHasher::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut block).with_context(|| format!("reading {}", path.display()))? {
            0 => return Ok(format!("{:016x}", hasher.finish())),
            count => hasher.write(&block[..count]),
        }
    }
}

const RECORD: &str = "run.json";

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str) -> Part {
        Part::every().find(|part| part.name() == name).unwrap()
    }

    fn add(results: &mut Results, name: &str) {
        let json = serde_json::json!({"experiment": name, "rows": []});
        fs::write(results.unfinished(part(name)), json.to_string()).unwrap();
        results.add(part(name), &json).unwrap();
    }

    #[test]
    fn results_of_the_same_build_and_length_are_kept_and_others_are_not() {
        let folder = env::temp_dir().join(format!("pronto-all-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let open =
            |quick, resume, build: &str| Results::open_for(&folder, quick, resume, build.into()).unwrap();
        let done = |results: &Results| {
            Part::every().filter(|part| results.has(*part)).map(Part::name).collect::<Vec<_>>()
        };
        let mut results = open(true, false, "a");
        add(&mut results, "floor");
        add(&mut results, "latency");
        assert_eq!(done(&open(true, true, "a")), ["floor", "latency"]);
        results.forget(part("floor")).unwrap();
        assert_eq!(done(&open(true, true, "a")), ["latency"], "the experiment was interrupted");
        fs::write(folder.join("latency.json"), "{").unwrap();
        assert!(done(&open(true, true, "a")).is_empty(), "a damaged result is measured again");
        for (quick, resume, build) in [(false, true, "a"), (true, true, "b"), (true, false, "a")] {
            add(&mut open(true, false, "a"), "floor");
            assert!(done(&open(quick, resume, build)).is_empty(), "{quick} {resume} {build}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_result_of_another_experiment_is_refused() {
        let folder = env::temp_dir().join(format!("pronto-all-other-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut results = Results::open_for(&folder, true, false, "a".into()).unwrap();
        assert!(results.add(part("floor"), &serde_json::json!({"experiment": "latency"})).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_build_has_one_hash() {
        assert_eq!(build().unwrap(), build().unwrap());
    }
}
