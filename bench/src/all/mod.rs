//! `all`: runs every experiment that this machine can run, each in its own process, and makes the page of their results.

mod child;
mod plan;
mod results;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::clock;
use crate::experiments;
use crate::page::{self, Missing, Result as Found};
use crate::progress::Progress;
use plan::{Part, Plan, span};
use results::Results;

/// Name of the command.
pub(crate) const ALL: &str = "all";

pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let names = experiments::ALL.iter().map(|experiment| experiment.name);
    Command::new(ALL)
        .about("Runs every experiment that this machine can run, and creates one HTML page of the results")
        .after_help(
            "Examples:\n  pronto-bench all --quick\n      in less than half an hour\n  pronto-bench all --resume\n      \
             continues a run that was interrupted\n\nA failed experiment does not end the others; the exit status tells.",
        )
        .arg(flag(QUICK, "Shorter runs; coarser numbers"))
        .arg(flag(LAB, "Also run the experiments that need the lab, a virtual machine (lab/README.md)"))
        .arg(flag(RESUME, "Keep results in the folder that this build measured in runs of the same length"))
        .arg(
            Arg::new(ONLY)
                .long(ONLY)
                .value_name("LIST")
                .help("Only these experiments, separated by commas")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .hide_possible_values(true)
                .value_parser(PossibleValuesParser::new(names)),
        )
        .arg(
            Arg::new(OUT)
                .long(OUT)
                .value_name("DIR")
                .default_value("pronto-bench-results")
                .help("Folder for the results (NAME.json), figures, and the page (index.html)")
                .value_parser(clap::value_parser!(PathBuf)),
        )
}

/// Runs the experiments. Returns a table of the verdicts with the path of the page, and the names of the experiments that failed.
pub(crate) fn run(options: &ArgMatches) -> anyhow::Result<(String, Vec<String>)> {
    let quick = options.get_flag(QUICK);
    let only = options.get_many::<String>(ONLY).map(|names| names.map(String::as_str).collect::<Vec<_>>());
    let folder = options.get_one::<PathBuf>(OUT).context("it has a default")?;
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let mut results = Results::open(folder, quick, options.get_flag(RESUME))?;
    let plan = Plan::new(options.get_flag(LAB), only.as_deref(), |part| results.has(part));
    let mut progress = Progress::on_stderr(ALL);
    let kept = results.count();
    progress.line(&format!("{}; results are kept in {}", plan.describe(quick, kept), folder.display()));
    let failed = measure(&plan, quick, &mut results, &mut progress)?;
    progress.finish();
    let missing = missing(&plan, quick, &results, &failed);
    let found = results.read()?;
    let path = folder.join("index.html");
    page::write(&path, &found, &[], &missing)?;
    let summary = page::summary(found.iter().map(|found| &found.json));
    let failed: Vec<_> = failed.into_iter().map(|(part, _)| part.name()).collect();
    Ok((format!("{summary}\n\n{} results: {}", found.len(), path.display()), failed))
}

/// Runs the parts one after the other. Returns those that failed, with their errors.
fn measure(
    plan: &Plan,
    quick: bool,
    results: &mut Results,
    progress: &mut Progress,
) -> anyhow::Result<Vec<(Part, String)>> {
    let started = clock::now();
    let mut failed = Vec::new();
    progress.begin(plan.parts.len() as u64);
    for (index, part) in plan.parts.iter().enumerate() {
        let name = part.name();
        let left = plan.left(index, quick, started.elapsed().as_secs_f64());
        progress.step(&format!("{name}, about {} left", span(left)));
        let begun = clock::now();
        results.forget(*part)?;
        let run = child::run(*part, quick, results, |line| progress.detail(line))
            .and_then(|json| results.add(*part, &json).map(|()| json));
        let took = span(begun.elapsed().as_secs_f64());
        match run {
            Ok(json) => progress.line(&format!("{name}: {took}, {}", page::tally(&json))),
            Err(error) => {
                let error = format!("{error:#}");
                progress.line(&format!("{name}: failed after {took}: {error}"));
                failed.push((*part, error));
            }
        }
    }
    Ok(failed)
}

/// Returns the experiments without a result, each with the reason.
fn missing(plan: &Plan, quick: bool, results: &Results, failed: &[(Part, String)]) -> Vec<Missing> {
    let reason = |part: &Part| {
        let error =
            failed.iter().find(|(other, _)| other == part).map(|(_, error)| format!("failed: {error}"));
        error.unwrap_or_else(|| plan.reason(*part).to_owned())
    };
    Part::every()
        .filter(|part| !results.has(*part))
        .map(|part| Missing { name: part.name(), reason: reason(&part), command: part.command(quick) })
        .collect()
}

/// Returns the results in the folder of a part's figures.
fn figures(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let Ok(files) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut paths = files.map(|file| Ok(file?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    paths.iter().map(|path| page::figure(path)).collect()
}

/// A result of a run, with its figures.
fn found(json: serde_json::Value, folder: &Path) -> anyhow::Result<Found> {
    Ok(Found { json, figures: figures(folder)? })
}

const QUICK: &str = "quick";
const LAB: &str = "lab";
const RESUME: &str = "resume";
const ONLY: &str = "only";
const OUT: &str = "out";
