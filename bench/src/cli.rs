//! The command line: one subcommand per experiment, made from the list of experiments.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use comfy_table::{Table, presets};

use crate::compare;
use crate::echo;
use crate::expedite;
use crate::experiment::Experiment;
use crate::experiments::{self, adaptive};
use crate::host::Host;
use crate::lab::{self, Lab};
use crate::mix;
use crate::overlap::{burn, ping};
use crate::page;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::rendezvous::{receiver, stream};
use crate::report::Report;
use crate::sessions;
use crate::traffic;

/// Runs what `args` asks for; the result goes to stdout, everything else to stderr.
///
/// Wrong arguments and `--help` end the process, as clap does.
///
/// # Errors
/// If the experiment fails, or stdout cannot be written to.
pub fn run(args: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
    let args: Vec<OsString> = args.into_iter().collect();
    let matches = command().get_matches_from(&args);
    let text = match matches.subcommand() {
        Some((echo::SERVE, options)) => return echo::serve_command(options),
        Some((adaptive::COMPUTE, _)) => return adaptive::compute_command(),
        Some((mix::NODE, options)) => return mix::node_command(options),
        Some((traffic::SERVE, options)) => return traffic::serve_command(options),
        Some((receiver::SERVE, options)) => return receiver::serve_command(options),
        Some((burn::BURN, options)) => return burn::command_main(options),
        Some((ping::PING, options)) => return ping::command_main(options),
        Some((sessions::ACCEPT, _)) => return sessions::accept_command(),
        Some((sessions::PEERS, options)) => return sessions::peers_command(options),
        Some((stream::SERVE, options)) => return stream::serve_command(options),
        Some((compare::COMPARE, options)) => compare::run(options)?,
        Some((page::REPORT, options)) => page::run(options)?,
        Some((expedite::HANDLER, options)) => return expedite::handler_command(options),
        Some((expedite::LOAD, options)) => return expedite::load_command(options),
        Some((LIST, options)) if options.get_flag(JSON) => list_as_json().to_string(),
        Some((LIST, _)) => list_as_text(),
        Some((name, options)) => {
            let experiment = experiments::find(name).context("the command line knows only experiments")?;
            let params = params(experiment, options);
            if let Some(lab) = experiment.lab(&params)?.filter(|_| !lab::inside()) {
                return run_in_lab(&lab, args, options);
            }
            run_experiment(experiment, &params, options)?
        }
        None => anyhow::bail!("no experiment named; `pronto-bench list` names them"),
    };
    print(&text)
}

/// Whether a program was started with `arguments`, its name left out, to be the other side of an experiment. It then hands all
/// of them to [`run`]: every program that runs experiments is started again by them.
#[must_use]
pub fn is_other_side(arguments: &[OsString]) -> bool {
    let sides = [
        echo::SERVE,
        adaptive::COMPUTE,
        mix::NODE,
        traffic::SERVE,
        receiver::SERVE,
        burn::BURN,
        ping::PING,
        sessions::ACCEPT,
        sessions::PEERS,
        stream::SERVE,
        expedite::HANDLER,
        expedite::LOAD,
    ];
    arguments.first().is_some_and(|first| sides.iter().any(|side| first == side))
}

/// The command line.
#[must_use]
pub fn command() -> Command {
    let json = |help: &'static str| Arg::new(JSON).long(JSON).action(ArgAction::SetTrue).help(help);
    let experiment = |experiment: &&dyn Experiment| {
        Command::new(experiment.name())
            .about(experiment.about())
            .after_help(examples(*experiment))
            .arg(json("Print one JSON object on stdout and nothing else"))
            .arg(
                Arg::new(QUICK)
                    .long(QUICK)
                    .action(ArgAction::SetTrue)
                    .help("Shorter, within 60 s; coarser numbers"),
            )
            .args(experiment.draws().then(plots))
            .args(experiment.traces().then(trace))
            .args(experiment.seconds(false).map(seconds))
            .args(experiment.axes().iter().map(axis))
    };
    Command::new("pronto-bench")
        .about("Measures Pronto, always beside the floor of this machine in the same run")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(
            "Examples:\n  pronto-bench latency --quick\n  pronto-bench rate --provider shm --size 32 --json > rate.json\n  \
             pronto-bench report rate.json\n\nColumns, method and noise: docs/measuring.md",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(
            Command::new(LIST).about("Names all experiments").arg(json("Print one JSON array on stdout")),
        )
        .subcommand(compare::command())
        .subcommand(page::command())
        .subcommand(echo::command())
        .subcommand(adaptive::command())
        .subcommand(mix::command())
        .subcommand(traffic::command())
        .subcommand(receiver::command())
        .subcommand(burn::command())
        .subcommand(ping::command())
        .subcommands(sessions::commands())
        .subcommand(stream::command())
        .subcommands(expedite::commands())
        .subcommands(experiments::ALL.iter().map(experiment))
}

/// Examples, where there are some.
fn examples(experiment: &dyn Experiment) -> String {
    let line = |(arguments, what): &(&str, &str)| {
        format!("  pronto-bench {} {arguments}\n      {what}", experiment.name())
    };
    let lines: Vec<_> = experiment.examples().iter().map(line).collect();
    if lines.is_empty() { String::new() } else { format!("Examples:\n{}", lines.join("\n")) }
}

/// `--plots DIR`, of experiments that have figures.
fn plots() -> Arg {
    Arg::new(PLOTS)
        .long(PLOTS)
        .value_name("DIR")
        .help("Write the figures there, as SVG files; the directory is made if need be")
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
fn seconds(default: u32) -> Arg {
    Arg::new(SECONDS)
        .long(SECONDS)
        .value_name("N")
        .help(format!("How long each transport is measured [default: {default}; less with --{QUICK}]"))
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

fn params(experiment: &dyn Experiment, options: &ArgMatches) -> Params {
    let mut params = Params::new();
    params.quick = options.get_flag(QUICK);
    if experiment.seconds(params.quick).is_some() {
        params.seconds = options.get_one(SECONDS).copied();
    }
    for axis in experiment.axes() {
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
            .with_context(|| format!("making {}", folder.display()))
    });
    let folder = folder.transpose()?;
    // The last one counts.
    words.extend(folder.iter().flat_map(|folder| [format!("--{PLOTS}").into(), folder.clone().into()]));
    lab::run(lab, &words, folder.as_deref())
}

fn run_experiment(
    experiment: &dyn Experiment,
    params: &Params,
    options: &ArgMatches,
) -> anyhow::Result<String> {
    let host = Host::inspect();
    if host.profile == "debug" {
        // Nobody may be reading stderr; a measurement does not fail for that.
        let _ = writeln!(io::stderr(), "warning: this is a debug build, its numbers mean nothing");
    }
    let mut progress = Progress::on_stderr(experiment.name());
    let report = experiment.run(params, &mut progress);
    progress.finish();
    let mut report = report.with_context(|| format!("the experiment {} failed", experiment.name()))?;
    if let Some(why) = experiment.without_aa() {
        report.note(format!("rows have no A/A: {why}"));
    }
    if let Some(folder) = experiment.draws().then(|| options.get_one::<PathBuf>(PLOTS)).flatten() {
        for figure in &report.figures {
            let path = figure.write(folder)?;
            // As above: the file is there, whether or not anybody reads this.
            let _ = writeln!(io::stderr(), "{}: wrote {}", experiment.name(), path.display());
        }
    }
    if let Some(folder) = experiment.traces().then(|| options.get_one::<PathBuf>(TRACE)).flatten() {
        write_traces(experiment.name(), &report, folder)?;
    }
    if options.get_flag(JSON) {
        return Ok(report.to_json(experiment, params, &host).to_string());
    }
    let mut text = String::new();
    report.write_text(&mut text, experiment, &host).context("formatting the table")?;
    Ok(text.trim_end().to_owned())
}

fn write_traces(experiment: &str, report: &Report, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    for trace in &report.traces {
        let path = folder.join(trace.file).with_extension("json");
        fs::write(&path, &trace.text).with_context(|| format!("writing {}", path.display()))?;
        // As for plots: nobody may be reading this.
        let _ = writeln!(io::stderr(), "{experiment}: wrote {}", path.display());
    }
    Ok(())
}

fn list_as_json() -> serde_json::Value {
    let entry = |experiment: &&dyn Experiment| {
        serde_json::json!({
            "experiment": experiment.name(),
            "paper": experiment.paper(),
            "figure": experiment.figure(),
            "about": experiment.about(),
            "without_aa": experiment.without_aa(),
            "columns": experiment.axes().iter().map(|axis| axis.column).collect::<Vec<_>>(),
        })
    };
    experiments::ALL.iter().map(entry).collect()
}

fn list_as_text() -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["experiment", "paper", "figure", "what it measures"]);
    for experiment in experiments::ALL {
        let paper = experiment.paper().unwrap_or("-");
        let figure = experiment.figure().unwrap_or("-");
        table.add_row([experiment.name(), paper, figure, experiment.about()]);
    }
    table.trim_fmt()
}

/// A reader that closes the pipe early, as `head` does, has what it wanted.
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
    fn rows_are_chosen_by_repeated_or_joined_values() {
        let floor = experiments::find("floor").unwrap();
        let args = ["pronto-bench", "floor", "--quick", "--name", "syscall,futex", "--name", "eventfd"];
        let matches = command().try_get_matches_from(args).unwrap();
        let params = params(floor, matches.subcommand_matches("floor").unwrap());
        assert!(params.quick);
        assert!(["syscall", "futex", "eventfd"].iter().all(|name| params.keeps("name", name)));
        assert!(!params.keeps("name", "cache-line"));
    }

    #[test]
    fn a_value_that_no_row_has_is_refused_with_those_there_are() {
        let args = ["pronto-bench", "floor", "--name", "warp-drive"];
        let error = command().try_get_matches_from(args).unwrap_err().to_string();
        assert!(error.contains("cache-line"), "{error}");
    }
}
