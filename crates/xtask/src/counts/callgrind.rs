//! Builds the scenarios, runs them under callgrind, and reads the counters.

use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::ratchet::{Counted, Counts};
use crate::child::{CommandLine, End};
use crate::workspace::Workspace;

/// The package and its program.
const PROGRAM: &str = "pronto-counts";

/// The function that the program calls at the beginning and at the end of a region.
const BOUNDARY: &str = "*counted_boundary*";

/// Time limit of a command. A build takes a minute, a run 15 seconds.
const LIMIT: Duration = Duration::from_secs(600);

/// The C library chooses its copy loops by CPU. With these settings it chooses the same ones on every CPU.
const SAME_EVERYWHERE: &str = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM";

/// Returns the command that builds the program in the release profile.
pub(crate) fn build_command() -> CommandLine {
    // Counts are those of the code that users get, also where other release programs are built faster.
    CommandLine::cargo(["build", "--release", "--package", PROGRAM])
        .env("CARGO_PROFILE_RELEASE_LTO", "thin")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
}

/// Builds the program and returns its path.
///
/// # Errors
/// The build fails.
pub(super) fn build(workspace: &Workspace) -> Result<PathBuf> {
    finish(&build_command())?;
    Ok(workspace.target.join("release").join(PROGRAM))
}

/// Runs the program under callgrind.
///
/// # Errors
/// The program fails, or the counters do not match its output.
pub(super) fn count(workspace: &Workspace, program: &Path) -> Result<Counted> {
    let folder = workspace.target.join("counts");
    // Files of an earlier run would be read as those of this run.
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
    let output = finish(&command)?;
    let mut dumps = Vec::new();
    // The file without a number contains the counters after the last boundary.
    while let Ok(dump) = fs::read_to_string(folder.join(format!("out.{}", dumps.len() + 1))) {
        dumps.push(dump);
    }
    assemble(&output, &dumps)
}

fn finish(command: &CommandLine) -> Result<Vec<String>> {
    let outcome = command.run(LIMIT)?;
    match outcome.end {
        End::Exited(status) if status.success() => Ok(outcome.output),
        End::Exited(status) => bail!("`{command}`: {status}"),
        End::Killed => bail!("`{command}`: killed after the time limit"),
    }
}

/// Combines the program's output, `SCENARIO TIMES` for each region, with the counters written at each boundary. For each region
/// there are two sets: that before the region, then that of the region itself. The two regions of a scenario differ in the number
/// of repetitions, so the difference of their counters divided by that number is the cost of one repetition.
fn assemble(output: &[String], dumps: &[String]) -> Result<Counted> {
    ensure!(
        dumps.len() == 2 * output.len(),
        "{} regions, but {} sets of counters",
        output.len(),
        dumps.len()
    );
    let mut regions: BTreeMap<&str, Vec<(f64, Counts)>> = BTreeMap::new();
    for (line, dump) in output.iter().zip(dumps.iter().skip(1).step_by(2)) {
        let (name, times) =
            line.split_once(' ').with_context(|| format!("`{line}` has no scenario and count"))?;
        let times = times.parse().with_context(|| format!("`{line}` has an invalid count"))?;
        regions.entry(name).or_default().push((times, totals(dump)?));
    }
    let mut counted = Counted::new();
    for (name, regions) in regions {
        let [(few, less), (many, more)] = regions[..] else { bail!("{name} must have two regions") };
        let per_time = |less: f64, more: f64| ((more - less) / (many - few)).round();
        let counts = core::array::from_fn(|at| per_time(less.0[at], more.0[at]));
        counted.insert(name.to_owned(), Counts(counts));
    }
    Ok(counted)
}

/// Returns the sums in a callgrind file.
fn totals(dump: &str) -> Result<Counts> {
    let line = |key: &str| {
        let line = dump.lines().find_map(|line| line.strip_prefix(key));
        line.with_context(|| format!("callgrind wrote no `{key}`"))
    };
    let events = line("events:")?.split_whitespace();
    // Callgrind omits zeros at the end.
    let mut sums = line("totals:")?.split_whitespace().map(str::parse::<f64>);
    let mut sum: BTreeMap<&str, f64> = BTreeMap::new();
    for event in events {
        sum.insert(
            event,
            sums.next().transpose().context("invalid number in callgrind's totals")?.unwrap_or(0.0),
        );
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
        let output = ["call 10", "call 20"].map(str::to_owned);
        let before = dump("99999 9 9 9 9 9 9 9");
        let dumps = [before.clone(), dump("1100 110 60 1 55 1 5"), before, dump("2100 210 110 1 105 1 5")];
        let counted = assemble(&output, &dumps).unwrap();
        assert_eq!(counted["call"], Counts([100.0, 5.0, 15.0]));
    }

    #[test]
    fn counters_that_do_not_match_the_regions_are_errors() {
        let output = ["call 10", "call 20"].map(str::to_owned);
        assert!(assemble(&output, &[dump("1"), dump("2")]).is_err());
        assert!(assemble(&output[..1], &[dump("1"), dump("2")]).is_err());
        assert!(totals("events: Ir\ntotals: 5\n").is_err());
    }
}
