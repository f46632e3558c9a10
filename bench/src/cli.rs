//! The command line: one subcommand per experiment, generated from the list of experiments.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use comfy_table::{Table, presets};

use crate::all;
use crate::compare;
use crate::experiment::Experiment;
use crate::experiments;
use crate::host::Host;
use crate::lab::{self, Lab};
use crate::page;
use crate::papers::page as papers;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::Report;
use crate::side;

/// Runs the command that `args` name. The result goes to stdout, everything else to stderr.
///
/// Wrong arguments and `--help` end the process, as usual with clap.
///
/// # Errors
/// If the experiment fails, or stdout cannot be written to.
pub fn run(args: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
    let args: Vec<OsString> = args.into_iter().collect();
    let matches = command().get_matches_from(&args);
    let (name, options) =
        matches.subcommand().context("no experiment named; `pronto-bench list` names them")?;
    let text = match name {
        all::ALL => {
            let (summary, failed) = all::run(options)?;
            print(&summary)?;
            anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
            return Ok(());
        }
        compare::COMPARE => compare::run(options)?,
        page::REPORT => page::run(options)?,
        papers::PAPERS => papers::run(options)?,
        LIST if options.get_flag(JSON) => list_as_json().to_string(),
        LIST => list_as_text(),
        name => {
            if let Some(side) = side::find(name) {
                return side.serve(options);
            }
            let experiment =
                experiments::find(name).with_context(|| format!("no experiment named {name}"))?;
            let params = params(experiment, options);
            if let Some(lab) = (experiment.lab)(&params)?.filter(|_| !lab::inside()) {
                return run_in_lab(&lab, args, options);
            }
            run_experiment(experiment, &params, options)?
        }
    };
    print(&text)
}

/// Returns whether a program was started with `arguments` (without its name) to be the other side of an experiment. Such a program
/// passes all of them to [`run`]: experiments start the program that runs them again.
#[must_use]
pub fn is_other_side(arguments: &[OsString]) -> bool {
    arguments.first().and_then(|first| first.to_str()).is_some_and(|first| side::find(first).is_some())
}

/// Returns the command line.
#[must_use]
pub fn command() -> Command {
    let json = |help: &'static str| Arg::new(JSON).long(JSON).action(ArgAction::SetTrue).help(help);
    let experiment = |experiment: &&'static Experiment| {
        Command::new(experiment.name)
            .about(experiment.about)
            .after_help(examples(experiment))
            .arg(json("Print one JSON object on stdout and nothing else"))
            .arg(
                Arg::new(QUICK)
                    .long(QUICK)
                    .action(ArgAction::SetTrue)
                    .help("Shorter, within 60 s, in the lab within minutes; coarser numbers"),
            )
            .args(experiment.draws.then(plots))
            .args(experiment.traces.then(trace))
            .args(experiment.seconds.map(seconds))
            .args(experiment.axes.iter().map(axis))
    };
    Command::new("pronto-bench")
        .about("Measures Pronto, always next to the floor of this machine in the same run")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(
            "Examples:\n  pronto-bench latency --quick\n  pronto-bench rate --provider shm --size 32 --json > rate.json\n  \
             pronto-bench report rate.json\n  pronto-bench all --quick\n\nColumns, method and noise: docs/measuring.md",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(
            Command::new(LIST).about("Names all experiments").arg(json("Print one JSON array on stdout")),
        )
        .subcommand(all::command())
        .subcommand(compare::command())
        .subcommand(page::command())
        .subcommand(papers::command())
        .subcommands(side::commands())
        .subcommands(experiments::ALL.iter().map(experiment))
}

/// Returns the examples of the help, if there are any.
fn examples(experiment: &Experiment) -> String {
    let line = |(arguments, purpose): &(&str, &str)| {
        format!("  pronto-bench {} {arguments}\n      {purpose}", experiment.name)
    };
    let lines: Vec<_> = experiment.examples.iter().map(line).collect();
    if lines.is_empty() { String::new() } else { format!("Examples:\n{}", lines.join("\n")) }
}

/// `--plots DIR`, of experiments that have figures.
fn plots() -> Arg {
    Arg::new(PLOTS)
        .long(PLOTS)
        .value_name("DIR")
        .help("Write the figures there, as SVG files; the directory is created if necessary")
        .overrides_with(PLOTS)
        .value_parser(clap::value_parser!(PathBuf))
}

/// `--trace DIR`, of experiments that simulate.
fn trace() -> Arg {
    Arg::new(TRACE)
        .long(TRACE)
        .value_name("DIR")
        .help("Write traces of some runs there, for ui.perfetto.dev")
        .value_parser(clap::value_parser!(PathBuf))
}

/// `--seconds N`, of experiments that can run for any time.
fn seconds([default, _]: [u32; 2]) -> Arg {
    Arg::new(SECONDS)
        .long(SECONDS)
        .value_name("N")
        .help(format!("Measuring time of each transport [default: {default}; less with --{QUICK}]"))
        .value_parser(clap::value_parser!(u32).range(1..=MAX_SECONDS))
}

/// `--column value[,value]`, only with values that the experiment has; a nice value may begin with a minus sign.
fn axis(axis: &Axis) -> Arg {
    Arg::new(axis.column)
        .long(axis.column)
        .value_name("LIST")
        .help(format!("{}, separated by commas", axis.help))
        .value_delimiter(',')
        .action(ArgAction::Append)
        .allow_hyphen_values(axis.values.iter().any(|value| value.starts_with('-')))
        .value_parser(PossibleValuesParser::new(axis.values))
}

fn params(experiment: &Experiment, options: &ArgMatches) -> Params {
    let mut params = Params::new();
    params.quick = options.get_flag(QUICK);
    if experiment.seconds.is_some() {
        params.seconds = options.get_one(SECONDS).copied();
    }
    for axis in experiment.axes {
        if let Some(values) = options.get_many::<String>(axis.column) {
            params.choose(axis.column, values.cloned().collect());
        }
    }
    params
}

/// Runs the same command in the lab, which prints the result. A folder for figures has the same path there.
fn run_in_lab(lab: &Lab, args: Vec<OsString>, options: &ArgMatches) -> anyhow::Result<()> {
    let mut words: Vec<_> = args.into_iter().skip(1).collect();
    let plots = options.try_get_one::<PathBuf>(PLOTS).ok().flatten();
    let folder = plots.map(|folder| {
        fs::create_dir_all(folder)
            .and_then(|()| folder.canonicalize())
            .with_context(|| format!("creating {}", folder.display()))
    });
    let folder = folder.transpose()?;
    // The last one counts.
    words.extend(folder.iter().flat_map(|folder| [format!("--{PLOTS}").into(), folder.clone().into()]));
    lab::run(lab, &words, folder.as_deref())
}

fn run_experiment(
    experiment: &'static Experiment,
    params: &Params,
    options: &ArgMatches,
) -> anyhow::Result<String> {
    let host = Host::inspect();
    if host.profile == "debug" {
        warn("warning: this is a debug build, its numbers are meaningless");
    }
    let mut progress = Progress::on_stderr(experiment.name);
    let report = experiment.measure(params, &mut progress);
    progress.finish();
    let report = report.with_context(|| format!("the experiment {} failed", experiment.name))?;
    if let Some(folder) = experiment.draws.then(|| options.get_one::<PathBuf>(PLOTS)).flatten() {
        for figure in &report.figures {
            let path = figure.write(folder)?;
            warn(&format!("{}: wrote {}", experiment.name, path.display()));
        }
    }
    if let Some(folder) = experiment.traces.then(|| options.get_one::<PathBuf>(TRACE)).flatten() {
        write_traces(experiment.name, &report, folder)?;
    }
    if options.get_flag(JSON) {
        return Ok(report.to_json(experiment, params, &host).to_string());
    }
    let mut text = String::new();
    report.write_text(&mut text, experiment, &host).context("formatting the table")?;
    Ok(text.trim_end().to_owned())
}

fn write_traces(experiment: &str, report: &Report, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    for trace in &report.traces {
        let path = folder.join(trace.file).with_extension("json");
        fs::write(&path, &trace.text).with_context(|| format!("writing {}", path.display()))?;
        warn(&format!("{experiment}: wrote {}", path.display()));
    }
    Ok(())
}

/// Writes a line to stderr. A closed stderr does not fail the run.
fn warn(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn list_as_json() -> serde_json::Value {
    let entry = |experiment: &&Experiment| {
        serde_json::json!({
            "experiment": experiment.name,
            "paper": experiment.paper,
            "figure": experiment.figure,
            "about": experiment.about,
            "without_aa": experiment.without_aa,
            "columns": experiment.axes.iter().map(|axis| axis.column).collect::<Vec<_>>(),
        })
    };
    experiments::ALL.iter().map(entry).collect()
}

fn list_as_text() -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["experiment", "paper", "figure", "description"]);
    for experiment in experiments::ALL {
        let [paper, figure] = [experiment.paper, experiment.figure].map(|text| text.unwrap_or("-"));
        table.add_row([experiment.name, paper, figure, experiment.about]);
    }
    table.trim_fmt()
}

/// Prints the result. If the reader closes the pipe early, as `head` does, that is not an error.
fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("writing to stdout"),
    }
}

const LIST: &str = "list";
const JSON: &str = "json";
const QUICK: &str = "quick";
const PLOTS: &str = "plots";
const TRACE: &str = "trace";
const SECONDS: &str = "seconds";
/// An hour.
const MAX_SECONDS: i64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn rows_are_selected_by_repeated_or_joined_values() {
        let floor = experiments::find("floor").unwrap();
        let args = ["pronto-bench", "floor", "--quick", "--name", "syscall,futex", "--name", "eventfd"];
        let matches = command().try_get_matches_from(args).unwrap();
        let params = params(floor, matches.subcommand_matches("floor").unwrap());
        assert!(params.quick);
        assert!(["syscall", "futex", "eventfd"].iter().all(|name| params.keeps("name", name)));
        assert!(!params.keeps("name", "cache-line"));
    }

    #[test]
    fn an_unknown_value_is_refused_with_the_list_of_known_ones() {
        let args = ["pronto-bench", "floor", "--name", "warp-drive"];
        let error = command().try_get_matches_from(args).unwrap_err().to_string();
        assert!(error.contains("cache-line"), "{error}");
    }
}
