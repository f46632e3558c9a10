//! Random faults: cargo-mutants makes all single changes of the sources that it knows, such as an inverted comparison or a function that
//! returns a default, and every n-th of them is planted.
//!
//! The tests that judge a fault run in rounds, from fast to slow, and a round sees only the faults that no earlier one has detected.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::mirror;
use crate::tools::{self, Crate, WORKSPACE};
use crate::workspace::Workspace;

const MUTANTS: Crate =
    Crate { name: "cargo-mutants", version: "27.1.0", shown_by: &["mutants", "--version"], options: &[] };

/// Faults that are not planted, each with its reason.
const CONFIGURATION: &str = ".cargo/mutants.toml";

/// The packages in which faults are planted.
const SUBJECTS: [&str; 4] = ["pronto-core", "pronto-rpc", "pronto-node", "pronto-wire"];

/// Rounds of tests, by package. The first one runs the tests of the package that has the fault.
const ROUNDS: [&[&str]; 3] = [&[], &["pronto-sim", "pronto-rpc", "pronto-node"], &["pronto"]];

/// Seeds of each simulated story: enough for faults that tests of single states do not reach.
const SEEDS: &str = "20";

/// Folder of cargo-mutants with the results of a round.
const RESULTS: &str = "mutants.out";

/// File with the state of a campaign.
const JUDGED: &str = "judged.json";

/// Time limit for the tests of a round, seconds. A fault that exceeds it is detected: it causes an endless loop or wait.
const TIMEOUT: &str = "300";

/// The result of a campaign.
pub(super) struct Outcome {
    /// Faults that compile.
    judged: usize,
    /// Those that no test detects.
    undetected: Vec<String>,
}

impl Outcome {
    /// Returns a finding for each fault that no test detects.
    pub(super) fn findings(&self) -> Vec<String> {
        self.undetected.iter().map(|fault| format!("no test detects this fault: {fault}")).collect()
    }

    /// Returns the findings if fewer than nine of ten faults were detected. Some random faults change nothing that a test could see.
    pub(super) fn too_few(&self) -> Vec<String> {
        if self.undetected.len() * 10 <= self.judged { Vec::new() } else { self.findings() }
    }
}

/// Plants about `count` faults, chosen by `seed`, and finds those that no test detects. A run that was interrupted goes on if `resume` is true,
/// without the faults that were judged. The tree has to be the same.
///
/// # Errors
/// cargo-mutants cannot be installed, tests fail without a fault, or a file cannot be read.
pub(super) fn run(workspace: &Workspace, count: u32, seed: u32, resume: bool) -> Result<Outcome> {
    tools::provide(WORKSPACE)?;
    let campaign = Campaign {
        program: tools::installed(workspace, &MUTANTS)?,
        configuration: workspace.root.join(CONFIGURATION),
        tree: mirror::of_tree(workspace, "mutants")?,
        output: workspace.target.join(format!("mutants-{count}-{seed}")),
    };
    let mut judged = if resume { campaign.interrupted()? } else { None };
    if judged.is_none() && campaign.output.exists() {
        fs::remove_dir_all(&campaign.output).context("cannot remove the results of an earlier run")?;
    }
    fs::create_dir_all(&campaign.output).context("cannot make the folder of the results")?;
    let judged = match &mut judged {
        Some(judged) => judged,
        None => judged.insert(Judged { chosen: campaign.choose(count, seed)?, ..Judged::default() }),
    };
    while judged.round < ROUNDS.len() {
        let left = judged.left();
        let packages = ROUNDS[judged.round];
        println!(
            "round {} of {}: {} faults, tests of {}",
            judged.round + 1,
            ROUNDS.len(),
            left.len(),
            name_of(packages)
        );
        campaign.keep(judged)?;
        campaign.round(&left, packages)?;
        campaign.take_results(judged)?;
        judged.begin_next_round();
    }
    campaign.keep(judged)?;
    let outcome = judged.outcome();
    println!(
        "{} of {} faults were detected, {} of them because the tests took longer than {TIMEOUT} s, as on a busy machine they may without a \
         fault, too; details: {}",
        outcome.judged - outcome.undetected.len(),
        outcome.judged,
        judged.endless.len(),
        campaign.output.display()
    );
    Ok(outcome)
}

/// Returns a round's packages in words.
fn name_of(packages: &[&str]) -> String {
    if packages.is_empty() { "the package itself".to_owned() } else { packages.join(", ") }
}

/// The chosen faults by name, and how far they are judged. A file keeps it between two runs.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Judged {
    chosen: BTreeSet<String>,
    /// The present round, from 0.
    round: usize,
    detected: BTreeSet<String>,
    /// Detected because the tests did not end in time; also in `detected`.
    endless: BTreeSet<String>,
    /// Faults that do not compile.
    unviable: BTreeSet<String>,
    /// Faults that the tests of the present round do not detect; after the last round, those that no test detects.
    missed: BTreeSet<String>,
}

impl Judged {
    /// Returns the faults that the present round has to judge.
    fn left(&self) -> Vec<&str> {
        let is_left = |fault: &&String| {
            ![&self.detected, &self.unviable, &self.missed].iter().any(|judged| judged.contains(*fault))
        };
        self.chosen.iter().filter(is_left).map(String::as_str).collect()
    }

    fn begin_next_round(&mut self) {
        self.round += 1;
        if self.round < ROUNDS.len() {
            self.missed.clear();
        }
    }

    fn outcome(&self) -> Outcome {
        let undetected: Vec<_> = self.missed.iter().cloned().collect();
        Outcome { judged: self.detected.len() + undetected.len(), undetected }
    }
}

/// One choice of faults, with its copy of the tree and its results.
struct Campaign {
    program: PathBuf,
    configuration: PathBuf,
    tree: PathBuf,
    output: PathBuf,
}

impl Campaign {
    /// Chooses every n-th of all known faults.
    fn choose(&self, count: u32, seed: u32) -> Result<BTreeSet<String>> {
        let known: Vec<_> = self.known()?.into_iter().filter(|fault| !is_of_tests(fault)).collect();
        let distance = (known.len() / count as usize).max(1);
        let first = seed as usize % distance;
        println!("{} faults are known; planting each {distance}th, from number {first}", known.len());
        Ok(known.into_iter().skip(first).step_by(distance).collect())
    }

    /// Returns the names of all faults that cargo-mutants knows here.
    fn known(&self) -> Result<Vec<String>> {
        let listed = self
            .command()
            .args(["--list", "--level", "error"])
            .output()
            .context("cannot start cargo-mutants")?;
        ensure!(listed.status.success(), "cargo-mutants cannot list faults");
        let names = String::from_utf8_lossy(&listed.stdout);
        let known: Vec<_> = names.lines().map(str::to_owned).collect();
        ensure!(!known.is_empty(), "cargo-mutants knows no fault");
        Ok(known)
    }

    /// Returns the state of an earlier run that has not judged all its faults.
    fn interrupted(&self) -> Result<Option<Judged>> {
        let file = self.output.join(JUDGED);
        if !file.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).context("cannot read the results of an earlier run")?;
        let mut judged = serde_json::from_str(&text).context("the results of an earlier run are damaged")?;
        self.take_results(&mut judged)?;
        Ok((judged.round < ROUNDS.len()).then_some(judged))
    }

    fn keep(&self, judged: &Judged) -> Result<()> {
        let text = serde_json::to_string_pretty(judged).context("cannot write the results as text")?;
        fs::write(self.output.join(JUDGED), text).context("cannot keep the results")
    }

    /// Judges these faults by the tests of these packages.
    fn round(&self, faults: &[&str], packages: &[&str]) -> Result<()> {
        if faults.is_empty() {
            return Ok(());
        }
        // cargo-mutants cannot choose faults by their names, as its filters have no effect on deleted fields. But it leaves out the faults
        // that an earlier run has caught.
        let mut others = self.known()?;
        others.retain(|fault| !faults.contains(&fault.as_str()));
        let folder = self.output.join(RESULTS);
        fs::create_dir_all(&folder).context("cannot make a folder for the results of a round")?;
        fs::write(folder.join("previously_caught.txt"), others.join("\n"))
            .context("cannot write the list of other faults")?;
        let mut command = self.command();
        command
            .args(["--in-place", "--iterate", "--timeout", TIMEOUT])
            .args(["--cap-lints", "true", "--caught", "--level", "warn"])
            .arg("--output")
            .arg(&self.output)
            .args(packages.iter().flat_map(|package| ["--test-package", package]));
        let status = command.status().context("cannot start cargo-mutants")?;
        // Documented exit codes: 2 if a fault was missed, 3 if tests timed out.
        ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo-mutants failed: {status}");
        Ok(())
    }

    /// Moves the lists that cargo-mutants wrote, if it wrote any, to `judged`.
    fn take_results(&self, judged: &mut Judged) -> Result<()> {
        let folder = self.output.join(RESULTS);
        judged.endless.extend(lines(&folder.join("timeout.txt"))?);
        judged.detected.extend(lines(&folder.join("caught.txt"))?);
        judged.detected.extend(judged.endless.iter().cloned());
        judged.unviable.extend(lines(&folder.join("unviable.txt"))?);
        judged.missed.extend(lines(&folder.join("missed.txt"))?);
        self.keep(judged)?;
        if folder.exists() {
            // Kept for people, under a name that a later run does not read.
            let number = (1..).find(|number| !self.logs(*number).exists()).unwrap_or(1_u32);
            fs::rename(&folder, self.logs(number)).context("cannot move the logs of a round")?;
        }
        Ok(())
    }

    fn logs(&self, number: u32) -> PathBuf {
        self.output.join(format!("logs-{number}"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("mutants")
            .arg("--dir")
            .arg(&self.tree)
            .arg("--config")
            .arg(&self.configuration)
            .args(SUBJECTS.iter().flat_map(|package| ["--package", package]))
            .env("CARGO_TARGET_DIR", self.tree.join("target"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "1")
            .env("PRONTO_SIM_SEEDS", SEEDS)
            .env("PROPTEST_FAILURE_PERSISTENCE", "off")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command
    }
}

/// Returns whether a fault is in the code of tests. cargo-mutants leaves out most of these itself, but not deleted fields.
fn is_of_tests(fault: &str) -> bool {
    fault.contains("tests::") || fault.contains("/tests.rs:")
}

/// Returns the lines of a file; none if there is no such file.
fn lines(path: &Path) -> Result<Vec<String>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_judges_the_chosen_faults_that_no_earlier_one_detected() {
        let set = |faults: &[&str]| faults.iter().map(|fault| (*fault).to_owned()).collect::<BTreeSet<_>>();
        let mut judged = Judged { chosen: set(&["a", "b", "c", "d"]), ..Judged::default() };
        judged.detected = set(&["a"]);
        judged.unviable = set(&["b"]);
        judged.missed = set(&["c"]);
        assert_eq!(judged.left(), ["d"]);
        judged.begin_next_round();
        assert_eq!(judged.left(), ["c", "d"]);
        judged.missed = set(&["c", "d"]);
        judged.round = ROUNDS.len() - 1;
        judged.begin_next_round();
        let outcome = judged.outcome();
        assert_eq!((outcome.judged, outcome.undetected), (3, vec!["c".to_owned(), "d".to_owned()]));
    }

    #[test]
    fn one_undetected_fault_of_ten_is_allowed() {
        let outcome = |judged, undetected: &[&str]| Outcome {
            judged,
            undetected: undetected.iter().map(|fault| (*fault).to_owned()).collect(),
        };
        assert!(outcome(0, &[]).too_few().is_empty());
        assert!(outcome(20, &["a", "b"]).too_few().is_empty());
        assert_eq!(outcome(19, &["a", "b"]).too_few().len(), 2);
        assert_eq!(outcome(20, &["a", "b"]).findings().len(), 2);
    }
}
