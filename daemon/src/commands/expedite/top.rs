//! `pronto expedite top`: prints how often the module boosts, and whom.

use core::fmt::Write as _;
use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pronto_expedite::{Counts, Device, ThreadState, Totals};
use serde_json::{Value, json};

use crate::commands::signals::{self, Signals};
use crate::commands::{Subcommand, write_stdout};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "top", describe, run };

/// Number of threads in the table.
const ROWS: usize = 20;

/// Moves the cursor to the top left corner, and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

fn describe() -> Command {
    Command::new("top")
        .about("Prints how often the module boosts, and which threads, until SIGINT")
        .after_help(
            "Rates are for the last interval. `no boost` lists the arrivals that led to none, by reason: the thread ran, was boosted or\n\
             real-time already; a CPU was idle; it must run after others (behind); it waited for a lock with priority inheritance\n\
             (locked); a budget was spent. Threads of other users are shown to root only.\n\n\
             Examples:\n  pronto expedite top\n  pronto expedite top --interval 5 --count 1 --json",
        )
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("S")
                .value_parser(value_parser!(u32).range(1..=3600))
                .default_value("1")
                .help("Seconds between two tables"),
        )
        .arg(
            Arg::new("count")
                .long("count")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .help("End after N tables"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object per interval on standard output"))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let interval =
        Duration::from_secs((*options.get_one::<u32>("interval").expect("it has a default")).into());
    let mut left = options.get_one::<u32>("count").copied();
    let (as_json, clears) = (options.get_flag("json"), std::io::stdout().is_terminal());
    let device = Device::open()
        .context("cannot read the counters (kernel/expedite/README.md describes how to load the module)")?;
    let mut signals = Signals::block(signals::ENDS)?;
    let mut before = Seen::now(&device)?;
    while left != Some(0) {
        if signals.next_within(interval)?.is_some() {
            break;
        }
        let after = Seen::now(&device)?;
        let change = Change::between(&before, &after);
        if as_json {
            write_stdout(&format!("{}\n", change.json()))?;
        } else {
            write_stdout(&format!("{}{}", if clears { CLEAR } else { "" }, change.text()))?;
        }
        before = after;
        left = left.map(|left| left - 1);
    }
    Ok(ExitCode::SUCCESS)
}

/// The counters at one time.
struct Seen {
    at: Instant,
    totals: Totals,
    threads: BTreeMap<i32, Thread>,
}

#[derive(Debug, Clone, Default)]
struct Thread {
    pid: u32,
    name: String,
    state: ThreadState,
}

impl Seen {
    fn now(device: &Device) -> anyhow::Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "rates are in real time")]
        let at = Instant::now();
        Ok(Self { at, totals: device.totals()?, threads: threads(device) })
    }
}

/// Returns the threads that the module knows, as far as this user may see them.
fn threads(device: &Device) -> BTreeMap<i32, Thread> {
    let numbers = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).collect::<Vec<_>>()
    };
    let of_process = |pid: u32| {
        let tids = numbers(&format!("/proc/{pid}/task")).into_iter();
        tids.filter_map(move |tid| {
            let state = device.query(tid.cast_signed()).ok()?;
            let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
            Some((tid.cast_signed(), Thread { pid, name: printable(&name), state }))
        })
    };
    numbers("/proc").into_iter().flat_map(of_process).collect()
}

/// Returns the name of a thread without characters that control a terminal: its owner has chosen it.
fn printable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    name.trim_end().chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

/// The counts of one interval.
struct Change {
    seconds: f64,
    totals: Totals,
    counts: Counts,
    /// By arrivals, most first.
    threads: Vec<(i32, Thread, Counts)>,
}

impl Change {
    fn between(before: &Seen, after: &Seen) -> Self {
        let mut threads: Vec<_> = after
            .threads
            .iter()
            .map(|(tid, thread)| {
                let earlier = before.threads.get(tid).map(|thread| thread.state.counts).unwrap_or_default();
                // The module forgets a thread without arrivals, and counts from zero when it sees it again.
                let was_forgotten = earlier.calls > thread.state.counts.calls;
                let earlier = if was_forgotten { Counts::default() } else { earlier };
                (*tid, thread.clone(), thread.state.counts.since(&earlier))
            })
            .collect();
        threads.sort_by_key(|(tid, _, counts)| (core::cmp::Reverse(counts.calls), *tid));
        Self {
            seconds: after.at.duration_since(before.at).as_secs_f64(),
            totals: after.totals,
            counts: after.totals.counts.since(&before.totals.counts),
            threads,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate to read")]
    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    fn percent(&self, time: Duration) -> f64 {
        100.0 * time.as_secs_f64() / self.seconds
    }

    fn text(&self) -> String {
        let Totals { flags, threads, accounts, .. } = self.totals;
        let counts = &self.counts;
        let mut text = format!(
            "flags {flags}, threads {threads}, accounts {accounts}\n\
             arrivals {:.0}/s, boosts {:.0}/s (direct {:.0}, worker {:.0}), boosted {:.2} % of a CPU, charged for sleep {:.2} %\n",
            self.rate(counts.calls),
            self.rate(counts.boosts()),
            self.rate(counts.direct),
            self.rate(counts.worker),
            self.percent(counts.boosted_time),
            self.percent(counts.slept_time),
        );
        let reasons = reasons(counts).filter(|(_, count)| *count > 0);
        let reasons: Vec<_> =
            reasons.map(|(name, count)| format!("{name} {:.0}/s", self.rate(count))).collect();
        let _ = writeln!(
            text,
            "no boost: {}",
            if reasons.is_empty() { "none".to_owned() } else { reasons.join(", ") }
        );
        let _ = writeln!(
            text,
            "\n{:>8} {:>8}  {:15} {:>10} {:>9} {:>9} {:>9} {:>8}",
            "PID", "TID", "COMMAND", "ARRIVALS/s", "BOOSTS/s", "DENIED/s", "BOOSTED %", "LEFT us"
        );
        for (tid, thread, counts) in self.threads.iter().take(ROWS) {
            let _ = writeln!(
                text,
                "{:>8} {tid:>8}  {:15} {:>10.0} {:>9.0} {:>9.0} {:>9.2} {:>8}",
                thread.pid,
                thread.name,
                self.rate(counts.calls),
                self.rate(counts.boosts()),
                self.rate(counts.denied()),
                self.percent(counts.boosted_time),
                thread.state.left.as_micros(),
            );
        }
        if self.threads.len() > ROWS {
            let _ = writeln!(text, "and {} more threads", self.threads.len() - ROWS);
        }
        text
    }

    fn json(&self) -> Value {
        let threads = self.threads.iter().map(|(tid, thread, counts)| {
            json!({ "pid": thread.pid, "tid": tid, "name": thread.name, "counts": as_json(counts), "left_ns": ns(thread.state.left) })
        });
        json!({
            "seconds": self.seconds,
            "flags": self.totals.flags,
            "threads_known": self.totals.threads,
            "accounts": self.totals.accounts,
            "counts": as_json(&self.counts),
            "threads": threads.collect::<Vec<_>>(),
        })
    }
}

/// Returns the reasons for no boost, and how often each was met.
fn reasons(counts: &Counts) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("running", counts.running),
        ("boosted", counts.boosted),
        ("realtime", counts.realtime),
        ("idle", counts.idle),
        ("behind", counts.behind),
        ("locked", counts.locked),
        ("budget of the thread", counts.denied_thread),
        ("budget of the user", counts.denied_user),
        ("budget of the CPU", counts.denied_cpu),
        ("budget of the flag", counts.denied_flag),
        ("budget of the group", counts.denied_group),
        ("memory", counts.denied_memory),
    ]
    .into_iter()
}

fn as_json(counts: &Counts) -> Value {
    let values = counts.by_name().map(|(name, value)| (name.to_owned(), Value::from(value)));
    Value::Object(values.into_iter().collect())
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(calls: u64, at: Instant) -> Seen {
        let mut state = ThreadState::default();
        state.counts.calls = calls;
        state.counts.direct = calls / 2;
        state.counts.denied_user = calls - calls / 2;
        state.counts.boosted_time = Duration::from_millis(calls);
        let mut totals = Totals::default();
        totals.counts = state.counts;
        totals.flags = 3;
        Seen { at, totals, threads: [(7, Thread { pid: 5, name: "handler".into(), state })].into() }
    }

    fn change() -> Change {
        #[expect(clippy::disallowed_methods, reason = "any time will do")]
        let start = Instant::now();
        Change::between(&seen(10, start), &seen(30, start + Duration::from_secs(2)))
    }

    #[test]
    fn rates_are_those_of_the_interval() {
        let text = change().text();
        assert!(text.contains("flags 3, "), "{text}");
        assert!(
            text.contains("arrivals 10/s, boosts 5/s (direct 5, worker 0), boosted 1.00 % of a CPU"),
            "{text}"
        );
        assert!(text.contains("no boost: budget of the user 5/s\n"), "{text}");
        let row = text.lines().last().unwrap_or_default();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["5", "7", "handler", "10", "5", "5", "1.00", "0"]
        );
    }

    #[test]
    fn the_json_has_the_counts_of_the_interval() {
        let json = change().json();
        assert_eq!((&json["counts"]["calls"], &json["flags"]), (&json!(20), &json!(3)));
        assert_eq!(json["threads"][0]["counts"]["denied_user"], json!(10));
        assert_eq!(json["threads"][0]["tid"], json!(7));
    }

    #[test]
    fn names_do_not_control_the_terminal() {
        assert_eq!(printable(b"\x1b[2Jcat\xff\n"), "?[2Jcat\u{fffd}");
    }

    #[test]
    fn a_thread_that_was_not_known_before_counts_from_zero() {
        #[expect(clippy::disallowed_methods, reason = "any time will do")]
        let start = Instant::now();
        let before = Seen { threads: BTreeMap::new(), ..seen(0, start) };
        let change = Change::between(&before, &seen(4, start + Duration::from_secs(1)));
        assert_eq!(change.threads[0].2.calls, 4);
        let change = Change::between(&seen(9, start), &seen(4, start + Duration::from_secs(5)));
        assert_eq!(change.threads[0].2.calls, 4, "it was forgotten in between");
    }
}
