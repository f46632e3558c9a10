//! `cargo xtask counts`: how many instructions, branches and memory references the scenarios of `crates/counts` take, held
//! against what is recorded.
//!
//! Times on a shared machine differ threefold from one minute to the next; these counts do not differ at all, or by less than
//! one in two hundred where a socket is part of it. They say nothing of caches and cores, but a path that became longer shows.

mod callgrind;
mod ratchet;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::tools;
use crate::workspace::Workspace;
use ratchet::Recorded;

/// Counted once for each scenario.
pub(crate) const TOOLS: &[tools::Tool] = &[tools::CC, tools::VALGRIND];

/// What is recorded, below the workspace's root.
const FILE: &str = "crates/counts/counts.toml";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Record what is counted now, also where it has become more.
    #[arg(long)]
    bless: bool,
    /// Run the scenarios so many times, and print how far apart the counts lie.
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(2..=100), conflicts_with = "bless")]
    spread: Option<u32>,
}

/// Counts, and compares or records.
///
/// # Errors
/// The scenarios cannot be built or run, or the file cannot be read or written. A count that grew is an exit code.
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
    // What cannot be read is replaced, which is what was asked for.
    print!("{}", ratchet::table(&before.unwrap_or_default(), &counted));
    std::fs::write(&path, Recorded(counted).to_text()).with_context(|| format!("cannot write {FILE}"))?;
    println!("counts: recorded in {FILE}");
    Ok(ExitCode::SUCCESS)
}

/// One sentence for each count that is not as recorded. Prints the table, and what has become less.
///
/// # Errors
/// As [`run`].
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
