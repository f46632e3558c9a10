//! `cargo xtask counts`: compares the instructions, branches and memory references of the scenarios of `bench/counts` with
//! recorded numbers.
//!
//! On a shared machine, times differ by a factor of three from one minute to the next. The counts are reproducible; with a socket
//! they differ by less than 0.5 %. They do not include the effects of caches and CPUs, but they show a path that became longer.

mod callgrind;
mod ratchet;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::tools;
use crate::workspace::Workspace;
pub(crate) use callgrind::build_command;
use ratchet::Recorded;

/// The programs that the counting needs.
pub(crate) const TOOLS: &[tools::Tool] = &[tools::CC, tools::VALGRIND];

/// The recorded counts, below the root of the workspace.
const FILE: &str = "bench/counts.toml";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Record the current counts, even those that grew
    #[arg(long)]
    bless: bool,
    /// Run the scenarios RUNS times, and print the range of each count
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(2..=100), conflicts_with = "bless")]
    spread: Option<u32>,
}

/// Counts the scenarios, and compares or records the counts.
///
/// # Errors
/// The scenarios cannot be built or run, or the file cannot be read or written. A count that grew is an exit code, not an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    tools::provide(TOOLS)?;
    if let Some(runs) = options.spread {
        let program = callgrind::build(workspace)?;
        let runs = (0..runs).map(|_| callgrind::count(workspace, &program)).collect::<Result<Vec<_>>>()?;
        print!("{}", ratchet::spread(&runs));
        return Ok(ExitCode::SUCCESS);
    }
    if !options.bless {
        return Ok(crate::verdict("counts", &check(workspace)?));
    }
    let counted = callgrind::count(workspace, &callgrind::build(workspace)?)?;
    let path = workspace.root.join(FILE);
    let before = Recorded::read(&std::fs::read_to_string(&path).unwrap_or_default());
    // An unreadable file is replaced, as the user requested with --bless.
    print!("{}", ratchet::table(&before.unwrap_or_default(), &counted));
    std::fs::write(&path, Recorded(counted).to_text()).with_context(|| format!("cannot write {FILE}"))?;
    println!("counts: recorded in {FILE}");
    Ok(ExitCode::SUCCESS)
}

/// Returns one finding for each count that is too high, missing or obsolete. Prints the table, and the counts that became lower.
///
/// # Errors
/// See [`run`].
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let text =
        std::fs::read_to_string(workspace.root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let recorded = Recorded::read(&text).with_context(|| format!("in {FILE}"))?;
    ensure!(!recorded.0.is_empty(), "{FILE} records nothing");
    let counted = callgrind::count(workspace, &callgrind::build(workspace)?)?;
    print!("{}", ratchet::table(&recorded, &counted));
    for gain in ratchet::gains(&recorded, &counted) {
        println!("counts: {gain}");
    }
    Ok(ratchet::objections(&recorded, &counted))
}
