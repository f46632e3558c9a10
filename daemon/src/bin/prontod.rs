//! `prontod`: runs a node as its configuration says, until it is told to stop.

#![forbid(unsafe_code)]

use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use pronto::admin::{FIRST_VISITOR, recent};
use pronto::{Config, DownCause, Event, Node, measure_thresholds};
use tracing_subscriber::filter::LevelFilter;

/// Runs a node as its configuration says. SIGTERM and SIGINT let open calls end, then stop it.
#[derive(Debug, Parser)]
#[command(version, after_help = "Example:\n  prontod --config /etc/pronto/1.toml")]
struct Options {
    /// The node's configuration (docs/operations.md).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only check the configuration, on the machine that it is for: everything but whether the addresses are free.
    #[arg(long)]
    check: bool,
    /// What is logged on standard error: error, warn, info, debug or trace. Connections that are refused, and peers that
    /// are not reached, are info.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: LevelFilter,
    /// How long open calls may take to end at a stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u64,
}

fn main() -> ExitCode {
    if let Some(code) = pronto_cli_pages::serve("prontod", Options::command) {
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
    if options.check {
        builder.check().with_context(in_file)?;
        println!("{}: good", options.config.display());
        return Ok(());
    }
    // Blocked before any thread starts, so that this one takes them.
    let stop = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&stop), None).context("signal mask")?;
    tracing_subscriber::fmt().with_max_level(options.log).with_writer(std::io::stderr).without_time().init();
    tell_when_panicking();
    keep_small_pages();
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
    // Peers that were there before are told of now, and not once more where their event came just after.
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
    let signal = stop.wait().context("waiting for a signal")?;
    eprintln!("prontod: {signal}: draining");
    let id = node.id();
    node.drain(Duration::from_secs(options.drain))?;
    eprintln!("prontod: node {id} has stopped");
    Ok(())
}

/// A panic is told with what all threads did before it.
fn tell_when_panicking() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        told(panic);
        eprintln!("prontod: what threads did last:");
        for note in recent(NOTES) {
            eprintln!("  {note}");
        }
    }));
}

/// Has the kernel leave this process' memory in small pages. It gathers them into huge ones at the lowest priority there is
/// (khugepaged, nice 19), and whoever touches them meanwhile waits: beside processes that compute for hundreds of
/// milliseconds, real-time or not.
fn keep_small_pages() {
    if let Err(errno) = nix::sys::prctl::set_thp_disable(true) {
        eprintln!("prontod: its memory may be gathered into huge pages, and messages wait for that: {errno}");
    }
}

/// Notes that are told with a panic.
const NOTES: usize = 64;

/// What happens to peers; visitors (`pronto ping`, `pronto status`) come and go without a word.
fn report(event: &Event) {
    match event {
        Event::PeerUp(info) if info.peer >= FIRST_VISITOR => {}
        Event::PeerDown { peer, .. } if *peer >= FIRST_VISITOR => {}
        Event::PeerUp(info) => eprintln!("prontod: node {} is up ({})", info.peer, info.provider),
        // Who stops leaves its peers; they have not gone.
        Event::PeerDown { cause: DownCause::Local, .. } => {}
        Event::PeerDown { peer, cause, .. } => {
            eprintln!("prontod: node {peer} is down: {cause} ({})", cause.name());
        }
        Event::LinkLost { peer, error } => eprintln!("prontod: node {peer}: link lost: {error}"),
        Event::LinkResumed { peer, notifications_lost } => {
            eprintln!("prontod: node {peer}: link resumed, {notifications_lost} notifications lost");
        }
    }
}
