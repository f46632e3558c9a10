//! `pronto ping`: calls a node several times and prints the time of each call.

use core::time::Duration;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pronto::admin::Ping;

use super::Subcommand;
use super::reach::{reach, with_node_options};
use super::write_stdout;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "ping", describe, run };

fn describe() -> Command {
    with_node_options(Command::new("ping"), "")
        .about("Calls a node several times and prints the time of each call")
        .after_help(
            "One warm-up call is made before the --count measured calls and reported separately.\n\
             It includes one-time set-up on both nodes.\n\n\
             Examples:\n  pronto ping 1 --at shm:/run/pronto/1.sock\n  pronto ping --config /etc/pronto/1.toml --count 10",
        )
        .arg(
            Arg::new("count")
                .long("count")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=1_000_000))
                .default_value("4")
                .help("Number of measured calls"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object on standard output"))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let reached = reach(options)?;
    let count: u32 = *options.get_one("count").expect("has a default");
    let json = options.get_flag("json");
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let first = ping(&reached.peer, 0)?;
    if !json {
        write_stdout(&format!(
            "node {}: {:.1} us, warm-up call, not counted\n",
            reached.peer.node(),
            us(first)
        ))?;
    }
    let mut times = Vec::new();
    for nonce in 1..=u64::from(count) {
        let took = ping(&reached.peer, nonce)?;
        if !json {
            write_stdout(&format!("node {}: {:.1} us\n", reached.peer.node(), us(took)))?;
        }
        times.push(took);
    }
    times.sort_unstable();
    let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    if json {
        let object = serde_json::json!({
            "node": reached.peer.node().0,
            "first_ns": nanos(first),
            "calls": count,
            "min_ns": nanos(least),
            "p50_ns": nanos(median),
            "max_ns": nanos(most),
        });
        write_stdout(&format!("{object}\n"))?;
    } else {
        let (least, median, most) = (us(least), us(median), us(most));
        write_stdout(&format!("{count} calls: min {least:.1}, median {median:.1}, max {most:.1} us\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn ping(peer: &pronto::Peer, nonce: u64) -> anyhow::Result<Duration> {
    #[expect(clippy::disallowed_methods, reason = "a program is an edge, and this one measures time")]
    let begun = Instant::now();
    let pong = peer.call(&Ping { nonce }).context("connected to the node, but the request failed")?;
    let took = begun.elapsed();
    anyhow::ensure!(pong.nonce == nonce, "the reply belongs to another call; please report this");
    Ok(took)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
