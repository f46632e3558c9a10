//! `pronto expedite`: boosts programs that know nothing of the kernel module, and shows the counters of the module; one file per
//! subcommand.

mod flag;
mod run;
mod top;

use core::time::Duration;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use pronto_expedite::follow::{Follower, Look};
use pronto_expedite::process::{Kind, has_children_lists};
use pronto_expedite::{Flag, Totals};

use super::Subcommand;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "expedite", describe, run };

/// The subcommands, in the order of the help.
const ALL: &[Subcommand] = &[run::SUBCOMMAND, flag::SUBCOMMAND, top::SUBCOMMAND];

/// Kinds of files that are flagged unless descriptors are named. Pipes are not: most of them connect the programs of a shell, and the
/// module checks a flagged pipe every 10 ms.
const KINDS: [Kind; 3] = [Kind::Socket, Kind::Eventfd, Kind::RdmaEvents];

fn describe() -> Command {
    Command::new("expedite")
        .about("Boosts programs that know nothing of the kernel module expedite, and shows its counters")
        .after_help(
            "The module must be loaded, and this user must have access to /dev/expedite (kernel/expedite/README.md).\n\n\
             Examples:\n  pronto expedite run -- redis-server --port 7000\n  pronto expedite flag $(pidof nginx)\n  \
             pronto expedite top",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands(ALL.iter().map(|subcommand| (subcommand.describe)()))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (name, options) = options.subcommand().expect("clap requires a subcommand");
    let subcommand = ALL.iter().find(|subcommand| subcommand.name == name);
    (subcommand.expect("clap accepts only listed subcommands").run)(options)
}

/// Adds the options for the terms of flags, and for the time between two looks.
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
            Arg::new("period")
                .long("period-ms")
                .value_name("MS")
                .value_parser(value_parser!(u32).range(1..=60_000))
                .default_value("10")
                .help("Time between two looks for new files, in milliseconds"),
        )
}

fn terms(options: &ArgMatches) -> Flag {
    Flag {
        percent: options.get_one::<u32>("percent").copied().unwrap_or(0),
        slice: Duration::from_micros(options.get_one::<u32>("slice").copied().unwrap_or(0).into()),
        ..Flag::default()
    }
}

fn period(options: &ArgMatches) -> Duration {
    Duration::from_millis((*options.get_one::<u32>("period").expect("it has a default")).into())
}

/// Number and delays of the files that were flagged so far, for the last line of a command.
struct Summary {
    before: Totals,
    /// Maximum time until each file was flagged.
    delays: Vec<Duration>,
}

impl Summary {
    fn begin(follower: &Follower) -> anyhow::Result<Self> {
        Ok(Self { before: follower.device().totals()?, delays: Vec::new() })
    }

    /// Adds the result of a look, and prints what an operator has to know on standard error.
    fn add(&mut self, look: &Look) {
        self.delays.extend(look.flagged.iter().map(|flagged| flagged.after));
        for (pid, file, refused) in &look.refused {
            eprintln!(
                "pronto expedite: process {pid}, descriptor {} ({}): {refused}",
                file.fd,
                file.kind.name()
            );
        }
        for reason in &look.unreachable {
            eprintln!("pronto expedite: {reason}");
        }
    }

    /// Returns how many files were flagged and when, and the counts of the module meanwhile.
    fn text(&mut self, follower: &Follower) -> anyhow::Result<String> {
        let now = follower.device().totals()?.counts;
        let before = self.before.counts;
        let delays = match self.delays.as_mut_slice() {
            [] => String::new(),
            delays => {
                delays.sort_unstable();
                let (middle, last) = (delays[delays.len() / 2], delays[delays.len() - 1]);
                format!(
                    ", each at most {:.1} ms after it was opened (half of them {:.1} ms)",
                    ms(last),
                    ms(middle)
                )
            }
        };
        Ok(format!(
            "flagged {} files{delays}; arrivals {}, boosts {}, denied {}, boosted {:.1} ms (of all programs on this machine)",
            self.delays.len(),
            now.calls.saturating_sub(before.calls),
            now.boosts().saturating_sub(before.boosts()),
            now.denied().saturating_sub(before.denied()),
            ms(now.boosted_time.saturating_sub(before.boosted_time)),
        ))
    }
}

/// Checks that the children of a process can be found.
fn require_children_lists() -> anyhow::Result<()> {
    let reason =
        "this kernel does not list the children of processes (it was built without CONFIG_PROC_CHILDREN)";
    anyhow::ensure!(has_children_lists(), "{reason}: use pronto expedite flag PID for each process");
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_is_found_by_its_name() {
        describe().debug_assert();
        for subcommand in ALL {
            assert_eq!((subcommand.describe)().get_name(), subcommand.name);
        }
    }
}
