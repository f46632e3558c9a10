//! `pronto expedite`: boosts programs that know nothing of the kernel module, shows the counters of the module and the times of wake-ups,
//! and loads the BPF scheduler, which needs no module; one file per subcommand.

mod flag;
mod run;
mod scx;
mod top;
mod wakeups;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pronto_bpf::Messages;
use pronto_expedite::follow::{Followed, Follower, Scan};
use pronto_expedite::process::{Kind, Process, has_children_lists};
use pronto_expedite::{Flag, Totals};

use super::{Subcommand, run_one_of, with_subcommands};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "expedite", describe, run };

/// The subcommands, in the order of the help.
const ALL: &[Subcommand] =
    &[run::SUBCOMMAND, flag::SUBCOMMAND, top::SUBCOMMAND, wakeups::SUBCOMMAND, scx::SUBCOMMAND];

/// Kinds of files that are flagged unless descriptors are named. Pipes are not: most of them connect the programs of a shell, and the
/// module checks a flagged pipe every 10 ms.
const KINDS: [Kind; 3] = [Kind::Socket, Kind::Eventfd, Kind::RdmaEvents];

fn describe() -> Command {
    let command = Command::new("expedite")
        .about("Boosts programs that know nothing of it, by the kernel module expedite or a BPF scheduler; shows counters and wake-ups")
        .after_help(
            "run, flag and top need the module, and access to /dev/expedite (kernel/expedite/README.md); wakeups and scx need root.\n\n\
             Examples:\n  pronto expedite run -- redis-server --port 7000\n  pronto expedite flag $(pgrep -o nginx) --children\n  \
             pronto expedite top",
        );
    with_subcommands(command, ALL)
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    run_one_of(ALL, options)
}

/// Adds the options for the terms of flags, and for the time between two scans.
fn with_terms(command: Command) -> Command {
    command
        .arg(
            Arg::new("percent")
                .long("percent")
                .value_name("P")
                .value_parser(value_parser!(u32).range(1..=100))
                .help("Maximum boosted share of a CPU for all threads that wait at one file, in percent [default: the module's caps only]"),
        )
        .arg(
            Arg::new("slice")
                .long("slice-us")
                .value_name("US")
                .value_parser(value_parser!(u32).range(10..))
                .help("Length of a boost, in microseconds [default: the maximum that the module grants]"),
        )
        .arg(
            Arg::new("sleepers")
                .long("sleepers-only")
                .action(ArgAction::SetTrue)
                .help("Boost only threads that use less than 2 % of a CPU in total, as in the paper"),
        )
        .arg(
            Arg::new("period")
                .long("period-ms")
                .value_name("MS")
                .value_parser(value_parser!(u32).range(1..=60_000))
                .default_value("10")
                .help("Time between two scans for new files, in milliseconds; longer if scans take more than a tenth of it"),
        )
}

/// Returns the options of a command that loads a BPF program.
fn program_arguments(default: &'static str, help: &'static str) -> [Arg; 2] {
    let object = Arg::new("object").long("object").value_name("FILE").default_value(default).help(help);
    [
        object.value_parser(value_parser!(PathBuf)),
        Arg::new("verbose")
            .long("verbose")
            .action(ArgAction::SetTrue)
            .help("Print the messages of libbpf and of the kernel's verifier on standard error"),
    ]
}

fn messages(options: &ArgMatches) -> Messages {
    if options.get_flag("verbose") { Messages::Shown } else { Messages::Hidden }
}

fn terms(options: &ArgMatches) -> Flag {
    Flag {
        percent: options.get_one::<u32>("percent").copied().unwrap_or(0),
        sleepers_only: options.get_flag("sleepers"),
        slice: Duration::from_micros(options.get_one::<u32>("slice").copied().unwrap_or(0).into()),
        ..Flag::default()
    }
}

/// The scans of a command, and what it reports of them.
struct Scanning {
    follower: Follower,
    period: Duration,
    /// Duration of the last scan.
    took: Duration,
    before: Totals,
    /// Number of flagged files by the maximum time for which they had been open, in tenths of a millisecond.
    delays: BTreeMap<u128, u64>,
    flagged: u64,
    /// It was reported that files are not flagged yet.
    is_postponed: bool,
    /// Maximum number of processes that one scan left out; it was reported that there are any.
    left_out: usize,
}

/// Share of a CPU for scans: a scan that takes longer makes the period longer.
const SCANS: u32 = 10;

impl Scanning {
    fn begin(flag: Flag, kinds: &[Kind], followed: Followed, options: &ArgMatches) -> anyhow::Result<Self> {
        let follower = Follower::new(flag, kinds, followed).context("cannot set flags")?;
        let before = follower.device().totals()?;
        let period =
            Duration::from_millis((*options.get_one::<u32>("period").expect("it has a default")).into());
        Ok(Self {
            follower,
            period,
            took: Duration::ZERO,
            before,
            delays: BTreeMap::new(),
            flagged: 0,
            is_postponed: false,
            left_out: 0,
        })
    }

    /// Flags new files of these processes, and reports on standard error what an operator has to know.
    fn scan(&mut self, pids: &BTreeSet<u32>) -> Scan {
        #[expect(clippy::disallowed_methods, reason = "the cost of a scan is real time")]
        let start = Instant::now();
        let scan = self.follower.scan(pids);
        self.took = start.elapsed();
        self.flagged += scan.flagged.len() as u64;
        for after in scan.flagged.iter().filter_map(|flagged| flagged.after) {
            *self.delays.entry(after.as_micros() / 100).or_default() += 1;
        }
        for reason in &scan.unreachable {
            report(&reason.to_string());
        }
        match &scan.postponed {
            Some((count, reason)) if !self.is_postponed => {
                report(&format!("{count} files have no flag yet, and are tried again: {reason}"));
            }
            _ => {}
        }
        self.is_postponed = scan.postponed.is_some();
        if let Some((count, reason)) = scan.left_out {
            if self.left_out == 0 {
                report(&format!("{count} processes are left out until others end: {reason}"));
            }
            self.left_out = self.left_out.max(count);
        }
        scan
    }

    fn flag_one(&mut self, process: &Process, fd: i32) -> anyhow::Result<()> {
        self.follower.flag_one(process, fd)?;
        self.flagged += 1;
        Ok(())
    }

    /// Returns the time until the next scan.
    fn pause(&self) -> Duration {
        self.period.max(self.took * SCANS)
    }

    /// Reports how many files were flagged and when, and the counts of the module meanwhile.
    fn end(&self) -> anyhow::Result<()> {
        let counts = self.follower.device().totals()?.counts.since(&self.before.counts);
        report(&format!(
            "flagged {} files{}; arrivals {}, boosts {}, denied {}, boosted {:.1} ms (of all programs on this machine)",
            self.flagged,
            delays_of(&self.delays),
            counts.calls,
            counts.boosts(),
            counts.denied(),
            counts.boosted_time.as_secs_f64() * 1e3,
        ));
        if self.left_out > 0 {
            report(&format!("up to {} processes at a time were left out, as reported above", self.left_out));
        }
        Ok(())
    }
}

/// Returns the longest delay and the median.
fn delays_of(delays: &BTreeMap<u128, u64>) -> String {
    let Some((last, _)) = delays.last_key_value() else { return String::new() };
    let half = delays.values().sum::<u64>().div_ceil(2);
    let mut seen = 0;
    let median = delays.iter().find(|(_, count)| {
        seen += **count;
        seen >= half
    });
    let ms = |tenths: u128| format!("{}.{}", (tenths + 1) / 10, (tenths + 1) % 10);
    format!(
        ", each at most {} ms after it was opened (half of them {} ms)",
        ms(*last),
        ms(median.map_or(*last, |(tenths, _)| *tenths))
    )
}

/// Writes a line to standard error, which may be closed.
fn report(text: &str) {
    let _ = writeln!(std::io::stderr(), "pronto expedite: {text}");
}

/// Checks that the children of a process can be found.
fn require_children_lists() -> anyhow::Result<()> {
    let reason =
        "this kernel does not list the children of processes (it was built without CONFIG_PROC_CHILDREN)";
    anyhow::ensure!(has_children_lists(), "{reason}: use pronto expedite flag PID for each process");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_is_found_by_its_name() {
        crate::commands::assert_named(describe(), ALL);
    }

    #[test]
    fn delays_are_rounded_up() {
        assert_eq!(delays_of(&BTreeMap::new()), "");
        let text = delays_of(&[(0, 3), (52, 1), (109, 1)].into());
        assert_eq!(text, ", each at most 11.0 ms after it was opened (half of them 0.1 ms)");
    }
}
