//! `pronto expedite scx`: loads the BPF scheduler, and flags threads for the nodes that ask for it.

use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Group};
use pronto_expedite::scx::{Counters, SOCKET};
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::time::Nanos;
use pronto_scx::{Exit, Flags as _, Loaded, Server, Settings, active};

use super::{messages, program_arguments};
use crate::commands::signals::{self, Signals};
use crate::commands::{Subcommand, write_stdout};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "scx", describe, run };

/// Where `make -C kernel/scx install` places the BPF program.
const OBJECT: &str = "/usr/local/lib/pronto/pronto_scx.bpf.o";

/// Time between two checks for a signal or the end of the scheduler, while no request arrives.
const PERIOD: Duration = Duration::from_millis(100);

/// Maximum number of starts that the kernel asks for, each within [`SHORT`] of the last. Each change of the set of CPUs takes one.
const STARTS: u32 = 1_000;

/// A scheduler that runs for longer has started well.
const SHORT: Duration = Duration::from_secs(60);

/// The reason why the scheduler no longer runs.
enum End {
    Signal,
    Kernel(Exit),
}

fn describe() -> Command {
    let share = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("P")
            .value_parser(value_parser!(u32).range(0..=100))
            .default_value(default)
            .help(help)
    };
    Command::new("scx")
        .about("Replaces the kernel's scheduler by one that boosts flagged threads without a module, and coschedules, until SIGTERM")
        .after_help(
            "For nodes with boost = \"scx\", and for coschedulers with the actuator scx. The BPF scheduler schedules all ordinary threads of the machine (Linux 6.12 or later, root). It\n\
             ends with this command, however that ends: by SIGINT, SIGTERM or SIGHUP, killed, or because the kernel ejects the scheduler,\n\
             whose reason is printed then (exit code 1). kernel/scx/README.md describes how to build it, and its limits.\n\n\
             Example:\n  pronto expedite scx --group pronto",
        )
        .args(program_arguments(OBJECT, "BPF program, as `make -C kernel/scx` builds it"))
        .arg(
            Arg::new("socket")
                .long("socket")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .default_value(SOCKET)
                .help("Socket for requests; nodes and coschedulers find the default only"),
        )
        .arg(
            Arg::new("group")
                .long("group")
                .value_name("NAME")
                .help("Group whose members may flag their threads [default: root only]"),
        )
        .arg(
            Arg::new("slice-us")
                .long("slice-us")
                .value_name("US")
                .value_parser(value_parser!(u32).range(10..=5_000))
                .default_value("200")
                .help("Time that a thread runs boosted after it was woken, in microseconds"),
        )
        .arg(share("thread-percent", "10", "Maximum boosted share of a CPU within any 100 ms for a thread, in percent"))
        .arg(share("user-percent", "25", "The same maximum for all threads of a user on a CPU, in percent"))
        .arg(share("cpu-percent", "50", "The same maximum for all threads on a CPU, in percent"))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let path = |name: &str| options.get_one::<PathBuf>(name).expect("it has a default");
    let number = |name: &str| *options.get_one::<u32>(name).expect("it has a default");
    let (object, socket) = (path("object"), path("socket"));
    let settings = Settings {
        slice: Nanos::from_micros(number("slice-us").into()),
        thread: Share::percent(number("thread-percent")),
        user: Share::percent(number("user-percent")),
        cpu: Share::percent(number("cpu-percent")),
    };
    let messages = messages(options);
    let group = options.get_one::<String>("group").map(|name| find_group(name)).transpose()?;
    allow_descriptors();
    let mut signals = Signals::block(signals::ENDS)?;
    // Before the scheduler: a second loader must not end a first one that loads again.
    let mut server = Server::listen(socket, group)?;
    let mut loaded = Loaded::load(object, &settings, messages)?;
    write_stdout(&format!(
        "the scheduler pronto is active; threads are flagged through {}; ends on SIGINT, SIGTERM or SIGHUP\n",
        socket.display()
    ))?;
    let mut starts = 0;
    while starts < STARTS {
        let begun = now();
        let end = serve(&loaded, &mut server, &mut signals)?;
        starts = if begun.elapsed() < SHORT { starts + 1 } else { 0 };
        let counters = loaded.counters();
        drop(loaded);
        match end {
            End::Signal => {
                write_stdout(&format!("{}\n{}", detached(), summary(&counters)))?;
                return Ok(ExitCode::SUCCESS);
            }
            End::Kernel(exit) if exit.asks_for_restart() => {
                loaded = Loaded::load(object, &settings, messages)?;
                server.flag_again(&loaded);
                // Afterwards, and whether or not somebody reads it: the machine needs its scheduler.
                let _unread =
                    write_stdout(&format!("the kernel ended the scheduler: {exit}; started it again\n"));
            }
            End::Kernel(exit) => {
                // The reason is more important than these numbers.
                let _unread = write_stdout(&summary(&counters));
                anyhow::bail!("the kernel ended the scheduler: {exit}; {}", detached());
            }
        }
    }
    anyhow::bail!("the kernel has asked for {STARTS} starts of the scheduler");
}

#[expect(clippy::disallowed_methods, reason = "the time that a scheduler runs is real time")]
fn now() -> Instant {
    Instant::now()
}

/// Serves requests until a signal arrives or the kernel ends the scheduler.
fn serve(loaded: &Loaded, server: &mut Server, signals: &mut Signals) -> anyhow::Result<End> {
    loop {
        server.turn(PERIOD, loaded).context("waiting for requests")?;
        if let Some(exit) = loaded.exit() {
            return Ok(End::Kernel(exit));
        }
        if signals.next_within(Duration::ZERO)?.is_some() {
            return Ok(End::Signal);
        }
    }
}

fn find_group(name: &str) -> anyhow::Result<Gid> {
    let group = Group::from_name(name).with_context(|| format!("cannot look up the group {name}"))?;
    Ok(group.with_context(|| format!("cannot find the group {name}: create it, or leave out --group"))?.gid)
}

/// Raises the limit of descriptors, of which each flagged thread takes one.
fn allow_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If this fails, fewer threads can be flagged.
        let _refused = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Describes which scheduler runs now.
fn detached() -> String {
    match active() {
        None => "the kernel's own scheduler runs".into(),
        Some(name) => format!("the scheduler {name} runs"),
    }
}

fn summary(counters: &Counters) -> String {
    let all: Vec<_> = counters.by_name().iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{}\n", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_all_counters() {
        let text = summary(&Counters::default());
        assert!(text.starts_with("boosts 0, idle 0, ") && text.ends_with("boosted_ns 0\n"), "{text}");
    }

    #[test]
    fn the_defaults_are_those_of_the_policy() {
        let options = describe().try_get_matches_from(["scx"]).unwrap();
        let number = |name: &str| *options.get_one::<u32>(name).unwrap();
        let default = Settings::default();
        assert_eq!(Nanos::from_micros(number("slice-us").into()), default.slice);
        let shares =
            ["thread-percent", "user-percent", "cpu-percent"].map(|name| Share::percent(number(name)));
        assert_eq!(shares, [default.thread, default.user, default.cpu]);
        assert!(PathBuf::from(OBJECT).is_absolute());
    }
}
