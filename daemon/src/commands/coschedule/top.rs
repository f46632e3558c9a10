//! `pronto coschedule top`: prints frequencies, weights and decisions of the coschedulers on this machine.

use core::fmt::Write as _;
use core::time::Duration;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Arg, ArgAction, ArgMatches, Command};
use pronto_coschedule::service::running;
use pronto_coschedule::status::Service;

use super::{report, state, with_state};
use crate::commands::signals::{self, Signals};
use crate::commands::{CLEAR, Subcommand, printable, with_intervals, write_stdout};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "top", describe, run };

fn describe() -> Command {
    let command = with_intervals(Command::new("top"))
        .about("Prints frequencies, weights and decisions of the coschedulers of this user, until SIGINT")
        .after_help(
            "FREQUENCY is how much a process communicates, in packets of 4096 bytes in its sockets, averaged; CARRIED is what other nodes\n\
             report for the other ends of its connections. WEIGHT is in percent of an ordinary process. CHANGES counts since the start.\n\
             The time per period is that from the begin to the end of its work, waits for a CPU included; with the sensor scx also the time of\n\
             the samples in the kernel, which alone have a bound. Sockets are those that the last period has read.\n\n\
             --json prints an array of coschedulers, each with process (id, and started in ticks since the machine started), policy,\n\
             sensor, actuator, period_us, sockets, ticks (periods), samples (one per process and period), with_received, with_sent, changes,\n\
             worked_us, longest_us, is_without_loader (weights wait for pronto expedite scx), and processes: pid, command, group, frequency and carried (packets), weight, past (P, millionths),\n\
             changes, is_refused.\n\n\
             Examples:\n  pronto coschedule top\n  pronto coschedule top --count 1 --json",
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON array per interval on standard output"));
    with_state(command)
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let interval =
        Duration::from_secs((*options.get_one::<u32>("interval").expect("it has a default")).into());
    let mut left = options.get_one::<u32>("count").copied();
    let (as_json, clears) = (options.get_flag("json"), std::io::stdout().is_terminal());
    let state = state(options);
    let mut signals = Signals::block(signals::ENDS)?;
    let mut has_shown = false;
    loop {
        let services = running(&state);
        if services.is_empty() && has_shown {
            report("the last coscheduler has ended");
            return Ok(ExitCode::SUCCESS);
        }
        has_shown = true;
        ensure!(
            !services.is_empty(),
            "no coscheduler runs with the state in {}: start one with pronto coschedule run, or with prontod",
            state.display()
        );
        if as_json {
            write_stdout(&format!("{}\n", serde_json::to_string(&services)?))?;
        } else {
            write_stdout(&format!("{}{}", if clears { CLEAR } else { "" }, text(&services)))?;
        }
        left = left.map(|left| left - 1);
        if left == Some(0) || signals.next_within(interval)?.is_some() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for human-readable output")]
fn text(services: &[Service]) -> String {
    let mut text = String::new();
    for Service { process, coscheduler } in services {
        let percent = |part: u64| {
            if coscheduler.samples == 0 { 0.0 } else { part as f64 * 100.0 / coscheduler.samples as f64 }
        };
        let mean = coscheduler.worked_us as f64 / coscheduler.ticks.max(1) as f64;
        let _ = writeln!(
            text,
            "process {}: {} by {} and {}, every {} ms; sockets: {}; data to be read in {:.1} %, to be sent in {:.1} % of samples; {mean:.0} us per \
             period\n\n{:>8}  {:15} {:12} {:>9} {:>9} {:>6} {:>5} {:>8}",
            process.id,
            coscheduler.policy,
            coscheduler.sensor,
            coscheduler.actuator,
            coscheduler.period_us / 1_000,
            coscheduler.sockets,
            percent(coscheduler.with_received),
            percent(coscheduler.with_sent),
            "PID",
            "COMMAND",
            "GROUP",
            "FREQUENCY",
            "CARRIED",
            "WEIGHT",
            "P",
            "CHANGES",
        );
        if coscheduler.is_without_loader {
            text.push_str(
                "no weights: the loader has ended or does not reply; check that pronto expedite scx runs\n",
            );
        }
        for row in &coscheduler.processes {
            let _ = writeln!(
                text,
                "{:>8}  {:15} {:12} {:>9.2} {:>9.2} {:>6} {:>5.2} {:>8}{}",
                row.pid,
                printable(row.command.as_bytes()),
                row.group,
                row.frequency,
                row.carried,
                row.weight,
                f64::from(row.past) / 1e6,
                row.changes,
                if row.is_refused { "  refused" } else { "" },
            );
        }
        text.push('\n');
    }
    text
}
