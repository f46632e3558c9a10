//! `pronto expedite wakeups`: prints how long threads wait for a CPU after a wake-up, as the kernel measures it.

use core::fmt::Write as _;
use core::time::Duration;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pronto_bpf::wakeups::{Recorder, Report, Times};
use serde_json::{Value, json};

use super::{messages, program_arguments};
use crate::commands::signals::{self, Signals};
use crate::commands::{CLEAR, Subcommand, with_intervals, write_stdout};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "wakeups", describe, run };

/// Where `make -C kernel/wakeups install` places the BPF program.
const OBJECT: &str = "/usr/local/lib/pronto/pronto_wakeups.bpf.o";

/// Columns of the longest bar.
const WIDTH: usize = 40;

fn describe() -> Command {
    with_intervals(Command::new("wakeups"))
        .about("Prints how long threads wait for a CPU after a wake-up, with and without boost, until SIGINT")
        .after_help(
            "All numbers count from the start of the command. A BPF program at the kernel's tracepoints sched_wakeup and sched_switch\n\
             measures, so that neither the observed program nor the module takes part. Needs root, or CAP_BPF and CAP_PERFMON;\n\
             `make -C kernel/wakeups install` builds the program, which needs no module. Threads that got their CPU in a real-time class\n\
             were boosted by the module, unless they are real-time threads anyway. A boost by the BPF scheduler (scx) changes no class,\n\
             so it counts as ordinary. P50, P90 and P99 are the ends of steps, four for each power of two; the bars are for whole powers.\n\n\
             --json prints one line per interval: seconds, missed (wake-ups that were not recorded), and ordinary and real_time, each with\n\
             count, p50_ns, p90_ns, p99_ns (null without wake-ups), longest_ns, and histogram: pairs of the end of a step in ns and its\n\
             count.\n\n\
             Examples:\n  pronto expedite wakeups --pid $(pgrep -o redis-server)\n  pronto expedite wakeups --interval 10 --count 1 --json",
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .value_name("PID")
                .value_parser(value_parser!(u32).range(1..))
                .help("Process whose threads are recorded, by its number in the first PID namespace [default: all processes]"),
        )
        .args(program_arguments(OBJECT, "BPF program, as `make -C kernel/wakeups` builds it"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object per interval"))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let interval = *options.get_one::<u32>("interval").expect("it has a default");
    let mut left = options.get_one::<u32>("count").copied();
    let process = options.get_one::<u32>("pid").copied();
    process.map_or(Ok(()), check)?;
    let file: &PathBuf = options.get_one("object").expect("it has a default");
    let mut signals = Signals::block(signals::ENDS)?;
    let recorder = Recorder::start(file, process, messages(options))?;
    let (begun, clears) = (now(), std::io::stdout().is_terminal());
    loop {
        let is_interrupted = signals.next_within(Duration::from_secs(interval.into()))?.is_some();
        let ended = process.filter(|pid| check(*pid).is_err());
        let (report, passed) = (recorder.report(), begun.elapsed());
        write_stdout(&if options.get_flag("json") {
            format!("{}\n", as_json(&report, passed))
        } else {
            format!("{}{}\n", if clears { CLEAR } else { "" }, text(&report, passed))
        })?;
        left = left.map(|left| left - 1);
        if let Some(pid) = ended {
            super::report(&format!("process {pid} has ended"));
        }
        if is_interrupted || ended.is_some() || left == Some(0) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Checks that this is the number of a process.
fn check(pid: u32) -> anyhow::Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let process = field("Tgid:")
        .with_context(|| format!("no process has the number {pid}: pgrep finds the number of a program"))?;
    ensure!(process == pid.to_string(), "{pid} is a thread of process {process}: give the process");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the time of a recording is real time")]
fn now() -> Instant {
    Instant::now()
}

fn rows(report: &Report) -> [(&'static str, &Times); 2] {
    [("real time", &report.real_time), ("ordinary", &report.ordinary)]
}

fn text(report: &Report, passed: Duration) -> String {
    let mut text = format!(
        "{:.1} s since the start\n\n{:20} {:>10} {:>9} {:>9} {:>9} {:>9}\n",
        passed.as_secs_f64(),
        "CLASS ON THE CPU",
        "WAKE-UPS",
        "P50",
        "P90",
        "P99",
        "LONGEST"
    );
    for (name, times) in rows(report) {
        let [half, most, nearly_all] = [50, 90, 99].map(|percent| duration(times.quantile(percent)));
        let (count, longest) = (times.count(), duration(Some(times.longest()).filter(|_| times.count() > 0)));
        let _ = writeln!(text, "{name:20} {count:>10} {half:>9} {most:>9} {nearly_all:>9} {longest:>9}");
    }
    if report.missed > 0 {
        let _ = writeln!(text, "{} wake-ups were not recorded: too many threads wait", report.missed);
    }
    for (name, times) in rows(report) {
        text.push_str(&histogram(name, times));
    }
    text
}

/// Returns a bar for each power of two from the first to the last with a wake-up.
fn histogram(name: &str, times: &Times) -> String {
    let parts: Vec<_> = times.parts().collect();
    let powers: Vec<(Duration, u64)> = parts
        .chunks(4)
        .filter_map(|four| Some((four.last()?.0, four.iter().map(|(_, count)| count).sum())))
        .collect();
    let first = powers.iter().position(|(_, count)| *count > 0);
    let last = powers.iter().rposition(|(_, count)| *count > 0);
    let (Some(first), Some(last)) = (first, last) else { return String::new() };
    let most = powers.iter().map(|(_, count)| *count).max().unwrap_or(1);
    let mut text = format!("\n{name}: wake-ups by the time until the thread ran\n");
    for (end, count) in &powers[first..=last] {
        let columns = usize::try_from(u128::from(*count) * WIDTH as u128 / u128::from(most)).unwrap_or(WIDTH);
        let bar = if *count > 0 && columns == 0 { ".".to_owned() } else { "#".repeat(columns) };
        let _ = writeln!(text, "  below {:>9} {count:>10} {bar}", duration(Some(*end)));
    }
    text
}

/// Returns a duration with three digits and its unit.
fn duration(time: Option<Duration>) -> String {
    let Some(time) = time else { return "-".to_owned() };
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        0.0..1e-6 => (seconds * 1e9, "ns"),
        1e-6..1e-3 => (seconds * 1e6, "us"),
        1e-3..1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

fn as_json(report: &Report, passed: Duration) -> Value {
    let times = |times: &Times| {
        let nanos = |percent| times.quantile(percent).map(|time| time.as_nanos());
        let filled = times.parts().filter(|(_, count)| *count > 0);
        json!({
            "count": times.count(),
            "p50_ns": nanos(50),
            "p90_ns": nanos(90),
            "p99_ns": nanos(99),
            "longest_ns": times.longest().as_nanos(),
            "histogram": filled.map(|(end, count)| json!([end.as_nanos(), count])).collect::<Vec<_>>(),
        })
    };
    json!({
        "seconds": passed.as_secs_f64(),
        "missed": report.missed,
        "ordinary": times(&report.ordinary),
        "real_time": times(&report.real_time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        let shown =
            [5, 1_234, 56_780, 345_000_000, 2_000_000_000].map(|ns| duration(Some(Duration::from_nanos(ns))));
        assert_eq!(shown, ["5.00 ns", "1.23 us", "56.8 us", "345 ms", "2.00 s"]);
        assert_eq!(duration(None), "-");
    }
}
