//! `prontod`: runs a node from a configuration file until a signal stops it.

#![forbid(unsafe_code)]

#[path = "../cli_pages.rs"]
mod cli_pages;
#[path = "../coscheduling.rs"]
mod coscheduling;
#[path = "../stopping.rs"]
mod stopping;

use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pronto::admin::{FIRST_VISITOR, recent};
use pronto::{Config, DownCause, Event, Node, measure_thresholds};
use tracing_subscriber::filter::LevelFilter;

/// Runs a node from a configuration file. SIGTERM and SIGINT let open calls finish, then stop the node.
#[derive(Debug, Parser)]
#[command(name = "prontod", version, after_help = "Example:\n  prontod --config /etc/pronto/1.toml")]
struct Options {
    /// Configuration file of the node (docs/operations.md).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and exit. Run it on the node's own machine: everything is checked, except whether the addresses are free.
    #[arg(long)]
    check: bool,
    /// Log level on standard error: error, warn, info, debug or trace. Rejected connections and unreachable peers are logged as info.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: LevelFilter,
    /// Time limit for open calls to finish when the node stops.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u64,
}

fn main() -> ExitCode {
    if let Some(code) = cli_pages::serve("prontod", Options::command) {
        return code;
    }
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prontod: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let config = Config::read(&options.config)?;
    let in_file = || options.config.display().to_string();
    let builder = Node::from_config(&config).with_context(in_file)?;
    let (builder, coscheduling) = coscheduling::prepare(&config, builder).with_context(in_file)?;
    tracing_subscriber::fmt().with_max_level(options.log).with_writer(std::io::stderr).without_time().init();
    if options.check {
        builder.check().with_context(in_file)?;
        println!("{}: good", options.config.display());
        return Ok(());
    }
    // Blocked before any thread starts, so that only this thread receives them.
    let stop = stopping::block_signals()?;
    print_notes_on_panic();
    keep_small_pages();
    bound_real_time();
    measure_thresholds();
    let node = builder.start().with_context(in_file)?;
    let listening: Vec<_> = node.listening().iter().map(ToString::to_string).collect();
    let places = if listening.is_empty() {
        "nowhere: it only dials".into()
    } else {
        format!("at {}", listening.join(", "))
    };
    eprintln!("prontod: node {} listens {places}", node.id());
    let events = node.events();
    // Peers that connected before the reporter runs are reported here. If their event arrives as well, it is skipped.
    let early: Vec<_> = node.status().peers.iter().filter_map(|peer| peer.info).collect();
    early.iter().for_each(|info| report(&Event::PeerUp(*info)));
    let reporter = std::thread::Builder::new().name("events".into());
    reporter.spawn(move || {
        while let Some(event) = events.next_within(Duration::MAX) {
            match event {
                Ok(Event::PeerUp(info)) if early.contains(&info) => {}
                Ok(event) => report(&event),
                Err(missed) => eprintln!("prontod: events of peers: {missed}"),
            }
        }
    })?;
    let coscheduling = coscheduling.map(|prepared| prepared.start(&node, &config)).transpose()?;
    let result = stopping::run_until_signal(node, &stop, &options.config, Duration::from_secs(options.drain));
    if let Some(coscheduling) = coscheduling {
        coscheduling.stop();
    }
    result
}

/// Installs a panic hook that also prints the last flight-recorder entries of all threads.
fn print_notes_on_panic() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        previous(panic);
        eprintln!("prontod: last flight-recorder entries:");
        for note in recent(NOTES) {
            eprintln!("  {note}");
        }
    }));
}

/// Disables transparent huge pages for this process. khugepaged collects small pages into huge ones at nice 19, and a thread that touches
/// them meanwhile waits. If processes that compute share the CPU, that takes hundreds of milliseconds, for real-time threads as well.
fn keep_small_pages() {
    if let Err(errno) = nix::sys::prctl::set_thp_disable(true) {
        eprintln!(
            "prontod: cannot disable transparent huge pages: {errno}; messages may be delayed by the kernel (khugepaged)"
        );
    }
}

/// Maximum time that a real-time thread of this process may run without sleeping: far more than a boost lasts. It protects the machine if
/// a thread computes endlessly and the thread that should lower it (tier `fifo`) does not run either: the kernel ends the process.
const REAL_TIME: Duration = Duration::from_secs(2);

/// Sets the limit of [`REAL_TIME`], unless a lower one is set.
fn bound_real_time() {
    let bound = || {
        let (_, hard) = getrlimit(Resource::RLIMIT_RTTIME)?;
        let limit = u64::try_from(REAL_TIME.as_micros()).unwrap_or(u64::MAX).min(hard);
        setrlimit(Resource::RLIMIT_RTTIME, limit, limit)
    };
    if let Err(errno) = bound() {
        eprintln!("prontod: cannot limit the time of real-time threads: {errno}");
    }
}

/// Number of flight-recorder entries that a panic prints.
const NOTES: usize = 64;

/// Prints an event of a peer, except of visitors (`pronto ping`, `pronto status`), which come and go.
fn report(event: &Event) {
    match event {
        Event::PeerUp(info) if info.peer >= FIRST_VISITOR => {}
        Event::PeerDown { peer, .. } if *peer >= FIRST_VISITOR => {}
        Event::PeerUp(info) => eprintln!("prontod: node {} is up ({})", info.peer, info.provider),
        // Reported for every peer while this node stops; the peers are not down.
        Event::PeerDown { cause: DownCause::Local, .. } => {}
        Event::PeerDown { peer, cause, .. } => {
            eprintln!("prontod: node {peer} is down: {cause} ({})", cause.name());
        }
        Event::PauseEnded { peer } => eprintln!("prontod: node {peer}: has a link again"),
        Event::LinkPaused { peer } => {
            eprintln!("prontod: node {peer}: idle link closed; the next message makes another one")
        }
        Event::LinkLost { peer, error } => eprintln!("prontod: node {peer}: link lost: {error}"),
        Event::LinkResumed { peer, notifications_lost } => {
            eprintln!("prontod: node {peer}: link resumed, {notifications_lost} notifications lost");
        }
    }
}
