//! `cargo xtask`: runs every test of the project, and checks its style and its licences.

#![forbid(unsafe_code)]

mod book;
mod call_path;
mod child;
mod counts;
mod disk;
mod failed;
mod lab;
mod licences;
mod mirror;
mod mutate;
mod package;
mod probes;
mod refute;
mod report;
mod soak;
mod stages;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use workspace::Workspace;

/// The commands of this project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every test of the project; install the programs that they need.
    Test(test::Options),
    /// Check the style rules that rustfmt and clippy do not check.
    Tidy(tidy::Options),
    /// Check licences, banned crates and sources of every dependency against deny.toml.
    Licences,
    /// Run the full forms of the randomised and exhaustive tests.
    Soak(soak::Options),
    /// Plant known faults in copies of the scheduling policies and of the core; a test must fail for each fault.
    Mutate(mutate::Options),
    /// Break what the papers' claims are about in a copy of the tree; the experiment must say that the claim no longer holds.
    Refute(refute::Options),
    /// Count the instructions of fixed scenarios; fail if a count is above the recorded one.
    Counts(counts::Options),
    /// Build the release programs, with RDMA, and pack them with their documentation.
    Package(package::Options),
    /// Build the documentation as an HTML book, with mdbook; it is installed below the target folder if need be.
    Book,
    /// Manage and run the lab: a QEMU machine with a stock kernel and soft-RoCE.
    Lab(lab::Options),
}

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<ExitCode> {
    let workspace = Workspace::discover()?;
    match command {
        Command::Test(options) => test::run(&workspace, options),
        Command::Tidy(options) => tidy::run(&workspace, options),
        Command::Licences => Ok(verdict("licences", &licences::check(&workspace)?)),
        Command::Soak(options) => soak::run(&workspace, options),
        Command::Mutate(options) => mutate::run(&workspace, options),
        Command::Refute(options) => refute::run(&workspace, options),
        Command::Counts(options) => counts::run(&workspace, options),
        Command::Package(options) => package::run(&workspace, options),
        Command::Book => book::run(&workspace),
        Command::Lab(options) => lab::run(&workspace, options),
    }
}

/// Prints the findings of a check, one per line. Without findings, the result is success.
fn verdict(check: &str, findings: &[String]) -> ExitCode {
    for finding in findings {
        println!("{check}: {finding}");
    }
    if findings.is_empty() {
        println!("{check}: no findings");
        ExitCode::SUCCESS
    } else {
        println!("{check}: {} findings", findings.len());
        ExitCode::FAILURE
    }
}
