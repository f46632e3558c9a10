//! Builds the scenarios, runs them under callgrind, and reads what it counted.

use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::ratchet::{Counted, Counts};
use crate::child::{CommandLine, End};
use crate::workspace::Workspace;

const PACKAGE: &str = "pronto-counts";

/// The function that the program enters where a region begins and where it ends.
const BOUNDARY: &str = "*counted_boundary*";

/// A build takes a minute, a run a quarter of that.
const LIMIT: Duration = Duration::from_secs(600);

/// The C library chooses its copying loops by processor. Without these it takes the same ones everywhere.
const SAME_EVERYWHERE: &str = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM";

/// Builds the program in the release profile; the path of it.
///
/// # Errors
/// It does not build.
pub(super) fn build(workspace: &Workspace) -> Result<PathBuf> {
    finish(&CommandLine::cargo(["build", "--release", "--package", PACKAGE]))?;
    Ok(workspace.target.join("release").join(PACKAGE))
}

/// Runs the program under callgrind.
///
/// # Errors
/// It fails, or its counters do not fit what it said.
pub(super) fn count(workspace: &Workspace, program: &Path) -> Result<Counted> {
    let folder = workspace.target.join("counts");
    // What an earlier run left would be taken for this one's.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let out = folder.join("out");
    let command = CommandLine::new(
        "valgrind",
        ["--quiet", "--tool=callgrind", "--trace-children=yes", "--branch-sim=yes", "--cache-sim=yes"],
    )
    .args([format!("--dump-before={BOUNDARY}"), format!("--callgrind-out-file={}", out.display())])
    .arg(program.to_string_lossy())
    .env("GLIBC_TUNABLES", SAME_EVERYWHERE)
    .quiet();
    let said = finish(&command)?;
    let mut dumps = Vec::new();
    // The file without a number is what came after the last boundary.
    while let Ok(dump) = fs::read_to_string(folder.join(format!("out.{}", dumps.len() + 1))) {
        dumps.push(dump);
    }
    assemble(&said, &dumps)
}

fn finish(command: &CommandLine) -> Result<Vec<String>> {
    let outcome = command.run(LIMIT)?;
    match outcome.end {
        End::Exited(status) if status.success() => Ok(outcome.output),
        End::Exited(status) => bail!("`{command}`: {status}"),
        End::Killed => bail!("`{command}` hangs"),
    }
}

/// Puts together what the program said, `SCENARIO TIMES` for each region, and the counters written at each boundary: first
/// those of what comes before a region, then the region's. A scenario's regions differ by so many repetitions.
fn assemble(said: &[String], dumps: &[String]) -> Result<Counted> {
    ensure!(dumps.len() == 2 * said.len(), "{} regions, but {} sets of counters", said.len(), dumps.len());
    let mut regions: BTreeMap<&str, Vec<(f64, Counts)>> = BTreeMap::new();
    for (line, dump) in said.iter().zip(dumps.iter().skip(1).step_by(2)) {
        let (name, times) = line.split_once(' ').with_context(|| format!("`{line}` names no region"))?;
        let times = times.parse().with_context(|| format!("`{line}` says no number"))?;
        regions.entry(name).or_default().push((times, totals(dump)?));
    }
    let mut counted = Counted::new();
    for (name, regions) in regions {
        let [(few, less), (many, more)] = regions[..] else { bail!("{name} has not two regions") };
        let per_time = |less: f64, more: f64| ((more - less) / (many - few)).round();
        let counts = core::array::from_fn(|at| per_time(less.0[at], more.0[at]));
        counted.insert(name.to_owned(), Counts(counts));
    }
    Ok(counted)
}

/// The sums in a file of callgrind's.
fn totals(dump: &str) -> Result<Counts> {
    let line = |key: &str| {
        let line = dump.lines().find_map(|line| line.strip_prefix(key));
        line.with_context(|| format!("callgrind wrote no `{key}`"))
    };
    let events = line("events:")?.split_whitespace();
    // Zeros at the end are left out.
    let mut sums = line("totals:")?.split_whitespace().map(str::parse::<f64>);
    let mut sum: BTreeMap<&str, f64> = BTreeMap::new();
    for event in events {
        sum.insert(event, sums.next().transpose().context("callgrind's sums are numbers")?.unwrap_or(0.0));
    }
    let of =
        |event: &str| sum.get(event).copied().with_context(|| format!("callgrind did not count {event}"));
    Ok(Counts([of("Ir")?, of("Bc")? + of("Bi")?, of("Dr")? + of("Dw")?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(totals: &str) -> String {
        format!("version: 1\nevents: Ir Dr Dw I1mr Bc Bcm Bi Bim\nsummary: 1\n\ntotals: {totals}\n")
    }

    #[test]
    fn a_scenario_is_the_difference_of_its_regions() {
        let said = ["call 10", "call 20"].map(str::to_owned);
        let before = dump("99999 9 9 9 9 9 9 9");
        let dumps = [before.clone(), dump("1100 110 60 1 55 1 5"), before, dump("2100 210 110 1 105 1 5")];
        let counted = assemble(&said, &dumps).unwrap();
        assert_eq!(counted["call"], Counts([100.0, 5.0, 15.0]));
    }

    #[test]
    fn counters_that_do_not_fit_the_regions_are_refused() {
        let said = ["call 10", "call 20"].map(str::to_owned);
        assert!(assemble(&said, &[dump("1"), dump("2")]).is_err());
        assert!(assemble(&said[..1], &[dump("1"), dump("2")]).is_err());
        assert!(totals("events: Ir\ntotals: 5\n").is_err());
    }
}
