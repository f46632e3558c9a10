//! `pronto expedite top`: prints how often the module boosts, and whom.

mod interval;
mod owner;
mod table;

use core::time::Duration;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pronto_expedite::Device;

use crate::commands::signals::{self, Signals};
use crate::commands::{CLEAR, Subcommand, with_intervals, write_stdout};
use interval::{Interval, Seen};
use owner::By;
use table::Sort;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "top", describe, run };

/// Maximum time between two readings of the counters. The module forgets a thread two seconds after its last arrival.
const READING: Duration = Duration::from_secs(1);

fn describe() -> Command {
    with_intervals(Command::new("top"))
        .about("Prints how often the module boosts, and which threads, until SIGINT")
        .after_help(
            "The first line has the caps with which the module was loaded. Rates are for the last interval. `no boost` lists the arrivals\n\
             that led to none, by reason: the thread ran, was boosted or real-time already; a CPU was idle; it must run after others\n\
             (behind); it waited for a lock with priority inheritance (locked); a budget was spent. NO BOOST names the most frequent reason\n\
             of a row, and its share of the arrivals. LEFT us is the time that the thread may run boosted now. Threads of other users are\n\
             shown to root only.\n\n\
             The rows may add up to less than the header, which also counts threads that have ended and, without root, those of other\n\
             users. They may differ by a few arrivals, because the module's counters and those of each thread are read one after the other.\n\n\
             --json prints one object per line and interval: unix_time (its end, in seconds), seconds (its length), by, caps (as the\n\
             module's parameters; null for a module without this request), flags, threads_known, accounts, counts, others (counts of threads\n\
             without a row), and rows, each with counts (names as in expedite.h, times in nanoseconds) and what --by selects: pid, tid,\n\
             name, left_ns; pid, name, threads; uid, name, threads; or cgroup, threads.\n\n\
             Examples:\n  pronto expedite top\n  pronto expedite top --by cgroup --sort denied\n  \
             pronto expedite top --by user --interval 60 --json >> boosts.jsonl",
        )
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("WHAT")
                .value_parser(PossibleValuesParser::new(By::ALL.map(By::name)))
                .default_value(By::Thread.name())
                .help("Owner of the threads that a row sums up"),
        )
        .arg(
            Arg::new("sort")
                .long("sort")
                .value_name("COLUMN")
                .value_parser(PossibleValuesParser::new(Sort::ALL.map(Sort::name)))
                .default_value(Sort::Arrivals.name())
                .help("Column whose highest values come first"),
        )
        .arg(
            Arg::new("rows")
                .long("rows")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("20")
                .help("Maximum number of rows of the table; --json prints all"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object per interval on standard output"))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let number = |name: &str| *options.get_one::<u32>(name).expect("it has a default");
    let word = |name: &str| options.get_one::<String>(name).expect("it has a default").as_str();
    let length = Duration::from_secs(number("interval").into());
    let rows = usize::try_from(number("rows")).unwrap_or(usize::MAX);
    let by = By::ALL.into_iter().find(|by| by.name() == word("by")).expect("clap accepts only these");
    let sort = Sort::ALL.into_iter().find(|sort| sort.name() == word("sort"));
    let sort = sort.expect("clap accepts only these");
    let mut left = options.get_one::<u32>("count").copied();
    let (as_json, clears) = (options.get_flag("json"), std::io::stdout().is_terminal());
    let device = Device::open().context("cannot read the counters")?;
    // A module that is older than this program does not report them.
    let caps = device.caps().ok();
    let mut signals = Signals::block(signals::ENDS)?;
    let mut before = Seen::now(&device, by)?;
    while left != Some(0) {
        let mut interval = Interval::begin(&before);
        while let Some(rest) = length.checked_sub(interval.elapsed()).filter(|rest| !rest.is_zero()) {
            if signals.next_within(rest.min(READING))?.is_some() {
                return Ok(ExitCode::SUCCESS);
            }
            let after = Seen::now(&device, by)?;
            interval.add(&before, &after);
            before = after;
        }
        if as_json {
            write_stdout(&format!("{}\n", table::json(&interval, caps.as_ref(), unix_time(), by, sort)))?;
        } else {
            let text = table::text(&interval, caps.as_ref(), by, sort, rows);
            write_stdout(&format!("{}{text}", if clears { CLEAR } else { "" }))?;
        }
        left = left.map(|left| left - 1);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the time in seconds since 1970, to a millisecond.
fn unix_time() -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a time stamp for programs that collect the lines")]
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs_f64() * 1e3).round() / 1e3
}
