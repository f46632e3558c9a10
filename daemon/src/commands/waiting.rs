//! `pronto waiting`: sets how a running node waits for one of its peers.

use core::time::Duration;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgMatches, Command, value_parser};
use pronto::admin::{WaitingRequest, tell_waiting};

use super::Subcommand;
use super::reach::{reach, with_node_options};
use super::write_stdout;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "waiting", describe, run };

fn describe() -> Command {
    with_node_options(Command::new("waiting"), "<HOW> --peer <PEER> ")
        // NODE may be left out before HOW.
        .allow_missing_positional(true)
        .about("Sets how a running node waits for one of its peers: polling, sleeping, or both")
        .after_help(
                "The override applies to all waits of the node for that peer, also in handlers, until the node ends; `reset` removes it.\n\
                 The serving thread waits for all peers at the same time, so it uses the longest polling time requested for any of them.\n\
                 `pronto status` shows how the node waits for each peer, and why. Only processes of the node's user may set an override, over shared memory.\n\n\
             Examples:\n  pronto waiting block --peer 2 --config /etc/pronto/1.toml\n  \
             pronto waiting adaptive --peer 2 --bound 20us --config /etc/pronto/1.toml\n  \
             pronto waiting 1 reset --peer 2 --at shm:/run/pronto/1.sock",
        )
        .arg(
            Arg::new("peer")
                .long("peer")
                .value_name("PEER")
                .required(true)
                .value_parser(value_parser!(u16))
                .help("Id of the peer that the node waits for"),
        )
        .arg(
            Arg::new("how")
                .value_name("HOW")
                .required(true)
                .value_parser(["spin", "block", "adaptive", "reset"])
                .help("spin: always poll; block: sleep immediately; adaptive: poll, then sleep; reset: remove the override, so that each call waits as it asks"),
        )
        .arg(
            Arg::new("bound")
                .long("bound")
                .value_name("TIME")
                .value_parser(span)
                .help("Polling time of adaptive waits, such as 20us or 1ms [default: the measured cost of a wake-up on that host]"),
        )
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let how: &String = options.get_one("how").expect("clap asks for it");
    let bound = options.get_one::<Duration>("bound");
    let request = WaitingRequest {
        peer: *options.get_one("peer").expect("clap asks for it"),
        policy: (how != "reset").then(|| how.clone()),
        bound_ns: bound.map(|bound| u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX)),
    };
    let reached = reach(options)?;
    let report =
        tell_waiting(&reached.peer, &request).context("connected to the node, but the request failed")?;
    if let Some(refused) = report.refused {
        bail!("{refused}");
    }
    write_stdout(&format!("node {} waits for {}: {}\n", reached.peer.node(), request.peer, report.waits))?;
    Ok(ExitCode::SUCCESS)
}

/// Parses a time with its unit.
fn span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("invalid time {text:?}: expected a number and a unit, such as 20us or 1ms"))?;
    match &text[digits.len()..] {
        "ns" => Ok(Duration::from_nanos(number)),
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        _ => Err(format!("{text:?} needs a unit: ns, us or ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(span("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(span("1ms"), Ok(Duration::from_millis(1)));
        for wrong in ["20", "us", "20 us", "-1us", "1h"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_line_is_complete() {
        describe().debug_assert();
        for (words, node) in [
            (["waiting", "adaptive", "--peer", "2", "--config", "x"].as_slice(), None),
            (&["waiting", "1", "adaptive", "--peer", "2", "--at", "shm:@one"], Some(1)),
        ] {
            let options = describe().try_get_matches_from(words).expect("the words are complete");
            let number = |name| options.get_one::<u16>(name).copied();
            assert_eq!((number("node"), number("peer")), (node, Some(2)), "{words:?}");
            assert_eq!(options.get_one::<String>("how").map(String::as_str), Some("adaptive"));
        }
    }
}
