//! Random faults: cargo-mutants makes all single changes of the sources that it knows, such as an inverted comparison or a function that
//! returns a default, and every n-th of them is planted.
//!
//! The tests that judge a fault run in rounds, from fast to slow, and a round sees only the faults that no earlier one has detected.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

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

/// Time limit for the tests of a round, seconds. A fault that exceeds it is detected: it causes an endless loop or wait.
const TIMEOUT: &str = "300";

/// File with the number of the present round, from 0.
const ROUND: &str = "round";

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

/// Plants about `count` faults, chosen by `seed`, and finds those that no test detects. A run that was interrupted goes on if `resume` is true:
/// in its last round, without the faults that were detected. The tree has to be the same.
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
    let total = campaign.total()?;
    let shards = (total / count as usize).max(1);
    let shard = format!("{}/{shards}", seed as usize % shards);
    println!("{total} faults are known; planting each {shards}th, from number {}", seed as usize % shards);
    let first = if resume { campaign.interrupted() } else { None };
    if first.is_none() && campaign.output.exists() {
        fs::remove_dir_all(&campaign.output).context("cannot remove the results of an earlier run")?;
    }
    fs::create_dir_all(&campaign.output).context("cannot make the folder of the results")?;
    let mut undetected = Vec::new();
    for (at, packages) in ROUNDS.iter().enumerate().skip(first.unwrap_or(0)) {
        println!("round {} of {}: tests of {}", at + 1, ROUNDS.len(), name_of(packages));
        fs::write(campaign.output.join(ROUND), at.to_string()).context("cannot note the round")?;
        campaign.round(&shard, packages, at > 0 || first == Some(at))?;
        undetected = campaign.results("missed.txt")?;
        if undetected.is_empty() {
            break;
        }
    }
    let judged = campaign.judged()?;
    let detected = judged - undetected.len();
    let endless = campaign.results("timeout.txt")?.len();
    println!(
        "{detected} of {judged} faults were detected, {endless} of them because the tests took longer than {TIMEOUT} s, as on a busy \
         machine they may without a fault, too; details: {}",
        campaign.output.display()
    );
    Ok(Outcome { judged, undetected })
}

/// Returns a round's packages in words.
fn name_of(packages: &[&str]) -> String {
    if packages.is_empty() { "the package itself".to_owned() } else { packages.join(", ") }
}

/// One choice of faults, with its copy of the tree and its results.
struct Campaign {
    program: PathBuf,
    configuration: PathBuf,
    tree: PathBuf,
    output: PathBuf,
}

impl Campaign {
    /// Returns the number of all known faults.
    fn total(&self) -> Result<usize> {
        let listed = self
            .command()
            .args(["--list", "--level", "error"])
            .output()
            .context("cannot start cargo-mutants")?;
        ensure!(listed.status.success(), "cargo-mutants cannot list faults");
        let total = String::from_utf8_lossy(&listed.stdout).lines().count();
        ensure!(total > 0, "cargo-mutants knows no fault");
        Ok(total)
    }

    /// Returns the round in which an earlier run was interrupted, if there was one.
    fn interrupted(&self) -> Option<usize> {
        let round = fs::read_to_string(self.output.join(ROUND)).ok()?.trim().parse().ok()?;
        (round < ROUNDS.len()).then_some(round)
    }

    /// Judges the faults of a shard that no earlier round has detected.
    fn round(&self, shard: &str, packages: &[&str], is_later: bool) -> Result<()> {
        let mut command = self.command();
        command
            .args(["--in-place", "--shard", shard, "--sharding", "round-robin", "--timeout", TIMEOUT])
            .args(["--cap-lints", "true", "--caught", "--level", "warn"])
            .arg("--output")
            .arg(&self.output)
            .args(packages.iter().flat_map(|package| ["--test-package", package]))
            .args(is_later.then_some("--iterate"));
        let status = command.status().context("cannot start cargo-mutants")?;
        // Documented exit codes: 2 if a fault was missed, 3 if tests timed out.
        ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo-mutants failed: {status}");
        Ok(())
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

    /// Returns the lines of a list of results; none if there is no such list.
    fn results(&self, name: &str) -> Result<Vec<String>> {
        lines(&self.output.join("mutants.out").join(name))
    }

    /// Returns the number of faults that compile.
    fn judged(&self) -> Result<usize> {
        const LISTS: [&str; 4] = ["caught.txt", "previously_caught.txt", "timeout.txt", "missed.txt"];
        LISTS.iter().map(|list| Ok(self.results(list)?.len())).sum()
    }
}

fn lines(path: &Path) -> Result<Vec<String>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::Outcome;

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
