//! `pronto coschedule run`: starts a command and coschedules it and its children.

use core::time::Duration;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pronto_coschedule::Service;
use pronto_coschedule::actuator::Choice;
use pronto_coschedule::group::Members;
use pronto_coschedule::sensor::Choice as Sensor;
use pronto_coschedule::settings::{Group, Past, Policy, Settings};
use pronto_coschedule::status::Status;
use pronto_expedite::process::{descendants, has_children_lists};
use pronto_sched_policy::policy::weight::Weight;

use super::{report, state, with_state};
use crate::commands::Subcommand;
use crate::commands::family::{self, Family, NotStarted};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "run", describe, run };

/// The policies that need no other node.
const POLICIES: [&str; 4] = ["pred", "dyn", "static", "off"];

fn describe() -> Command {
    let command = Command::new("run")
        .about("Starts a command, and coschedules it and its children")
        .after_help(
            "Ends when all of these processes have ended, with the exit code of the command, and restores what it has changed. If the\n\
             command cannot be started, the exit code is 127 (not found) or 126. At the end it prints how often queues held data: if that\n\
             is below 1 % of the samples, coscheduling had nothing to decide by.\n\n\
             Examples:\n  pronto coschedule run -- mpirun -n 2 ./program\n  \
             pronto coschedule run --policy dyn --past 0.5 --actuator slice -- ./server\n  \
             pronto coschedule run --sensor scx --actuator scx -- ./server     # while pronto expedite scx runs",
        )
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("POLICY")
                .value_parser(PossibleValuesParser::new(POLICIES))
                .default_value("pred")
                .help("pred: received data and data to be sent count; dyn: received data only; static: the largest weight always; off: none. The policy carried needs prontod"),
        )
        .arg(
            Arg::new("past")
                .long("past")
                .value_name("P")
                .value_parser(|text: &str| text.parse::<Past>())
                .default_value("0.9")
                .help("Weight of the past in a frequency, per period, from 0 to 1; auto: follow the waits of each process"),
        )
        .arg(
            Arg::new("period")
                .long("period-ms")
                .value_name("MS")
                .value_parser(value_parser!(u32).range(1..=60_000))
                .default_value("10")
                .help("Time between two samples of the queues, in milliseconds"),
        )
        .arg(
            Arg::new("most")
                .long("max-weight")
                .value_name("PERCENT")
                .value_parser(value_parser!(u32).range(100..=1_000))
                .default_value("400")
                .help("Largest weight of a process, in percent of an ordinary one: with 400, one other process keeps a fifth of a CPU"),
        )
        .arg(
            Arg::new("sensor")
                .long("sensor")
                .value_name("MEANS")
                .value_parser(PossibleValuesParser::new(Sensor::NAMES))
                .default_value("sock_diag")
                .help("sock_diag: needs no privilege, and a system call per socket; bpf: a BPF program reads all sockets of a process in a few system calls and counts messages, which needs root, or CAP_BPF and CAP_PERFMON; scx: the BPF scheduler reads them, predicts and sets weights in the kernel, with --actuator scx, --policy pred or dyn, and a number for P"),
        )
        .arg(
            Arg::new("program")
                .long("sensor-program")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .default_value(Sensor::PROGRAM)
                .help("BPF program for --sensor bpf, as `make -C kernel/queues` builds it"),
        )
        .arg(
            Arg::new("actuator")
                .long("actuator")
                .value_name("MEANS")
                .value_parser(|text: &str| text.parse::<Choice>())
                .default_value("auto")
                .help("nice: nice values, which need a privilege; slice: time slices, which need none; nice+slice; scx: weights of the BPF scheduler, whose loader must run (pronto expedite scx); auto: nice if it is permitted, else slice. The actuator cgroup needs prontod"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the closing report as JSON on standard error, with the keys of a coscheduler in pronto coschedule top, except process"))
        .arg(family::argument());
    with_state(command)
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    ensure!(
        has_children_lists(),
        "this kernel does not list the children of processes (it was built without CONFIG_PROC_CHILDREN): configure a group by name in prontod"
    );
    let words: Vec<&OsString> = family::words(options);
    let own = std::process::id();
    let (mut service, restored) = Service::begin(settings(options, own)?)?;
    restored.in_words().iter().for_each(|words| report(&format!("an earlier run was killed: {words}")));
    let mut signals = family::block_signals()?;
    let mut family = match Family::start(&words)? {
        Ok(family) => family,
        Err(NotStarted { reason, code }) => {
            report(&reason);
            return Ok(ExitCode::from(code));
        }
    };
    let code = loop {
        service.work().iter().for_each(|problem| report(problem));
        if let Some(received) = signals.next_within(service.pause())? {
            let members: BTreeSet<_> = descendants(own).into_iter().collect();
            family.pass_on(received, &members);
        }
        if let Some(code) = family.reap()? {
            break code;
        }
    };
    let (status, restored) = service.end()?;
    if restored.refused > 0 {
        restored.in_words().iter().for_each(|words| report(words));
    }
    if options.get_flag("json") {
        report_json(&status)?;
    } else {
        report(&summary(&status));
    }
    Ok(ExitCode::from(code))
}

fn settings(options: &ArgMatches, own: u32) -> anyhow::Result<Settings> {
    let number = |name: &str| *options.get_one::<u32>(name).expect("it has a default");
    let policy: Policy = options.get_one::<String>("policy").expect("it has a default").parse()?;
    Ok(Settings {
        policy,
        period: Duration::from_millis(number("period").into()),
        past: *options.get_one("past").expect("it has a default"),
        most: Weight::hundredths(number("most")),
        sensor: Sensor::named(
            options.get_one::<String>("sensor").expect("it has a default"),
            options.get_one::<PathBuf>("program").expect("it has a default").clone(),
        )?,
        actuator: *options.get_one("actuator").expect("it has a default"),
        groups: vec![Group { name: "command".into(), members: Members::DescendantsOf(own) }],
        state: state(options),
    })
}

fn report_json(status: &Status) -> anyhow::Result<()> {
    eprintln!("{}", serde_json::to_string(status)?);
    Ok(())
}

/// Returns the closing report.
#[expect(clippy::cast_precision_loss, reason = "for human-readable output")]
fn summary(status: &Status) -> String {
    let percent =
        |part: u64| if status.samples == 0 { 0.0 } else { part as f64 * 100.0 / status.samples as f64 };
    let mean = status.worked_us as f64 / status.ticks.max(1) as f64;
    format!(
        "{} by {} and {}: changes of weights: {}; data to be read in {:.1} %, to be sent in {:.1} % of {} samples; a period took {mean:.0} us of \
         {} us (longest {} us)",
        status.policy,
        status.sensor,
        status.actuator,
        status.changes,
        percent(status.with_received),
        percent(status.with_sent),
        status.samples,
        status.period_us,
        status.longest_us,
    )
}
