//! `pronto status`: prints the state of a node.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pronto::NodeId;
use pronto::admin::{
    Counter, FIRST_VISITOR, NoteReport, PeerReport, RecentReport, StatusReport, recent_of, status_of,
};

use super::Subcommand;
use super::reach::{reach, with_node_options};
use super::write_stdout;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "status", describe, run };

fn describe() -> Command {
    with_node_options(Command::new("status"), "")
        .about("Prints the state of a node: its peers, message types and counters")
        .after_help("Examples:\n  pronto status 1 --at shm:/run/pronto/1.sock\n  pronto status --config /etc/pronto/1.toml --all\n  pronto status --config /etc/pronto/1.toml --recent 100")
        .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("Show counters that are zero and visitors without a link as well"))
        .arg(
            Arg::new("recent")
                .long("recent")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=4096))
                .help("Show the last N flight-recorder entries of the node's process instead, oldest first"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object on standard output"))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let reached = reach(options)?;
    if let Some(most) = options.get_one::<u32>("recent") {
        let report =
            recent_of(&reached.peer, *most).context("connected to the node, but the request failed")?;
        let types = if options.get_flag("json") {
            Vec::new()
        } else {
            status_of(&reached.peer).context("connected to the node, but the request failed")?.types
        };
        write_stdout(&notes_of(&report, options.get_flag("json")))?;
        write_stdout(&types_of(&report, reached.peer.node(), &types))?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = status_of(&reached.peer).context("connected to the node, but the request failed")?;
    if options.get_flag("json") {
        write_stdout(&format!("{}\n", as_json(&report)))?;
    } else {
        write_stdout(&as_text(&report, options.get_flag("all")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn notes_of(report: &RecentReport, as_json: bool) -> String {
    if !as_json {
        return report.notes.iter().map(|note| format!("{note}\n")).collect();
    }
    let note = |note: &NoteReport| serde_json::json!({ "thread": note.thread, "time_us": note.time_us, "text": note.text });
    let notes: Vec<_> = report.notes.iter().map(note).collect();
    format!("{}\n", serde_json::json!({ "notes": notes }))
}

/// Returns a line with the names of the types whose numbers are in the notes, or nothing if there are none. A note has eight bits for the
/// number, which several types of a larger node share.
fn types_of(report: &RecentReport, node: NodeId, types: &[String]) -> String {
    let numbers = report.notes.iter().filter_map(|note| note.text.rsplit_once(", type ")?.1.parse().ok());
    let numbers: BTreeSet<usize> = numbers.collect();
    let named: Vec<_> = numbers
        .into_iter()
        .filter_map(|number| {
            let names: Vec<_> =
                types.iter().skip(number).step_by(1 << u8::BITS).map(String::as_str).collect();
            (!names.is_empty()).then(|| format!("{number} = {}", names.join(" or ")))
        })
        .collect();
    if named.is_empty() {
        return String::new();
    }
    format!("types of node {node}: {}\n", named.join(", "))
}

fn counts(counters: &[Counter]) -> serde_json::Map<String, serde_json::Value> {
    counters.iter().map(|counter| (counter.name.clone(), counter.count.into())).collect()
}

fn as_json(report: &StatusReport) -> serde_json::Value {
    let peer = |peer: &PeerReport| {
        serde_json::json!({
            "node": peer.node,
            "epoch": peer.epoch.map(epoch),
            "state": state(peer),
            "down": peer.down.as_ref().map(|down| serde_json::json!({ "cause": down.cause, "why": down.why, "ms_ago": down.ms_ago })),
            "provider": peer.provider,
            "linked": peer.linked,
            "choice": peer.choice,
            "last_failure": peer.last_failure,
            "waits": peer.waits,
            "open_calls": peer.open_calls,
            "credits": peer.credits,
            "counters": counts(&peer.counters),
        })
    };
    serde_json::json!({
        "node": report.node,
        "epoch": epoch(report.epoch),
        "name": report.name,
        "listening": report.listening,
        "types": report.types,
        "oversubscribed": report.contention.is_some(),
        "crowded": report.contention,
        "serves": report.serves,
        "boost": report.boost,
        "engine": report.engine,
        "carries": report.carries,
        "placement": report.placement,
        "trust": report.trust,
        "progress": counts(&report.progress),
        "refused": counts(&report.refused),
        "failed_dials": counts(&report.failed_dials),
        "counters": counts(&report.counters),
        "peers": report.peers.iter().map(peer).collect::<Vec<_>>(),
    })
}

fn as_text(report: &StatusReport, all: bool) -> String {
    use core::fmt::Write as _;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let name = if report.name.is_empty() { String::new() } else { format!(" {:?}", report.name) };
    let _ = writeln!(text, "node {}{name}, epoch {}", report.node, epoch(report.epoch));
    let _ = writeln!(text, "  listens   {}", joined(&report.listening));
    let _ = writeln!(text, "  handles   {}", joined(&report.types));
    let waits = match &report.contention {
        Some(why) => format!("adaptive waits sleep immediately: {why}"),
        None => "as configured".into(),
    };
    let _ = writeln!(text, "  waits     {waits}");
    let _ = writeln!(text, "  serves    {}", report.serves);
    let _ = writeln!(text, "  boost     {}", report.boost);
    let _ = writeln!(text, "  carries   {}", report.carries);
    let _ = writeln!(text, "  placed    {}", report.placement);
    let _ = writeln!(text, "  trust     {}", report.trust);
    let _ = writeln!(text, "  engine    {}", report.engine);
    for counter in report.progress.iter().filter(|counter| all || counter.count != 0) {
        let _ = writeln!(text, "            {:<20}{:>14}", counter.name, counter.count);
    }
    for (title, reasons) in [("refused", &report.refused), ("dials", &report.failed_dials)] {
        for reason in reasons {
            let _ = writeln!(text, "  {title:<9} {:<20}{:>14}", reason.name, reason.count);
        }
    }
    for counter in report.counters.iter().filter(|counter| all || counter.count != 0) {
        let _ = writeln!(text, "  counted   {:<20}{:>14}", counter.name, counter.count);
    }
    let shown = |peer: &&PeerReport| all || peer.linked || peer.node < FIRST_VISITOR.0;
    for peer in report.peers.iter().filter(shown) {
        let [control, bulk] = peer.credits;
        let _ = writeln!(
            text,
            "peer {:<5} {:<9} {:<5} open calls {:<3} credits {control}/{bulk}",
            peer.node,
            state(peer).replace('_', " "),
            peer.provider,
            peer.open_calls
        );
        if let Some(why) = peer.choice.as_ref().filter(|_| peer.linked) {
            let _ = writeln!(text, "  over {why}");
        }
        if let Some(down) = &peer.down {
            let _ = writeln!(text, "  down for {}: {} ({})", ago(down.ms_ago), down.why, down.cause);
        }
        if let Some(why) = &peer.last_failure {
            let _ = writeln!(text, "  not reached: {why}");
        }
        let _ = writeln!(text, "  waits {}", peer.waits);
        for counter in peer.counters.iter().filter(|counter| all || counter.count != 0) {
            let _ = writeln!(text, "  {:<22}{:>14}", counter.name, counter.count);
        }
    }
    text
}

/// Returns `up` if the peer can be called, `paused` if the next call makes a link, `link_lost` if its session may resume, else `down`.
const fn state(peer: &PeerReport) -> &'static str {
    match (peer.linked, peer.epoch) {
        (true, _) => "up",
        (false, Some(_)) if peer.paused => "paused",
        (false, Some(_)) => "link_lost",
        (false, None) => "down",
    }
}

/// Formats an epoch. JSON gets it as text, because many JSON readers lose digits of numbers over 53 bits.
fn epoch(epoch: u64) -> String {
    format!("{epoch:016x}")
}

/// Formats a duration in its two largest units.
fn ago(ms: u64) -> String {
    let seconds = ms / 1_000;
    match (seconds / 3_600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds}.{} s", ms % 1_000 / 100),
        (0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

fn joined(items: &[String]) -> String {
    if items.is_empty() { "-".into() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use pronto::admin::DownReport;

    use super::*;

    /// Shows: operations.recent-types
    #[test]
    fn types_in_notes_are_named_below_them() {
        let note = |text: &str| NoteReport { thread: "pronto-serve".into(), time_us: 5, text: text.into() };
        let handles = |number| note(&format!("handles, peer 2, call 0.1, type {number}"));
        let notes = vec![handles(1), handles(0), note("sleeps"), handles(1), handles(9)];
        let mut types: Vec<_> = ["a.zero", "a.one", "a.two"].map(String::from).into();
        let report = RecentReport { notes };
        assert_eq!(types_of(&report, NodeId(7), &types), "types of node 7: 0 = a.zero, 1 = a.one\n");
        types.resize(257, "a.more".into());
        assert_eq!(
            types_of(&report, NodeId(7), &types),
            "types of node 7: 0 = a.zero or a.more, 1 = a.one, 9 = a.more\n"
        );
        assert_eq!(types_of(&RecentReport { notes: vec![note("sleeps")] }, NodeId(7), &types), "");
    }

    fn report() -> StatusReport {
        let counter = |name: &str, count| Counter { name: name.into(), count };
        let peer = PeerReport {
            node: 2,
            epoch: Some(7),
            provider: "shm".into(),
            linked: true,
            paused: false,
            choice: Some("shm: the same host, by its address".into()),
            down: None,
            last_failure: None,
            waits: "adaptive, as configured; replies take 3 us; polls for 20 us, what a wake-up costs here"
                .into(),
            open_calls: 1,
            credits: [64, 56],
            counters: vec![counter("messages_sent", 3), counter("lost_wake_ups", 0)],
        };
        StatusReport {
            node: 1,
            epoch: 5,
            name: "one".into(),
            listening: vec!["shm:/x".into()],
            types: vec![],
            contention: None,
            serves: "adaptive, as configured; messages come after 12 us; polls for 20 us".into(),
            boost: "slice (module: not loaded)".into(),
            trust: "TLS with certificates: node 1, 90 days left".into(),
            engine: "idle, sources: 2".into(),
            carries: "shm 8192 B, tcp 4096 B (assumed)".into(),
            placement: "on CPUs 8-15: node 1, near eth1".into(),
            progress: vec![counter("sleeps", 9), counter("late", 0)],
            refused: vec![counter("silent", 4)],
            failed_dials: vec![],
            counters: vec![counter("events_missed", 2), counter("key_panics", 0)],
            peers: vec![peer],
        }
    }

    /// Shows: calls.status-waits, calls.eager-limit, operations.tier-status, operations.placement-status, operations.all
    #[test]
    fn zeros_are_shown_on_demand() {
        assert!(!as_text(&report(), false).contains("lost_wake_ups"));
        assert!(as_text(&report(), true).contains("lost_wake_ups"));
        assert!(as_text(&report(), false).contains("peer 2     up"));
        assert!(
            as_text(&report(), false).contains("  waits adaptive, as configured; replies take 3 us; polls")
        );
        assert!(
            as_text(&report(), false)
                .contains("  serves    adaptive, as configured; messages come after 12 us")
        );
        assert!(as_text(&report(), false).contains("  boost     slice (module: not loaded)\n"));
        assert!(as_text(&report(), false).contains("  carries   shm 8192 B, tcp 4096 B (assumed)\n"));
        assert!(as_text(&report(), false).contains("  placed    on CPUs 8-15: node 1, near eth1\n"));
        assert!(as_text(&report(), false).contains("  engine    idle, sources: 2\n            sleeps "));
        assert!(!as_text(&report(), false).contains("late"));
        assert!(as_text(&report(), false).contains("  counted   events_missed "));
        assert!(!as_text(&report(), false).contains("key_panics"));
    }

    /// Shows: operations.waits, operations.json-oversubscribed
    #[test]
    fn reason_for_immediate_sleep_is_shown() {
        let mut report = report();
        assert!(as_text(&report, false).contains("  waits     as configured\n"));
        report.contention = Some("other threads needed the CPUs in 3 of 4 polling trials".into());
        assert!(
            as_text(&report, false).contains("  waits     adaptive waits sleep immediately: other threads")
        );
        assert_eq!(as_json(&report)["oversubscribed"], true);
    }

    /// Shows: calls.last-failure, operations.down-line, operations.not-reached, operations.json-state, operations.json-down
    #[test]
    fn reason_for_a_missing_peer_is_shown() {
        let mut report = report();
        let peer = &mut report.peers[0];
        (peer.linked, peer.epoch) = (false, None);
        let (cause, why) = ("Died".into(), "its process ended".into());
        peer.down = Some(DownReport { cause, why, ms_ago: 83_000 });
        peer.last_failure = Some("shm:/y: nobody listens at this address".into());
        let text = as_text(&report, false);
        assert!(text.contains("  down for 1 min 23 s: its process ended (Died)\n"), "{text}");
        assert!(!text.contains("over shm"), "it has no link now: {text}");
        assert_eq!(as_json(&report)["peers"][0]["state"], "down");
        assert_eq!(as_json(&report)["peers"][0]["down"]["cause"], "Died");
        assert!(text.contains("  not reached: shm:/y: nobody listens at this address\n"));
        assert!(
            text.contains("  waits adaptive, as configured; "),
            "the policy is known before the peer is up: {text}"
        );
        assert_eq!(as_json(&report)["peers"][0]["last_failure"], "shm:/y: nobody listens at this address");
    }

    /// Shows: operations.paused, operations.json-state
    #[test]
    fn a_paused_peer_is_shown_as_one() {
        let mut report = report();
        (report.peers[0].linked, report.peers[0].paused) = (false, true);
        assert!(as_text(&report, false).contains(" paused "), "{}", as_text(&report, false));
        assert_eq!(as_json(&report)["peers"][0]["state"], "paused");
        report.peers[0].paused = false;
        assert_eq!(as_json(&report)["peers"][0]["state"], "link_lost");
    }

    #[test]
    fn visitors_without_a_link_are_shown_on_demand() {
        let mut report = report();
        report.peers[0].node = FIRST_VISITOR.0 + 5;
        assert!(as_text(&report, false).contains("peer 64005"), "it is linked");
        report.peers[0].linked = false;
        assert!(!as_text(&report, false).contains("peer 64005"));
        assert!(as_text(&report, true).contains("peer 64005"));
    }

    /// Shows: operations.json-epoch, operations.json-counters, operations.json-node, operations.json-state
    #[test]
    fn json_has_every_peer() {
        let json = as_json(&report());
        assert_eq!(json["peers"][0]["counters"]["messages_sent"], 3);
        assert_eq!((&json["peers"][0]["linked"], &json["peers"][0]["state"]), (&true.into(), &"up".into()));
        assert_eq!(
            (&json["epoch"], &json["peers"][0]["epoch"]),
            (&format!("{:016x}", 5).into(), &format!("{:016x}", 7).into())
        );
        assert_eq!(json["refused"]["silent"], 4);
        assert_eq!(json["counters"]["events_missed"], 2);
    }
}
