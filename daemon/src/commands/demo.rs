//! `pronto demo`: several node processes compute k-means on shared pages, and the program accounts for every message.

use core::time::Duration;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use minidos::data::Source;
use minidos::demo::{DemoError, Moment, Options, Place, Progress, Transport, run as run_demo};

use super::{Subcommand, demo_node};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "demo", describe, run };

fn describe() -> Command {
    let option = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    Command::new("demo")
        .about("Runs k-means on several node processes, as a distributed OS would, and checks that every message arrived once")
        .after_help(
            "Fails if a message was lost, duplicated, out of order or corrupt, if the message counts do not reconcile, or if \
             the result differs from that of one process by even one bit.",
        )
        .arg(
            Arg::new("work")
                .value_parser(PossibleValuesParser::new(["kmeans"]))
                .default_value("kmeans")
                .help("Computation to run"),
        )
        .arg(
            option("nodes", "N")
                .value_parser(value_parser!(u16).range(1..=i64::from(Options::MAX_NODES)))
                .default_value("4")
                .help("Number of node processes"),
        )
        .arg(
            option("transport", "NAME")
                .value_parser(PossibleValuesParser::new(["shm", "tcp", "verbs", "auto"]))
                .default_value("auto")
                .help("Transport between the nodes; verbs (RDMA) needs --place"),
        )
        .arg(
            option("place", "NAMESPACE=ADDRESS")
                .value_parser(|text: &str| text.parse::<Place>())
                .action(ArgAction::Append)
                .help("Network namespace for a node, and its address there. If repeated, the nodes are spread over the places in turn"),
        )
        .arg(
            option("data", "FILE.csv")
                .value_parser(value_parser!(PathBuf))
                .help("CSV file of points, one row of numbers each [default: the bundled handwritten digits]"),
        )
        .arg(
            option("points", "N")
                .value_parser(value_parser!(u32).range(1..=4_000_000))
                .conflicts_with("data")
                .help("Generate N synthetic points instead of a file"),
        )
        .arg(
            option("dims", "D")
                .value_parser(value_parser!(u16).range(1..=4_096))
                .default_value("16")
                .requires("points")
                .help("Dimensions of each synthetic point"),
        )
        .arg(
            option("seed", "S")
                .value_parser(value_parser!(u64))
                .default_value("1")
                .requires("points")
                .help("Seed for the synthetic points"),
        )
        .arg(
            option("deadline", "SECONDS")
                .value_parser(value_parser!(u64).range(1..=3_600))
                .default_value("60")
                .help("Fail the run if it has not finished after this many seconds"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object on standard output"))
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let options = options(matches)?;
    let mut progress = ProgressLine::on_stderr(options.nodes);
    let report = run_demo(&options, &mut progress);
    progress.finish();
    let report = match report {
        Ok(report) => report,
        Err(error @ DemoError::Interrupted { .. }) => {
            eprintln!("pronto: {error}");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return Err(error).context("the demo failed"),
    };
    let text = if matches.get_flag("json") { serde_json::to_string(&report)? } else { report.to_string() };
    print(&text)?;
    if report.is_good() {
        return Ok(ExitCode::SUCCESS);
    }
    for equation in report.equations.iter().filter(|equation| !equation.holds()) {
        eprintln!(
            "pronto: {} {} but {} {}",
            equation.received, equation.messages, equation.caused, equation.causes
        );
    }
    anyhow::bail!("a correctness check failed: see the report above")
}

fn options(matches: &ArgMatches) -> anyhow::Result<Options> {
    let number = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or(0);
    let transport = match matches.get_one::<String>("transport").map(String::as_str) {
        Some("shm") => Transport::Shm,
        Some("tcp") => Transport::Tcp,
        Some("verbs") => Transport::Verbs,
        _ => Transport::Auto,
    };
    let places: Vec<Place> = matches.get_many("place").unwrap_or_default().cloned().collect();
    anyhow::ensure!(
        transport != Transport::Verbs || !places.is_empty(),
        "--transport verbs needs --place NAMESPACE=ADDRESS for each network namespace, \
         with the addresses of RDMA ports (`rdma link` shows them)"
    );
    let source = match (matches.get_one::<PathBuf>("data"), matches.get_one::<u32>("points")) {
        (Some(path), _) => {
            Source::File(std::path::absolute(path).context("cannot resolve the path of --data")?)
        }
        (None, Some(points)) => Source::Synthetic {
            points: usize::try_from(*points)?,
            dims: usize::from(matches.get_one::<u16>("dims").copied().unwrap_or(1)),
            seed: number("seed"),
        },
        (None, None) => Source::Digits,
    };
    let program =
        std::env::current_exe().context("cannot find this program's own file, which the nodes run")?;
    Ok(Options {
        nodes: matches.get_one::<u16>("nodes").copied().unwrap_or(1),
        transport,
        places,
        source,
        deadline: Duration::from_secs(number("deadline")),
        node_program: (program, vec![demo_node::NAME.into()]),
    })
}

/// Prints to standard output. A closed pipe is not an error, because the reader (`head`, for example) needs no more.
fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// Progress of the run on standard error: one changing line on a terminal, one line per step otherwise.
struct ProgressLine {
    nodes: u16,
    bar: Option<ProgressBar>,
}

impl ProgressLine {
    fn on_stderr(nodes: u16) -> Self {
        let bar = || {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
            bar.enable_steady_tick(TICK);
            bar.with_style(style.expect("the template is a constant that parses"))
        };
        Self { nodes, bar: io::stderr().is_terminal().then(bar) }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for ProgressLine {
    fn at(&mut self, moment: &Moment) {
        let nodes = self.nodes;
        let text = match moment {
            Moment::Single => "one process computes the result to compare with".to_owned(),
            Moment::Listening(count) => format!("{count} of {nodes} nodes listen"),
            Moment::Joined(count) => format!("{count} of {nodes} nodes are connected to all others"),
            Moment::Iterated(count) => format!("iteration {count}"),
            Moment::Settling => "done; counting messages".to_owned(),
        };
        match &self.bar {
            Some(bar) => bar.set_message(text),
            // Standard error may be closed, which is no reason to fail the run.
            None => drop(writeln!(io::stderr(), "demo: {text}")),
        }
    }
}

/// Exit code of a command that signal 2 ended (the convention of shells).
const INTERRUPTED: u8 = 130;

/// Redraw interval of the progress line.
const TICK: Duration = Duration::from_millis(100);
